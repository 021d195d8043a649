//! What the user asks for: `NAME=TEMPLATE [where FILTER]`.

use super::escape::NAME_MAX;
use super::filter::Filter;
use super::template::{SyntaxError, Template};

/// One view, as asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewSpec {
    name: String,
    template: Template,
    filter: Option<Filter>,
}

impl ViewSpec {
    /// A view of all samples.
    ///
    /// # Errors
    /// [`SyntaxError`] when `name` is not one plain component.
    pub fn new(name: &str, template: Template) -> Result<Self, SyntaxError> {
        let unusable = |c: char| c == '/' || c.is_ascii_control();
        if name.is_empty() || name == "." || name == ".." || name.contains(unusable) {
            return Err(SyntaxError::new(
                0,
                "the view's name, which is one plain file name",
                format!("{name:?}"),
            ));
        }
        if name.len() > NAME_MAX {
            return Err(SyntaxError::new(
                0,
                format!("a name of at most {NAME_MAX} bytes"),
                format!("{} bytes", name.len()),
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            template,
            filter: None,
        })
    }

    /// The same view with only the samples that `filter` lets in.
    #[must_use]
    pub fn with_filter(self, filter: Filter) -> Self {
        Self {
            filter: Some(filter),
            ..self
        }
    }

    /// Reads `NAME=TEMPLATE` or `NAME=TEMPLATE where FILTER`.
    ///
    /// # Errors
    /// [`SyntaxError`], with positions in `text`.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let Some((name, rest)) = text.split_once('=') else {
            let at = text.chars().count();
            return Err(SyntaxError::new(at, "= after the view's name", "the end"));
        };
        let start = name.chars().count() + 1;
        let (template, filter) = split_where(rest);
        let template = Template::parse(template).map_err(|error| error.moved(start))?;
        let spec = Self::new(name, template)?;
        let Some(filter) = filter else {
            return Ok(spec);
        };
        let before = text.len() - filter.len();
        let start = text.get(..before).map_or(0, |text| text.chars().count());
        let filter = Filter::parse(filter).map_err(|error| error.moved(start))?;
        Ok(spec.with_filter(filter))
    }

    /// As [`ViewSpec::parse`], for text whose encoding is not known.
    ///
    /// # Errors
    /// [`SyntaxError`], also for bytes that are not UTF-8.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, SyntaxError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let at = String::from_utf8_lossy(valid).chars().count();
            SyntaxError::new(at, "UTF-8", "other bytes")
        })?;
        Self::parse(text)
    }

    /// Its name under `/views`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its files are called.
    #[must_use]
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Which samples it shows; all when there is none.
    #[must_use]
    pub fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }
}

/// Template and filter, around the first ` where ` that is not inside braces.
fn split_where(text: &str) -> (&str, Option<&str>) {
    let (mut inside, mut quoted) = (false, false);
    for (at, character) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        match character {
            '`' if inside => quoted = !quoted,
            _ if quoted => {}
            // A doubled brace opens and closes at once.
            '{' => inside = !inside,
            '}' => inside = false,
            _ if inside || !character.is_whitespace() => {}
            _ => {
                if let Some(filter) = rest.trim_start().strip_prefix("where")
                    && (filter.is_empty() || filter.starts_with(char::is_whitespace))
                {
                    return (text.get(..at).unwrap_or_default(), Some(filter));
                }
            }
        }
    }
    (text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (String, String, Option<String>) {
        let spec = ViewSpec::parse(text).unwrap();
        let filter = spec.filter().map(|filter| filter.text().trim().to_owned());
        (
            spec.name().to_owned(),
            spec.template().text().to_owned(),
            filter,
        )
    }

    #[test]
    fn a_spec_is_name_template_and_filter() {
        let owned = |name: &str, template: &str, filter: Option<&str>| {
            (
                name.to_owned(),
                template.to_owned(),
                filter.map(str::to_owned),
            )
        };
        assert_eq!(parse("a={x}/b=c"), owned("a", "{x}/b=c", None));
        assert_eq!(
            parse("cats={label}/{sample_id}{ext} where label == \"cat\""),
            owned("cats", "{label}/{sample_id}{ext}", Some("label == \"cat\""))
        );
        assert_eq!(
            parse("v={a|x where y}/no{{where }}{` where `}\n where\tb"),
            owned("v", "{a|x where y}/no{{where }}{` where `}", Some("b"))
        );
        assert_eq!(
            parse("v=somewhere where there == 1"),
            owned("v", "somewhere", Some("there == 1"))
        );
    }

    #[test]
    fn positions_count_from_the_start_of_the_spec() {
        for (text, at) in [
            ("", 0),
            ("é", 1),
            ("=x", 0),
            ("..=x", 0),
            ("a/b=x", 0),
            ("é=", 2),
            ("a={x", 4),
            ("a=é where ", 10),
            ("a=x where b ==", 14),
            ("a=x where b = 1", 12),
        ] {
            assert_eq!(ViewSpec::parse(text).unwrap_err().at, at, "{text:?}");
        }
        assert_eq!(ViewSpec::parse_bytes(b"a=\xc3\xa9\xff").unwrap_err().at, 3);
        assert!(ViewSpec::parse(&format!("{}=x", "n".repeat(256))).is_err());
    }
}
