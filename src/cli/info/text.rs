//! The facts of caches as a table for people.

use std::fmt::Write as _;

use super::CacheInfo;
use super::stats::{Distinct, FieldStats, MOST_DISTINCT, Sizes};
use crate::cli::output::{bytes, count, counted, plain};
use crate::format::metadata::{Field, FieldKind};

/// Most frequent values of each field that are shown.
const TOP: usize = 10;
/// Characters of a value that are shown.
const VALUE_WIDTH: usize = 32;
/// Characters of the longest bar.
const BAR_WIDTH: u64 = 40;

/// One paragraph for each cache.
pub(super) fn of(infos: &[CacheInfo]) -> String {
    let paragraphs: Vec<String> = infos.iter().map(cache).collect();
    paragraphs.join("\n")
}

fn cache(info: &CacheInfo) -> String {
    let manifest = info.cache.manifest();
    let mut text = format!("{}\n", plain(&info.cache.dir().to_string_lossy()));
    let mut line = |name: &str, value: String| {
        // Writing into memory does not fail.
        let _ = writeln!(text, "  {name:<14}{value}");
    };
    line("name", plain(&manifest.source_name).into_owned());
    let origin = match manifest.cache_id {
        Some(_) => "stored in the manifest",
        None => "its position in this list",
    };
    line("cache_id", format!("{} ({origin})", info.cache_id));
    line("format", manifest.version.number().to_string());
    line("samples", count(manifest.sample_count));
    let ratio = info.ratio().map(|ratio| format!(", ratio {ratio:.2}"));
    line(
        "payloads",
        format!(
            "{} decoded, {} stored{}",
            bytes(manifest.decoded_len()),
            bytes(info.stored_len),
            ratio.unwrap_or_default()
        ),
    );
    let shards = counted(manifest.shards.len() as u64, "shard");
    line(
        "shards",
        format!("{shards} ({})", info.compressions().join(", ")),
    );
    let Some(stats) = &info.stats else {
        let schema = manifest.schema.iter();
        let fields: Vec<String> = schema
            .map(|field| format!("{} {}", plain(&field.name), field.kind.name()))
            .collect();
        line("fields", fields.join(", "));
        return text;
    };
    sizes(&stats.sizes, &mut text);
    text.push_str("  fields\n");
    let names = manifest
        .schema
        .iter()
        .map(|field| plain(&field.name).chars().count());
    let width = names.max().unwrap_or(0);
    for (schema, stats) in manifest.schema.iter().zip(&stats.fields) {
        let name = plain(&schema.name);
        let pad = width - name.chars().count().min(width);
        let _ = writeln!(
            text,
            "    {name}{:pad$}  {:<6}  {}",
            "",
            schema.kind.name(),
            field(schema, stats)
        );
    }
    text
}

