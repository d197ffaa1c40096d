//! The status of a Reservation of Koordinator.

use std::{
    collections::BTreeSet,
    time::{Duration, UNIX_EPOCH},
};

use hostler_api::{
    ExactQuantity,
    core::ResourceList,
    hardware::{Condition, ConditionStatus},
    reservation::{ReservationPhase, ReservationStatus, ReservedPlace},
};
use hostler_cluster::rfc3339;
use serde_json::{Map, Value, json};

use super::context::KoordinatorObject;
use crate::convert::ConvertNote;

/// Type of the condition that Koordinator does not have.
const SERVED: &str = "Served";
/// Types of conditions that both have.
const COMMON: [&str; 2] = ["Scheduled", "Ready"];

/// State of an object of Koordinator.
#[derive(Clone, Debug)]
pub(super) enum Served {
    /// Served, with these differences.
    Yes(Vec<ConvertNote>),
    /// Not served, for this reason.
    No { reason: &'static str, message: String },
    /// Served, in the words that the object has.
    Told(String),
}

impl Served {
    /// True if the object says that it was served.
    pub(super) fn was(theirs: &KoordinatorObject) -> bool {
        told(theirs).is_some_and(|it| it.status == ConditionStatus::True)
    }

    /// Returns the state of an object whose Reservation is over, with what the object says of it.
    pub(super) fn before(theirs: &KoordinatorObject) -> Self {
        let told = told(theirs).filter(|it| it.status == ConditionStatus::True);
        told.map_or_else(|| Self::Yes(Vec::new()), |it| Self::Told(it.message.clone()))
    }

    fn condition(&self, theirs: &KoordinatorObject, now: Duration) -> Condition {
        let (status, reason, message) = match self {
            Self::Yes(notes) => (ConditionStatus::True, "Served", message(theirs, notes)),
            Self::Told(message) => (ConditionStatus::True, "Served", message.clone()),
            Self::No { reason, message } => (ConditionStatus::False, *reason, message.clone()),
        };
        let since = told(theirs).filter(|it| it.status == status).map(|it| it.last_transition_time.clone());
        Condition {
            kind: SERVED.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: since.unwrap_or_else(|| rfc3339(UNIX_EPOCH + now)),
        }
    }
}

fn told(theirs: &KoordinatorObject) -> Option<&Condition> {
    theirs.status.conditions.iter().find(|it| it.kind == SERVED)
}

fn message(theirs: &KoordinatorObject, notes: &[ConvertNote]) -> String {
    let differences = notes.iter().map(|note| format!("; {}: {}: {}", note.field, note.difference, note.reason));
    let differences: String = differences.collect();
    format!("hostler keeps it as Reservation {} of hostler.dev{differences}", theirs.meta.name)
}

/// Returns the status, without empty fields. `own` is the status of hostler's Reservation, if there is one.
pub(super) fn status(
    theirs: &KoordinatorObject,
    own: Option<&ReservationStatus>,
    served: &Served,
    now: Duration,
) -> Value {
    let none = ReservationStatus { phase: ReservationPhase::Pending, ..ReservationStatus::default() };
    let own = own.unwrap_or(&none);
    let place = own.places.first().filter(|place| place.is_kept());
    let common = own.conditions.iter().filter(|it| COMMON.contains(&&*it.kind)).map(written);
    let served = served.condition(theirs, now);
    let conditions: Vec<Value> = common.chain([written(&served)]).collect();
    let mut status =
        Map::from_iter([("phase".to_owned(), json!(own.phase)), ("conditions".to_owned(), Value::Array(conditions))]);
    let node = own.node_name.as_deref().or(place.map(|it| &*it.node_name)).filter(|node| !node.is_empty());
    status.extend(node.map(|node| ("nodeName".to_owned(), json!(node))));
    let devices = |of: &_| json!(of).as_object().cloned().unwrap_or_default();
    let mut allocatable = devices(&own.allocatable);
    let mut allocated = devices(&own.allocated);
    allocatable.extend(place.into_iter().flat_map(|place| amounts(place.requests.clone())));
    allocated.extend(place.into_iter().flat_map(|place| amounts(taken(place))));
    let owners = owners(own, place);
    for (field, value) in [("allocatable", allocatable), ("allocated", allocated)] {
        if !value.is_empty() {
            status.insert(field.to_owned(), Value::Object(value));
        }
    }
    if !owners.is_empty() {
        status.insert("currentOwners".to_owned(), Value::Array(owners));
    }
    Value::Object(status)
}

/// Koordinator probes when it writes: that is the time of the change.
fn written(condition: &Condition) -> Value {
    let mut written = json!(condition);
    written["lastProbeTime"] = json!(condition.last_transition_time);
    written
}

fn amounts(of: ResourceList) -> impl Iterator<Item = (String, Value)> {
    of.into_iter().map(|(name, amount)| (name, json!(amount)))
}

/// Returns what owners have of a place.
fn taken(place: &ReservedPlace) -> ResourceList {
    let left = place.left();
    let of = |(name, all): (&String, &ExactQuantity)| {
        let taken = left.get(name).map_or(*all, |left| all.minus(*left));
        (taken.sign() > 0).then(|| (name.clone(), taken))
    };
    place.requests.iter().filter_map(of).collect()
}

/// Returns the owners of devices and of the place, each once.
fn owners(own: &ReservationStatus, place: Option<&ReservedPlace>) -> Vec<Value> {
    let of_devices = own.current_owners.iter().map(|it| (&it.namespace, &it.name, &it.uid));
    let of_place = place.into_iter().flat_map(|place| &place.owners).filter(|it| it.bound);
    let of_place = of_place.map(|it| (&it.namespace, &it.name, &it.uid));
    let all: BTreeSet<_> = of_devices.chain(of_place).collect();
    let written = all.into_iter().map(|(namespace, name, uid)| {
        json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid })
    });
    written.collect()
}
