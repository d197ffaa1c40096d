//! The status of a Reservation.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, UNIX_EPOCH},
};

use hostler_allocator::plan::QUOTA_OF_DEVICES;
use hostler_api::{
    Quantity, few,
    hardware::{Condition, ConditionStatus},
    reservation::{
        ObjectReference, ReservationConditionReason as Reason, ReservationConditionType as Type,
        ReservationPhase as Phase, ReservationStatus, ReservedDevice, ReservedDeviceState as State,
    },
};
use hostler_cluster::rfc3339;

use super::{
    evictions::{evictions, obstacle, past_evictions, to_evict},
    objects::device_key,
    places::{PlaceStand, add_amounts},
    reservation::{Problem, Reservation},
};
use crate::reservation_object::ReservationObject;

/// The facts about a Reservation that is not over.
pub(super) struct OpenFacts<'a> {
    /// Reason why devices that the Reservation lacks could not be chosen.
    pub(super) problem: Option<&'a Problem>,
    /// True if the last reason still counts.
    pub(super) keeps_lack: bool,
    /// The claims that have devices together, for people.
    pub(super) conflicts: Option<&'a str>,
    /// True if all devices are closed that have to be closed.
    pub(super) is_closed: bool,
    /// Nodes whose devices are to be closed or kept so, and that have no object which tells them so.
    pub(super) untold: BTreeSet<String>,
    /// State of the places.
    pub(super) places: PlaceStand,
    /// Devices that are being attached to their nodes, for people.
    pub(super) attaching: Option<String>,
    /// For each lost device that could not be attached: the reason, for people.
    pub(super) not_attached: Vec<String>,
}

/// A status in the making.
pub(super) struct NewStatus {
    pub(super) status: ReservationStatus,
    now: String,
}

fn quota(device: &ReservedDevice) -> Option<String> {
    let class = &device.device_class_name;
    (!class.is_empty()).then(|| format!("{class}{QUOTA_OF_DEVICES}"))
}

fn count<'a>(devices: impl Iterator<Item = &'a ReservedDevice>) -> BTreeMap<String, Quantity> {
    devices.filter_map(quota).fold(BTreeMap::new(), |mut counts, name| {
        let count: &mut Quantity = counts.entry(name).or_default();
        *count = count.plus(Quantity::whole(1));
        counts
    })
}

impl NewStatus {
    pub(super) fn of(reservation: &Reservation, now: Duration) -> Self {
        let mut new = Self::after(&reservation.object, now);
        new.status.toleration_value = Some(reservation.value.clone());
        new.status.evictions = past_evictions(reservation);
        new
    }

    /// Begins with the last status.
    pub(super) fn after(object: &ReservationObject, now: Duration) -> Self {
        let status = ReservationStatus { observed_generation: Some(object.generation), ..object.status.clone() };
        Self { status, now: rfc3339(UNIX_EPOCH + now) }
    }

    /// Sets a condition. Its transition time stays as long as status and reason do.
    pub(super) fn say(&mut self, kind: Type, status: ConditionStatus, reason: Reason, message: &str) {
        let known = self.status.condition(kind);
        let since = known.filter(|it| it.status == status && it.reason == reason.as_str());
        let last_transition_time = since.map_or_else(|| self.now.clone(), |it| it.last_transition_time.clone());
        let condition = Condition {
            kind: kind.as_str().to_owned(),
            status,
            reason: reason.as_str().to_owned(),
            message: message.chars().take(1024).collect(),
            last_transition_time,
        };
        match self.status.conditions.iter_mut().find(|it| it.kind == condition.kind) {
            Some(known) => *known = condition,
            None => self.status.conditions.push(condition),
        }
    }

    pub(super) fn with_devices(&mut self, devices: Vec<ReservedDevice>, owners: Vec<ObjectReference>) {
        let kept = || devices.iter().filter(|device| device.state != State::Releasing);
        let of_places = self.status.places.iter().map(|place| &place.node_name).filter(|node| !node.is_empty());
        let nodes: BTreeSet<&String> = kept().map(|device| &device.node_name).chain(of_places).collect();
        let only = nodes.first().filter(|node| nodes.len() == 1 && !node.is_empty()).map(|node| (*node).clone());
        self.status.node_name = only;
        let is = |state: State| move |device: &&ReservedDevice| device.state == state;
        self.status.held = u32::try_from(devices.iter().filter(is(State::Held)).count()).unwrap_or(u32::MAX);
        self.status.allocatable = count(kept());
        self.status.allocated = count(devices.iter().filter(is(State::HandedOver)));
        add_amounts(&self.status.places, &mut self.status.allocatable, &mut self.status.allocated);
        self.status.devices = devices;
        self.status.current_owners = owners;
    }

