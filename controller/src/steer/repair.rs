//! Pods that were passed by: their claims were made before the Reservation, or while the webhook was away, so that they
//! wait beside what is kept for them. The leading controller has them led later, or tells of them. What is done is
//! decided here, without a clock and without a call.
//!
//! A claim cannot be changed once it is made. But one that has no devices yet is only a wish, and once it is gone the
//! controller of claims takes another one that the pod owns in its place (from 1.28 on). It writes the status of a pod
//! with several such claims anew each time, with one of them: pods with several are left to it.

pub(super) mod adapter;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::reservation::{CLAIM_INSTEAD_OF, ReservationPhase, toleration_value};
use hostler_api::{Doubling, ObjectKey};
use hostler_cluster::since_1970;
use serde_json::{Value, json};

use super::{
    decide::{SteerFacts, value_of},
    pod::SteeredPod,
    review::GeneratedClaim,
};
use crate::{hold::ReservationObject, view::ClusterView};

/// Owners that make a deleted pod anew. A pod of any other kind may be gone for good.
const REMAKERS: [(&str, &str); 5] = [
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];
/// Pauses after the first pod of an owner, before the next one: seldom, since no signal says whether it helps.
const GAPS: Doubling = Doubling::new(Duration::from_secs(30), Duration::from_secs(3600));
/// The longest part that is kept of a claim's name, before its suffix: together they are a label, as names of the
/// controller of claims.
const LONGEST_BASE: usize = 46;
/// Owners that are remembered at most. Beyond that no pod is made anew before an owner is forgotten.
const MOST_OWNERS: usize = 1024;

/// State of a pod, as far as it decides whether the pod may be deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodState {
    /// The resourceVersion: another one is another state.
    pub(super) version: String,
    pub(super) phase: String,
    pub(super) is_deleting: bool,
    pub(super) has_node: bool,
    /// True if the scheduler has looked at the pod, and found no place.
    pub(super) is_refused: bool,
}

/// A claim without devices, and its pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingPod<'a> {
    pub(super) claim: &'a GeneratedClaim,
    /// The claim as the server has it.
    pub(super) object: &'a Value,
    pub(super) pod: &'a SteeredPod,
    pub(super) state: &'a PodState,
    /// True if another claim of the pod has devices already.
    pub(super) has_devices: bool,
}

/// The repair of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Repair {
    /// Nothing is wrong with the pod, or not for certain.
    Leave,
    /// An Event tells people.
    Tell(String),
    /// The claim makes room for this one, which is led; an Event says why, and gives the advice where it cannot be
    /// made.
    Lead { claim: Box<Value>, why: String, advice: String },
    /// The pod is deleted, in this state, for its owner (given by UID) to make it anew; an Event says why.
    Replace { owner: String, why: String },
}

/// Decides what is done about a pod whose claim waits.
pub(super) fn repair(facts: &SteerFacts<'_>, waiting: &WaitingPod<'_>) -> Repair {
    let WaitingPod { claim, pod, state, has_devices, object } = *waiting;
    let waits = !state.is_deleting && !state.has_node && state.phase == "Pending" && state.is_refused;
    // The answer of the webhook now: only a pod that it would help has been passed by.
    let Some((reservation, answer)) = Some(facts).filter(|_| waits).and_then(|facts| facts.choice(claim, pod)) else {
        return Repair::Leave;
    };
    let (kept_by, name) = (&reservation.name, object["metadata"]["name"].as_str().unwrap_or_default());
    let why = format!(
        "Reservation {kept_by} keeps devices for this pod, but its claim {name} does not tolerate them: {}",
        cause(object, reservation)
    );
    if let [only] = &pod.made_claims[..]
        && only == name
    {
        return Repair::Lead { claim: Box::new(led_claim(object, &answer.patch)), why, advice: advice(reservation) };
    }
    let remaker = pod.owner.controller.as_ref().filter(|it| REMAKERS.contains(&(&*it.api_version, &*it.kind)));
    match remaker {
        Some(owner) if !has_devices => Repair::Replace { owner: owner.uid.clone(), why },
        _ => Repair::Tell(format!("{why}; {}", advice(reservation))),
    }
}

/// The advice of an Event.
fn advice(reservation: &ReservationObject) -> String {
    let value = value_of(reservation);
    format!("make the pod anew, or have its ResourceClaimTemplate tolerate hostler.dev/held with value {value}")
}

