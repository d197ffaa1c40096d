//! Decides the next write of a Reservation.

use std::time::{Duration, UNIX_EPOCH};

use hostler_api::{
    Chain,
    reservation::{
        ObjectReference, RESERVATION_FINALIZER, ReservationConditionReason as Reason, ReservationConditionType,
        ReservationPhase as Phase, ReservationStatus, ReservedDevice, ReservedDeviceState, TemplateError,
    },
};
use hostler_cluster::{from_rfc3339, since_1970};

use super::{
    attaching::{attaching, not_attached},
    closed::fence_topic,
    conflicts::{conflicts, is_in_conflict, is_strangers, released},
    context::{HoldContext, HoldEffect, Timer},
    devices::devices_now,
    evictions::wanted_evictions,
    fences::{are_closed, is_fenced},
    holders::current_owners,
    placeholder::placeholder_name,
    placeholders::has_placeholders,
    places::{NO_PLACES, PlaceStand, has_places, place_stand},
    pods::owners_to_annotate,
    reservation::Reservation,
    status::{NewStatus, OpenFacts},
    topics::{DecisionTopic, RECONCILE_AGAIN},
    writes::{HoldWrite, WrittenReservation},
};
use crate::reservation_object::ReservationObject;

/// Pause until clocks are read again, where one of them is behind.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The next step of a Reservation.
enum ReservationStep {
    None,
    AddFinalizer,
    RemoveFinalizer,
    Status(Box<ReservationStatus>),
    Delete,
}

impl From<ReservationStatus> for ReservationStep {
    fn from(status: ReservationStatus) -> Self {
        Self::Status(Box::new(status))
    }
}

/// Decides the next write of a Reservation. Queues decisions about its pods, claims and fences as well.
pub(super) fn decide_reservation(cx: &mut HoldContext<'_>, name: &str) -> Option<HoldWrite> {
    let reservation = cx.reservation(name)?;
    let step = next_step(cx, reservation);
    let evicted = wanted_evictions(reservation).map(|(pod, _)| pod);
    let pods: Vec<_> = evicted.chain(owners_to_annotate(cx, reservation)).collect();
    pods.into_iter().for_each(|pod| cx.decide(DecisionTopic::Pod(pod)));
    for part in reservation.object.status.devices.iter().filter(|device| device.is_part()) {
        cx.decide(DecisionTopic::Placeholder(placeholder_name(&part.share_id)));
        cx.push(fence_topic(cx.settings, part));
    }
    let ReservationObject { name, uid, version, finalizers, .. } = &reservation.object;
    let written = WrittenReservation { name: name.clone(), uid: uid.clone(), version: version.clone() };
    let others = finalizers.iter().filter(|finalizer| *finalizer != RESERVATION_FINALIZER).cloned();
    match step {
        ReservationStep::None => None,
        ReservationStep::AddFinalizer => {
            Some(HoldWrite::Finalizers(written, others.chain([RESERVATION_FINALIZER.to_owned()]).collect()))
        }
        ReservationStep::RemoveFinalizer => Some(HoldWrite::Finalizers(written, others.collect())),
        ReservationStep::Status(status) => Some(HoldWrite::Status(written, status)),
        ReservationStep::Delete => Some(HoldWrite::Delete(written)),
    }
}

/// True if any device is still closed for the Reservation, a claim stands for a part that it keeps, or a pod in a place.
fn is_kept_for(cx: &HoldContext<'_>, reservation: &Reservation) -> bool {
    is_fenced(cx, &reservation.value)
        || has_placeholders(cx, &reservation.object.uid)
        || has_places(cx.settings, reservation)
}

fn next_step(cx: &mut HoldContext<'_>, reservation: &Reservation) -> ReservationStep {
    let object = &reservation.object;
    let has_finalizer = object.finalizers.iter().any(|finalizer| finalizer == RESERVATION_FINALIZER);
    if !reservation.is_open()
        && let Some(status) = news_of_conflicts(cx, reservation)
    {
        return status.into();
    }
    if object.is_deleting {
        let is_in_conflict = object.status.devices.iter().any(|device| device.conflict);
        let is_ready = has_finalizer && !is_in_conflict && !is_kept_for(cx, reservation);
        return if is_ready { ReservationStep::RemoveFinalizer } else { ReservationStep::None };
    }
    if reservation.is_over() {
        return step_of_ended(cx, reservation, has_finalizer);
    }
    if !has_finalizer {
        return ReservationStep::AddFinalizer;
    }
    match next_status(cx, reservation) {
        Some(status) if status != object.status => status.into(),
        _ => ReservationStep::None,
    }
}

