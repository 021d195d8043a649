//! What is written to .control/migrate.
#![no_main]

use datasetrt::migrate::parse_control_word;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let white = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r');
    let word: Vec<u8> = data.iter().filter(|byte| !white(byte)).copied().collect();
    match parse_control_word(data) {
        Ok(version) => assert!(version == 3 && word == b"3"),
        Err(_) => assert!(word != b"3" || data.len() > 64, "{data:?}"),
    }
});
