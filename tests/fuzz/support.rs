//! What the targets share: the caches of the tests, and what counts as a panic.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the targets use a part of what the tests do"
)]
#[path = "../common"]
pub mod common {
    pub mod fixture;
    pub mod json;
    mod reading;
    pub mod test_cache;

    pub use reading::{Delivered, deliver};
}

use std::panic::{Location, set_hook, take_hook};

use datasetrt::format::metadata::{Field, FieldKind};

/// The decoder of tables panics on some damage, behind the wall of `format::metadata`, and so may the
/// tests' own way to damage a cache that is damaged already; libFuzzer would end the run at once. Every
/// other panic still does.
pub fn let_the_decoder_panic() {
    let end = take_hook();
    set_hook(Box::new(move |panic| {
        let harmless = ["/arrow-", "common/test_cache.rs", "common/json.rs"];
        let inside = |place: &Location<'_>| harmless.iter().any(|part| place.file().contains(part));
        if !panic.location().is_some_and(inside) {
            end(panic);
        }
    }));
}

/// Schemas to read tables by; the first byte of an input chooses one.
#[must_use]
pub fn schema(choice: u8) -> Vec<Field> {
    let fields: &[(&str, FieldKind)] = match choice % 4 {
        0 => &[
            ("label", FieldKind::Int),
            ("name", FieldKind::String),
            ("score", FieldKind::Float),
        ],
        1 => &[("n", FieldKind::Int)],
        2 => &[("flag", FieldKind::Bool), ("text", FieldKind::String)],
        _ => &[],
    };
    let field = |&(name, kind): &(&str, FieldKind)| Field {
        name: name.to_owned(),
        kind,
    };
    fields.iter().map(field).collect()
}
