//! Whoever keeps devices in the model: makes Reservations Available where there are devices, hands them over, and lets them expire.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{
    ObjectKey,
    hardware::{Condition, ConditionStatus},
    reservation::{
        ObjectReference, ReservationPhase as Phase, ReservationStatus, ReservedDevice, ReservedDeviceState as State,
        parse_ttl, toleration_value,
    },
};
use hostler_reconcile::WriteOutcome;

use super::world::ModelServer;
use crate::{
    provision::event::{NewReservation, ReservationWrite, WriteResult},
    reservation_object::ReservationObject,
    testkit::{ApiError, Part, over},
};

/// Node and number of a device.
pub(super) type DeviceAt = (String, usize);

fn device_at(device: &ReservedDevice) -> DeviceAt {
    (device.pool.clone(), device.device.trim_start_matches("gpu-").parse().unwrap())
}

fn device(replica: u32, (pool, number): &DeviceAt, node: &str) -> ReservedDevice {
    ReservedDevice {
        replica,
        claim: "gpu".to_owned(),
        request: "r".to_owned(),
        driver: "gpu.example".to_owned(),
        pool: pool.clone(),
        device: format!("gpu-{number}"),
        node_name: node.to_owned(),
        state: State::Held,
        device_class_name: "gpu".to_owned(),
        ..ReservedDevice::default()
    }
}

impl ModelServer {
    /// Carries out a write of a Reservation.
    pub(super) fn keep(&mut self, write: &ReservationWrite, now: SystemTime) -> WriteResult {
        match write {
            ReservationWrite::Create(new) => {
                let made = self.create(Arc::new(reservation(new, now)));
                self.keep_written(made)
            }
            ReservationWrite::Shrink(of, replicas) => {
                let change = |it: &mut Arc<ReservationObject>| Arc::make_mut(it).spec.replicas = Some(*replicas);
                let written = self.update(&of.name, Some(&over(&of.uid, &of.version)), Part::Spec, change);
                self.keep_written(written)
            }
            ReservationWrite::Delete(of) => {
                let deleted = self.delete(&of.name, Some(&over(&of.uid, &of.version)));
                self.keep_written(deleted).and(Err(WriteOutcome::Gone))
            }
        }
    }

    fn keep_written(&mut self, written: Result<Arc<ReservationObject>, ApiError>) -> WriteResult {
        self.keeps += usize::from(written.is_ok());
        written.map(|it| over(&it.uid, &it.version)).map_err(WriteOutcome::from)
    }

    /// Devices that are kept, and by which Reservation.
    pub(super) fn held(&self) -> BTreeMap<DeviceAt, String> {
        let mut held = BTreeMap::new();
        for known in self.reservations.values().filter(|it| !it.status.phase.is_over()) {
            for device in known.status.devices.iter().filter(|it| it.state != State::HandedOver) {
                let other = held.insert(device_at(device), known.name.clone());
                assert_eq!(other, None, "{} is kept twice", device.device);
            }
        }
        held
    }

    /// Devices that nobody has, and for which nobody keeps them.
    pub(super) fn free(&self) -> Vec<DeviceAt> {
        let held = self.held();
        let all = self.devices.iter().flat_map(|(node, count)| (0..*count).map(|at| (node.clone(), at)));
        let is_free =
            |it: &DeviceAt| !held.contains_key(it) && !self.given.contains_key(it) && !self.broken.contains(it);
        all.filter(is_free).collect()
    }

    /// Does what is to be done for Reservations. Says whether anything was.
    pub(super) fn keep_devices(&mut self, now: SystemTime) -> bool {
        let mut names: Vec<String> = self.reservations.keys().cloned().collect();
        names.sort_by_key(|name| self.reservations[name].created);
        let mut is_other = false;
        for name in names {
            let known = self.reservations[&name].clone();
            if known.is_deleting {
                self.remove::<Arc<ReservationObject>>(&name);
                is_other = true;
                continue;
            }
            let status = self.status_of(&known, now);
            if status != known.status {
                is_other = true;
                self.put(Arc::new(ReservationObject { status, ..(*known).clone() }));
            }
        }
        is_other
    }

