//! Evictions in the status of a Reservation, and the answers to them.

use hostler_api::{
    ObjectKey,
    reservation::{MAX_PAST_EVICTIONS, PodEviction, PodEvictionState, ReservedDevice, ReservedDeviceState},
};
use hostler_reconcile::WriteOutcome;

use super::{
    reservation::{EvictionAnswer, Reservation},
    writes::HoldEventNote,
};

fn pod_of(eviction: &PodEviction) -> ObjectKey {
    ObjectKey::new(&eviction.namespace, &eviction.name)
}

/// Returns the reason why a pod cannot be evicted, if there is one.
pub(super) fn obstacle(evictions: &[PodEviction]) -> Option<String> {
    let blocked = evictions.iter().find(|it| it.state == PodEvictionState::Blocked)?;
    Some(format!("pod {}/{} cannot be evicted now: {}", blocked.namespace, blocked.name, blocked.message))
}

/// Names the first pod that is still to be evicted.
pub(super) fn to_evict(evictions: &[PodEviction]) -> Option<String> {
    let open = evictions.iter().find(|it| it.state.is_open())?;
    Some(obstacle(evictions).unwrap_or_else(|| format!("pod {}/{} is to be evicted", open.namespace, open.name)))
}

/// Returns the evictions of a Reservation that has these devices, past ones too.
pub(super) fn evictions(reservation: &Reservation, devices: &[ReservedDevice], is_available: bool) -> Vec<PodEviction> {
    let mut all = with_answers(reservation);
    let replaced = reservation.object.spec.replaces.as_ref().filter(|_| is_available).map(|pod| PodEviction {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        ..PodEviction::default()
    });
    let chosen = reservation.victims.iter().filter(|_| reservation.proposal.is_some()).cloned();
    for mut eviction in replaced.into_iter().chain(chosen) {
        if !all.iter().any(|known| known.uid == eviction.uid) {
            answer(reservation, &mut eviction);
            all.push(eviction);
        }
    }
    all.retain(|it| !it.state.is_open() || replaces(reservation, &it.uid) || has_any(it, devices));
    without_oldest(all)
}

/// Returns the past evictions of a Reservation that is over: no pod is evicted for it any more.
pub(super) fn past_evictions(reservation: &Reservation) -> Vec<PodEviction> {
    let mut all = with_answers(reservation);
    all.retain(|it| !it.state.is_open());
    all
}

fn with_answers(reservation: &Reservation) -> Vec<PodEviction> {
    let mut all = reservation.object.status.evictions.clone();
    all.iter_mut().for_each(|eviction| answer(reservation, eviction));
    all
}

fn answer(reservation: &Reservation, eviction: &mut PodEviction) {
    if let Some(answer) = reservation.answers.get(&eviction.uid).filter(|_| eviction.state.is_open()) {
        eviction.state = answer.state;
        eviction.message = answer.message.chars().take(1024).collect();
    }
}

pub(super) fn replaces(reservation: &Reservation, uid: &str) -> bool {
    reservation.object.spec.replaces.as_ref().is_some_and(|pod| pod.uid == uid)
}

/// Drops the oldest past evictions, of which a status has a limited number.
fn without_oldest(mut all: Vec<PodEviction>) -> Vec<PodEviction> {
    let past = all.iter().filter(|it| !it.state.is_open()).count();
    for _ in MAX_PAST_EVICTIONS..past {
        if let Some(oldest) = all.iter().position(|it| !it.state.is_open()) {
            all.remove(oldest);
        }
    }
    all
}

/// True if the pod still has a device that is kept while it has it.
fn has_any(eviction: &PodEviction, devices: &[ReservedDevice]) -> bool {
    devices.iter().filter(|device| device.state == ReservedDeviceState::Fencing).any(|device| {
        let owner = device.owner.as_ref();
        owner.is_some_and(|owner| owner.namespace == eviction.namespace && owner.pod == eviction.name)
    })
}

/// Returns the pods that a Reservation still has to evict by its status, with their UIDs.
pub(super) fn wanted_evictions(reservation: &Reservation) -> impl Iterator<Item = (ObjectKey, &str)> {
    let is_answered = |uid: &str| reservation.answers.get(uid).is_some_and(|answer| !answer.state.is_open());
    let evictions = reservation.object.status.evictions.iter().filter(|_| reservation.is_open());
    let open = evictions.filter(move |it| it.state.is_open() && !is_answered(&it.uid));
    open.map(|it| (pod_of(it), &*it.uid))
}

/// Returns the answer that an outcome means; `None` where the eviction is tried again: a pod cannot be evicted twice.
pub(super) fn answer_of(outcome: &WriteOutcome) -> Option<EvictionAnswer> {
    let (state, message) = match outcome {
        WriteOutcome::Done => (PodEvictionState::Evicted, String::new()),
        // The pod that has the name now is another one.
        WriteOutcome::Gone | WriteOutcome::Conflict => (PodEvictionState::Gone, String::new()),
        WriteOutcome::Refused(message) | WriteOutcome::Forbidden(message) => {
            (PodEvictionState::Blocked, message.clone())
        }
        WriteOutcome::Failed(_) | WriteOutcome::Dropped(_) => return None,
    };
    Some(EvictionAnswer { state, message })
}

/// Takes the answer to an eviction of this Reservation; returns the Event about it where it is news.
pub(super) fn take_answer(
    reservation: &mut Reservation,
    pod: &ObjectKey,
    uid: &str,
    answer: &EvictionAnswer,
) -> Option<HoldEventNote> {
    let said = reservation.object.status.evictions.iter().find(|it| it.uid == uid)?;
    let is_said = said.state == answer.state;
    let before = reservation.answers.insert(uid.to_owned(), answer.clone());
    let is_known = before.is_some_and(|before| before.state == answer.state);
    let (reason, message) = match answer.state {
        PodEvictionState::Evicted => ("Evicted", format!("pod {pod} was evicted")),
        PodEvictionState::Blocked => {
            ("EvictionBlocked", format!("pod {pod} cannot be evicted now: {}", answer.message))
        }
        PodEvictionState::Planned | PodEvictionState::Gone => return None,
    };
    let is_warning = answer.state == PodEvictionState::Blocked;
    let notice = || HoldEventNote::of(&reservation.object, is_warning, reason, message);
    (!is_said && !is_known).then(notice)
}
