//! `--plot`: for each cache a histogram of the sizes of its samples and the counts of its labels.

use super::CacheInfo;
use super::stats::{Distinct, FieldStats, Frequent, Sizes};
use super::svg::{Anchor, Svg};
use super::text::{bin_name, binary, shortened, used_bins};
use crate::cli::output::{bytes, count, counted};
use crate::format::metadata::FieldKind;

/// Width of the drawing, and its margin.
const WIDTH: f64 = 1080.0;
const MARGIN: f64 = 28.0;
/// Height of the heading of a cache.
const HEAD: f64 = 52.0;
/// The left chart: its plot area from the top of the charts on.
const SIZES_LEFT: f64 = 84.0;
const SIZES_WIDTH: f64 = 420.0;
const SIZES_HEIGHT: f64 = 250.0;
/// The right chart: where labels end and bars start.
const LABELS_LEFT: f64 = 736.0;
const LABELS_WIDTH: f64 = 240.0;
const LABEL_STEP: f64 = 20.0;
/// Room above a plot area for its name, and below it for ticks and the name of the axis.
const ABOVE: f64 = 26.0;
const BELOW: f64 = 52.0;
/// Characters of a label that fit.
const LABEL_CHARS: usize = 24;

/// The drawing of all caches, one below the other.
pub(super) fn draw(infos: &[CacheInfo]) -> String {
    let mut svg = Svg::default();
    let mut y = MARGIN;
    for info in infos {
        y = cache(info, &mut svg, y) + MARGIN;
    }
    svg.finish(
        WIDTH,
        y.max(2.0 * MARGIN),
        "Caches: sample sizes and labels",
    )
}

/// Draws one cache from `y` on and says where it ends.
fn cache(info: &CacheInfo, svg: &mut Svg, y: f64) -> f64 {
    let manifest = info.cache.manifest();
    let name = shortened(&manifest.source_name, 80);
    svg.text("head", MARGIN, y + 16.0, Anchor::Start, &name);
    let facts = format!(
        "cache_id {}, {}, {} decoded, {} stored",
        info.cache_id,
        counted(manifest.sample_count, "sample"),
        bytes(manifest.decoded_len()),
        bytes(info.stored_len)
    );
    svg.text("note", MARGIN, y + 36.0, Anchor::Start, &facts);
    let top = y + HEAD;
    let Some(stats) = &info.stats else {
        return top;
    };
    sizes(&stats.sizes, svg, top);
    let fields = manifest
        .schema
        .iter()
        .map(|field| (field.name.as_str(), field.kind));
    let fields: Vec<_> = fields.zip(&stats.fields).collect();
    let labels_end = match label_field(&fields) {
        Some((name, field)) => labels(name, field, manifest.sample_count, svg, top),
        None => {
            let note = "no field whose values could be counted";
            svg.text("note", LABELS_LEFT, top + ABOVE, Anchor::Start, note);
            top
        }
    };
    labels_end.max(top + ABOVE + SIZES_HEIGHT + BELOW)
}

/// The field that is drawn: `label`, else the text field with the fewest distinct values, the first
/// of several.
fn label_field<'a>(
    fields: &[((&'a str, FieldKind), &'a FieldStats)],
) -> Option<(&'a str, &'a FieldStats)> {
    let counted = |stats: &FieldStats| match stats.distinct {
        Distinct::Exactly(distinct) => Some(distinct),
        _ => None,
    };
    let label = fields
        .iter()
        .find(|((name, _), stats)| *name == "label" && counted(stats).is_some());
    let fewest = fields
        .iter()
        .filter(|((_, kind), _)| *kind == FieldKind::String)
        .filter_map(|field| Some((counted(field.1)?, field)))
        .min_by_key(|(distinct, _)| *distinct);
    let ((name, _), stats) = label.or(fewest.map(|(_, field)| field))?;
    Some((*name, *stats))
}

