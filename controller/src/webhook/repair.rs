//! Repair of pods that the webhook missed: their claims were made before the Reservation, or while the webhook was
//! down, so they wait beside the devices that are kept for them. The leading controller gives these pods a changed
//! claim, or records an Event. This module decides, without a clock and without a call.
//!
//! A claim cannot be changed once it is made. But a claim without devices can be deleted, and once it is gone the
//! controller of claims takes another claim that the pod owns in its place (from 1.28 on). That controller writes the
//! status of a pod with several such claims anew each time, with one of them: pods with several claims are left to it.

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
    decide::{WebhookFacts, value_of},
    pod::{PodState, WebhookPod},
    review::GeneratedClaim,
};
use crate::{reservation_object::ReservationObject, view::ClusterView};

/// Owners that make a deleted pod anew. A pod of any other kind may be gone for good.
const REMAKERS: [(&str, &str); 5] = [
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];
/// Pauses between two pods of one owner: ever longer, since no signal says whether a new pod helps.
const GAPS: Doubling = Doubling::new(Duration::from_secs(30), Duration::from_secs(3600));
/// The longest part of a claim's name that is kept before its suffix: both together are a label, like names by the
/// controller of claims.
const LONGEST_BASE: usize = 46;
/// The most owners that are remembered. Beyond that no pod is made anew before an owner is forgotten.
const MOST_OWNERS: usize = 1024;

/// A claim without devices, and its pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingPod<'a> {
    pub(super) claim: &'a GeneratedClaim,
    /// The claim as the API server returned it.
    pub(super) object: &'a Value,
    pub(super) pod: &'a WebhookPod,
    pub(super) state: &'a PodState,
    /// True if another claim of the pod has devices already.
    pub(super) has_devices: bool,
}

/// The repair of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Repair {
    /// The pod needs no repair, or it is not certain that it does.
    Leave,
    /// An Event tells people about the pod.
    Tell(String),
    /// The pod's claim is replaced by this claim, which tolerates the Reservation's taint. An Event says why; it gives
    /// the advice if the claim cannot be made.
    Lead { claim: Box<Value>, why: String, advice: String },
    /// The pod is deleted, in this state, so that its owner (given by UID) makes it anew; an Event tells people.
    Replace { owner: String, why: String },
}

/// Decides the repair of a pod whose claim waits.
pub(super) fn repair(facts: &WebhookFacts<'_>, waiting: &WaitingPod<'_>) -> Repair {
    let WaitingPod { claim, pod, state, has_devices, object } = *waiting;
    let waits = !state.is_deleting && !state.has_node && state.phase == "Pending" && state.is_refused;
    // The webhook's present answer: only a pod that the answer would help has been missed.
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

/// The reason why the webhook did not change the claim when it was made.
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

/// Returns the claim that replaces a claim without devices: a claim of the same pod, with the same name in it, and
/// changed by the webhook's patch. The new name follows from the UID of the replaced claim: two controllers cannot make
/// two.
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

/// Returns claims that may need repair: all that wait, while any devices are kept. When none are kept, only the claims
/// whose names were made here: a leftover claim would otherwise stay as long as its pod.
pub(super) fn candidates(view: &ClusterView) -> Cow<'_, BTreeSet<ObjectKey>> {
    if view.reservations.values().any(|it| it.status.phase == ReservationPhase::Available) {
        return Cow::Borrowed(&view.waiting_claims);
    }
    Cow::Owned(view.waiting_claims.iter().filter(|key| may_be_led(&key.name)).cloned().collect())
}

/// True for each name that [`led_claim`] gives. The controller of claims ends its names with five characters.
fn may_be_led(name: &str) -> bool {
    let is_digits = |end: &str| end.len() == 16 && end.bytes().all(|it| it.is_ascii_hexdigit());
    name.rsplit_once('-').is_some_and(|(_, end)| is_digits(end))
}

/// True if the claim was made to replace another one, and its pod got a node with a claim that is not this one. A new
/// claim that waits for its pod to name it is not left over; nor is a claim whose pod names none yet, since the pod may
/// still name this one.
pub(super) fn is_left_over(object: &Value, pod: &WebhookPod, state: &PodState) -> bool {
    let metadata = &object["metadata"];
    let is_named = pod.made_claims.iter().any(|name| metadata["name"] == **name);
    let has_another = !pod.made_claims.is_empty() && !is_named;
    metadata["annotations"][CLAIM_INSTEAD_OF].is_string() && has_another && state.has_node
}

/// Pace at which pods of one owner are made anew: ever slower, since no signal says whether a new pod helps.
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
