//! File name extensions: from the stored path, else from the first bytes of payloads. The only user of
//! infer.

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

/// Types that are text, which all others are not.
const OF_TEXT: [&str; 7] = ["html", "xml", "sh", "pem", "ps", "rtf", "pdf"];

/// Endings of pictures, sound and video, for which loaders look for a `metadata.jsonl`.
const MEDIA: [&str; 55] = [
    "3gp", "aac", "aif", "aifc", "aiff", "amr", "au", "avi", "avif", "bmp", "caf", "dds", "dib",
    "flac", "flv", "gif", "heic", "heif", "ico", "j2k", "jfif", "jp2", "jpe", "jpeg", "jpg", "jpx",
    "jxl", "m2ts", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "oga", "ogg", "ogv",
    "opus", "pbm", "pcx", "pgm", "png", "pnm", "ppm", "psd", "tga", "tif", "tiff", "wav", "webm",
    "webp", "wma", "wmv",
];

/// Whether files that end so are pictures, sound or video.
#[must_use]
pub fn is_media(extension: &str) -> bool {
    let extension = extension.to_ascii_lowercase();
    MEDIA.binary_search(&extension.as_str()).is_ok()
}

/// The extension that a stored path ends in, without the dot: letters and digits, not digits alone.
#[must_use]
pub fn extension_in(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    let has_letter = extension.bytes().any(|byte| byte.is_ascii_alphabetic());
    (!stem.is_empty() && has_letter && is_plain(extension)).then_some(extension)
}

/// The extension, without the dot, of a payload that starts with `first`.
#[must_use]
pub fn extension_of(first: &[u8]) -> &'static str {
    let more = MORE.iter().find(|(magic, _)| first.starts_with(magic));
    if let Some((_, extension)) = more {
        return extension;
    }
    // It starts with the name of a file, which may look like anything.
    if first
        .get(257..)
        .is_some_and(|rest| rest.starts_with(b"ustar"))
    {
        return "tar";
    }
    if let Some(extension) = netpbm(first) {
        return extension;
    }
    // A foreign parser of foreign bytes: should it panic, the type is unknown.
    let found = catch_unwind(|| infer::get(first)).ok().flatten();
    found
        .map(|found| found.extension())
        .filter(|extension| is_plain(extension) && is_so(first, extension))
        .map(|extension| match extension {
            "zip" if holds_arrays(first) => "npz",
            extension => extension,
        })
        .unwrap_or(UNKNOWN)
}

/// Whether a payload that starts with `first` is of the type that two or three of its bytes suggest.
fn is_so(first: &[u8], extension: &str) -> bool {
    if is_text(first) && !OF_TEXT.contains(&extension) {
        return false;
    }
    let byte = |at: usize| first.get(at).copied().unwrap_or(0);
    let word = |at: usize| {
        let bytes = first.get(at..at.saturating_add(4));
        bytes.map_or(0, |bytes| {
            bytes
                .iter()
                .rev()
                .fold(0, |sum, b| sum << 8 | u32::from(*b))
        })
    };
    match extension {
        "aac" => (byte(2) >> 2) & 15 < 13,
        "bc" => first.starts_with(b"BC\xC0\xDE"),
        "bmp" => matches!(word(14), 12 | 16 | 40 | 52 | 56 | 64 | 108 | 124),
        "bz2" => byte(3).is_ascii_digit() && matches!(byte(4), 0x31 | 0x17),
        "der" => byte(4) == 0x30,
        "exe" | "dll" => {
            let header = usize::try_from(word(60)).unwrap_or(0);
            match first.get(header..) {
                Some(rest) if header >= 64 => {
                    rest.len() < 2 || matches!(rest, [b'P' | b'N' | b'L', ..])
                }
                _ => (FIRST_LEN..4096).contains(&header),
            }
        }
        "gif" => first.starts_with(b"GIF87a") || first.starts_with(b"GIF89a"),
        "gz" => byte(3) & 0xE0 == 0,
        "ico" => byte(5) == 0 && byte(4) > 0 && byte(9) == 0,
        "jpg" => (0xC0..0xFF).contains(&byte(3)),
        "jxr" => byte(3) <= 1,
        "mp3" if first.starts_with(b"ID3") => (2..=4).contains(&byte(3)),
        "mp3" => byte(2) >> 4 < 15 && (byte(2) >> 2) & 3 < 3,
        // Two bytes that any file may start with.
        "obj" => false,
        "ogg" | "opus" => byte(4) == 0,
        "pdf" => first.starts_with(b"%PDF-"),
        "png" => first.starts_with(b"\x89PNG\r\n\x1a\n"),
        "ps" => first.starts_with(b"%!PS"),
        "sh" => first.starts_with(b"#!/") || first.starts_with(b"#! /"),
        "sqlite" => first.starts_with(b"SQLite format 3\0"),
        "swf" => (1..64).contains(&byte(3)),
        "webp" => first.starts_with(b"RIFF"),
        "Z" => byte(2) & 0x60 == 0 && (9..=16).contains(&(byte(2) & 0x1F)),
        _ => true,
    }
}

