//! What is promised to somebody, and so is nobody else's: for everybody who plans.

use std::collections::BTreeSet;

use hostler_allocator::plan::ClusterFacts;
use hostler_api::{
    reservation::{ReservationStatus, ReservedDeviceState},
    resource::{
        AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim, ResourceClaimMetadata,
        ResourceClaimStatus,
    },
};

use super::event::DeviceKey;

/// The devices that these Reservations keep, or are about to. What an owner has already is in its claim.
pub(crate) fn taken_by_reservations<'a>(
    statuses: impl IntoIterator<Item = &'a ReservationStatus>,
) -> BTreeSet<DeviceKey> {
    let open = statuses.into_iter().filter(|status| !status.phase.is_over());
    let devices = open.flat_map(|status| &status.devices);
    let kept = devices.filter(|device| device.state != ReservedDeviceState::HandedOver);
    kept.map(|device| DeviceKey::new(&device.driver, &device.pool, &device.device)).collect()
}

/// Has whoever asks these facts take the devices for given.
pub(crate) fn add_taken(facts: &mut ClusterFacts, taken: &BTreeSet<DeviceKey>) {
    let results = taken.iter().map(|key| DeviceRequestAllocationResult {
        driver: key.driver.clone(),
        pool: key.pool.clone(),
        device: key.device.clone(),
        ..DeviceRequestAllocationResult::default()
    });
    let devices = DeviceAllocationResult { results: results.collect(), ..DeviceAllocationResult::default() };
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
