//! Names of samples one after another, as a listing asks for them.

use super::bound::{Subject, View};
use super::component::MARK;
use super::render::{Extensions, NameFault, Scope, Source, check_depth};
use super::template::Part;

/// Spells the names of samples in a row. What those of one cache have in common at their start is
/// spelled once.
pub struct NameSeries<'a> {
    view: &'a View,
    extensions: &'a dyn Extensions,
    /// The parts at the start that are equal in all samples of a cache.
    common: &'a [Part],
    /// Those after them.
    rest: &'a [Part],
    /// Place of the cache that `start` is spelled for.
    cache: Option<usize>,
    start: Vec<u8>,
    start_is_escaped: bool,
}

impl<'a> NameSeries<'a> {
    /// Begins a row of names in a view.
    #[must_use]
    pub fn new(view: &'a View, extensions: &'a dyn Extensions) -> Self {
        let parts = view.template().stem();
        let differs =
            |part: &Part| matches!(part, Part::SampleId { .. } | Part::Ext | Part::Field(_));
        let common = parts.iter().position(differs).unwrap_or(parts.len());
        let (common, rest) = parts.split_at(common);
        Self {
            view,
            extensions,
            common,
            rest,
            cache: None,
            start: Vec::new(),
            start_is_escaped: false,
        }
    }

    /// Puts what [`View::render`] calls the sample with [`Scope::Name`] into `out`, which is cleared
    /// first.
    ///
    /// # Errors
    /// [`NameFault`] for a name that cannot be.
    pub fn name(&mut self, subject: Subject<'_>, out: &mut Vec<u8>) -> Result<(), NameFault> {
        if !self.view.template().has_fixed_depth() {
            return self.view.render(subject, Scope::Name, self.extensions, out);
        }
        let source = Source::new(self.view, subject, self.extensions);
        if self.cache != Some(subject.cache) {
            self.start.clear();
            source.parts(self.common, &mut 0, &mut self.start);
            self.start_is_escaped = source.is_escaped.get();
            self.cache = Some(subject.cache);
        }
        out.clear();
        out.extend_from_slice(&self.start);
        source.is_escaped.set(self.start_is_escaped);
        source.name_from(self.view.template(), self.rest, 0, out);
        if out.first() == Some(&MARK) {
            out.remove(0);
        }
        source.check()?;
        check_depth(out)
    }
}