    fn status_of(&self, known: &ReservationObject, now: SystemTime) -> ReservationStatus {
        let mut status = known.status.clone();
        if status.phase.is_over() {
            return status;
        }
        status.toleration_value = Some(toleration_value(&known.uid));
        let ttl = parse_ttl(known.spec.ttl.as_deref().unwrap()).unwrap();
        if now.duration_since(UNIX_EPOCH).unwrap() >= known.created + ttl {
            return ended(status, Phase::Failed, "its time is over");
        }
        for device in status.devices.iter_mut().filter(|it| it.state != State::HandedOver) {
            let Some(pod) = self.given.get(&device_at(device)) else { continue };
            device.state = State::HandedOver;
            let owner = ObjectReference {
                name: pod.clone(),
                uid: pod.clone(),
                namespace: "default".to_owned(),
                ..ObjectReference::default()
            };
            if !status.current_owners.contains(&owner) {
                status.current_owners.push(owner);
            }
        }
        let served = u32::try_from(status.current_owners.len()).unwrap();
        if served >= known.spec.replicas() {
            return ended(status, Phase::Succeeded, "owners have the devices");
        }
        if !self.replace_broken(&mut status) {
            self.choose(known, known.spec.replicas() - served, &mut status);
        }
        status
    }

    /// A device that fails is lost first, and then replaced by one that is free. Whether any is lost.
    fn replace_broken(&self, status: &mut ReservationStatus) -> bool {
        let is_broken = |it: &ReservedDevice| it.state != State::HandedOver && self.broken.contains(&device_at(it));
        let mut broken: Vec<&mut ReservedDevice> = status.devices.iter_mut().filter(|it| is_broken(it)).collect();
        if broken.is_empty() {
            return false;
        }
        if broken.iter().any(|it| it.state != State::Lost) {
            broken.iter_mut().for_each(|it| it.state = State::Lost);
            status.phase = Phase::Pending;
            return true;
        }
        let free = self.free();
        if free.len() < broken.len() {
            unschedulable(status, "no device is left");
            return true;
        }
        for (lost, other) in broken.into_iter().zip(&free) {
            *lost = device(lost.replica, other, &other.0);
        }
        false
    }

    /// Keeps devices for so many pods, and for no more.
    fn choose(&self, known: &ReservationObject, pods: u32, status: &mut ReservationStatus) {
        let template = known.spec.pod_template().unwrap();
        let claim = template.spec.resource_claims[0].resource_claim_template_name.clone().unwrap();
        let asked = self.facts.template(&ObjectKey::new("default", &claim));
        let Some(asked) = asked else { return unschedulable(status, "there is no such template") };
        let each = usize::try_from(asked.devices.requests[0].exactly.as_ref().unwrap().count.unwrap_or(1)).unwrap();
        let is_free = |device: &&ReservedDevice| device.state != State::HandedOver;
        let kept: BTreeSet<u32> = status.devices.iter().filter(is_free).map(|it| it.replica).collect();
        let stays: BTreeSet<u32> = kept.into_iter().take(pods as usize).collect();
        status.devices.retain(|it| it.state == State::HandedOver || stays.contains(&it.replica));
        let mut free: BTreeMap<String, Vec<DeviceAt>> = BTreeMap::new();
        for device in self.free() {
            free.entry(device.0.clone()).or_default().push(device);
        }
        let used: BTreeSet<u32> = status.devices.iter().map(|it| it.replica).collect();
        let fresh = (0..).filter(|replica| !used.contains(replica)).take(pods as usize - stays.len());
        let mut more = Vec::new();
        for replica in fresh {
            let Some(on) = free.values_mut().find(|devices| devices.len() >= each) else {
                return unschedulable(status, "no device is left");
            };
            more.extend(on.drain(..each).map(|it| device(replica, &it, &it.0)));
        }
        status.devices.extend(more);
        status.phase = Phase::Available;
        status.conditions = vec![condition("Scheduled", ConditionStatus::True, "Scheduled", "devices are chosen")];
    }
}

/// A Reservation as it is made. Those who keep devices want to do something before it goes.
fn reservation(new: &NewReservation, now: SystemTime) -> ReservationObject {
    ReservationObject {
        name: new.name.clone(),
        uid: String::new(),
        version: String::new(),
        generation: 1,
        created: now.duration_since(UNIX_EPOCH).unwrap(),
        is_deleting: false,
        finalizers: vec!["hostler.dev/kept".to_owned()],
        labels: new.labels.clone(),
        spec: new.spec.clone(),
        status: ReservationStatus::default(),
    }
}

fn ended(mut status: ReservationStatus, phase: Phase, message: &str) -> ReservationStatus {
    status.phase = phase;
    status.devices.clear();
    status.conditions = vec![condition("Ready", ConditionStatus::False, "Expired", message)];
    status
}

fn unschedulable(status: &mut ReservationStatus, message: &str) {
    status.phase = Phase::Pending;
    status.conditions = vec![condition("Scheduled", ConditionStatus::False, "Unschedulable", message)];
}

fn condition(kind: &str, status: ConditionStatus, reason: &str, message: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: hostler_cluster::rfc3339(UNIX_EPOCH + Duration::from_secs(1)),
    }
}
