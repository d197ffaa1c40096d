//! Limits on what devices share with others: counters.

use std::collections::BTreeMap;

use hostler_api::{
    DeviceName, Quantity,
    limits::{MAX_COUNTER_USES, MAX_COUNTERS},
};

use super::DeviceProblem;
use crate::{CounterSet, CounterUse, Device};

impl CounterSet {
    /// Every limit that the set breaks; empty for a set that can be published.
    pub fn problems(&self) -> Vec<DeviceProblem> {
        amounts_problems("counters", &self.counters)
    }
}

impl Device {
    /// Counters in the device's uses that are not in `sets`, and amounts that no set could ever give.
    pub fn counter_problems(&self, sets: &[CounterSet]) -> Vec<DeviceProblem> {
        self.consumes
            .iter()
            .enumerate()
            .flat_map(|(at, taken)| unresolved(&format!("consumes[{at}]"), taken, sets))
            .collect()
    }
}

fn unresolved(field: &str, taken: &CounterUse, sets: &[CounterSet]) -> Vec<DeviceProblem> {
    let problem = |field: String, reason: String| DeviceProblem { field, reason };
    let Some(set) = sets.iter().find(|set| set.name == taken.set) else {
        let known = list(sets.iter().map(|set| &set.name));
        return vec![problem(
            format!("{field}.set"),
            format!("there is no counter set {}; there are {known}", taken.set),
        )];
    };
    let wrong = |(name, amount): (&DeviceName, &Quantity)| {
        let reason = match set.counters.get(name) {
            None => format!("set {} has no such counter; it has {}", set.name, list(set.counters.keys())),
            Some(value) if amount > value => {
                format!("{} is more than the {} that there are in set {}", amount.human(), value.human(), set.name)
            }
            Some(_) => return None,
        };
        Some(problem(format!("{field}.counters.{name}"), reason))
    };
    taken.counters.iter().filter_map(wrong).collect()
}

fn list<'a>(names: impl Iterator<Item = &'a DeviceName>) -> String {
    let names: Vec<&str> = names.map(DeviceName::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Faults in [`Device::consumes`] by itself.
pub(super) fn consumes_problems(consumes: &[CounterUse]) -> Vec<DeviceProblem> {
    let mut problems = Vec::new();
    if consumes.len() > MAX_COUNTER_USES {
        let reason = format!("{} entries; a device draws on {MAX_COUNTER_USES} counter sets at most", consumes.len());
        problems.push(DeviceProblem { field: "consumes".to_owned(), reason });
    }
    for (at, taken) in consumes.iter().enumerate() {
        let field = format!("consumes[{at}]");
        if consumes.iter().take(at).any(|earlier| earlier.set == taken.set) {
            let reason = format!("an earlier entry takes of set {} already; make one of both", taken.set);
            problems.push(DeviceProblem { field: format!("{field}.set"), reason });
        }
        problems.extend(amounts_problems(&format!("{field}.counters"), &taken.counters));
    }
    problems
}

fn amounts_problems(field: &str, amounts: &BTreeMap<DeviceName, Quantity>) -> Vec<DeviceProblem> {
    let count = match amounts.len() {
        0 => Some("none; name at least one".to_owned()),
        count if count > MAX_COUNTERS => Some(format!("{count}; there can be {MAX_COUNTERS} at most")),
        _ => None,
    };
    count.into_iter().map(|reason| DeviceProblem { field: field.to_owned(), reason }).collect()
}
