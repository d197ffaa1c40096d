//! Candidates: Reservations that lack devices, as the planner is asked about them.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::QuotaAmounts;
use hostler_api::{
    ObjectKey,
    reservation::{PLACED_POD_LABEL, ReservedDevice, ReservedDeviceState},
};

use super::{
    context::HoldContext,
    devices::devices_now,
    holders::current_owners,
    objects::{AllocatedClaim, DeviceKey, device_key},
    parts::is_accounted,
    preemption::preemptable,
    question::{CandidateKey, HoldCandidate, VictimChoice},
    replaced::{ReplacedNode, replaced_node},
    reservation::Reservation,
    taken::{OwnPart, is_taken, quota_amounts},
    victims::{Victim, victims},
};

/// Returns the Reservations that lack devices, the oldest first.
pub(super) fn waiting(cx: &mut HoldContext<'_>) -> Vec<CandidateKey> {
    let mut all: Vec<&Reservation> = cx.reservations.iter().collect();
    all.sort_by_key(|it| (it.object.created, &it.object.name));
    all.into_iter().filter_map(|it| asked(cx, it)).collect()
}

/// Returns the question about a Reservation as it is now, if it lacks devices.
pub(super) fn asked(cx: &mut HoldContext<'_>, reservation: &Reservation) -> Option<CandidateKey> {
    if !reservation.is_open() || reservation.proposal.is_some() {
        return None;
    }
    let devices = devices_now(cx, reservation);
    let owners = current_owners(cx, reservation, &devices);
    let object = &reservation.object;
    let asked = CandidateKey {
        name: object.name.clone(),
        uid: object.uid.clone(),
        generation: object.generation,
        replicas: reservation.lacking(&devices, &owners),
        // Pods are considered only where nothing is free: each of them has to be read.
        has_victims: reservation.is_without_free && reservation.seeks_victims(),
    };
    Some(asked).filter(|asked| !asked.replicas.is_empty())
}

/// Returns the candidate; `None` as long as objects that it depends on are being read.
pub(super) fn candidate(cx: &mut HoldContext<'_>, asked: CandidateKey) -> Option<HoldCandidate> {
    let reservation = cx.reservation(&asked.name)?;
    let (object, spec) = (&reservation.object, &reservation.object.spec);
    let mut template = spec.pod_template().ok()?;
    match replaced_node(cx, reservation) {
        ReplacedNode::Node(node) => template.spec.leave_out(&node),
        ReplacedNode::None => {}
        ReplacedNode::Unknown => return None,
    }
    let (victims, choice) = match (asked.has_victims, spec.is_pre_allocation()) {
        (false, _) => (Vec::new(), VictimChoice::One),
        (true, true) if spec.takes_multiple() => (victims(cx, reservation), VictimChoice::Several),
        (true, true) => (victims(cx, reservation), VictimChoice::One),
        (true, false) => (preemptable(cx, reservation, &template)?, VictimChoice::LeastImportant),
    };
    Some(HoldCandidate {
        value: reservation.value.clone(),
        is_direct: object.labels.contains_key(PLACED_POD_LABEL),
        parts: own_parts(cx, reservation, &asked.replicas),
        leaving: leaving(cx, reservation, &victims),
        claims: spec.device_claims.clone(),
        planned: if object.status.conditions.is_empty() { spec.planned_devices.clone() } else { Vec::new() },
        asked,
        template,
        victims,
        choice,
    })
}

/// Returns the parts that a Reservation keeps for other replicas than these.
pub(super) fn own_parts(cx: &HoldContext<'_>, reservation: &Reservation, lacking: &[u32]) -> Vec<OwnPart> {
    let devices = reservation.object.status.devices.iter();
    let intact = devices.filter(|device| device.is_part() && !lacking.contains(&device.replica));
    let own_part = |device: &ReservedDevice| OwnPart {
        device: device.clone(),
        is_given: device.state == ReservedDeviceState::HandedOver || is_accounted(cx, device),
    };
    intact.map(own_part).collect()
}