    /// The status of a Reservation that is not over.
    pub(super) fn open(
        mut self,
        reservation: &Reservation,
        devices: Vec<ReservedDevice>,
        owners: Vec<ObjectReference>,
        said: &OpenFacts<'_>,
    ) -> ReservationStatus {
        let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
        match said.problem {
            Some(problem) => self.say(Type::Scheduled, no, problem.reason, &problem.message),
            None if said.keeps_lack => {}
            None if devices.is_empty() && reservation.object.spec.asks_for_devices() => {
                self.say(Type::Scheduled, no, Reason::Planning, "devices are being looked for");
            }
            None => match &said.places {
                PlaceStand::Missing(_) => self.say(Type::Scheduled, no, Reason::Placing, &placing(&said.places)),
                _ if devices.is_empty() => self.say(Type::Scheduled, yes, Reason::Scheduled, "places are chosen"),
                _ => self.say(Type::Scheduled, yes, Reason::Scheduled, "devices are chosen"),
            },
        }
        let has_problem = said.problem.is_some() || said.keeps_lack;
        let has_problem = has_problem || devices.is_empty() && reservation.object.spec.asks_for_devices();
        let (phase, reason, mut message) = stand_of(&devices, has_problem, said);
        let is_available = phase == Phase::Available;
        let evictions = evictions(reservation, &devices, is_available);
        if let Some(obstacle) = obstacle(&evictions).filter(|_| phase == Phase::Waiting) {
            message = format!("{message}; {obstacle}");
        }
        self.status.phase = phase;
        let conflicts = said.conflicts.map(|conflicts| format!("{message}; in conflict: {conflicts}"));
        // Owners cannot rely on a device that another claim has as well; the other devices are kept.
        match conflicts {
            Some(message) if is_available => self.say(Type::Ready, no, Reason::Conflict, &message),
            Some(message) => self.say(Type::Ready, no, reason, &message),
            None => self.say(Type::Ready, if is_available { yes } else { no }, reason, &message),
        }
        match (said.conflicts, to_evict(&evictions).filter(|_| is_available)) {
            (Some(conflicts), _) => self.say(Type::Settled, no, Reason::Conflict, conflicts),
            (None, Some(left)) => self.say(Type::Settled, no, Reason::Evicting, &left),
            _ if is_available => self.say(Type::Settled, yes, Reason::Settled, "nothing is left to do"),
            _ => self.say(Type::Settled, no, reason, &message),
        }
        self.status.evictions = evictions;
        self.with_devices(devices, owners);
        self.status
    }

    /// The status of a Reservation whose spec cannot be carried out.
    pub(super) fn invalid(mut self, message: &str) -> ReservationStatus {
        self.say_no(Reason::Invalid, message);
        self.status
    }

    /// Sets all conditions to False.
    pub(super) fn say_no(&mut self, reason: Reason, message: &str) {
        for kind in [Type::Scheduled, Type::Ready, Type::Settled] {
            self.say(kind, ConditionStatus::False, reason, message);
        }
    }

    /// The status once nothing is kept any more: devices are being opened.
    pub(super) fn ended(mut self, reason: Reason, message: &str) -> ReservationStatus {
        self.status.phase = Phase::Failed;
        self.release();
        self.say(Type::Ready, ConditionStatus::False, reason, message);
        if self.status.devices.is_empty() {
            return self.cleared(Reason::Settled);
        }
        self.say(Type::Settled, ConditionStatus::False, Reason::Releasing, "what was kept is being opened to others");
        self.status
    }

    /// The status once owners have all the devices that they need: the other devices are being opened.
    pub(super) fn succeeded(mut self, devices: Vec<ReservedDevice>, owners: Vec<ObjectReference>) -> ReservationStatus {
        self.with_devices(devices, owners);
        self.status.phase = Phase::Succeeded;
        self.release();
        self.say(Type::Ready, ConditionStatus::False, Reason::Succeeded, "owners have the devices");
        self.say(Type::Settled, ConditionStatus::False, Reason::Releasing, "what was kept is being opened to others");
        self.status
    }

    /// The status of a Reservation that is over or deleted, while devices in conflict stay closed.
    pub(super) fn released_but(mut self, devices: Vec<ReservedDevice>, conflicts: Option<&str>) -> ReservationStatus {
        self.status.devices = devices;
        let (reason, message) = match conflicts {
            Some(conflicts) => (Reason::Conflict, conflicts),
            None => (Reason::Releasing, "what was kept is being opened to others"),
        };
        self.say(Type::Settled, ConditionStatus::False, reason, message);
        self.status
    }

