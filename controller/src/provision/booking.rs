//! The Reservations that keep the devices of a request: their names, their state, and when they shrink or are deleted.
//! Pure.
//!
//! The detail `reservation` of a request is the intent, and is written before any Reservation is created. Each name
//! tells the pods and the set that the Reservation is for; a set that is too large for one Reservation has several. A
//! Reservation that the detail does not name any more is deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hostler_allocator::plan::{ClusterFacts, PodSet};
use hostler_api::{
    fabric::of_fabric_pool,
    few,
    reservation::{
        OwnerRequest, PlannedDevice, ReservationConditionReason as Reason, ReservationConditionType, ReservationOwner,
        ReservationPhase as Phase, ReservationSpec, ReservedDevice, ReservedDeviceState,
    },
};
use serde_json::json;

use super::{
    arrive::waiting,
    booked::{BookedPart, REQUEST_LABEL, made_for, own, parts},
    check::PodDevice,
    context::{ProvisionContext, SeenReservations},
    event::{NewReservation, ReservationWrite},
    splits::reservation_starts,
    status::RESERVATION,
};
use crate::{hold::WrittenReservation, requests::SeenRequest, reservation_object::ReservationObject};

/// Limit of the time until all devices are closed to others. A node that does not answer is given up after one minute,
/// and other devices are closed.
pub(super) const BOOKING_TAKES: Duration = Duration::from_secs(120);
/// The same where devices behind switches are attached to their nodes as well: two attempts of the eight minutes that one
/// may take.
const ATTACHING_TAKES: Duration = Duration::from_secs(1080);
/// A Reservation outlives the booking that it is for by this time: the end of a booking may be written late, and until
/// then the promised devices must be kept.
const LASTS_LONGER: Duration = Duration::from_secs(60);

/// Progress of closing a request's devices to others.
#[derive(Debug)]
pub(super) enum BookingState {
    /// Some Reservations do not exist: these are to be created.
    Incomplete(Vec<ReservationWrite>),
    /// Not all devices are closed yet.
    Closing,
    /// All devices are kept.
    Kept,
    /// The devices cannot be kept, and why.
    Lacking(String),
}

/// State of the Reservations of a request that was told yes.
#[derive(Debug, Default)]
pub(super) struct BookingNeed {
    /// The message, if a Reservation was deleted or keeps no device any more.
    pub(super) lost: Option<String>,
    /// Names of Reservations that are still needed.
    pub(super) names: Vec<String>,
    /// Writes for Reservations that keep too many devices.
    pub(super) shrinks: Vec<ReservationWrite>,
}

/// Returns the time within which the devices of a request are kept.
pub(super) fn booking_takes(request: &SeenRequest, all: &SeenReservations) -> Duration {
    let of_request = parts(request).into_iter().filter_map(|part| own(request, &part.name, all));
    let mut devices = of_request.flat_map(|known| &known.status.devices);
    match devices.any(|device| of_fabric_pool(&device.pool).is_some()) {
        true => ATTACHING_TAKES,
        false => BOOKING_TAKES,
    }
}

/// Returns the names of the Reservations that keep the devices of all sets; empty if there would be too many.
pub(super) fn names(request: &SeenRequest, sets: &[PodSet], facts: &ClusterFacts) -> Vec<String> {
    let starts = reservation_starts(sets, facts).into_iter();
    starts.map(|(set, from)| format!("provreq-{}-{set}-{from}", request.uid())).collect()
}

/// Returns the progress of closing the devices of a request.
pub(super) fn state(
    request: &SeenRequest,
    sets: &[PodSet],
    all: &SeenReservations,
    booking: Duration,
    planned: &[Vec<PodDevice>],
) -> BookingState {
    let (mut missing, parts) = (Vec::new(), parts(request));
    if parts.is_empty() {
        return BookingState::Lacking(format!("the detail {RESERVATION} of its status names none of its Reservations"));
    }
    let mut is_kept = true;
    for part in parts {
        let Some(set) = sets.get(part.set) else { continue };
        let Some(known) = own(request, &part.name, all) else {
            let mut new = new_reservation(request, &part, set, booking);
            new.spec.planned_devices = planned_devices(&part, planned);
            missing.push(ReservationWrite::Create(Box::new(new)));
            continue;
        };
        if let Some(why) = lacking(known) {
            return BookingState::Lacking(format!(
                "there was room, but devices for set {} could not be kept: {why} (Reservation {})",
                set.name, part.name
            ));
        }
        is_kept &= known.status.phase == Phase::Available;
    }
    match (missing.is_empty(), is_kept) {
        (false, _) => BookingState::Incomplete(missing),
        (true, true) => BookingState::Kept,
        (true, false) => BookingState::Closing,
    }
}

