//! What is said of a Reservation.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, UNIX_EPOCH},
};

use hostler_allocator::plan::QUOTA_OF_DEVICES;
use hostler_api::{
    ObjectKey, Quantity, few,
    hardware::{Condition, ConditionStatus},
    reservation::{
        ObjectReference, ReservationConditionReason as Reason, ReservationConditionType as Type,
        ReservationPhase as Phase, ReservationStatus, ReservedDevice, ReservedDeviceState as State,
    },
};
use hostler_cluster::rfc3339;

use super::{
    core::{Hold, HoldCore, device_key},
    event::ReservationObject,
    evictions::{obstacle, to_evict},
};

/// What is said before the planner has answered.
pub(crate) const STILL_LOOKING: &str = "devices are being looked for";

/// What is between a conflict and what was said otherwise.
const IN_CONFLICT: &str = "; in conflict: ";

/// What is to be said of one that is not over.
pub(super) struct OpenWords<'a> {
    /// Why devices that it lacks could not be chosen.
    pub(super) problem: Option<&'a str>,
    /// Which claims have devices together.
    pub(super) conflicts: Option<&'a str>,
    /// Whether all is closed that is to be.
    pub(super) is_closed: bool,
}

/// A status in the making.
pub(super) struct NewStatus {
    pub(super) status: ReservationStatus,
    now: String,
}