/// Returns the status of a Reservation that is over or deleted where its devices in conflict are news.
fn news_of_conflicts(cx: &HoldContext<'_>, reservation: &Reservation) -> Option<ReservationStatus> {
    let known = &reservation.object.status;
    let mark = |device: &ReservedDevice| ReservedDevice {
        conflict: is_in_conflict(cx, device) || is_strangers(cx, reservation, device),
        ..device.clone()
    };
    let devices: Vec<ReservedDevice> = known.devices.iter().map(mark).collect();
    if !devices.iter().chain(&known.devices).any(|device| device.conflict) {
        return None;
    }
    let text = conflicts(cx, &devices);
    let new = NewStatus::after(&reservation.object, cx.clock.told()).released_but(devices, text.as_deref());
    (new != *known).then_some(new)
}

/// A Reservation that is over is opened to others, then let go, and deleted after a while.
fn step_of_ended(cx: &mut HoldContext<'_>, reservation: &Reservation, has_finalizer: bool) -> ReservationStep {
    let status = &reservation.object.status;
    let is_in_conflict = status.devices.iter().any(|device| device.conflict);
    if is_in_conflict || is_kept_for(cx, reservation) {
        status.devices.iter().for_each(|device| cx.push(fence_topic(cx.settings, device)));
        return ReservationStep::None;
    }
    if !status.devices.is_empty() {
        let reason = match status.phase {
            Phase::Succeeded => Reason::Succeeded,
            _ => Reason::Settled,
        };
        return NewStatus::of(reservation, cx.clock.told()).cleared(reason).into();
    }
    if has_finalizer {
        return ReservationStep::RemoveFinalizer;
    }
    let ready = status.condition(ReservationConditionType::Ready);
    let ended = ready.and_then(|it| since_1970(&it.last_transition_time)).unwrap_or_default();
    match is_past(cx, ended + cx.settings.keep, reservation) {
        true => ReservationStep::Delete,
        false => ReservationStep::None,
    }
}

/// True if all clocks are past `until`; else the Reservation is decided about again later.
fn is_past(cx: &mut HoldContext<'_>, until: Duration, reservation: &Reservation) -> bool {
    let left = cx.clock.certain().map(|now| until.saturating_sub(now));
    let is_past = left.is_some_and(|left| left.is_zero());
    if !is_past {
        let topic = DecisionTopic::Reservation(reservation.object.name.clone());
        cx.decide_after(left.unwrap_or_default().max(SHORTEST_WAIT), topic);
    }
    is_past
}

/// The end of a Reservation, since 1970.
pub(super) fn deadline(object: &ReservationObject) -> Result<Option<Duration>, TemplateError> {
    match object.spec.expires.as_deref().and_then(from_rfc3339) {
        // A time before 1970 is past like any other.
        Some(expires) => Ok(Some(expires.duration_since(UNIX_EPOCH).unwrap_or_default())),
        None => Ok(object.spec.lasts()?.map(|ttl| object.created + ttl)),
    }
}