    fn release(&mut self) {
        let is_left = |device: &&mut ReservedDevice| device.state != State::HandedOver;
        self.status.devices.iter_mut().filter(is_left).for_each(|device| device.state = State::Releasing);
        self.status.held = 0;
    }

    /// The status once no device is closed any more.
    pub(super) fn cleared(mut self, reason: Reason) -> ReservationStatus {
        self.status.devices.clear();
        self.say(Type::Settled, ConditionStatus::True, reason, "nothing is kept any more");
        self.status
    }
}

/// Phase, reason and message by the state of the devices. A Reservation waits for pods only once no other pod can get
/// the devices that they leave.
fn stand_of(devices: &[ReservedDevice], has_problem: bool, said: &OpenFacts<'_>) -> (Phase, Reason, String) {
    let devices: Vec<&ReservedDevice> = devices.iter().filter(|device| device.state != State::Releasing).collect();
    let of = |state: State| devices.iter().copied().filter(move |device| device.state == state);
    let mut lost: Vec<String> = said.not_attached.clone();
    let unnamed = of(State::Lost).filter(|device| !is_named(said, device));
    lost.extend(unnamed.map(|device| self::lost(device, &said.untold)));
    if !lost.is_empty() {
        return (Phase::Pending, Reason::Lost, format!("lost: {}", few(&lost)));
    }
    let busy = of(State::Fencing).filter(|device| device.owner.is_some()).count();
    if busy > 0 && said.is_closed {
        let all = devices.len();
        let message = format!("{} of {all} devices are released; pods have the others", all - busy);
        return (Phase::Waiting, Reason::Waiting, message);
    }
    if of(State::Fencing).next().is_some() {
        return (Phase::Pending, Reason::Fencing, closing(&said.untold));
    }
    if has_problem {
        return (Phase::Pending, Reason::Unschedulable, "there are not all the devices that are asked for".to_owned());
    }
    if let (PlaceStand::NotAsked | PlaceStand::Kept(_), Some(attaching)) = (&said.places, &said.attaching) {
        return (Phase::Pending, Reason::Attaching, attaching.clone());
    }
    let message = match (&said.places, devices.len()) {
        (PlaceStand::Missing(_), _) => return (Phase::Pending, Reason::Placing, placing(&said.places)),
        (PlaceStand::Kept(places), 0) => format!("all {places} places are kept"),
        (PlaceStand::Kept(places), count) => format!("all {count} devices and {places} places are kept"),
        (PlaceStand::NotAsked, count) => format!("all {count} devices are kept"),
    };
    (Phase::Available, Reason::Available, message)
}

/// Says that devices are being closed, and which nodes cannot be told to.
fn closing(untold: &BTreeSet<String>) -> String {
    if untold.is_empty() {
        return "devices are being closed to others".to_owned();
    }
    format!("devices are being closed to others; {}", no_node_hardware(&few(untold)))
}

fn no_node_hardware(nodes: &str) -> String {
    format!("there is no NodeHardware {nodes}; does hostler's daemon run there?")
}

/// Returns the reason why a place is missing.
fn placing(places: &PlaceStand) -> String {
    match places {
        PlaceStand::Missing(said) if !said.is_empty() => said.clone(),
        _ => "the scheduler looks for CPU, memory and ports".to_owned(),
    }
}

/// True if a message says already why the device is lost.
fn is_named(said: &OpenFacts<'_>, device: &ReservedDevice) -> bool {
    let key = device_key(device).to_string();
    said.not_attached.iter().any(|why| why.starts_with(&key))
}

fn lost(device: &ReservedDevice, untold: &BTreeSet<String>) -> String {
    let key = device_key(device);
    match &device.owner {
        Some(owner) if device.is_part() => {
            format!("a part of {key}, of which claim {}/{} has more than was left", owner.namespace, owner.claim)
        }
        Some(owner) if owner.pod.is_empty() => format!("{key}, which claim {}/{} has", owner.namespace, owner.claim),
        Some(owner) => format!("{key}, which pod {}/{} has", owner.namespace, owner.pod),
        None if untold.contains(&device.node_name) => {
            format!("{key}, which cannot be closed: {}", no_node_hardware(&device.node_name))
        }
        None => format!("{key}, which is gone, does not work or cannot be closed"),
    }
}
