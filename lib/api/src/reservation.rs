//! Reservation: devices that are kept for pods that come later. Users write which devices shall be kept and for which
//! owners, and hostler's controller writes the outcome into the status.
//!
//! ```text
//!                  ┌──────────── a device is lost ───────────┐
//!   Pending ──► (Waiting) ──► Available ──► Succeeded      Pending
//!      └────────────┴────────────┴──► Failed: expired, or its node is gone
//! ```

mod candidate;
mod eviction;
mod mode;
mod owner;
mod place;
mod spec;
mod status;
mod ttl;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use candidate::OwnerCandidate;
pub use eviction::{PodEviction, PodEvictionState, ReplacedPod, ReservationPreemptionPolicy};
pub use mode::{ReservationMode, SharedClaimError};
pub use owner::{OwnerController, OwnerObject, OwnerRequest, ReservationOwner};
pub use place::{PLACES_NAMESPACE, PLACES_PRIORITY_CLASS, PlaceOwner, ReservedPlace, ReservedPlaceState};
pub use spec::{
    DEFAULT_TTL, NamedDeviceClaim, PlannedDevice, PreAllocationMode, PreAllocationPolicy, ReservationAllocatePolicy,
    ReservationSpec, TemplateError,
};
pub use status::{
    DeviceOwner, ObjectReference, ReservationConditionReason, ReservationConditionType, ReservationPhase,
    ReservationStatus, ReservedClaim, ReservedDevice, ReservedDeviceState,
};
pub use ttl::{ParseTtlError, parse_ttl};

pub use crate::core::{LabelSelector, LabelSelectorOperator, LabelSelectorRequirement};

use crate::{
    core::ObjectMeta,
    fingerprint::{fingerprint, fnv},
};

/// Name of the kind.
pub const RESERVATION_KIND: &str = "Reservation";
/// Plural of the kind.
pub const RESERVATIONS: &str = "reservations";
/// Group of Koordinator's Reservation.
pub const KOORDINATOR_GROUP: &str = "scheduling.koordinator.sh";
/// The version of that group that is known.
pub const KOORDINATOR_VERSION: &str = "v1alpha1";
/// Finalizer: keeps a Reservation until nothing is kept for it any more.
pub const RESERVATION_FINALIZER: &str = "hostler.dev/reservation";
/// The annotation of pods that were given devices of a Reservation: its name and UID, as JSON.
pub const RESERVATION_ALLOCATED: &str = "hostler.dev/reservation-allocated";
/// The label that says which of several Reservations is taken first: the lowest number that is not 0.
pub const RESERVATION_ORDER: &str = "hostler.dev/reservation-order";
/// Evicted pods that a Reservation's status remembers.
pub const MAX_PAST_EVICTIONS: usize = 64;
/// The scheduling gate of pods that are given their devices and their node before the scheduler sees them.
pub const PLACEMENT_GATE: &str = "hostler.dev/placement";
/// The scheduling gate of owners that wait for their place, and of pods that wait for the decision on their
/// ProvisioningRequest. The webhook sets it, and the controller that leads removes it.
pub const RESERVATION_GATE: &str = "hostler.dev/reservation";
/// The label of a Reservation that was made for a gated pod: the UID of the pod.
pub const PLACED_POD_LABEL: &str = "hostler.dev/placed-pod";
/// Annotation of claims and pods that are made for a Reservation: its name.
pub const RESERVATION_ANNOTATION: &str = "hostler.dev/reservation";
/// Annotation of the same objects: the UID of the Reservation, since a name can be given to another one later.
pub const RESERVATION_UID_ANNOTATION: &str = "hostler.dev/reservation-uid";
/// Claims that a Reservation asks for without a template.
pub const MAX_DEVICE_CLAIMS: usize = 8;

/// The Reservation that an object of this name was made for, if its annotations give name and UID, and the object is
/// named after it. The name alone, as people write it, means something else.
#[must_use]
pub fn made_for<'a>(object: &str, annotations: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let name = annotations.get(RESERVATION_ANNOTATION).filter(|name| !name.is_empty())?;
    let has_uid = annotations.get(RESERVATION_UID_ANNOTATION).is_some_and(|uid| !uid.is_empty());
    let is_called_so = object.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('-'));
    (has_uid && is_called_so).then_some(name)
}

/// The pod that asks for the devices of a Reservation of this name.
#[must_use]
pub fn reserve_pod_name(reservation: &str) -> String {
    format!("{reservation}-reserve")
}

/// The first Reservation that is made for a gated pod with this UID; those that follow are called `<this>-<number>`.
#[must_use]
pub fn placement_name(pod_uid: &str) -> String {
    format!("pod-{pod_uid}")
}

/// Pods for which one Reservation may keep devices.
pub const MAX_REPLICAS: u32 = 1024;
/// The annotation, in JSON, with which a pod names the Reservations that it is to be led to.
pub const RESERVATION_AFFINITY: &str = "hostler.dev/reservation-affinity";
/// The annotation, in JSON, with which a pod names resources of which a Reservation must keep exactly what the pod asks
/// for.
pub const EXACT_MATCH_RESERVATION: &str = "hostler.dev/exact-match-reservation";
/// The label with which a pod says `true` that its devices may be kept for other pods, once it ends.
pub const PRE_ALLOCATABLE: &str = "hostler.dev/pre-allocatable";
/// The annotation with the number by which such pods are chosen, the greatest first; 0 where there is none.
pub const PRE_ALLOCATABLE_PRIORITY: &str = "hostler.dev/pre-allocatable-priority";
/// The label with which a pod says `true` that it is to be led to no Reservation.
pub const RESERVATION_IGNORED: &str = "hostler.dev/reservation-ignored";
/// The annotation of a claim that says, in JSON, to which Reservation it was led: name and uid.
pub const CLAIM_RESERVATION: &str = "hostler.dev/led-to-reservation";
/// The annotation of a claim that was made in the place of another one of the same pod, which had nothing: the other
/// one's name.
pub const CLAIM_INSTEAD_OF: &str = "hostler.dev/instead-of";
/// The label of a claim that stands for a part of a device: the UID of the Reservation that keeps the part.
pub const RESERVATION_UID: &str = "hostler.dev/reservation-uid";
/// Devices that a Reservation may keep at once: its object must fit into the API server's store.
pub const MAX_RESERVED_DEVICES: usize = 1024;

/// Devices that are kept for pods that come later.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Reservation {
    /// Name and identity.
    pub metadata: ObjectMeta,
    /// Devices to keep, their owners, and the time.
    pub spec: ReservationSpec,
    /// Outcome, as the controller reports it.
    pub status: ReservationStatus,
}

/// Value of the taint `hostler.dev/held` with which devices are kept for the Reservation with this UID: 16
/// hexadecimal digits. A name could be given to another object later, and a UID is longer than a value of a
/// toleration that people write.
pub fn toleration_value(uid: &str) -> String {
    fingerprint(uid)
}

/// Identity of a part of a device that is kept for the Reservation with this UID, in the form of a UUID. The same
/// part always has the same identity, and another part another one.
pub fn part_share_id(uid: &str, part: &str) -> String {
    let (high, low) = (fnv(&format!("{uid} {part}")), fnv(&format!("{part} {uid}")));
    // Version 8, whose content its maker defines, and the variant of RFC 9562.
    let high = (high & !0xf000) | 0x8000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    let (tail, head) = (low & 0xffff_ffff_ffff, low >> 48);
    format!("{:08x}-{:04x}-{:04x}-{head:04x}-{tail:012x}", high >> 32, (high >> 16) & 0xffff, high & 0xffff)
}

#[cfg(test)]
mod tests;
