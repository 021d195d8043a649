//! Where we decide otherwise than DatasetRT, and why. docs/reference-differences.md has this list
//! with the verdicts.

/// The modes in which a difference shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Where {
    Both,
    Plain,
    Validated,
}

/// One decision and the kinds of damage that show it.
pub(crate) struct Difference {
    pub(crate) title: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) damage: &'static [(&'static str, Where)],
}

use Where::{Both, Plain, Validated};

/// Refused by the reference when it validates, and read here.
pub(crate) const READ_ALTHOUGH_REFUSED: [&str; 1] = ["arrow-large-utf8"];

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        title: "A manifest has one reading",
        reason: "A key that occurs twice in a shard's entry, or a field twice in the schema, would leave it to \
                 each reader which one counts. The cache is refused.",
        damage: &[
            ("duplicate-key-in-shard-entry", Both),
            ("schema-duplicate-field", Plain),
        ],
    },
    Difference {
        title: "Checksums are spelled right even when they are not compared",
        reason: "The manifest is checked before anything else is opened, and 64 lower-case digits are part of it.",
        damage: &[("metadata-sha-upper", Plain), ("sha-not-hex", Plain)],
    },
    Difference {
        title: "Shards lie in the shards folder",
        reason: "A name with a slash could name any file of the machine.",
        damage: &[
            ("shard-name-parent-traversal", Both),
            ("shard-name-subdirectory", Both),
        ],
    },
    Difference {
        title: "metadata.arrow is always read",
        reason: "DatasetRT without validation takes metadata from the records and only asks whether \
                 metadata.arrow exists; with validation it matches columns by position. Here the table is the \
                 metadata, in every mode, and its columns must have the names and kinds of the schema, in its \
                 order. A table that cannot be read refuses the cache.",
        damage: &[
            ("schema-kind-wrong", Plain),
            ("schema-name-wrong", Both),
            ("schema-order-reversed", Plain),
            ("arrow-empty", Plain),
            ("arrow-truncated", Plain),
            ("arrow-trailing", Plain),
            ("arrow-reversed-columns", Plain),
            ("arrow-renamed-columns", Both),
            ("arrow-drop-last-column", Plain),
            ("arrow-drop-last-row", Plain),
            ("arrow-dictionary", Plain),
            ("arrow-lz4-compressed", Plain),
            ("arrow-zstd-compressed", Plain),
            ("arrow-int32", Plain),
            ("arrow-stream", Plain),
        ],
    },
    Difference {
        title: "Large strings are strings",
        reason: "Arrow has several types for text. Files of other writers use them, and they say the same.",
        damage: &[("arrow-large-utf8", Validated)],
    },
    Difference {
        title: "A record's metadata is compared in every mode",
        reason: "It is what shows that an index row points to another sample's record, and it costs a comparison \
                 of bytes. A key that occurs twice never agrees; neither does a null.",
        damage: &[
            ("index-rows-swapped", Plain),
            ("index-row-repeated", Plain),
            ("rec-json-duplicate-key-last-right", Both),
            ("rec-json-duplicate-key-last-wrong", Plain),
            ("rec-json-value-changed", Plain),
            ("arrow-null-in-first-row", Plain),
            ("arrow-change-row0-string", Plain),
        ],
    },
    Difference {
        title: "Index rows are checked at the start",
        reason: "A row that points outside its shard means that index and shards do not belong together. DatasetRT \
                 finds it when the sample is read, and a length of 1 TiB ends its process.",
        damage: &[
            ("shard-order-swapped", Both),
            ("index-offset-past-end", Both),
            ("index-offset-i64-overflow", Both),
            ("index-offset-u64-max", Both),
            ("index-len-past-end", Both),
            ("index-len-zero", Both),
            ("index-len-7", Both),
            ("index-len-1-tib", Both),
            ("index-len-128-tib", Both),
            ("index-len-isize-overflow", Both),
            ("index-len-u64-max", Both),
        ],
    },
    Difference {
        title: "An LZ4 length is believed only as far as it can be true",
        reason: "No more than 255 times the block, no more than `uncompressed_byte_len` of the shard, and exactly \
                 what the block decodes to. DatasetRT allocates what four bytes say and accepts a shorter result.",
        damage: &[
            ("lz4-size-too-big", Plain),
            ("lz4-huge-size-1gib", Both),
            ("lz4-huge-size-4gib", Both),
            ("plain-declared-lz4", Both),
            ("shard-uncompressed-len-wrong", Both),
        ],
    },
    Difference {
        title: "Validation adds up decoded lengths",
        reason: "The manifest has no checksum of its own. With validation each shard's decoded payloads must add up \
                 to its `uncompressed_byte_len`, which shows a manifest that lies about the compression of a shard. \
                 The records that these mutations append have other lengths, so their sums differ as well.",
        damage: &[
            ("compression-algo-none-for-lz4", Validated),
            ("compression-mixed-one-shard-flipped", Validated),
            ("extra-unreferenced-shard-entry", Validated),
            ("index-row-repeated", Validated),
            ("lz4-size-too-small", Validated),
            ("lz4-size-too-big", Validated),
            ("lz4-exact", Validated),
            ("lz4-empty-with-token", Validated),
            ("lz4-trailing-token", Validated),
            ("lz4-trailing-garbage", Validated),
            ("lz4-offset-zero", Validated),
            ("lz4-offset-beyond", Validated),
            ("lz4-ends-with-match", Validated),
            ("lz4-overlap-match", Validated),
            ("lz4-literal-run-past-end", Validated),
        ],
    },
];
