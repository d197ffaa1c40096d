//! Status of answers: for conditions, figures, and messages.

use std::collections::BTreeMap;

/// Status of answers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ProvisionStatus {
    /// Number of requests that this controller answers, by state; empty while another controller leads.
    pub(crate) requests: BTreeMap<&'static str, usize>,
    /// Number of questions to the planner in this term.
    pub(crate) checks: u64,
    /// The failure of the last write of a request.
    pub(crate) trouble: Option<String>,
}
