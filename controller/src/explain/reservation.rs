//! Explains the state of a Reservation. Pure.

mod devices;
mod owners;
mod places;

use std::{collections::BTreeMap, fmt::Write, time::SystemTime};

use hostler_api::{
    few,
    hardware::{Condition, ConditionStatus},
    reservation::{
        PodEviction, PodEvictionState, RESERVATION_FINALIZER, ReservationConditionReason as Reason,
        ReservationConditionType as Type, ReservationPhase as Phase, ReservedDeviceState as State,
    },
    well_known::HELD_TAINT,
};
use serde::Deserialize;
use serde_json::Value;

use self::{
    devices::{NodeHolds, device_lines},
    owners::{ClaimPod, OwnedClaim, owner_lines},
    places::place_lines,
};
use super::late;
use crate::{
    held::{Lasting, owner_words},
    reservation_object::ReservationObject,
};

/// Objects that explain a Reservation.
#[derive(Debug, Default)]
pub(super) struct ReservationWorld {
    /// All Reservations, by name.
    reservations: BTreeMap<String, ReservationObject>,
    /// Devices that nodes were told to close, and those that they report as closed.
    holds: BTreeMap<String, NodeHolds>,
    /// Pods that may be owners.
    pods: Vec<ClaimPod>,
    /// Claims of these pods.
    claims: Vec<OwnedClaim>,
    /// Objects that could not be read, with the facts that they would have told.
    pub(super) unread: Vec<String>,
}

/// A page of a list.
#[derive(Deserialize)]
struct ReservationListPage {
    kind: String,
    #[serde(default)]
    items: Vec<Value>,
}

impl ReservationWorld {
    /// Takes the objects of a page.
    pub(super) fn take(&mut self, page: &str) -> Result<(), serde_json::Error> {
        let ReservationListPage { kind, items } = serde_json::from_str(page)?;
        for item in items {
            match &*kind {
                "PodList" => self.pods.push(ClaimPod::deserialize(item)?),
                "ResourceClaimList" => self.claims.push(OwnedClaim::deserialize(item)?),
                _ => {
                    let read = ReservationObject::deserialize(item)?;
                    self.reservations.insert(read.name.clone(), read);
                }
            }
        }
        Ok(())
    }

    /// Takes what is known of a node's NodeHardware; `None` where there is none.
    pub(super) fn take_hardware(&mut self, node: &str, hardware: Option<Value>) -> Result<(), serde_json::Error> {
        let holds = hardware.map(NodeHolds::deserialize).transpose()?.unwrap_or_default();
        self.holds.insert(node.to_owned(), holds);
        Ok(())
    }

