//! File name extensions from the first bytes of payloads. The only user of infer.

use std::panic::catch_unwind;

/// What a payload of no known type gets.
pub const UNKNOWN: &str = "bin";
/// Bytes that tell nearly all types apart.
pub const FIRST_LEN: usize = 512;
/// Bytes that tell what a ZIP archive is (an office document, say).
pub const DEEP_LEN: usize = 8 << 10;
/// No extension is longer, in bytes.
pub const MAX_EXTENSION_LEN: usize = 15;

/// Types that loaders ask for by name and that the library does not know.
const MORE: [(&[u8], &str); 4] = [
    (b"\x93NUMPY", "npy"),
    (b"\x89HDF\r\n\x1a\n", "h5"),
    (b"ARROW1\0\0", "arrow"),
    (b"PAR1", "parquet"),
];

/// The extension, without the dot, of a payload that starts with `first`.
#[must_use]
pub fn extension_of(first: &[u8]) -> &'static str {
    let more = MORE.iter().find(|(magic, _)| first.starts_with(magic));
    if let Some((_, extension)) = more {
        return extension;
    }
    // A foreign parser of foreign bytes: should it panic, the type is unknown.
    let found = catch_unwind(|| infer::get(first)).ok().flatten();
    found
        .map(|found| found.extension())
        .filter(|extension| is_plain(extension))
        .unwrap_or(UNKNOWN)
}

/// Whether more than the first [`FIRST_LEN`] bytes may tell a more exact type.
#[must_use]
pub fn is_container(extension: &str) -> bool {
    extension == "zip"
}

fn is_plain(extension: &str) -> bool {
    (1..=MAX_EXTENSION_LEN).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_find_their_endings() {
        let mut tar = [0; FIRST_LEN];
        tar[257..262].copy_from_slice(b"ustar");
        for (first, extension) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], "png"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "jpg"),
            (b"GIF89a\x01\0", "gif"),
            (b"RIFF\x24\0\0\0WAVEfmt ", "wav"),
            (b"RIFF\x24\0\0\0WEBPVP8 ", "webp"),
            (b"fLaC\0\0\0\x22", "flac"),
            (b"OggS\0\x02", "ogg"),
            (b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41", "mp4"),
            (b"\x93NUMPY\x01\0v\0{'descr'", "npy"),
            (b"\x89HDF\r\n\x1a\n\0", "h5"),
            (b"SQLite format 3\0", "sqlite"),
            (&tar, "tar"),
            (b"", "bin"),
            (b"no type at all", "bin"),
        ] {
            assert_eq!(extension_of(first), extension, "{first:?}");
        }
    }

    #[test]
    fn every_start_has_a_plain_extension() {
        for byte in 0..=255_u8 {
            for len in 0..64 {
                assert!(is_plain(extension_of(&vec![byte; len])));
            }
        }
    }
}