/// Whether these are the first bytes of a text.
fn is_text(first: &[u8]) -> bool {
    let known = match std::str::from_utf8(first) {
        Ok(_) => first,
        // The end may be within a character.
        Err(error) if error.error_len().is_none() => {
            first.get(..error.valid_up_to()).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let is_control = |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace();
    !known.is_empty() && !known.iter().any(is_control)
}

/// Whether a ZIP archive starts with an array of numpy.
fn holds_arrays(first: &[u8]) -> bool {
    let len = match first.get(26..28) {
        Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
        _ => return false,
    };
    let name = first.get(30..30_usize.saturating_add(len));
    first.starts_with(b"PK\x03\x04") && name.is_some_and(|name| name.ends_with(b".npy"))
}

/// The extension of a picture of the netpbm family.
fn netpbm(first: &[u8]) -> Option<&'static str> {
    let [b'P', kind, space, next, ..] = first else {
        return None;
    };
    if !space.is_ascii_whitespace() || !(next.is_ascii_digit() || *next == b'#') {
        return None;
    }
    match kind {
        b'1' | b'4' => Some("pbm"),
        b'2' | b'5' => Some("pgm"),
        b'3' | b'6' => Some("ppm"),
        _ => None,
    }
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
    fn text_and_two_bytes_by_chance_are_no_type() {
        let mut tar = b"BMW/list.txt".to_vec();
        tar.resize(257, 0);
        tar.extend_from_slice(b"ustar\x0000");
        assert_eq!(extension_of(&tar), "tar");
        let mut bmp = b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
        bmp.resize(54, 0);
        assert_eq!(extension_of(&bmp), "bmp");
        for text in [
            "BMW 320d, 2019",
            "MZ is where it starts",
            "GIFs of cats",
            "BZhang",
            "ID3 tags",
            "PK",
            "%! no PostScript",
            "#! a comment",
            "SQLinjection",
            "CWS and FWS",
            "RIFFRAFF WEBP",
            "Rar!",
            "a text about %PDF files",
            "fLaC",
            "OggS",
            "MThd",
            "8BPS",
            "LZIP",
            "BC 44",
            "II*\0".trim_end_matches('\0'),
            "M4A is a format of audio",
            "caf\u{e9} BM",
        ] {
            assert_eq!(extension_of(text.as_bytes()), "bin", "{text:?}");
            let long = text.repeat(300);
            assert_eq!(
                extension_of(long.as_bytes().get(..511).unwrap()),
                "bin",
                "{text:?}"
            );
        }
        for bytes in [
            &b"BM\xff\xfe random bytes \0 and more of them"[..],
            b"MZ\0\x01",
            b"\x4c\x01\x02\x00\x00",
            b"\xff\xd8\xff\x00\x00",
            b"\xff\xfb\xff\xff",
            b"\x30\x82\x00\x00\x00",
            b"\0\x02\0\0\0\0\0\0",
        ] {
            assert_eq!(extension_of(bytes), "bin", "{bytes:?}");
        }
        for (first, extension) in [
            (&b"P6\n640 480\n255\n\x00\x01"[..], "ppm"),
            (b"P5 #x", "pgm"),
            (b"%PDF-1.7\n", "pdf"),
            (b"#!/bin/sh\n", "sh"),
            (b"<?xml version=\"1.0\"?>", "xml"),
            (b"BZh91AY&SY\0\0", "bz2"),
            (b"\x1f\x8b\x08\x00\0\0", "gz"),
            (b"ID3\x03\x00\0", "mp3"),
        ] {
            assert_eq!(extension_of(first), extension, "{first:?}");
        }
        let mut arrays = b"PK\x03\x04".to_vec();
        arrays.resize(26, 0);
        arrays.extend_from_slice(b"\x05\0\0\0a.npy\x93NUMPY");
        assert_eq!(extension_of(&arrays), "npz");
    }

    #[test]
    fn a_stored_path_has_its_ending() {
        for (path, ending) in [
            ("a/b.ppm", Some("ppm")),
            ("x.npz", Some("npz")),
            ("x.tar.gz", Some("gz")),
            ("X.JPG", Some("JPG")),
            ("a.7z", Some("7z")),
            ("a.b/c", None),
            (".zarray", None),
            ("a/.hidden", None),
            ("frame.0001", None),
            ("a.", None),
            ("Mr. Smith", None),
            ("a.html?x=1", None),
            ("a.\u{e9}", None),
            ("a.abcdefghijklmnop", None),
            ("", None),
        ] {
            assert_eq!(extension_in(path), ending, "{path:?}");
        }
    }

    #[test]
    fn endings_of_media_are_found_in_any_case() {
        assert!(MEDIA.is_sorted());
        assert!(["png", "JPG", "3gp", "wmv"].into_iter().all(is_media));
        assert!(!["txt", "parquet", "bin", "", "p"].into_iter().any(is_media));
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