fn sizes(sizes: &Sizes, svg: &mut Svg, top: f64) {
    svg.text(
        "name",
        SIZES_LEFT,
        top + 10.0,
        Anchor::Start,
        "Sizes of decoded samples",
    );
    let (top, left) = (top + ABOVE, SIZES_LEFT);
    let bottom = top + SIZES_HEIGHT;
    let most = sizes.bins.iter().max().copied().unwrap_or(0);
    let (step, ticks) = ticks(most);
    let scale = SIZES_HEIGHT / float((step * ticks).max(1));
    for tick in 0..=ticks {
        let y = bottom - float(tick * step) * scale;
        let class = if tick == 0 { "axis" } else { "grid" };
        svg.line(class, (left, y), (left + SIZES_WIDTH, y));
        svg.text(
            "tick",
            left - 8.0,
            y + 4.0,
            Anchor::End,
            &count(tick * step),
        );
    }
    svg.line("axis", (left, top), (left, bottom));
    let middle = left + SIZES_WIDTH / 2.0;
    let name = "bytes (each bar is one power of two)";
    svg.text("tick", middle, bottom + 40.0, Anchor::Middle, name);
    let Some((first, last)) = used_bins(sizes) else {
        return;
    };
    let shown = last - first + 1;
    // A few bars are not spread over the whole width.
    let slots = shown.max(6);
    let slot = SIZES_WIDTH / float(slots as u64);
    let gap = (slot * 0.12).min(6.0);
    // As many names of edges as fit beside one another.
    let every = slots.div_ceil(9);
    let bins = sizes.bins.iter().enumerate().take(last + 1).skip(first);
    for (place, (bin, &samples)) in bins.enumerate() {
        let x = left + float(place as u64) * slot;
        if samples > 0 {
            let height = (float(samples) * scale).max(1.0);
            let title = format!("{}: {}", bin_name(bin), counted(samples, "sample"));
            svg.bar(x + gap / 2.0, bottom - height, slot - gap, height, &title);
        }
        if place.is_multiple_of(every) {
            svg.line("axis", (x, bottom), (x, bottom + 4.0));
            svg.text("tick", x, bottom + 18.0, Anchor::Middle, &edge(bin));
        }
    }
    if shown.is_multiple_of(every) {
        let x = left + float(shown as u64) * slot;
        svg.line("axis", (x, bottom), (x, bottom + 4.0));
        svg.text("tick", x, bottom + 18.0, Anchor::Middle, &edge(last + 1));
    }
}

/// The smallest size of bin `n`.
fn edge(n: usize) -> String {
    match n {
        65.. => "16 EiB".to_owned(),
        _ => {
            let (value, unit) = binary(super::text::bin_range(n).0);
            format!("{value} {unit}")
        }
    }
}

fn labels(name: &str, field: &FieldStats, samples: u64, svg: &mut Svg, top: f64) -> f64 {
    let distinct = match field.distinct {
        Distinct::Exactly(distinct) => distinct as u64,
        _ => 0,
    };
    let title = format!(
        "Samples by {} ({})",
        shortened(name, LABEL_CHARS),
        counted(distinct, "distinct value")
    );
    svg.text("name", LABELS_LEFT, top + 10.0, Anchor::Start, &title);
    let (top, left) = (top + ABOVE, LABELS_LEFT);
    let most = field.top.iter().map(|top| top.count).max().unwrap_or(0);
    let (step, ticks) = ticks(most);
    let scale = LABELS_WIDTH / float((step * ticks).max(1));
    let bottom = top + float(field.top.len().max(1) as u64) * LABEL_STEP;
    for tick in 0..=ticks {
        let x = left + float(tick * step) * scale;
        let class = if tick == 0 { "axis" } else { "grid" };
        svg.line(class, (x, top), (x, bottom));
        // Long numbers stand at every second line, so that they do not touch.
        if tick.is_multiple_of(2) || most < 10_000 {
            svg.text(
                "tick",
                x,
                bottom + 16.0,
                Anchor::Middle,
                &count(tick * step),
            );
        }
    }
    let middle = left + LABELS_WIDTH / 2.0;
    svg.text("tick", middle, bottom + 36.0, Anchor::Middle, "samples");
    let mut y = top;
    for Frequent {
        value,
        count: number,
    } in &field.top
    {
        let label = shortened(value, LABEL_CHARS);
        svg.text("label", left - 8.0, y + 14.0, Anchor::End, &label);
        let share = 100.0 * float(*number) / float(samples.max(1));
        let title = format!(
            "{}: {} ({share:.1} %)",
            shortened(value, 200),
            counted(*number, "sample")
        );
        let width = (float(*number) * scale).max(1.0);
        svg.bar(left, y + 3.0, width, LABEL_STEP - 6.0, &title);
        svg.text(
            "tick",
            left + width + 6.0,
            y + 14.0,
            Anchor::Start,
            &count(*number),
        );
        y += LABEL_STEP;
    }
    let more = distinct.saturating_sub(field.top.len() as u64);
    if more > 0 {
        let note = format!("and {} seldomer", counted(more, "value"));
        svg.text("note", left - 8.0, bottom + 16.0, Anchor::End, &note);
    }
    bottom + BELOW
}

/// A step of 1, 2 or 5 times a power of ten and the number of steps, at most six, that reach `most`.
fn ticks(most: u64) -> (u64, u64) {
    let mut power = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let step = power.saturating_mul(factor);
            let steps = most.div_ceil(step).max(1);
            if steps <= 6 {
                return (step, steps);
            }
        }
        power = power.saturating_mul(10);
    }
}

/// Counts are drawn to a pixel.
#[allow(clippy::cast_precision_loss)]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_most() {
        for (most, expected) in [
            (0, (1, 1)),
            (1, (1, 1)),
            (6, (1, 6)),
            (7, (2, 4)),
            (13, (5, 3)),
            (1234, (500, 3)),
        ] {
            assert_eq!(ticks(most), expected, "{most}");
        }
        let (step, steps) = ticks(u64::MAX);
        assert!(steps <= 6 && step > 0);
    }
}
