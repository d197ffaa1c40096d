//! Findings of commands that look for what is missing or wrong: their levels, the words for people, and the end of the
//! command.

use hostler_api::plain_line;
use serde::Serialize;

use crate::{exit::CliOutcome, output::Listed};

/// How bad it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// All is as it should be.
    Ok,
    /// Something works, but not all of it, or not as well as it could.
    Warn,
    /// Something does not work.
    Fail,
}

/// The result of a check.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct DoctorFinding {
    /// The subject of the check.
    pub check: &'static str,
    /// How bad it is.
    pub level: FindingLevel,
    /// The result in words.
    pub found: String,
    /// The way to repair it; empty where nothing needs to be done.
    pub fix: String,
}

impl Listed for DoctorFinding {
    const KIND: &'static str = "Finding";

    fn listed_name(&self) -> String {
        self.check.to_owned()
    }
}

impl DoctorFinding {
    /// Makes the finding that all is as it should be.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: FindingLevel::Ok, found: found.into(), fix: String::new() }
    }

    /// Makes the finding that something could be better.
    pub fn warn(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: FindingLevel::Warn, found: found.into(), fix: fix.into() }
    }

    /// Makes the finding that something does not work.
    pub fn fail(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: FindingLevel::Fail, found: found.into(), fix: fix.into() }
    }
}

/// Returns the end of the command: only what does not work is a no.
pub fn outcome(findings: &[DoctorFinding]) -> CliOutcome {
    let failed = findings.iter().any(|finding| finding.level == FindingLevel::Fail);
    if failed { CliOutcome::NotInOrder } else { CliOutcome::Done }
}

/// Returns the findings for people: a line each, the fix on a line below, and a sum.
pub fn in_words(findings: &[DoctorFinding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for DoctorFinding { check, level, found, fix } in findings {
        let mark = match level {
            FindingLevel::Ok => "ok  ",
            FindingLevel::Warn => "warn",
            FindingLevel::Fail => "FAIL",
        };
        text.push_str(&format!("{mark}  {check:<width$}  {}\n", plain_line(found)));
        if !fix.is_empty() {
            text.push_str(&format!("{:indent$}→ {}\n", "", plain_line(fix), indent = width + 8));
        }
    }
    let number = |level| findings.iter().filter(|finding| finding.level == level).count();
    text.push_str(&format!(
        "\n{} ok, {} to look at, {} failed\n",
        number(FindingLevel::Ok),
        number(FindingLevel::Warn),
        number(FindingLevel::Fail)
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_marks_fixes_and_a_sum() {
        let findings = [DoctorFinding::ok("sysfs", "fine"), DoctorFinding::fail("boot id", "go\nne", "mount /proc")];
        let expected = "ok    sysfs    fine\nFAIL  boot id  go\\nne\n               → mount /proc\n\n1 ok, 0 to look at, 1 failed\n";
        assert_eq!(in_words(&findings), expected);
        assert_eq!(outcome(&findings), CliOutcome::NotInOrder);
        let warned = [DoctorFinding::warn("clock", "slow", "set it")];
        assert_eq!(outcome(&warned), CliOutcome::Done);
    }
}