/// Returns the reason why a Reservation will not keep its devices soon.
fn lacking(known: &ReservationObject) -> Option<String> {
    let condition = |kind| known.status.condition(kind);
    if known.is_deleting {
        return Some("it was deleted".to_owned());
    }
    if known.status.phase.is_over() {
        let ready = condition(ReservationConditionType::Ready);
        return Some(ready.map_or_else(|| "it is over".to_owned(), |it| it.message.clone()));
    }
    let invalid = condition(ReservationConditionType::Scheduled).filter(|it| it.reason == Reason::Invalid.as_str());
    invalid.or_else(|| known.status.lack_of_devices()).map(|it| it.message.clone())
}

/// Returns the devices that were planned for the pods of a Reservation; none after a crash, and the Reservation is planned anew then.
fn planned_devices(part: &BookedPart, planned: &[Vec<PodDevice>]) -> Vec<PlannedDevice> {
    let pods = part.from..part.from.saturating_add(part.pods);
    let devices = planned.get(part.set).into_iter().flatten().filter(|it| pods.contains(&it.pod));
    // Parts of one device are several.
    let devices: BTreeSet<PlannedDevice> = devices.map(|it| it.device.clone()).collect();
    devices.into_iter().collect()
}

fn new_reservation(request: &SeenRequest, part: &BookedPart, set: &PodSet, booking: Duration) -> NewReservation {
    let owner = OwnerRequest { namespace: request.key.namespace.clone(), name: request.key.name.clone() };
    let ttl = booking + ATTACHING_TAKES + LASTS_LONGER;
    let spec = ReservationSpec {
        template: json!({"metadata": {"namespace": set.namespace}, "spec": set.spec}),
        replicas: Some(part.pods),
        owners: vec![ReservationOwner { provisioning_request: Some(owner), ..ReservationOwner::default() }],
        ttl: Some(format!("{}s", ttl.as_secs())),
        allocate_once: Some(true),
        ..ReservationSpec::default()
    };
    let labels = BTreeMap::from([
        (REQUEST_LABEL.to_owned(), request.uid().to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), "hostler-controller".to_owned()),
    ]);
    NewReservation { name: part.name.clone(), labels, spec }
}

/// Returns the Reservations that a request still needs after some of its pods have come.
pub(super) fn need(request: &SeenRequest, sets: &[PodSet], cx: &ProvisionContext<'_>) -> BookingNeed {
    let mut need = BookingNeed::default();
    let parts = parts(request);
    let mut free: BTreeMap<usize, u32> = BTreeMap::new();
    let mut open: Vec<(&BookedPart, &Arc<ReservationObject>)> = Vec::new();
    for part in &parts {
        match own(request, &part.name, cx.reservations) {
            Some(known) if known.status.phase == Phase::Succeeded => {}
            Some(known) if known.status.phase != Phase::Failed && !known.is_deleting => {
                *free.entry(part.set).or_default() += unserved(known);
                open.push((part, known));
            }
            known => {
                let why = known.and_then(|it| lacking(it)).unwrap_or_else(|| "it was deleted".to_owned());
                need.lost = Some(format!("Reservation {} keeps nothing any more: {why}", part.name));
                return need;
            }
        }
    }
    let waiting = waiting(request, sets, &open, cx);
    // The last Reservations shrink first: devices for the first pods stay kept.
    for (part, known) in open.iter().rev() {
        let spare = free.get(&part.set).copied().unwrap_or_default();
        let excess = spare.saturating_sub(waiting.get(part.set).copied().unwrap_or_default()).min(unserved(known));
        let replicas = known.spec.replicas() - excess;
        free.insert(part.set, spare - excess);
        if replicas == 0 {
            continue;
        }
        need.names.insert(0, part.name.clone());
        if excess > 0 {
            need.shrinks.push(ReservationWrite::Shrink(written(known), replicas));
        }
    }
    need
}

/// The state of the devices that are kept for a request.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) enum KeptDevices {
    /// All devices are kept.
    #[default]
    Whole,
    /// Some devices are being closed to others, in the place of lost ones.
    Closing,
    /// Some devices are lost, and replacements are looked for.
    Replacing(String),
    /// Some devices are lost, and no replacement is free.
    Lost(String),
}

