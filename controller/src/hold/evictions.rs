//! Who is evicted for a Reservation, and when: not before it is certain that it gets what it keeps. A pod that shall be moved goes
//! when all is kept elsewhere; one that makes room, when everything is closed to others and only such pods still have some of it.

use hostler_api::ObjectKey;
use hostler_api::reservation::{
    MAX_PAST_EVICTIONS, PodEviction, PodEvictionState, ReservationPhase as Phase, ReservedDevice, ReservedDeviceState,
};
use hostler_reconcile::WriteOutcome;

use super::{
    agenda::Topic,
    core::{Hold, HoldCore, device_key},
    event::{HoldCommand, HoldNotice, HoldTarget, HoldWrite, PodWrite},
    fences::fenced_for,
    seen::PodKnowledge,
    settle::LOOK_AGAIN,
};

/// What came of asking for an eviction, until the status says it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct EvictionAnswer {
    state: PodEvictionState,
    message: String,
}

/// Where the pod runs that a Reservation shall move.
pub(super) enum ReplacedNode {
    /// It moves none, or that one is gone or has no node yet.
    None,
    Node(String),
    /// It is being asked for.
    Unknown,
}

fn pod_of(eviction: &PodEviction) -> ObjectKey {
    ObjectKey::new(&eviction.namespace, &eviction.name)
}

/// A word about what is in the way of evictions.
pub(super) fn obstacle(evictions: &[PodEviction]) -> Option<String> {
    let blocked = evictions.iter().find(|it| it.state == PodEvictionState::Blocked)?;
    Some(format!("pod {}/{} cannot be evicted now: {}", blocked.namespace, blocked.name, blocked.message))
}

/// The first pod that is still to be evicted.
pub(super) fn to_evict(evictions: &[PodEviction]) -> Option<String> {
    let open = evictions.iter().find(|it| it.state.is_open())?;
    Some(obstacle(evictions).unwrap_or_else(|| format!("pod {}/{} is to be evicted", open.namespace, open.name)))
}

impl Hold {
    /// Who is to be evicted and who was, where it has these devices.
    pub(super) fn evictions(&self, devices: &[ReservedDevice], is_available: bool) -> Vec<PodEviction> {
        let mut all = self.object.status.evictions.clone();
        let replaced = self.object.spec.replaces.as_ref().filter(|_| is_available).map(|pod| PodEviction {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            ..PodEviction::default()
        });
        let chosen = self.victims.iter().filter(|_| self.proposal.is_some()).cloned();
        for eviction in replaced.into_iter().chain(chosen) {
            if !all.iter().any(|known| known.uid == eviction.uid) {
                all.push(eviction);
            }
        }
        self.with_answers(&mut all);
        all.retain(|it| !it.state.is_open() || self.replaces(&it.uid) || has_any(it, devices));
        without_oldest(all)
    }

    /// Those that were, of one that is over: nobody is evicted for it any more.
    pub(super) fn past_evictions(&self) -> Vec<PodEviction> {
        let mut all = self.object.status.evictions.clone();
        self.with_answers(&mut all);
        all.retain(|it| !it.state.is_open());
        all
    }

    fn with_answers(&self, all: &mut [PodEviction]) {
        for eviction in all.iter_mut().filter(|it| it.state.is_open()) {
            if let Some(answer) = self.answers.get(&eviction.uid) {
                eviction.state = answer.state;
                eviction.message = answer.message.chars().take(1024).collect();
            }
        }
    }

    fn replaces(&self, uid: &str) -> bool {
        self.object.spec.replaces.as_ref().is_some_and(|pod| pod.uid == uid)
    }

    /// The pod that it shall move.
    pub(super) fn replaced(&self) -> Option<ObjectKey> {
        self.object.spec.replaces.as_ref().map(|pod| ObjectKey::new(&pod.namespace, &pod.name))
    }

    fn is_answered(&self, uid: &str) -> bool {
        self.answers.get(uid).is_some_and(|answer| !answer.state.is_open())
    }