fn sizes(sizes: &Sizes, text: &mut String) {
    if let (Some(smallest), Some(largest), Some(mean)) =
        (sizes.smallest, sizes.largest, sizes.mean())
    {
        // A mean of lengths is not negative and not above the longest.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let mean = mean.round() as u64;
        let _ = writeln!(
            text,
            "  sizes         smallest {}, mean {}, largest {}",
            bytes(smallest),
            bytes(mean),
            bytes(largest)
        );
    }
    if sizes.damaged > 0 {
        let _ = writeln!(text, "  DAMAGED       {}", counted(sizes.damaged, "sample"));
    }
    let most = sizes.bins.iter().max().copied().unwrap_or(0);
    let Some((first, last)) = used_bins(sizes) else {
        return;
    };
    for (n, &samples) in sizes.bins.iter().enumerate().take(last + 1).skip(first) {
        // Any samples at all have a bar that can be seen.
        let bar = (u128::from(samples) * u128::from(BAR_WIDTH)).div_ceil(u128::from(most.max(1)));
        let bar = "#".repeat(usize::try_from(bar).unwrap_or(0));
        let line = format!("    {:>20}  {:>12}  {bar}", bin_name(n), count(samples));
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// The first and the last bin with samples.
pub(super) fn used_bins(sizes: &Sizes) -> Option<(usize, usize)> {
    let first = sizes.bins.iter().position(|count| *count > 0)?;
    let last = sizes.bins.iter().rposition(|count| *count > 0)?;
    Some((first, last))
}

/// The smallest and the largest size of bin `n`.
pub(super) fn bin_range(n: usize) -> (u64, u64) {
    match n.checked_sub(1) {
        None => (0, 0),
        Some(shift) => {
            let from = 1_u64 << shift.min(63);
            (from, from | (from - 1))
        }
    }
}

/// Bin `n` in words: `0 B`, `1 B`, `2 to 4 B`, `64 to 128 KiB`.
pub(super) fn bin_name(n: usize) -> String {
    let (from, to) = bin_range(n);
    if to <= 1 {
        return format!("{to} B");
    }
    let (from, unit) = binary(from);
    match to.checked_add(1) {
        Some(end) => {
            let (end, end_unit) = binary(end);
            match unit == end_unit {
                true => format!("{from} to {end} {unit}"),
                false => format!("{from} {unit} to {end} {end_unit}"),
            }
        }
        None => format!("from {from} {unit}"),
    }
}

/// A power of two in its unit.
pub(super) fn binary(power: u64) -> (u64, &'static str) {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = power;
    let mut unit = "B";
    for next in units.iter().skip(1) {
        if value < 1024 {
            break;
        }
        value /= 1024;
        unit = next;
    }
    (value, unit)
}

fn field(field: &Field, stats: &FieldStats) -> String {
    let mut facts = Vec::new();
    let numbers = &stats.numbers;
    let mean = numbers.mean().map(|mean| number(mean, true));
    match field.kind {
        FieldKind::Int => {
            if let (Some(least), Some(most), Some(mean)) =
                (numbers.least_int, numbers.most_int, mean)
            {
                facts.push(format!("min {least}, mean {mean}, max {most}"));
            }
        }
        FieldKind::Float => {
            if let (Some(least), Some(most), Some(mean)) = (numbers.least, numbers.most, mean) {
                let (least, most) = (number(least, false), number(most, false));
                facts.push(format!("min {least}, mean {mean}, max {most}"));
            }
            facts.extend((numbers.nan > 0).then(|| format!("{} NaN", count(numbers.nan))));
            let infinite = numbers.infinite;
            facts.extend((infinite > 0).then(|| format!("{} infinite", count(infinite))));
        }
        FieldKind::Bool | FieldKind::String => {}
    }
    facts.extend((stats.nulls > 0).then(|| counted(stats.nulls, "null")));
    match (stats.distinct, field.kind) {
        (Distinct::Exactly(_), FieldKind::Bool) => facts.push(top(stats)),
        (Distinct::Exactly(distinct), FieldKind::String) => {
            facts.push(format!(
                "{} distinct: {}",
                count(distinct as u64),
                top(stats)
            ));
        }
        (Distinct::Exactly(distinct), _) => {
            facts.push(format!("{} distinct", count(distinct as u64)));
        }
        (Distinct::TooMany, _) => {
            facts.push(format!(
                "more than {} distinct",
                count(MOST_DISTINCT as u64)
            ));
        }
        (Distinct::NotCounted, _) => {}
    }
    facts.join("; ")
}

fn top(stats: &FieldStats) -> String {
    let shown: Vec<String> = stats
        .top
        .iter()
        .take(TOP)
        .map(|top| {
            format!(
                "{} {}",
                shortened(&top.value, VALUE_WIDTH),
                count(top.count)
            )
        })
        .collect();
    let more = matches!(stats.distinct, Distinct::Exactly(distinct) if distinct > shown.len());
    format!("{}{}", shown.join(", "), if more { ", ..." } else { "" })
}

/// `text` on one line, cut to `width` characters.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let text = plain(text);
    match text.char_indices().nth(width) {
        None if text.is_empty() => "\"\"".to_owned(),
        None => text.into_owned(),
        Some(_) => {
            let kept: String = text.chars().take(width.saturating_sub(3)).collect();
            format!("{kept}...")
        }
    }
}

/// A number with as many digits as it has, or six if `rounded`.
fn number(value: f64, rounded: bool) -> String {
    let plain = value == 0.0 || (1e-4..1e15).contains(&value.abs());
    match (plain, rounded) {
        (true, true) => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        (true, false) => value.to_string(),
        (false, true) => format!("{value:.5e}"),
        (false, false) => format!("{value:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_named_by_their_powers_of_two() {
        for (n, range, name) in [
            (0, (0, 0), "0 B"),
            (1, (1, 1), "1 B"),
            (2, (2, 3), "2 to 4 B"),
            (10, (512, 1023), "512 B to 1 KiB"),
            (17, (1 << 16, (1 << 17) - 1), "64 to 128 KiB"),
            (64, (1 << 63, u64::MAX), "from 8 EiB"),
        ] {
            assert_eq!((bin_range(n), bin_name(n).as_str()), (range, name), "{n}");
        }
    }

    #[test]
    fn numbers_and_values_are_short() {
        assert_eq!(number(2.5, true), "2.5");
        assert_eq!(number(100.0, true), "100");
        assert_eq!(number(1e300, true), "1.00000e300");
        assert_eq!(number(0.1, false), "0.1");
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abc...");
        assert_eq!(shortened("", 6), "\"\"");
    }
}
