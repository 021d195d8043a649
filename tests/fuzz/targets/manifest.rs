//! A manifest: read, and if it is of format 2 migrated.
#![no_main]

use datasetrt::format::manifest::{FormatVersion, Manifest};
use datasetrt::format::manifest_edit::to_v3;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let edited = to_v3(data, 12);
    let Ok(manifest) = Manifest::parse(data) else {
        return;
    };
    // What is written of it is the same manifest.
    let again = Manifest::parse(manifest.to_text().as_bytes()).expect("our own text");
    assert_eq!(again, manifest);
    if manifest.version != FormatVersion::V2 {
        assert!(edited.is_err(), "only format 2 is migrated");
        return;
    }
    // The edit refuses texts that grow too long, and keys that are there twice.
    let Ok(edited) = edited else {
        return;
    };
    let edited = Manifest::parse(&edited).expect("a migrated manifest");
    let expected = Manifest {
        version: FormatVersion::V3,
        cache_id: Some(12),
        ..manifest
    };
    assert_eq!(edited, expected);
});
