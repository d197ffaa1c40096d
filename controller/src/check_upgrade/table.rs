//! The answer for people.

use hostler_cli::{
    output::TableWidth,
    table::{TextTable, or_dash},
};

use super::{FindingUrgency, UpgradeAnswer, UpgradeFinding};

/// A line that says how it is, and a row for each finding.
pub(super) fn text(answer: &UpgradeAnswer, width: TableWidth) -> String {
    let head = head(answer);
    if answer.findings.is_empty() {
        return head;
    }
    let mut table = match width {
        TableWidth::Narrow => TextTable::new(&["WHEN", "OBJECT", "FINDING"]),
        TableWidth::Wide => TextTable::new(&["WHEN", "OBJECT", "FINDING", "COMMAND"]),
    };
    for UpgradeFinding { urgency, object, message, command } in &answer.findings {
        let when = if *urgency == FindingUrgency::First { "first" } else { "note" };
        let command = command.as_deref().unwrap_or_default();
        match width {
            TableWidth::Wide => table.row([when, object, message, &or_dash(command)]),
            TableWidth::Narrow if command.is_empty() => table.row([when, object, message]),
            TableWidth::Narrow => table.row([when, object, &format!("{message}: {command}")]),
        }
    }
    format!("{head}{table}")
}

fn head(answer: &UpgradeAnswer) -> String {
    let to_version = format!("hostler {}", answer.version);
    let place = answer.kubernetes.as_ref().map_or_else(String::new, |release| format!(" on Kubernetes {release}"));
    match (answer.count(FindingUrgency::First), answer.count(FindingUrgency::Note)) {
        (0, 0) => format!("{to_version}{place}: nothing is in the way\n"),
        (0, notes) => format!("{to_version}{place}: nothing is in the way, {notes} to know\n"),
        (first, notes) => format!("{to_version}{place}: {first} to mend first, {notes} to know\n"),
    }
}