/// Compares the promise to a request with the devices that its Reservations keep.
pub(super) fn kept_devices(request: &SeenRequest, all: &SeenReservations) -> KeptDevices {
    let parts = parts(request);
    let open = || parts.iter().filter_map(|part| own(request, &part.name, all)).filter(|it| !it.status.phase.is_over());
    let is_lost = |device: &&ReservedDevice| device.state == ReservedDeviceState::Lost;
    let lost: Vec<String> = open().flat_map(|it| it.status.devices.iter().filter(is_lost)).map(lost_device).collect();
    let none_free = |known: &ReservationObject| {
        let lack = known.status.lack_of_devices()?;
        let is_broken = known.status.devices.iter().any(|device| is_lost(&device));
        is_broken.then(|| format!("{} (Reservation {})", lack.message, known.name))
    };
    let is_kept = open().all(|known| known.status.phase == Phase::Available);
    match open().find_map(|known| none_free(known)) {
        Some(why) => KeptDevices::Lost(format!("{} is lost, and nothing is free in its place: {why}", few(&lost))),
        None if !lost.is_empty() => {
            KeptDevices::Replacing(format!("{} is lost, and another device is looked for", few(&lost)))
        }
        None if is_kept => KeptDevices::Whole,
        None => KeptDevices::Closing,
    }
}

fn lost_device(device: &ReservedDevice) -> String {
    let ReservedDevice { driver, pool, device, node_name, .. } = device;
    match node_name.is_empty() {
        true => format!("{driver}/{pool}/{device}"),
        false => format!("{driver}/{pool}/{device} on node {node_name}"),
    }
}

/// Returns the number of pods that a Reservation still keeps devices for.
pub(super) fn unserved(known: &ReservationObject) -> u32 {
    let served = u32::try_from(known.status.current_owners.len()).unwrap_or(u32::MAX);
    known.spec.replicas().saturating_sub(served)
}

/// Returns writes that take back Reservations which a request does not name any more. A Reservation with owners shrinks
/// to them, and lives on as long as Reservations that are used up do. While the request is open, used-up Reservations
/// are deleted, since their names are needed again; once it was told yes (`is_done`), they tell which pods have come.
pub(super) fn taken_back(
    request: &SeenRequest,
    all: &SeenReservations,
    named: &[String],
    is_done: bool,
) -> Vec<ReservationWrite> {
    let unnamed = made_for(request, all).filter(|it| !named.contains(&it.name));
    unnamed.filter_map(|known| taken_back_of(known, is_done)).collect()
}

/// Returns the write that takes back one such Reservation.
pub(super) fn taken_back_of(known: &ReservationObject, is_done: bool) -> Option<ReservationWrite> {
    let (phase, status) = (known.status.phase, &known.status);
    let owners = u32::try_from(status.current_owners.len()).unwrap_or(u32::MAX);
    match phase {
        _ if known.is_deleting => None,
        Phase::Succeeded if is_done || !status.devices.is_empty() => None,
        Phase::Failed if is_done => None,
        Phase::Succeeded | Phase::Failed => Some(ReservationWrite::Delete(written(known))),
        _ if owners == 0 => Some(ReservationWrite::Delete(written(known))),
        _ if known.spec.replicas() > owners => Some(ReservationWrite::Shrink(written(known), owners)),
        _ => None,
    }
}

fn written(known: &ReservationObject) -> WrittenReservation {
    let ReservationObject { name, uid, version, .. } = known;
    WrittenReservation { name: name.clone(), uid: uid.clone(), version: version.clone() }
}

/// Returns the nodes of devices that a set's Reservations keep and no pod has yet, with the number of pods on each.
pub(super) fn kept_on(request: &SeenRequest, set: Option<usize>, all: &SeenReservations) -> BTreeMap<String, u32> {
    let mut nodes = BTreeMap::new();
    for part in parts(request).iter().filter(|part| set.is_none_or(|set| part.set == set)) {
        let Some(known) = own(request, &part.name, all).filter(|it| !it.status.phase.is_over()) else { continue };
        let is_left = |device: &&ReservedDevice| device.state != ReservedDeviceState::HandedOver;
        let of_replicas: BTreeMap<u32, &String> =
            known.status.kept().filter(is_left).map(|it| (it.replica, &it.node_name)).collect();
        for node in of_replicas.into_values() {
            *nodes.entry(node.clone()).or_default() += 1;
        }
    }
    nodes
}

/// Returns the kept devices of a request, by set and pod, in a stable order.
pub(super) fn kept_plan(request: &SeenRequest, all: &SeenReservations) -> Vec<String> {
    let line = |part: &BookedPart, it: &ReservedDevice| {
        let pod = part.from + it.replica;
        format!("{} {pod} {} {}/{}/{}", part.set, it.node_name, it.driver, it.pool, it.device)
    };
    let mut lines = Vec::new();
    for part in parts(request) {
        let known = own(request, &part.name, all);
        lines.extend(known.iter().flat_map(|known| known.status.kept()).map(|device| line(&part, device)));
    }
    lines.sort();
    lines
}

/// Returns the toleration values that claims need for the kept devices, in the order of the sets.
pub(super) fn tolerations(request: &SeenRequest, all: &SeenReservations) -> String {
    let values =
        parts(request).into_iter().filter_map(|part| own(request, &part.name, all)?.status.toleration_value.clone());
    values.collect::<Vec<_>>().join(",")
}
