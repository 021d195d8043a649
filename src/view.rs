//! Views: folders of files named by metadata, so that loaders find samples the way they expect.
//!
//! This module knows what a view is called, which samples it shows and what it calls them. It holds
//! no sample and reads no payload: `crate::vfs` builds the folders. docs/views.md is the manual.

mod auto;
mod bound;
mod component;
mod decimal;
mod escape;
mod filter;
mod render;
mod series;
mod sniff;
mod spec;
mod template;
mod union;

pub use auto::{MAX_DISTINCT, PATH, automatic};
pub use bound::{OnCollision, Subject, View};
pub use component::{MARK, shorten, unmarked};
pub use decimal::Decimal;
pub use escape::{NAME_MAX, escape_component, unescape_component};
pub use filter::Filter;
pub use render::{Extensions, MAX_DEPTH, NameFault, Scope};
pub use series::NameSeries;
pub use sniff::{
    DEEP_LEN, FIRST_LEN, MAX_EXTENSION_LEN, UNKNOWN, extension_in, extension_of, is_container,
    is_media,
};
pub use spec::ViewSpec;
pub use template::{SyntaxError, Template};
pub use union::{Union, UnionColumn};
