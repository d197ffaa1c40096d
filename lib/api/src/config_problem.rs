//! Mistakes in a configuration: of a backend's own section, or of the one that a claim brings.

use std::fmt;

/// A mistake in a configuration. All of them are reported at once, so that one run of the check is enough.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigProblem {
    /// Path of the field, for example `reserved.default` in a backend's section or `parameters.spread` in a claim.
    pub field: String,
    /// Description of the mistake and its fix, for people.
    pub reason: String,
}

impl ConfigProblem {
    /// A mistake in `field`.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for ConfigProblem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_field_and_reason() {
        let problem = ConfigProblem::new("reserved", "write a list such as 0-3,8");
        assert_eq!(problem.to_string(), "reserved: write a list such as 0-3,8");
    }
}