    /// Pods of which this Reservation, as the server has it, still wants an eviction: by UID.
    fn wanted_evictions(&self) -> impl Iterator<Item = (ObjectKey, &str)> {
        let open = self.object.status.evictions.iter().filter(|it| it.state.is_open() && !self.is_answered(&it.uid));
        open.filter(|_| self.is_open()).map(|it| (pod_of(it), &*it.uid))
    }
}

/// What is remembered has an end.
fn without_oldest(mut all: Vec<PodEviction>) -> Vec<PodEviction> {
    let past = all.iter().filter(|it| !it.state.is_open()).count();
    for _ in MAX_PAST_EVICTIONS..past {
        if let Some(oldest) = all.iter().position(|it| !it.state.is_open()) {
            all.remove(oldest);
        }
    }
    all
}

/// Whether the pod still has a device that is kept while it has it.
fn has_any(eviction: &PodEviction, devices: &[ReservedDevice]) -> bool {
    devices.iter().filter(|device| device.state == ReservedDeviceState::Fencing).any(|device| {
        let owner = device.owner.as_ref();
        owner.is_some_and(|owner| owner.namespace == eviction.namespace && owner.pod == eviction.name)
    })
}

impl HoldCore {
    /// Looks at the pods that are to be evicted or annotated for a Reservation.
    pub(super) fn look_at_pods(&mut self, name: &str) {
        let Some(hold) = self.holds.get(name) else { return };
        let evicted = hold.wanted_evictions().map(|(pod, _)| pod);
        let pods: Vec<ObjectKey> = evicted.chain(self.owners_to_annotate(hold)).collect();
        for pod in pods {
            self.pods.entry(pod.clone()).or_default().insert(name.to_owned());
            self.agenda.now(Topic::Pod(pod));
        }
    }

    /// Does with a pod what Reservations want of it.
    pub(super) fn settle_pod(&mut self, pod: &ObjectKey) {
        if !self.can_write(&HoldTarget::Pod(pod.clone())) {
            return;
        }
        let names: Vec<String> = self.pods.get(pod).into_iter().flatten().cloned().collect();
        let eviction = names.iter().find_map(|name| self.eviction(name, pod));
        match eviction.or_else(|| self.annotation(&names, pod)) {
            Some(write) => self.write(HoldWrite::Pod(write)),
            // Whoever wants something later says so again.
            None if self.is_asked(pod) => {}
            None => drop(self.pods.remove(pod)),
        }
    }

    fn is_asked(&self, pod: &ObjectKey) -> bool {
        matches!(self.seen.pods.get(pod), Some(PodKnowledge::Asked))
    }

    fn eviction(&mut self, name: &str, pod: &ObjectKey) -> Option<PodWrite> {
        let hold = self.holds.get(name)?;
        let uid = hold.wanted_evictions().find(|(it, _)| it == pod).map(|(_, uid)| uid.to_owned())?;
        self.is_prepared(name, &uid).then(|| PodWrite::Evict { pod: pod.clone(), uid })
    }

    /// Whether it is certain that the Reservation gets what it keeps once the pod is gone.
    fn is_prepared(&mut self, name: &str, uid: &str) -> bool {
        let devices = self.look_at_devices(name);
        let Some(hold) = self.holds.get(name) else { return false };
        let status = &hold.object.status;
        let is_settled = hold.proposal.is_none() && status.devices == devices;
        if !is_settled || !hold.lacking(&devices, &status.current_owners).is_empty() {
            return false;
        }
        if hold.replaces(uid) {
            return status.phase == Phase::Available;
        }
        let is_safe = |device: &ReservedDevice| match device.state {
            ReservedDeviceState::Held | ReservedDeviceState::HandedOver | ReservedDeviceState::Releasing => true,
            ReservedDeviceState::Fencing if device.owner.is_some() => {
                fenced_for(&self.seen, &self.settings.own_driver, &device_key(device)) == Some(&*hold.value)
            }
            _ => false,
        };
        hold.object.spec.preempts() && status.phase == Phase::Waiting && devices.iter().all(is_safe)
    }

