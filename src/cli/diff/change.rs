//! A change of a subject: its kind, and the facts before and after it.

use serde::Serialize;

use super::facts::MachineFact;

/// The kind of a change of a subject.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SubjectChange {
    /// It was not there before.
    Came,
    /// It is not there any more.
    Went,
    /// It is another than before.
    Changed,
}

/// A fact of both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactPair<'a> {
    pub(super) name: &'a str,
    pub(super) before: Option<&'a MachineFact>,
    pub(super) after: Option<&'a MachineFact>,
}
