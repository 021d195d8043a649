//! A stored lz4 payload: four bytes of length and a block.
#![no_main]

use datasetrt::format::record::{
    Compression, LZ4_PREFIX_LEN, decode_lz4, decoded_len, encode_record, lz4_start,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let prefix = data.get(..4).unwrap_or(data);
    if let Ok(len) = decoded_len(Compression::Lz4, prefix, data.len() as u64, 1 << 20) {
        let len = usize::try_from(len).expect("a length in memory");
        let block = &data[usize::try_from(LZ4_PREFIX_LEN).expect("4")..];
        assert!(len <= 255 * block.len(), "{len} bytes from {}", block.len());
        let mut out = vec![0xA5; len];
        if decode_lz4(block, &mut out).is_ok() {
            // Every other way to decode agrees.
            let other =
                lz4_flex::block::decompress_size_prepended(data).expect("a block that decodes");
            assert_eq!(other, out);
            let mut start = vec![0xA5; len / 2];
            let n = lz4_start(block, &mut start);
            assert_eq!(start[..n], out[..n]);
        }
    }
    let mut record = Vec::new();
    encode_record(b"{}", data, Compression::Lz4, &mut record).expect("a record of any payload");
    let stored = &record[10..];
    let len = decoded_len(
        Compression::Lz4,
        &stored[..4],
        stored.len() as u64,
        data.len() as u64,
    );
    assert_eq!(len.expect("our own length"), data.len() as u64);
    let mut out = vec![0xA5; data.len()];
    decode_lz4(&stored[4..], &mut out).expect("our own block");
    assert_eq!(out, data);
});
