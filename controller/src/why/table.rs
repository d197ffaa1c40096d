//! The answer for people: a sentence, the fix, and tables below.

use std::fmt::Write;

use hostler_api::{few, listed, plain_line};
use hostler_cli::{
    output::TableWidth,
    table::{TextTable, or_dash},
};

use super::answer::{ClaimAnswer, WaitedHolder, WhyAnswer};

/// The most holders, and reasons of nodes, in a narrow answer.
const FEW_ROWS: usize = 4;

/// Writes one answer.
pub(super) fn text(answer: &WhyAnswer, width: TableWidth) -> String {
    let most = if width == TableWidth::Wide { usize::MAX } else { FEW_ROWS };
    let sentence = plain_line(&answer.sentence()).into_owned();
    let mut text = if sentence.ends_with('?') { format!("{sentence}\n") } else { format!("{sentence}.\n") };
    if let Some(fix) = &answer.cause.fix {
        // Writing to a text does not fail.
        let _ = writeln!(text, "Fix: {}.", plain_line(fix));
    }
    for section in [claims(&answer.claims), holders(&answer.holders, most), nodes(answer, most)] {
        if !section.is_empty() {
            let _ = write!(text, "\n{section}");
        }
    }
    if width == TableWidth::Wide && !answer.events.is_empty() {
        let _ = write!(text, "\nEvents:\n");
        for event in &answer.events {
            let _ = writeln!(text, "  {}", plain_line(event));
        }
    }
    if !answer.notes.is_empty() {
        text.push('\n');
    }
    for note in &answer.notes {
        let _ = writeln!(text, "Note: {}", plain_line(note));
    }
    text
}

/// Writes a row for each of several pods.
pub(super) fn rows(answers: &[WhyAnswer], has_namespace: bool) -> String {
    if answers.is_empty() {
        return "No pod waits.\n".to_owned();
    }
    let headings: &[&str] =
        if has_namespace { &["NAMESPACE", "POD", "CAUSE", "WHY"] } else { &["POD", "CAUSE", "WHY"] };
    let mut table = TextTable::new(headings);
    for answer in answers {
        let mut cells = vec![answer.pod.clone(), answer.cause.cause.to_string(), answer.cause.reason.clone()];
        if has_namespace {
            cells.insert(0, answer.namespace.clone());
        }
        table.row(cells);
    }
    table.to_string()
}

fn claims(claims: &[ClaimAnswer]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let headings = ["CLAIM", "REQUEST", "CLASS", "WANTED", "MATCH", "FREE", "ALLOCATED", "HELD", "OTHER", "STATE"];
    let mut table = TextTable::new(&headings);
    for it in claims {
        let counts = match &*it.request {
            "" => [const { "-" }; 5].map(str::to_owned),
            _ => [it.matching, it.free, it.allocated, it.held, it.other].map(|count| count.to_string()),
        };
        let names = [it.claim.clone(), or_dash(&it.request), or_dash(&it.class), or_dash(&it.wanted)];
        let state = format!("{} ({})", it.state, it.object);
        table.row(names.into_iter().chain(counts).chain([state]));
    }
    table.to_string()
}

fn holders(holders: &[WaitedHolder], most: usize) -> String {
    if holders.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["HOLDER", "DEVICES", "NODE", "PODS"]);
    for it in holders.iter().take(most) {
        table.row([it.claim.clone(), it.devices.to_string(), few(&it.nodes), or_dash(&few(&it.pods))]);
    }
    table.to_string() + &more(holders.len(), most, "holders")
}

fn nodes(answer: &WhyAnswer, most: usize) -> String {
    if answer.nodes.is_empty() && answer.room.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["NODES", "NAMES", "WHY NOT"]);
    if !answer.room.is_empty() {
        let names = listed(most, ", ", &answer.room);
        table.row([answer.room.len().to_string(), names, "room for the pod".to_owned()]);
    }
    for it in answer.nodes.iter().take(most) {
        let names = listed(most, ", ", &it.examples);
        table.row([it.nodes.to_string(), names, it.reason.clone()]);
    }
    table.to_string() + &more(answer.nodes.len(), most, "reasons")
}

fn more(count: usize, most: usize, what: &str) -> String {
    if count > most { format!("{} more {what}, with -o wide\n", count - most) } else { String::new() }
}
