//! Two states of all claims, or of all devices, compared. Pure.

use std::collections::BTreeMap;

use hostler_backend::{Device, Health};

use super::super::types::AdminEventSubject;
use crate::{
    claims::ClaimTable,
    inventory::{Drain, Inventory},
};

/// How each claim, or each device, is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct EventFacts {
    subject: AdminEventSubject,
    /// By the UID of a claim, or the name of a device.
    facts: BTreeMap<String, EventFact>,
}

/// How something is.
#[derive(Clone, Debug, Eq, PartialEq)]
struct EventFact {
    name: String,
    state: &'static str,
    /// Why, where there is a reason.
    reason: String,
}

/// A change: what of, its name, the change in a word, and a reason.
pub(super) type EventDifference = (AdminEventSubject, String, &'static str, String);

impl EventFacts {
    pub(super) fn of_claims(table: &ClaimTable) -> Self {
        let facts = table.claims.iter().map(|(uid, view)| {
            let name = view.claim().map(|claim| format!("{}/{}", claim.namespace, claim.name));
            let name = name.unwrap_or_else(|| uid.to_string());
            (uid.to_string(), EventFact { name, state: view.state().as_str(), reason: String::new() })
        });
        Self { subject: AdminEventSubject::Claim, facts: facts.collect() }
    }

    pub(super) fn of_devices(inventory: &Inventory) -> Self {
        let facts = inventory.pools.iter().flat_map(|(backend, pool)| {
            pool.devices.iter().map(move |device| {
                let name = format!("{backend}/{}", device.name);
                (name.clone(), device_fact(name, device, inventory.drain(backend, &device.name)))
            })
        });
        Self { subject: AdminEventSubject::Device, facts: facts.collect() }
    }

    /// Returns what is different in a later state: what has gone first.
    pub(super) fn differences(&self, later: &Self) -> Vec<EventDifference> {
        let gone = self.facts.iter().filter(|(key, _)| !later.facts.contains_key(*key));
        let gone = gone.map(|(_, fact)| (self.subject, fact.name.clone(), self.gone(), String::new()));
        let states = later.facts.iter().map(|(key, fact)| (self.facts.get(key).map(|before| before.state), fact));
        let changed = states.filter(|(before, fact)| *before != Some(fact.state));
        gone.chain(changed.map(|(before, fact)| self.change(before, fact))).collect()
    }

    /// The word for what is not there any more.
    fn gone(&self) -> &'static str {
        if self.subject == AdminEventSubject::Claim { "unprepared" } else { "removed" }
    }

    fn change(&self, before: Option<&'static str>, EventFact { name, state, reason }: &EventFact) -> EventDifference {
        let (change, message) = match (self.subject, before, *state) {
            (AdminEventSubject::Device, None, "healthy") => ("added", String::new()),
            (AdminEventSubject::Device, None, state) => ("added", format!("{state} {reason}").trim_end().to_owned()),
            (AdminEventSubject::Device, Some("drained"), "healthy") => ("undrained", String::new()),
            (_, _, state) => (state, reason.clone()),
        };
        (self.subject, name.clone(), change, message)
    }
}

fn device_fact(name: String, device: &Device, drain: Option<&Drain>) -> EventFact {
    let (state, reason) = match (&device.health, drain) {
        (Health::Unhealthy { reason }, _) => ("unhealthy", Some(reason)),
        (_, Some(drain)) => ("drained", drain.reason.as_ref()),
        (Health::Unknown { reason }, None) => ("unknown", Some(reason)),
        (Health::Healthy, None) => ("healthy", None),
    };
    EventFact { name, state, reason: reason.cloned().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(subject: AdminEventSubject, facts: &[(&str, &'static str, &str)]) -> EventFacts {
        let fact = |(name, state, reason): &(&str, &'static str, &str)| {
            ((*name).to_owned(), EventFact { name: (*name).to_owned(), state, reason: (*reason).to_owned() })
        };
        EventFacts { subject, facts: facts.iter().map(fact).collect() }
    }

    fn told(before: &EventFacts, now: &EventFacts) -> Vec<String> {
        let line = |(subject, name, change, message): EventDifference| {
            format!("{} {name} {change} {message}", subject.as_str()).trim_end().to_owned()
        };
        before.differences(now).into_iter().map(line).collect()
    }

    #[test]
    fn each_change_of_a_device_has_its_word_and_reason() {
        let device = AdminEventSubject::Device;
        let before = facts(device, &[("f/0", "healthy", ""), ("f/1", "drained", "fan"), ("f/2", "healthy", "")]);
        let now = facts(
            device,
            &[("f/0", "unhealthy", "hot"), ("f/1", "healthy", ""), ("f/3", "healthy", ""), ("f/4", "unknown", "lost")],
        );
        let expected = [
            "device f/2 removed",
            "device f/0 unhealthy hot",
            "device f/1 undrained",
            "device f/3 added",
            "device f/4 added unknown lost",
        ];
        assert_eq!(told(&before, &now), expected);
        assert!(told(&now, &now).is_empty());
    }

    #[test]
    fn a_claim_that_is_not_on_record_any_more_is_unprepared() {
        let claim = AdminEventSubject::Claim;
        let before = facts(claim, &[("a", "preparing", ""), ("b", "prepared", ""), ("c", "prepared", "")]);
        let now = facts(claim, &[("a", "prepared", ""), ("c", "prepared", ""), ("d", "preparing", "")]);
        assert_eq!(told(&before, &now), ["claim b unprepared", "claim a prepared", "claim d preparing"]);
    }
}
