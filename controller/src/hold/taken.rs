//! Devices and amounts that are promised to Reservations: no other candidate or pod can be given them by a plan.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::{ClusterFacts, QuotaAmounts};
use hostler_api::{
    reservation::{ReservationStatus, ReservedDevice, ReservedDeviceState},
    resource::{
        AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim, ResourceClaimMetadata,
        ResourceClaimStatus,
    },
};

use super::objects::{DeviceKey, device_key};
use crate::reservation_object::ReservationObject;

/// A part that a Reservation keeps already.
#[derive(Clone, Debug)]
pub(super) struct OwnPart {
    pub(super) device: ReservedDevice,
    /// True if a claim has the part: the facts count it already.
    pub(super) is_given: bool,
}

/// The devices that these Reservations keep, or are about to keep. Devices that an owner has already are in its claim.
pub(crate) fn taken_by_reservations<'a>(
    statuses: impl IntoIterator<Item = &'a ReservationStatus>,
) -> BTreeSet<DeviceKey> {
    let open = statuses.into_iter().filter(|status| !status.phase.is_over());
    let devices = open.flat_map(|status| &status.devices);
    // A part is in a claim of its own, or its device is closed.
    devices.filter(|device| is_taken(device) && !device.is_part()).map(device_key).collect()
}

/// The amounts of devices once pods have them, under the names of quotas.
pub(super) fn quota_amounts<'a>(devices: impl Iterator<Item = &'a ReservedDevice>) -> QuotaAmounts {
    let (mut amounts, mut claims) = (QuotaAmounts::default(), BTreeSet::new());
    let is_promised =
        |it: &&ReservedDevice| matches!(it.state, ReservedDeviceState::Fencing | ReservedDeviceState::Held);
    for device in devices.filter(is_promised) {
        amounts.add_devices(&device.device_class_name, 1);
        claims.insert((device.replica, &device.claim));
    }
    amounts.add_claims(claims.len() as u64);
    amounts
}

/// The promises of Reservations in each namespace that no claim has yet. Quotas count the claims that exist already.
pub(crate) fn promised_by_reservations<'a>(
    all: impl IntoIterator<Item = &'a ReservationObject>,
) -> BTreeMap<String, QuotaAmounts> {
    let mut promised: BTreeMap<String, QuotaAmounts> = BTreeMap::new();
    let counts = |it: &&ReservationObject| !it.status.phase.is_over() && it.is_counted_by_quotas();
    for reservation in all.into_iter().filter(counts) {
        let namespace = promised.entry(reservation.namespace()).or_default();
        namespace.add(&quota_amounts(reservation.status.devices.iter()), 1);
    }
    promised
}

/// True if no other Reservation can have the device. A Reservation that has a part closes the whole device whenever an
/// owner comes, and two Reservations could not both do that.
pub(super) fn is_taken(device: &ReservedDevice) -> bool {
    device.state != ReservedDeviceState::HandedOver || device.is_part() || device.conflict
}

/// Adds a claim that has the devices: plans with these facts count them as given.
pub(crate) fn add_taken(facts: &mut ClusterFacts, taken: &BTreeSet<DeviceKey>) {
    add_promised(facts, taken, std::iter::empty());
}

/// Adds the devices, and the parts that no claim has yet.
pub(super) fn add_promised<'a>(
    facts: &mut ClusterFacts,
    taken: &BTreeSet<DeviceKey>,
    parts: impl Iterator<Item = &'a OwnPart>,
) {
    let whole = |key: &DeviceKey| DeviceRequestAllocationResult {
        driver: key.driver.clone(),
        pool: key.pool.clone(),
        device: key.device.clone(),
        ..DeviceRequestAllocationResult::default()
    };
    let part = |OwnPart { device: part, .. }: &OwnPart| DeviceRequestAllocationResult {
        share_id: Some(part.share_id.clone()),
        consumed_capacity: part
            .consumed_capacity
            .iter()
            .map(|(name, it)| (name.clone(), it.to_string().into()))
            .collect(),
        ..whole(&device_key(part))
    };
    let results = taken.iter().map(whole).chain(parts.filter(|part| !part.is_given).map(part)).collect();
    let devices = DeviceAllocationResult { results, ..DeviceAllocationResult::default() };
    let allocation = AllocationResult { devices, ..AllocationResult::default() };
    facts.add_claim(&ResourceClaim {
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceClaim".to_owned(),
        // No object has a space in its name.
        metadata: ResourceClaimMetadata { name: "all reservations".to_owned(), ..ResourceClaimMetadata::default() },
        spec: hostler_api::resource::ResourceClaimSpec::default(),
        status: ResourceClaimStatus { allocation: Some(allocation), reserved_for: Vec::new() },
    });
}
