//! Mistakes in a script: the place, the mistake, and the way to mend it.

use std::{
    io,
    path::{Path, PathBuf},
};

use hostler_api::ConfigProblem;
use serde::{Deserialize, Deserializer};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Reason why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The script cannot be read.
    #[error("failed to read script {path}")]
    Read {
        /// The script.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The script makes no sense.
    #[error("script {path}, line {line}{}{field}: {reason}", if field.is_empty() { "" } else { ", " })]
    Mistake {
        /// The script.
        path: PathBuf,
        /// Line of the mistake, from 1.
        line: usize,
        /// The field, such as `device[0].name`; empty where the text is not even TOML.
        field: String,
        /// The mistake, and the fix.
        reason: String,
    },
}

impl ScriptError {
    /// The text is not TOML.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let line = line(text, error.span().map_or(0, |span| span.start));
        Self::Mistake { path: path.to_owned(), line, field: String::new(), reason: one_line(error.message()) }
    }

    /// The text is TOML, and its content is wrong.
    pub(super) fn mistake(path: &Path, text: &str, problem: ConfigProblem) -> Self {
        let root = DeTable::parse(text).map(Spanned::into_inner).unwrap_or_default();
        let line = line(text, offset(&Spanned::new(0..0, DeValue::Table(root)), &problem.field));
        Self::Mistake { path: path.to_owned(), line, field: problem.field, reason: problem.reason }
    }
}

/// Reads a value; the field of a problem is the way from there, and empty where it is the value itself.
pub(super) fn read<'de, T: Deserialize<'de>>(
    value: impl Deserializer<'de, Error = toml::de::Error>,
) -> Result<T, ConfigProblem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = Some(error.path().to_string()).filter(|path| path != ".").unwrap_or_default();
        ConfigProblem::new(field, one_line(error.inner().message()))
    })
}

/// The problem, seen from above `place`.
pub(super) fn within(place: &str, mut problem: ConfigProblem) -> ConfigProblem {
    let dot = if problem.field.is_empty() || problem.field.starts_with('[') { "" } else { "." };
    problem.field = format!("{place}{dot}{}", problem.field);
    problem
}

fn one_line(message: &str) -> String {
    message.replace('\n', ", ")
}

/// The number of the line that byte `offset` is in, from 1.
fn line(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Offset of the innermost value on the path `field` that the text has.
fn offset(value: &Spanned<DeValue<'_>>, field: &str) -> usize {
    let field = field.trim_start_matches('.');
    let next = match value.get_ref() {
        // Names of attributes and capacities may have dots: the longest key that fits is meant.
        DeValue::Table(table) => table
            .iter()
            .filter_map(|(key, value)| Some((value, field.strip_prefix(&**key.get_ref())?)))
            .filter(|(_, rest)| rest.is_empty() || rest.starts_with(['.', '[']))
            .min_by_key(|(_, rest)| rest.len()),
        DeValue::Array(array) => field
            .strip_prefix('[')
            .and_then(|field| field.split_once(']'))
            .and_then(|(index, rest)| Some((array.get(index.parse::<usize>().ok()?)?, rest))),
        _ => None,
    };
    next.map_or(value.span().start, |(value, rest)| offset(value, rest))
}