    /// Returns the nodes that have not closed all that they should, as far as that is known.
    pub(super) fn nodes_to_ask(&self, name: &str) -> Vec<String> {
        let reservation = self.reservations.get(name);
        let devices = reservation.into_iter().flat_map(|it| &it.status.devices);
        let closing = devices.filter(|device| device.state == State::Fencing && !device.node_name.is_empty());
        let mut nodes: Vec<String> = closing.map(|device| device.node_name.clone()).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// Returns the namespaces of owners; `None` where owners may be in any namespace, and an empty list where no owner
    /// can take a device.
    pub(super) fn owner_namespaces(&self, name: &str) -> Option<Vec<String>> {
        let open = self.reservations.get(name).filter(|it| it.status.phase == Phase::Available);
        open.map_or_else(|| Some(Vec::new()), |it| owners::namespaces(&it.spec))
    }

    /// Explains a Reservation; `None` where there is none.
    pub(super) fn explained(&self, name: &str, now: SystemTime) -> Option<String> {
        let reservation = self.reservations.get(name)?;
        let (spec, status) = (&reservation.spec, &reservation.status);
        let owners: Vec<String> = spec.owners.iter().map(owner_words).collect();
        let devices = format!("{} of {} devices held", status.held, status.devices.len());
        let kept = if has_devices(reservation) { devices } else { "CPU, memory and ports alone".to_owned() };
        let mut text = format!("Reservation {name}: {}, {kept}, for {}\n", status.phase.as_str(), few(owners));
        for line in self.lines(reservation, now) {
            // Writing to a text does not fail.
            let _ = writeln!(text, "  {line}");
        }
        Some(text)
    }

    fn lines(&self, reservation: &ReservationObject, now: SystemTime) -> Vec<String> {
        let status = &reservation.status;
        if reservation.is_deleting {
            return going(reservation);
        }
        if status.phase.is_over() {
            return over(reservation);
        }
        let mut lines = stand(reservation);
        lines.extend(device_lines(&status.devices, &self.holds));
        lines.extend(place_lines(&status.places));
        lines.extend(status.evictions.iter().map(eviction));
        lines.extend(until(reservation, now));
        if is_in_need(reservation) {
            lines.extend(self.others(reservation));
        }
        let value = status.toleration_value.as_deref().filter(|_| has_devices(reservation));
        lines.extend(value.map(toleration));
        if status.phase == Phase::Available {
            lines.extend(owner_lines(reservation, &self.pods, &self.claims));
        }
        lines.extend(self.unread.iter().cloned());
        lines
    }

    /// Names the other Reservations in the way, which keep devices.
    fn others(&self, reservation: &ReservationObject) -> Option<String> {
        let others = self.reservations.values().filter(|other| other.name != reservation.name);
        let keeping = others.filter(|other| !other.status.phase.is_over() && !other.status.devices.is_empty());
        let words = keeping.map(|other| {
            let devices = other.status.devices.len();
            format!("{} ({devices} devices, {})", other.name, Lasting::of(&other.spec, other.created))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| format!("other Reservations keep devices: {}", few(words)))
    }
}

/// True if the Reservation is about devices, too.
fn has_devices(reservation: &ReservationObject) -> bool {
    reservation.spec.asks_for_devices() || !reservation.status.devices.is_empty()
}

/// Tells the state of the Reservation, since when, and why.
fn stand(reservation: &ReservationObject) -> Vec<String> {
    let status = &reservation.status;
    if status.conditions.is_empty() {
        return vec![nobody("nobody has said anything of it yet")];
    }
    let mut lines = Vec::new();
    if status.observed_generation != Some(reservation.generation) {
        lines.push(nobody("its spec is another one since, and nobody has looked at that yet"));
    }
    let ready = status.condition(Type::Ready);
    lines.extend(ready.map(said));
    let scheduled = status.condition(Type::Scheduled).filter(|it| it.status == ConditionStatus::False);
    let scheduled = scheduled.filter(|it| it.reason != Reason::Invalid.as_str());
    lines.extend(scheduled.map(|it| format!("it looks for devices since {}: {}", it.last_transition_time, it.message)));
    let placed = status.condition(Type::Placed);
    lines.extend(placed.map(|it| format!("its pod is not placed since {}: {}", it.last_transition_time, it.message)));
    lines
}

fn said(condition: &Condition) -> String {
    let Condition { status, reason, message, last_transition_time, .. } = condition;
    let is_ready = if *status == ConditionStatus::True { "it can be relied on" } else { "it cannot be relied on" };
    format!("{is_ready} since {last_transition_time}: {message} ({reason})")
}

/// Tells the progress of a pod that makes room.
fn eviction(eviction: &PodEviction) -> String {
    let PodEviction { namespace, name, state, message, .. } = eviction;
    match state {
        PodEvictionState::Planned => format!("pod {namespace}/{name} is to be evicted"),
        PodEvictionState::Blocked => format!("pod {namespace}/{name} cannot be evicted yet: {message}"),
        PodEvictionState::Evicted => format!("pod {namespace}/{name} is evicted"),
        PodEvictionState::Gone => format!("pod {namespace}/{name} went by itself"),
    }
}

/// True if the Reservation lacks devices.
fn is_in_need(reservation: &ReservationObject) -> bool {
    let status = &reservation.status;
    status.lack_of_devices().is_some() || status.devices.iter().any(|device| device.state == State::Lost)
}

fn going(reservation: &ReservationObject) -> Vec<String> {
    let others = reservation.finalizers.iter().filter(|it| *it != RESERVATION_FINALIZER);
    let others: Vec<&String> = others.collect();
    if !others.is_empty() {
        return vec![format!("it is being deleted; finalizers of others keep it: {}", few(others))];
    }
    let closed = few(reservation.status.devices.iter().map(devices::name));
    vec![
        nobody("it is being deleted, and goes when nothing is closed for it any more"),
        format!("what was closed for it: {closed}"),
    ]
}

fn over(reservation: &ReservationObject) -> Vec<String> {
    let status = &reservation.status;
    let mut lines = Vec::new();
    let ready = status.condition(Type::Ready);
    lines.extend(
        ready.map(|it| format!("it is over since {}: {} ({})", it.last_transition_time, it.message, it.reason)),
    );
    if !status.devices.is_empty() {
        let left = few(status.devices.iter().map(devices::name));
        lines.push(format!("not opened to others yet: {left}"));
    }
    if !status.current_owners.is_empty() {
        let had = status.current_owners.iter().map(|it| format!("{}/{}", it.namespace, it.name));
        lines.push(format!("pods that got its devices: {}", few(had)));
    }
    lines.push("it is kept for a while to be looked at; make another one for more".to_owned());
    lines
}

fn until(reservation: &ReservationObject, now: SystemTime) -> Vec<String> {
    let lasting = Lasting::of(&reservation.spec, reservation.created);
    let end = lasting.end();
    let mut lines = vec![format!("it lasts {lasting}")];
    lines.extend(late(end, now).then(|| nobody("its time is over")));
    lines
}

fn toleration(value: &str) -> String {
    format!(
        "requests for its devices need tolerations: [{{key: {HELD_TAINT}, operator: Equal, value: {value}, effect: \
         NoSchedule}}]"
    )
}

fn nobody(what: &str) -> String {
    format!("{what}: is there a controller with capabilities.reservations switched on, and does one lead?")
}

#[cfg(test)]
mod tests;
