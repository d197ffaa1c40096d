//! How answering goes: for conditions, figures, and people.

use std::collections::BTreeMap;

/// How answering goes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProvisionStatus {
    /// Requests that this controller answers, by how far they are; none where another one leads.
    pub(crate) requests: BTreeMap<&'static str, usize>,
    /// Questions to the planner in this term.
    pub(crate) checks: u64,
    /// Why the last request that should have been written was not.
    pub(crate) trouble: Option<String>,
}