/// The pods that have devices of it; of one that each pod takes from once, also those that had.
pub(super) fn owners_of(core: &HoldCore, name: &str, devices: &[ReservedDevice]) -> Vec<ObjectReference> {
    let Some(hold) = core.holds.get(name) else { return Vec::new() };
    let of_device = |device: &ReservedDevice| {
        let owner = device.owner.as_ref().filter(|_| device.state == State::HandedOver)?;
        let claim = core.seen.claims.get(&ObjectKey::new(&owner.namespace, &owner.claim));
        let pod = claim.and_then(|claim| claim.pods.iter().find(|pod| pod.name == owner.pod));
        Some(ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: owner.namespace.clone(),
            name: owner.pod.clone(),
            uid: pod.map(|pod| pod.uid.clone()).unwrap_or_default(),
        })
    };
    let known = &hold.object.status.current_owners;
    let mut owners: BTreeSet<ObjectReference> =
        if hold.object.spec.is_once() { known.iter().cloned().collect() } else { BTreeSet::new() };
    for owner in devices.iter().filter_map(of_device) {
        let is_same = |it: &&ObjectReference| it.namespace == owner.namespace && it.name == owner.name;
        let before = known.iter().find(is_same).filter(|_| owner.uid.is_empty());
        owners.insert(before.cloned().unwrap_or(owner));
    }
    owners.into_iter().collect()
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
    pub(super) fn of(core: &HoldCore, name: &str) -> Self {
        let now = core.clock.told();
        let Some(hold) = core.holds.get(name) else {
            return Self { status: ReservationStatus::default(), now: rfc3339(UNIX_EPOCH + now) };
        };
        let mut new = Self::after(&hold.object, now);
        new.status.toleration_value = Some(hold.value.clone());
        new.status.evictions = hold.past_evictions();
        new
    }

    /// What was said last, about its spec of today.
    pub(super) fn after(object: &ReservationObject, now: Duration) -> Self {
        let status = ReservationStatus { observed_generation: Some(object.generation), ..object.status.clone() };
        Self { status, now: rfc3339(UNIX_EPOCH + now) }
    }

    /// Since when something is so is kept as long as it is.
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
        let nodes: BTreeSet<&String> = kept().map(|device| &device.node_name).collect();
        let only = nodes.first().filter(|node| nodes.len() == 1 && !node.is_empty());
        self.status.node_name = only.map(|node| (*node).clone());
        let is = |state: State| move |device: &&ReservedDevice| device.state == state;
        self.status.held = u32::try_from(devices.iter().filter(is(State::Held)).count()).unwrap_or(u32::MAX);
        self.status.allocatable = count(kept());
        self.status.allocated = count(devices.iter().filter(is(State::HandedOver)));
        self.status.devices = devices;
        self.status.current_owners = owners;
    }

    /// It is not over.
    pub(super) fn open(
        mut self,
        hold: &Hold,
        devices: Vec<ReservedDevice>,
        owners: Vec<ObjectReference>,
        said: &OpenWords<'_>,
    ) -> ReservationStatus {
        let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
        match said.problem {
            Some(problem) => self.say(Type::Scheduled, no, Reason::Unschedulable, problem),
            None if devices.is_empty() => {
                self.say(Type::Scheduled, no, Reason::Unschedulable, STILL_LOOKING);
            }
            None => self.say(Type::Scheduled, yes, Reason::Scheduled, "devices are chosen"),
        }
        let (phase, mut reason, mut message) = stand_of(&devices, said.problem.is_some(), said.is_closed);
        let is_available = phase == Phase::Available;
        let evictions = hold.evictions(&devices, is_available);
        if let Some(obstacle) = obstacle(&evictions).filter(|_| phase == Phase::Waiting) {
            message = format!("{message}; {obstacle}");
        }
        self.status.phase = phase;
        message = with_conflicts(&message, said.conflicts);
        // Whoever has a device with somebody else cannot rely on it; the others are kept.
        let is_ready = is_available && said.conflicts.is_none();
        if is_available && !is_ready {
            reason = Reason::Conflict;
        }
        self.say(Type::Ready, if is_ready { yes } else { no }, reason, &message);
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

    /// What it says cannot be done.
    pub(super) fn invalid(mut self, message: &str) -> ReservationStatus {
        self.say_no(Reason::Invalid, message);
        self.status
    }

    /// Nothing of it is so.
    pub(super) fn say_no(&mut self, reason: Reason, message: &str) {
        for kind in [Type::Scheduled, Type::Ready, Type::Settled] {
            self.say(kind, ConditionStatus::False, reason, message);
        }
    }

    /// Nothing is kept any more; what was is being opened.
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

    /// Owners have it; what they did not take is being opened.
    pub(super) fn succeeded(mut self, devices: Vec<ReservedDevice>, owners: Vec<ObjectReference>) -> ReservationStatus {
        self.with_devices(devices, owners);
        self.status.phase = Phase::Succeeded;
        self.release();
        self.say(Type::Ready, ConditionStatus::False, Reason::Succeeded, "owners have the devices");
        self.say(Type::Settled, ConditionStatus::False, Reason::Releasing, "what was kept is being opened to others");
        self.status
    }

    /// Of one that is over or deleted: devices that two claims have stay closed.
    pub(super) fn released_but(mut self, devices: Vec<ReservedDevice>, conflicts: Option<&str>) -> ReservationStatus {
        self.status.devices = devices;
        let ready = self.status.conditions.iter_mut().find(|it| it.kind == Type::Ready.as_str());
        if let Some(ready) = ready {
            ready.message = with_conflicts(&ready.message, conflicts).chars().take(1024).collect();
        }
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

    /// Nothing is closed any more.
    pub(super) fn cleared(mut self, reason: Reason) -> ReservationStatus {
        self.status.devices.clear();
        self.say(Type::Settled, ConditionStatus::True, reason, "nothing is kept any more");
        self.status
    }
}

/// What was said otherwise, and which claims have devices together now.
fn with_conflicts(said: &str, conflicts: Option<&str>) -> String {
    let otherwise = said.split(IN_CONFLICT).next().unwrap_or_default();
    conflicts.map_or_else(|| otherwise.to_owned(), |conflicts| format!("{otherwise}{IN_CONFLICT}{conflicts}"))
}

/// Where devices leave their Reservation. It waits for pods once nobody else can get what they leave, and not before.
fn stand_of(devices: &[ReservedDevice], has_problem: bool, is_closed: bool) -> (Phase, Reason, String) {
    let devices: Vec<&ReservedDevice> = devices.iter().filter(|device| device.state != State::Releasing).collect();
    let of = |state: State| devices.iter().copied().filter(move |device| device.state == state);
    let lost: Vec<String> = of(State::Lost).map(lost).collect();
    if !lost.is_empty() {
        return (Phase::Pending, Reason::Lost, format!("lost: {}", few(&lost)));
    }
    let busy = of(State::Fencing).filter(|device| device.owner.is_some()).count();
    if busy > 0 && is_closed {
        let all = devices.len();
        let message = format!("{} of {all} devices are released; pods have the others", all - busy);
        return (Phase::Waiting, Reason::Waiting, message);
    }
    if of(State::Fencing).next().is_some() {
        return (Phase::Pending, Reason::Fencing, "devices are being closed to others".to_owned());
    }
    if devices.is_empty() || has_problem {
        return (Phase::Pending, Reason::Unschedulable, "there are not all the devices that are asked for".to_owned());
    }
    (Phase::Available, Reason::Available, format!("all {} devices are kept", devices.len()))
}

fn lost(device: &ReservedDevice) -> String {
    let key = device_key(device);
    match &device.owner {
        Some(owner) if device.is_part() => {
            format!("a part of {key}, of which claim {}/{} has more than was left", owner.namespace, owner.claim)
        }
        Some(owner) if owner.pod.is_empty() => format!("{key}, which claim {}/{} has", owner.namespace, owner.claim),
        Some(owner) => format!("{key}, which pod {}/{} has", owner.namespace, owner.pod),
        None => format!("{key}, which is gone, does not work or cannot be closed"),
    }
}

impl Hold {
    /// Why no devices could be chosen, as was said before: by one that planned before this one began, too.
    pub(super) fn said_problem(&self) -> Option<String> {
        let scheduled = self.object.status.condition(Type::Scheduled);
        let said = scheduled.filter(|it| it.status == ConditionStatus::False && it.reason != Reason::Invalid.as_str());
        said.map(|it| it.message.clone())
    }

    /// The replicas for which devices are to be found.
    pub(super) fn lacking(&self, devices: &[ReservedDevice], owners: &[ObjectReference]) -> Vec<u32> {
        let (spec, mut groups) = (&self.object.spec, BTreeMap::<u32, Vec<State>>::new());
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