/// The reason for which the claim was not led when it was made.
fn cause(object: &Value, reservation: &ReservationObject) -> &'static str {
    let made = object["metadata"]["creationTimestamp"].as_str().and_then(since_1970);
    if made.is_some_and(|made| made <= reservation.created) {
        "it was made before the controller knew of the Reservation"
    } else if reservation.generation > 1 {
        "it was made before the Reservation was changed, or while the webhook did not answer"
    } else {
        "it was made while the webhook did not answer"
    }
}

/// Returns the claim that takes the place of one without devices: of the same pod, with the same name in it, and led.
/// Its name follows from the UID of the other one: two controllers cannot make two.
fn led_claim(object: &Value, patch: &[Value]) -> Value {
    let metadata = &object["metadata"];
    let [name, uid] = ["name", "uid"].map(|field| metadata[field].as_str().unwrap_or_default());
    let base: String = name.chars().take(LONGEST_BASE).collect();
    let base = base.trim_end_matches(['-', '.']);
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let pod = owners.filter(|it| it["controller"] == true).map(|it| {
        json!({ "apiVersion": it["apiVersion"], "kind": it["kind"], "name": it["name"], "uid": it["uid"], "controller": true })
    });
    let mut claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "name": format!("{base}-{}", toleration_value(uid)), "namespace": metadata["namespace"],
            "labels": metadata["labels"], "annotations": metadata["annotations"], "ownerReferences": pod.collect::<Vec<_>>(),
        },
        "spec": object["spec"],
    });
    claim["metadata"]["annotations"][CLAIM_INSTEAD_OF] = json!(name);
    for change in patch {
        let path = change["path"].as_str().unwrap_or_default();
        let Some((parent, field)) = path.rsplit_once('/') else { continue };
        let field = field.replace("~1", "/").replace("~0", "~");
        match claim.pointer_mut(parent) {
            Some(Value::Object(fields)) => drop(fields.insert(field, change["value"].clone())),
            Some(Value::Array(items)) => {
                if let Some(item) = field.parse().ok().and_then(|at: usize| items.get_mut(at)) {
                    *item = change["value"].clone();
                }
            }
            _ => {}
        }
    }
    claim
}

/// Returns claims that may have to be looked at: all that wait, while something is kept. Afterwards those that were
/// made here, by their names: a leftover claim would else stay as long as its pod.
pub(super) fn candidates(view: &ClusterView) -> Cow<'_, BTreeSet<ObjectKey>> {
    if view.reservations.values().any(|it| it.status.phase == ReservationPhase::Available) {
        return Cow::Borrowed(&view.waiting_claims);
    }
    Cow::Owned(view.waiting_claims.iter().filter(|key| may_be_led(&key.name)).cloned().collect())
}

/// True of each name that [`led_claim`] gives. The controller of claims ends its names with five characters.
fn may_be_led(name: &str) -> bool {
    let is_digits = |end: &str| end.len() == 16 && end.bytes().all(|it| it.is_ascii_hexdigit());
    name.rsplit_once('-').is_some_and(|(_, end)| is_digits(end))
}

/// True if a claim was made in the place of another one with which the pod got its devices all the same. A new one that
/// waits for its pod to name it is none; nor is that of a pod that names no claim yet, which may still name this one.
pub(super) fn is_left_over(object: &Value, pod: &SteeredPod, state: &PodState) -> bool {
    let metadata = &object["metadata"];
    let is_named = pod.made_claims.iter().any(|name| metadata["name"] == **name);
    let has_another = !pod.made_claims.is_empty() && !is_named;
    metadata["annotations"][CLAIM_INSTEAD_OF].is_string() && has_another && state.has_node
}

/// Pace at which pods of an owner are made anew: ever more seldom, since no signal says whether it has helped.
#[derive(Debug, Default)]
pub(super) struct RepairPace(BTreeMap<String, (Duration, Duration)>);

impl RepairPace {
    /// True if another pod of this owner may be deleted now.
    pub(super) fn may(&mut self, owner: &str, now: Duration) -> bool {
        self.0.retain(|_, (last, gap)| now.saturating_sub(*last) < *gap * 4);
        let gap = match self.0.get(owner) {
            Some((last, gap)) if now.saturating_sub(*last) < *gap => return false,
            Some((_, gap)) => GAPS.next(Some(*gap)),
            None if self.0.len() >= MOST_OWNERS => return false,
            None => GAPS.next(None),
        };
        self.0.insert(owner.to_owned(), (now, gap));
        true
    }
}
