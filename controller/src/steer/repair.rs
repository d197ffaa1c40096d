//! Pods that were passed by: their claims were made while the webhook was away, so that they wait beside what is kept for them. The
//! controller that leads tells of them, and where it may, has them made anew. What is done is decided here, without a clock and
//! without a call.
//!
//! A claim cannot be changed once it is made, and a claim that was made for a pod is made once: only another pod gets another one.

pub(super) mod adapter;

use std::{collections::BTreeMap, time::Duration};

use super::{decide::SteerFacts, pod::SteeredPod, review::GeneratedClaim};

/// What makes a pod anew that is deleted. A pod of anything else may be gone for good.
const REMAKERS: [(&str, &str); 5] = [
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];
/// After the first pod of an owner, before the next one: as long as nobody knows whether it helps, it is tried seldom.
const FIRST_GAP: Duration = Duration::from_secs(30);
const LONGEST_GAP: Duration = Duration::from_secs(3600);
/// Owners that are remembered. Beyond that nobody is made anew before one is forgotten.
const MOST_OWNERS: usize = 1024;

/// How a pod is, as far as it decides whether it may be deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodState {
    /// The resourceVersion: another one is another state.
    pub(super) version: String,
    pub(super) phase: String,
    pub(super) is_deleting: bool,
    pub(super) has_node: bool,
    /// The scheduler has looked at it, and found no place.
    pub(super) is_refused: bool,
}

/// A claim that nobody has given anything, and its pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingPod<'a> {
    pub(super) claim: &'a GeneratedClaim,
    pub(super) name: &'a str,
    pub(super) pod: &'a SteeredPod,
    pub(super) state: &'a PodState,
    /// Another claim of the pod has devices already.
    pub(super) has_devices: bool,
}

/// What is done about a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Repair {
    /// Nothing is wrong with it, or not for certain.
    Leave,
    /// People are told.
    Tell(String),
    /// It is deleted, in this state, for its owner to make it anew; people are told. The UID of the owner says who.
    Replace { owner: String, message: String },
}

/// What is done about a pod whose claim waits.
pub(super) fn repair(facts: &SteerFacts<'_>, waiting: &WaitingPod<'_>) -> Repair {
    let WaitingPod { claim, pod, state, has_devices, name } = *waiting;
    let waits = !state.is_deleting && !state.has_node && state.phase == "Pending" && state.is_refused;
    // What would be answered now: only whom that would help has been passed by.
    let Some((reservation, value)) = Some(facts).filter(|_| waits).and_then(|facts| facts.choice(claim, pod)) else {
        return Repair::Leave;
    };
    let why = format!(
        "Reservation {reservation} keeps devices for this pod, but its claim {name} does not tolerate them: it was made while the \
         webhook did not answer"
    );
    let remaker = pod.owner.controller.as_ref().filter(|it| REMAKERS.contains(&(&*it.api_version, &*it.kind)));
    match remaker {
        Some(owner) if !has_devices => {
            Repair::Replace { owner: owner.uid.clone(), message: format!("{why}; the pod is made anew") }
        }
        _ => Repair::Tell(format!(
            "{why}; make the pod anew, or have its ResourceClaimTemplate tolerate hostler.dev/held with value {value}"
        )),
    }
}

/// When pods of an owner are made anew: seldom, and ever more seldom, since nobody tells whether it has helped.
#[derive(Debug, Default)]
pub(super) struct RepairPace(BTreeMap<String, (Duration, Duration)>);

impl RepairPace {
    /// Whether another pod of this owner may go now.
    pub(super) fn may(&mut self, owner: &str, now: Duration) -> bool {
        self.0.retain(|_, (last, gap)| now.saturating_sub(*last) < (*gap).max(FIRST_GAP) * 4);
        let gap = match self.0.get(owner) {
            Some((last, gap)) if now.saturating_sub(*last) < *gap => return false,
            Some((_, gap)) => (*gap * 2).min(LONGEST_GAP),
            None if self.0.len() >= MOST_OWNERS => return false,
            None => FIRST_GAP,
        };
        self.0.insert(owner.to_owned(), (now, gap));
        true
    }
}