/// Returns the status of a Reservation that is not over; `None` before there is anything to say.
fn next_status(cx: &mut HoldContext<'_>, reservation: &Reservation) -> Option<ReservationStatus> {
    let object = &reservation.object;
    let status = || NewStatus::of(reservation, cx.clock.told());
    let deadline = deadline(object);
    if let Ok(Some(deadline)) = deadline
        && is_past(cx, deadline, reservation)
    {
        return Some(status().ended(Reason::Expired, "its time is over"));
    }
    if let Some(node) = lost_node(cx, object) {
        return Some(status().ended(Reason::NodeLost, &format!("node {node} is gone")));
    }
    let error = deadline.err().or_else(|| object.spec.pod_template().err());
    if let Some(error) = error.filter(|_| object.status.devices.is_empty()) {
        return Some(status().invalid(&Chain(&error).to_string()));
    }
    match cx.settings.keeps_places {
        _ if object.spec.asks_for_devices() => {}
        Some(true) => {}
        Some(false) => return Some(status().invalid(NO_PLACES)),
        None => return None,
    }
    let devices = devices_or_proposal(cx, reservation);
    let owners = current_owners(cx, reservation, &devices);
    if object.spec.is_once() && owners.len() >= object.spec.replicas() as usize {
        return Some(status().succeeded(devices, owners));
    }
    status_of_open(cx, reservation, (devices, owners))
}

fn status_of_open(
    cx: &mut HoldContext<'_>,
    reservation: &Reservation,
    (devices, owners): (Vec<ReservedDevice>, Vec<ObjectReference>),
) -> Option<ReservationStatus> {
    let is_lacking = !reservation.lacking(&devices, &owners).is_empty();
    let is_new = reservation.object.status.conditions.is_empty();
    if is_lacking && reservation.problem.is_none() {
        cx.push(HoldEffect::PlanSoon);
    }
    if is_lacking {
        cx.decide_after(RECONCILE_AGAIN, DecisionTopic::Plan);
    }
    let problem = reservation.problem.as_ref().filter(|_| is_lacking);
    // The last answer stays until the planner has answered: a controller that led before may have got it.
    let keeps_lack = is_lacking && problem.is_none() && reservation.object.status.lack_of_devices().is_some();
    let places = place_stand(cx.settings, reservation);
    let has_news =
        reservation.object.spec.asks_for_devices() || matches!(&places, PlaceStand::Missing(said) if said.is_empty());
    if devices.is_empty() && problem.is_none() && !keeps_lack && is_new && has_news {
        return None;
    }
    let conflicts = conflicts(cx, &devices);
    let facts = OpenFacts {
        problem,
        keeps_lack,
        conflicts: conflicts.as_deref(),
        is_closed: are_closed(cx, reservation, &devices),
        untold: cx.untold(&devices),
        places,
        attaching: attaching(cx, reservation, &devices),
        not_attached: devices
            .iter()
            .filter(|device| device.state == ReservedDeviceState::Lost)
            .filter_map(|device| not_attached(cx, reservation, device))
            .collect(),
    };
    Some(NewStatus::of(reservation, cx.clock.told()).open(reservation, devices, owners, &facts))
}

/// Returns the devices as they are now, with the proposal in the place of devices that the Reservation lacks.
fn devices_or_proposal(cx: &mut HoldContext<'_>, reservation: &Reservation) -> Vec<ReservedDevice> {
    let devices = devices_now(cx, reservation);
    let Some(proposal) = &reservation.proposal else { return devices };
    let is_replaced = |device: &ReservedDevice| {
        !matches!(device.state, ReservedDeviceState::HandedOver | ReservedDeviceState::Releasing)
            && proposal.iter().any(|it| it.replica == device.replica)
    };
    let (replaced, kept): (Vec<_>, Vec<_>) = devices.into_iter().partition(is_replaced);
    let left = replaced.into_iter().filter_map(|device| released(cx, device));
    kept.into_iter().chain(proposal.iter().cloned()).chain(left).collect()
}

/// Returns a node of the Reservation's devices or places that has been gone for too long.
fn lost_node(cx: &mut HoldContext<'_>, object: &ReservationObject) -> Option<String> {
    let of_places = object.status.places.iter().filter(|place| place.is_kept()).map(|place| &place.node_name);
    let nodes = object.status.devices.iter().map(|device| &device.node_name).chain(of_places);
    for node in nodes.filter(|node| !node.is_empty()) {
        if cx.cluster.nodes.contains(node) {
            continue;
        }
        let age = cx.age(Timer::NodeMissing(node.clone()));
        if age >= cx.settings.grace {
            return Some(node.clone());
        }
        cx.decide_after(cx.settings.grace - age, DecisionTopic::Reservation(object.name.clone()));
    }
    None
}
