//! Two lists of facts, side by side. Pure.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{
    change::{FactPair, SubjectChange},
    facts::{FactSubject, MachineFact, MachineFacts, NamedFacts},
    words,
};

/// Differences of one subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct SubjectDifference {
    /// The subject.
    #[serde(flatten)]
    pub(super) subject: FactSubject,
    /// The kind of change.
    pub(super) change: SubjectChange,
    /// Facts that are different; of a subject that came or went, all that is known.
    pub(super) facts: Vec<FactChange>,
    /// All of it in one sentence.
    pub(super) text: String,
}

/// A fact before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FactChange {
    /// The name of the fact.
    pub(super) name: String,
    /// Null where it was not known.
    pub(super) before: Value,
    /// Null where it is not known.
    pub(super) after: Value,
}

/// The differences, by subject.
pub(super) fn differences(before: &MachineFacts, after: &MachineFacts) -> Vec<SubjectDifference> {
    let subjects: BTreeSet<&FactSubject> = before.keys().chain(after.keys()).collect();
    subjects.into_iter().filter_map(|subject| difference(subject, before.get(subject), after.get(subject))).collect()
}

fn difference(
    subject: &FactSubject,
    before: Option<&NamedFacts>,
    after: Option<&NamedFacts>,
) -> Option<SubjectDifference> {
    let nothing = NamedFacts::new();
    let (change, old, new) = match (before, after) {
        (None, Some(new)) => (SubjectChange::Came, &nothing, new),
        (Some(old), None) => (SubjectChange::Went, old, &nothing),
        (Some(old), Some(new)) => (SubjectChange::Changed, old, new),
        (None, None) => return None,
    };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let pairs = names.into_iter().map(|name| FactPair { name, before: old.get(name), after: new.get(name) });
    let pairs: Vec<FactPair<'_>> =
        pairs.filter(|pair| pair.before.map(|fact| &fact.json) != pair.after.map(|fact| &fact.json)).collect();
    if change == SubjectChange::Changed && pairs.is_empty() {
        return None;
    }
    let text = words::sentence(subject, change, &pairs);
    let json = |fact: Option<&MachineFact>| fact.map_or(Value::Null, |fact| fact.json.clone());
    let fact = |pair: &FactPair<'_>| FactChange {
        name: pair.name.to_owned(),
        before: json(pair.before),
        after: json(pair.after),
    };
    Some(SubjectDifference { subject: subject.clone(), change, facts: pairs.iter().map(fact).collect(), text })
}
