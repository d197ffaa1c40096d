//! Reads the input: from names on a command line to objects, with every mistake on the way.

mod document;
mod files;
mod line;
mod list;
mod object;
mod text;

use std::fmt;

use hostler_api::{ManifestFinding, plain_line};

pub(crate) use files::{InputText, for_each_text};
pub(crate) use object::{ObjectHead, RawObject};
pub(crate) use text::for_each_object;

/// A mistake in the input, and its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct InputProblem {
    /// File, `standard input`, or the command's option.
    pub(crate) source: String,
    /// The mistake there.
    pub(crate) finding: ManifestFinding,
}

impl InputProblem {
    /// Makes a problem about a source as a whole.
    pub(crate) fn whole(source: impl Into<String>, reason: impl fmt::Display) -> Self {
        let finding = ManifestFinding { reason: reason.to_string(), ..ManifestFinding::default() };
        Self { source: source.into(), finding }
    }
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain_line(&format!("{}: {}", self.source, self.finding)))
    }
}
