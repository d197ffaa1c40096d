//! The answer for people: text in columns, and the reasons in sentences below.

use std::fmt::Write;

use hostler_allocator::plan::Verdict;
use hostler_api::{listed, plain_line};
use hostler_cli::{output::TableWidth, table::TextTable};

use super::answer::{CountAnswer, NodeAnswer, PlacementAnswer, PlanAnswer, PodSetAnswer};

/// The most nodes that are named beside a set of pods, or a reason; -o wide names all.
const FEW_NODES: usize = 4;

/// The most reasons that are named for a set of pods.
const FEW_REASONS: usize = 3;

/// Resources that are shown for nodes that have them.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];

/// Writes what fits, why not more, and what is left; a wide answer has every node and every reason.
pub(super) fn text(answer: &PlanAnswer, width: TableWidth) -> String {
    match width {
        TableWidth::Narrow => sections(answer, FEW_NODES, FEW_REASONS, Vec::new()),
        TableWidth::Wide => sections(answer, usize::MAX, usize::MAX, vec![nodes(&answer.nodes)]),
    }
}

fn sections(answer: &PlanAnswer, most_nodes: usize, most_reasons: usize, more: Vec<String>) -> String {
    let mut sections = vec![placed(&answer.pod_sets, most_nodes)];
    sections.extend(answer.pod_sets.iter().filter_map(|set| refused(set, most_nodes, most_reasons)));
    sections.push(devices(answer));
    sections.extend(more);
    sections.push(notes(answer));
    sections.push(format!("{}\n", in_short(answer)));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

fn placed(sets: &[PodSetAnswer], most: usize) -> String {
    if sets.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["NAMESPACE", "PODS", "WANTED", "PLACED", "WHERE"]);
    for set in sets {
        let place = |place: &PlacementAnswer| format!("{} × {}", place.node, place.pods);
        let places =
            if set.nodes.is_empty() { "-".to_owned() } else { listed(most, ", ", set.nodes.iter().map(place)) };
        table.row([&set.namespace, &set.name, &set.wanted.to_string(), &set.placed.to_string(), &places]);
    }
    table.to_string()
}

/// Names the reasons why pods get no place; `None` if all get one.
fn refused(set: &PodSetAnswer, most_nodes: usize, most_reasons: usize) -> Option<String> {
    let without = set.wanted.saturating_sub(set.placed);
    if without == 0 && set.unsupported.is_empty() {
        return None;
    }
    let mut text = match without {
        0 => format!("{} in {}:\n", set.name, set.namespace),
        _ => format!("{} in {}: no place for {without} of {}\n", set.name, set.namespace, set.wanted),
    };
    for reason in set.reasons.iter().take(most_reasons) {
        let nodes = match reason.nodes {
            0 => String::new(),
            count => format!("{} ({}): ", counted(count, "node"), named(&reason.examples, count, most_nodes)),
        };
        text += &format!("  {nodes}{}\n", reason.reason);
    }
    if set.reasons.len() > most_reasons {
        text += &format!("  {} more, with -o wide\n", counted(set.reasons.len() - most_reasons, "reason"));
    }
    for unsupported in &set.unsupported {
        text += &format!("  not judged: {unsupported}\n");
    }
    Some(text)
}

/// Names the first few nodes, of which only examples are known.
fn named(examples: &[String], count: usize, most: usize) -> String {
    let shown: Vec<&str> = examples.iter().take(most).map(String::as_str).collect();
    let dots = if shown.len() < count { ", …" } else { "" };
    format!("{}{dots}", shown.join(", "))
}

/// Writes the devices by class, which claims ask for; by driver if no classes were read.
fn devices(answer: &PlanAnswer) -> String {
    let classes: Vec<(&String, &CountAnswer)> = answer.classes.iter().map(|it| (&it.class, &it.count)).collect();
    let drivers: Vec<(&String, &CountAnswer)> = answer.devices.iter().map(|it| (&it.driver, &it.count)).collect();
    let (heading, counts) = if classes.is_empty() { ("DRIVER", drivers) } else { ("CLASS", classes) };
    if counts.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&[heading, "DEVICES", "FREE", "LEFT"]);
    for (name, count) in counts {
        table.row([name, &count.devices.to_string(), &count.free.to_string(), &count.left.to_string()]);
    }
    table.to_string()
}

fn nodes(nodes: &[NodeAnswer]) -> String {
    let headings = ["NODE", "PLACED", "CPU LEFT", "MEMORY LEFT", "PODS LEFT", "DEVICES LEFT"];
    let mut table = TextTable::new(&headings);
    for node in nodes {
        let left = RESOURCES.map(|name| node.left.get(name).cloned().unwrap_or_else(|| "-".to_owned()));
        let devices: Vec<String> =
            node.devices_left.iter().map(|(driver, count)| format!("{driver} {count}")).collect();
        let devices = if devices.is_empty() { "-".to_owned() } else { devices.join(", ") };
        let [cpu, memory, pods] = &left;
        table.row([&node.node, &node.placed.to_string(), cpu, memory, pods, &devices]);
    }
    table.to_string()
}

fn notes(answer: &PlanAnswer) -> String {
    let of_sets = answer
        .pod_sets
        .iter()
        .flat_map(|set| set.notes.iter().map(move |note| format!("{} in {}: {note}", set.name, set.namespace)));
    let mut text = String::new();
    for note in of_sets.chain(answer.notes.iter().cloned()) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "Note: {}", plain_line(&note));
    }
    text
}

fn in_short(answer: &PlanAnswer) -> String {
    let wanted: u64 = answer.pod_sets.iter().map(|set| u64::from(set.wanted)).sum();
    let placed: u64 = answer.pod_sets.iter().map(|set| u64::from(set.placed)).sum();
    let version = &answer.kubernetes;
    match (answer.verdict, wanted) {
        (_, 0) => format!("Nothing to place (Kubernetes {version})."),
        (Verdict::Undecided, _) => {
            format!("{placed} of {wanted} pods get a place, if what is not judged has no say (Kubernetes {version}).")
        }
        (Verdict::Fits | Verdict::DoesNotFit, _) => {
            format!("{placed} of {wanted} pods get a place (Kubernetes {version}).")
        }
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_as_far_as_they_are_known() {
        let names = ["a", "b"].map(str::to_owned);
        assert_eq!(named(&names, 2, 4), "a, b");
        assert_eq!(named(&names, 9, 4), "a, b, …");
        assert_eq!(named(&names, 2, 1), "a, …");
    }
}
