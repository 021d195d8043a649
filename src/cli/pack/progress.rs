//! What a person at a terminal sees while it runs: nothing when stderr is not one.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output::bytes;

/// How often the display moves when nothing else moves it.
const TICK: Duration = Duration::from_millis(200);

/// Shows that the sources are being read through.
pub(super) fn reading() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} looking at the sources: {human_pos} samples");
    let bar = ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// Shows how far the writing is.
pub(super) struct Writing {
    bar: ProgressBar,
    bytes: Cell<u64>,
    start: Instant,
}

impl Writing {
    pub(super) fn new(samples: u64) -> Self {
        let template = "{bar:32} {human_pos} of {human_len} samples, {per_sec}, {msg}, {eta} left";
        let style = ProgressStyle::with_template(template);
        Self {
            bar: ProgressBar::new(samples)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
            bytes: Cell::new(0),
            start: Instant::now(),
        }
    }

    /// Notes that samples with so many payload bytes were written.
    pub(super) fn add(&self, samples: u64, payload_bytes: u64) {
        self.bytes.set(self.bytes.get() + payload_bytes);
        if !self.bar.is_hidden() {
            let millis = self.start.elapsed().as_millis().max(1);
            let rate = u128::from(self.bytes.get()) * 1000 / millis;
            let rate = bytes(u64::try_from(rate).unwrap_or(u64::MAX));
            self.bar.set_message(format!("{rate}/s"));
        }
        self.bar.inc(samples);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
