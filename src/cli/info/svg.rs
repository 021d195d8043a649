//! A drawing in SVG: shapes and escaped texts, nothing from outside.

use std::fmt::Write as _;

use crate::cli::output::plain;

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing that grows downwards.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// A bar that says `title` when the pointer is over it.
    pub(super) fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, title: &str) {
        let title = escaped(title);
        self.push(&format!(
            r#"<rect class="bar" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="1.5"><title>{title}</title></rect>"#
        ));
    }

    /// A line of the class `class`.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(&format!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A text of the class `class` with its baseline at `y`.
    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.push(&format!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    fn push(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    /// The whole file.
    pub(super) fn finish(self, width: f64, height: f64, title: &str) -> String {
        let mut file = String::with_capacity(self.body.len() + 1024);
        // Writing into memory does not fail.
        let _ = write!(
            file,
            r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img">
<title>{title}</title>
<style>
text {{ font-family: system-ui, "Helvetica Neue", Arial, sans-serif; font-size: 12px; fill: #333; }}
.head {{ font-size: 17px; font-weight: 600; fill: #111; }}
.note {{ fill: #666; }}
.name {{ font-size: 13px; font-weight: 600; fill: #222; }}
.tick {{ font-size: 11px; fill: #666; }}
.bar {{ fill: #4472b0; }}
.bar:hover {{ fill: #d9822b; }}
.axis {{ stroke: #888; stroke-width: 1; }}
.grid {{ stroke: #e4e4e4; stroke-width: 1; }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
"##,
            title = escaped(title)
        );
        file.push_str(&self.body);
        file.push_str("</svg>\n");
        file
    }
}

/// `text` as XML takes it. Characters that XML forbids are spelled out or replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_leave_their_element() {
        let text = "</text><script>\"'&\u{0}\u{ffff}";
        let expected = "&lt;/text&gt;&lt;script&gt;&quot;&#39;&amp;\\0\u{fffd}";
        assert_eq!(escaped(text), expected);
    }
}
