//! A Reservation: its object, and the facts about it that the API server does not keep. After a crash these facts are
//! found out anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::reservation::{
    ObjectReference, PLACED_POD_LABEL, PodEviction, PodEvictionState, ReservationConditionReason as Reason,
    ReservationMode, ReservedDevice, ReservedDeviceState as State, toleration_value,
};

use super::{objects::DeviceKey, recorded::RecordedEvents};
use crate::reservation_object::ReservationObject;

/// A Reservation.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) object: ReservationObject,
    /// True if the pods of the Reservation take something of their nodes besides devices.
    pub(super) asks_for_place: bool,
    /// Value of the taint that other pods must tolerate to get the devices.
    pub(super) value: String,
    /// Devices that were chosen and are not written yet.
    pub(super) proposal: Option<Vec<ReservedDevice>>,
    /// Pods that have devices of the proposal, and are to be evicted.
    pub(super) victims: Vec<PodEviction>,
    /// Answers to evictions, by the UID of the pod.
    pub(super) answers: BTreeMap<String, EvictionAnswer>,
    /// Reason why no devices could be chosen.
    pub(super) problem: Option<Problem>,
    /// Pause after a question that took too much work.
    pub(super) cut_short: Option<CutPause>,
    /// True if nothing was free at the last question.
    pub(super) is_without_free: bool,
    /// Check that no claim got devices before they were closed.
    pub(super) check: Option<ClosedCheck>,
    /// Events that were recorded about the Reservation.
    pub(super) recorded: RecordedEvents,
}

/// Pause of a Reservation that took more work than one namespace may. The next question about it has no other
/// candidates.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutPause {
    pub(super) pause: Duration,
    pub(super) until: Duration,
}

/// Reason why no devices can be chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// Answer to an eviction, until the status tells it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct EvictionAnswer {
    pub(super) state: PodEvictionState,
    pub(super) message: String,
}

/// Closed devices, until a list of all claims shows that no claim has them.
#[derive(Clone, Debug)]
pub(super) struct ClosedCheck {
    pub(super) devices: BTreeSet<DeviceKey>,
    pub(super) since: Duration,
    /// Number of the list that decides.
    pub(super) list: Option<u64>,
}

/// True if places are kept for a Reservation. The devices of a gated pod are given to that pod, which nothing but its
/// gate holds back.
fn asks_for_place(object: &ReservationObject) -> bool {
    object.spec.mode() == ReservationMode::Fence
        && !object.labels.contains_key(PLACED_POD_LABEL)
        && object.spec.asks_for_place()
}

impl Reservation {
    pub(super) fn new(object: ReservationObject) -> Self {
        Self {
            value: toleration_value(&object.uid),
            recorded: RecordedEvents::before(&object),
            asks_for_place: asks_for_place(&object),
            object,
            proposal: None,
            victims: Vec::new(),
            answers: BTreeMap::new(),
            problem: None,
            cut_short: None,
            is_without_free: false,
            check: None,
        }
    }

    /// Takes a newer version of the object.
    pub(super) fn update(&mut self, object: ReservationObject) {
        if self.object != object {
            self.proposal = None;
        }
        if self.object.generation != object.generation {
            (self.problem, self.is_without_free, self.cut_short) = (None, false, None);
            self.asks_for_place = asks_for_place(&object);
        }
        self.object = object;
    }

    /// True if the Reservation may have devices that pods have now.
    pub(super) fn seeks_victims(&self) -> bool {
        self.object.spec.is_pre_allocation() || self.object.spec.preempts()
    }

    pub(super) fn is_open(&self) -> bool {
        !self.object.is_deleting && !self.is_over()
    }

    /// True if nothing of the Reservation is kept for owners that may still come.
    pub(super) fn is_over(&self) -> bool {
        self.object.status.phase.is_over()
    }

    /// Devices that the Reservation keeps, and devices that were chosen for it.
    pub(super) fn devices_and_proposal(&self) -> impl Iterator<Item = &ReservedDevice> {
        self.object.status.devices.iter().chain(self.proposal.iter().flatten())
    }

    /// Returns the replicas for which devices are to be found.
    pub(super) fn lacking(&self, devices: &[ReservedDevice], owners: &[ObjectReference]) -> Vec<u32> {
        let (spec, mut groups) = (&self.object.spec, BTreeMap::<u32, Vec<State>>::new());
        if !spec.asks_for_devices() {
            return Vec::new();
        }
        let kept = devices.iter().filter(|device| device.state != State::Releasing);
        kept.for_each(|device| groups.entry(device.replica).or_default().push(device.state));
        let is_broken = |states: &Vec<State>| states.contains(&State::Lost);
        let is_used = |states: &Vec<State>| spec.is_once() && states.iter().all(|state| *state == State::HandedOver);
        let intact = groups.values().filter(|states| !is_broken(states) && !is_used(states)).count();
        let had = if spec.is_once() { owners.len() } else { 0 };
        let missing = (spec.replicas() as usize).saturating_sub(intact + had);
        let broken = groups.iter().filter(|(_, states)| is_broken(states)).map(|(replica, _)| *replica);
        let fresh = (0..spec.replicas()).filter(|replica| !groups.contains_key(replica));
        broken.chain(fresh).take(missing).collect()
    }
}
