//! Differences in words. Pure.

use super::{
    DiffDocument,
    change::{FactPair, SubjectChange},
    facts::{FactSubject, MachineFact, SubjectKind},
};
use crate::units::count;

/// The answer for people: a line per subject.
pub(super) fn in_words(document: &DiffDocument) -> String {
    let DiffDocument { before, after, notes, differences, .. } = document;
    let sum = if differences.is_empty() { "no difference".to_owned() } else { count(differences.len(), "difference") };
    let mut text = format!("{} → {}: {sum}\n", before.name, after.name);
    if !differences.is_empty() {
        text.push('\n');
    }
    differences.iter().for_each(|difference| text.push_str(&format!("{}\n", difference.text)));
    notes.iter().for_each(|note| text.push_str(&format!("\nnote: {note}\n")));
    text
}

/// Tells the change of one subject.
pub(super) fn sentence(subject: &FactSubject, change: SubjectChange, pairs: &[FactPair<'_>]) -> String {
    let name = match subject.kind {
        SubjectKind::Machine => "machine".to_owned(),
        SubjectKind::Cpus => "CPUs".to_owned(),
        SubjectKind::Node => format!("NUMA node {}", subject.name),
        SubjectKind::Device => subject.name.clone(),
        SubjectKind::Warning => return warning(change, &subject.name),
    };
    match change {
        SubjectChange::Came => format!("{name} came{}", told(pairs, |pair| pair.after)),
        SubjectChange::Went => format!("{name} went{}", told(pairs, |pair| pair.before)),
        SubjectChange::Changed => {
            let changes: Vec<String> = pairs.iter().map(changed).collect();
            format!("{name}: {}", changes.join("; "))
        }
    }
}

fn warning(change: SubjectChange, text: &str) -> String {
    match change {
        SubjectChange::Went => format!("warning gone: {text}"),
        SubjectChange::Came | SubjectChange::Changed => format!("warning: {text}"),
    }
}

/// Tells facts that are worth knowing of something new or gone: ` (kind memory, capacity memory 512Mi)`.
fn told<'a>(pairs: &[FactPair<'a>], side: impl Fn(&FactPair<'a>) -> Option<&'a MachineFact>) -> String {
    let facts = pairs.iter().filter_map(|pair| Some((pair.name, side(pair)?)));
    let facts: Vec<String> =
        facts.filter(|(_, fact)| fact.tells).map(|(name, fact)| format!("{name} {}", fact.text)).collect();
    if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) }
}

/// `online 0-3 → 0-5 (4-5 came)`.
fn changed(pair: &FactPair<'_>) -> String {
    let text = |fact: Option<&MachineFact>| fact.map_or_else(|| "absent".to_owned(), |fact| fact.text.clone());
    format!("{} {} → {}{}", pair.name, text(pair.before), text(pair.after), moved(pair))
}

/// Tells the members of a set that came and went.
fn moved(pair: &FactPair<'_>) -> String {
    let sets = pair.before.and_then(|fact| fact.set.as_ref()).zip(pair.after.and_then(|fact| fact.set.as_ref()));
    let Some((before, after)) = sets else { return String::new() };
    let parts = [(after.difference(before), "came"), (before.difference(after), "went")];
    let parts: Vec<String> =
        parts.iter().filter(|(set, _)| !set.is_empty()).map(|(set, word)| format!("{set} {word}")).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hostler_api::DeviceName;
    use hostler_backend::{BackendWarning, Device, Health};
    use hostler_linux::topology::{NumaNode, Topology};

    use super::*;
    use crate::cli::{
        diff::{DiffSide, compare, facts},
        inventory::scan,
    };

    fn machine(kernel: &str, online: &str, devices: Vec<Device>, warnings: &[&str]) -> facts::ComparedMachine {
        let nodes =
            BTreeMap::from([(0, NumaNode { memory_bytes: Some(1 << 30), free_bytes: Some(7), ..NumaNode::default() })]);
        let topology = Topology { online: online.parse().unwrap(), nodes, ..Topology::default() };
        let warning = |reason: &&str| BackendWarning { path: "/sys/x".to_owned(), reason: (*reason).to_owned() };
        let pools =
            vec![scan::ScannedPool { backend: "fake", name: "n/fake".to_owned(), devices, counter_sets: Vec::new() }];
        let warnings = warnings.iter().map(warning).collect();
        let seen = scan::ScannedMachine {
            node: "n".to_owned(),
            topology,
            pools,
            warnings,
            failure: None,
            shares: Default::default(),
        };
        facts::ComparedMachine { kernel: Some(kernel.to_owned()), seen }
    }

    fn told(before: &facts::ComparedMachine, after: &facts::ComparedMachine) -> String {
        let differences = compare::differences(&facts::of(before, after), &facts::of(after, before));
        let side = |name: &str| DiffSide { name: name.to_owned(), taken_at: None };
        in_words(&DiffDocument { version: 1, before: side("a"), after: side("b"), notes: Vec::new(), differences })
    }

    #[test]
    fn every_sort_of_difference_has_its_line() {
        let ill = Health::Unhealthy { reason: "hot".to_owned() };
        let device = |health| Device { health, ..Device::new(DeviceName::new("card").unwrap()) };
        let before = machine("6.12.0", "0-3", vec![device(Health::Healthy)], &["odd"]);
        let after = machine("6.13.0", "0-1,4", vec![device(ill)], &["odder"]);
        let expected = "\
a → b: 5 differences

machine: kernel 6.12.0 → 6.13.0
CPUs: online 0-3 → 0-1,4 (4 came, 2-3 went)
fake/card: health Healthy → Unhealthy (hot)
warning gone: /sys/x: odd
warning: /sys/x: odder
";
        assert_eq!(told(&before, &after), expected);
    }

    #[test]
    fn a_machine_is_no_different_from_itself_whatever_is_free() {
        let before = machine("6.12.0", "0-3", Vec::new(), &[]);
        let mut after = machine("6.12.0", "0-3", Vec::new(), &[]);
        after.seen.topology.nodes.get_mut(&0).unwrap().free_bytes = Some(8);
        assert_eq!(told(&before, &after), "a → b: no difference\n");
    }
}