/// Returns the devices that are promised to other Reservations, or that no Reservation can have for now. Devices of a
/// candidate that lacks some can be chosen for it again.
pub(super) fn taken<'a>(cx: &HoldContext<'_>, asked: impl Iterator<Item = &'a CandidateKey>) -> BTreeSet<DeviceKey> {
    let lacking: BTreeMap<&str, &CandidateKey> = asked.map(|asked| (&*asked.name, asked)).collect();
    let mut taken = BTreeSet::new();
    for reservation in cx.reservations.iter().filter(|it| !it.is_over()) {
        let asked = lacking.get(&*reservation.object.name);
        let is_lacking = |device: &&ReservedDevice| {
            asked.is_some_and(|it| it.replicas.contains(&device.replica)) && !device.conflict
        };
        let devices = reservation.object.status.devices.iter().filter(|device| !is_lacking(device));
        taken.extend(devices.filter(|device| is_taken(device)).map(device_key));
    }
    let proposed = cx.reservations.iter().filter_map(|it| it.proposal.as_ref()).flatten();
    taken.extend(proposed.map(device_key));
    taken.extend(cx.avoided.keys().cloned());
    taken.extend(no_longer_shared(cx));
    taken
}

/// Returns the devices that are whole now, and of which a claim got a part while they were shared. Planner and scheduler
/// take such devices for free.
fn no_longer_shared(cx: &HoldContext<'_>) -> impl Iterator<Item = DeviceKey> {
    let is_whole = |key: &&DeviceKey| cx.cluster.device(key).is_some_and(|(_, device)| !device.is_shareable);
    let is_part_of = |claim: &AllocatedClaim, key: &DeviceKey| claim.parts.iter().any(|part| part.device == *key);
    let has_part = move |key: &&DeviceKey| cx.cluster.claims_on(key).any(|claim| is_part_of(claim, key));
    cx.cluster.taken().filter(is_whole).filter(has_part).cloned()
}

/// Returns the promises of each namespace that no claim has yet, without replicas of these candidates.
pub(super) fn promised(cx: &HoldContext<'_>, candidates: &[HoldCandidate]) -> BTreeMap<String, QuotaAmounts> {
    let asked: BTreeMap<&str, &[u32]> =
        candidates.iter().map(|candidate| (&*candidate.asked.name, &candidate.asked.replicas[..])).collect();
    let mut promised: BTreeMap<String, QuotaAmounts> = BTreeMap::new();
    for reservation in cx.reservations.iter().filter(|it| !it.is_over() && it.object.is_counted_by_quotas()) {
        let replicas = asked.get(&*reservation.object.name).copied().unwrap_or_default();
        let devices = reservation.devices_and_proposal().filter(|device| !replicas.contains(&device.replica));
        promised.entry(reservation.object.namespace()).or_default().add(&quota_amounts(devices), 1);
    }
    promised
}

/// Returns claims that are gone before the pods of the Reservation come: those of the pod that it moves, and of pods
/// whose devices it may have.
fn leaving(cx: &HoldContext<'_>, reservation: &Reservation, victims: &[Victim]) -> BTreeSet<ObjectKey> {
    let moved = reservation.object.spec.replaces.as_ref();
    let pod = moved.map(|pod| ObjectKey::new(&pod.namespace, &pod.name));
    let of_pod = pod.iter().flat_map(|pod| cx.cluster.claims_of_pod(pod));
    of_pod.chain(victims.iter().flat_map(|victim| &victim.claims)).map(|claim| claim.key.clone()).collect()
}

/// Returns the shared devices of which a claim has a part: no Reservation can have such a device as a whole.
pub(super) fn shared(cx: &HoldContext<'_>) -> BTreeSet<DeviceKey> {
    let is_shared = |key: &&DeviceKey| cx.cluster.device(key).is_some_and(|(_, device)| device.is_shareable);
    cx.cluster.taken().filter(is_shared).cloned().collect()
}

/// True if no other claim got the device since the planner was asked, except the claim of the pod that makes room.
pub(super) fn is_free_still(
    cx: &HoldContext<'_>,
    device: &ReservedDevice,
    own: &[OwnPart],
    taken: &BTreeSet<DeviceKey>,
) -> bool {
    let (key, victim) = (device_key(device), device.owner.as_ref().map(|owner| &*owner.uid));
    if device.is_part() {
        return !taken.contains(&key) || own.iter().any(|part| device_key(&part.device) == key);
    }
    !taken.contains(&key) && cx.cluster.claims_on(&key).all(|claim| Some(&*claim.uid) == victim)
}
