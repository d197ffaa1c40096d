//! Two lists of facts, side by side. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::{
    facts::{Fact, Facts, Subject},
    words,
};

/// What is different about one subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    /// What it is about.
    #[serde(flatten)]
    pub(super) subject: Subject,
    /// What happened to it.
    pub(super) change: Change,
    /// What is different; of what came or went, all that is known.
    pub(super) facts: Vec<FactChange>,
    /// All of it in one sentence.
    pub(super) text: String,
}

/// What happened to a subject.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    /// It was not there before.
    Came,
    /// It is not there any more.
    Went,
    /// It is another than before.
    Changed,
}

/// A fact before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FactChange {
    /// Its name.
    pub(super) name: String,
    /// Null where it was not known.
    pub(super) before: Value,
    /// Null where it is not known.
    pub(super) after: Value,
}

/// The differences, by subject.
pub(super) fn differences(before: &Facts, after: &Facts) -> Vec<Difference> {
    let subjects: BTreeSet<&Subject> = before.keys().chain(after.keys()).collect();
    subjects.into_iter().filter_map(|subject| difference(subject, before.get(subject), after.get(subject))).collect()
}

fn difference(subject: &Subject, before: Option<&Named>, after: Option<&Named>) -> Option<Difference> {
    let nothing = Named::new();
    let (change, old, new) = match (before, after) {
        (None, Some(new)) => (Change::Came, &nothing, new),
        (Some(old), None) => (Change::Went, old, &nothing),
        (Some(old), Some(new)) => (Change::Changed, old, new),
        (None, None) => return None,
    };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let pairs = names.into_iter().map(|name| Pair { name, before: old.get(name), after: new.get(name) });
    let pairs: Vec<Pair<'_>> =
        pairs.filter(|pair| pair.before.map(|fact| &fact.json) != pair.after.map(|fact| &fact.json)).collect();
    if change == Change::Changed && pairs.is_empty() {
        return None;
    }
    let text = words::sentence(subject, change, &pairs);
    let json = |fact: Option<&Fact>| fact.map_or(Value::Null, |fact| fact.json.clone());
    let fact =
        |pair: &Pair<'_>| FactChange { name: pair.name.to_owned(), before: json(pair.before), after: json(pair.after) };
    Some(Difference { subject: subject.clone(), change, facts: pairs.iter().map(fact).collect(), text })
}

type Named = BTreeMap<String, Fact>;

/// A fact of both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub(super) name: &'a str,
    pub(super) before: Option<&'a Fact>,
    pub(super) after: Option<&'a Fact>,
}