    pub(super) fn pod_written(&mut self, pod: &ObjectKey, write: Option<HoldWrite>, outcome: &WriteOutcome) {
        match write {
            Some(HoldWrite::Pod(PodWrite::Evict { uid, .. })) => self.eviction_answered(pod, &uid, outcome),
            Some(HoldWrite::Pod(PodWrite::Annotate { value, .. })) => self.annotation_answered(pod, value, outcome),
            _ => {}
        }
    }

    fn eviction_answered(&mut self, pod: &ObjectKey, uid: &str, outcome: &WriteOutcome) {
        let (state, message) = match outcome {
            WriteOutcome::Done => (PodEvictionState::Evicted, String::new()),
            // Whoever has its name now is somebody else.
            WriteOutcome::Gone | WriteOutcome::Conflict => (PodEvictionState::Gone, String::new()),
            WriteOutcome::Refused(message) | WriteOutcome::Forbidden(message) => {
                (PodEvictionState::Blocked, message.clone())
            }
            // It is asked for again: the pod that is meant cannot go twice.
            WriteOutcome::Failed(_) | WriteOutcome::Dropped(_) => return,
        };
        let answer = EvictionAnswer { state, message };
        let names: Vec<String> = self.pods.get(pod).into_iter().flatten().cloned().collect();
        for name in names {
            let Some(hold) = self.holds.get_mut(&name) else { continue };
            let Some(said) = hold.object.status.evictions.iter().find(|it| it.uid == uid) else { continue };
            let is_said = said.state == answer.state && said.message == answer.message;
            let is_known = hold.answers.insert(uid.to_owned(), answer.clone()).as_ref() == Some(&answer);
            if !is_said && !is_known {
                self.tell_of_eviction(&name, pod, &answer);
            }
            self.agenda.now(Topic::Reservation(name));
        }
    }

    fn tell_of_eviction(&mut self, name: &str, pod: &ObjectKey, answer: &EvictionAnswer) {
        let (reason, message) = match answer.state {
            PodEvictionState::Evicted => ("Evicted", format!("pod {pod} was evicted")),
            PodEvictionState::Blocked => {
                ("EvictionBlocked", format!("pod {pod} cannot be evicted now: {}", answer.message))
            }
            PodEvictionState::Planned | PodEvictionState::Gone => return,
        };
        let Some(hold) = self.holds.get(name) else { return };
        let (name, uid) = (name.to_owned(), hold.object.uid.clone());
        let is_warning = answer.state == PodEvictionState::Blocked;
        self.commands.push(HoldCommand::Tell(HoldNotice { name, uid, is_warning, reason, message }));
    }

    /// Where the pod runs that the Reservation shall move; who is not known is asked for.
    pub(super) fn replaced_node(&mut self, name: &str) -> ReplacedNode {
        let now = self.agenda.now;
        let Some(hold) = self.holds.get_mut(name) else { return ReplacedNode::None };
        let Some(replaced) = hold.object.spec.replaces.clone() else { return ReplacedNode::None };
        let key = ObjectKey::new(&replaced.namespace, &replaced.name);
        // Nobody says that a pod is gone whose claims stay as they are.
        let asked = *hold.replaced_asked.get_or_insert(now);
        if now.saturating_sub(asked) >= LOOK_AGAIN && matches!(self.seen.pods.get(&key), Some(PodKnowledge::Known(_))) {
            hold.replaced_asked = Some(now);
            self.seen.pods.remove(&key);
        }
        self.ask_for(&key);
        match self.seen.pods.get(&key) {
            Some(PodKnowledge::Known(Some(pod))) if pod.uid == replaced.uid && !pod.node.is_empty() => {
                ReplacedNode::Node(pod.node.clone())
            }
            Some(PodKnowledge::Known(_)) => ReplacedNode::None,
            _ => ReplacedNode::Unknown,
        }
    }
}
