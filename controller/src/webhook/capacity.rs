//! Numbers of devices of each class that claims and Reservations ask for, under the names of quotas. Pure.

use std::collections::BTreeMap;

use hostler_allocator::plan::QUOTA_OF_DEVICES;
use hostler_api::{
    ObjectKey, Quantity,
    reservation::{ReservationMode, ReservationPhase},
    resource::{DeviceAllocationMode, ResourceClaimSpec},
};

use crate::{reservation_object::ReservationObject, view::ClusterView};

/// The class in a quota's name.
pub(super) fn class_of(name: &str) -> Option<&str> {
    name.strip_suffix(QUOTA_OF_DEVICES)
}

/// The devices that a Reservation keeps once it lacks none. Empty where pods name its claims: the webhook changes no
/// claims of such pods.
pub(super) fn capacity(view: &ClusterView, reservation: &ReservationObject) -> BTreeMap<String, Quantity> {
    let ReservationObject { spec, status, .. } = reservation;
    if spec.mode() == ReservationMode::SharedClaim {
        return BTreeMap::new();
    }
    let mut capacity = status.allocatable.clone();
    if status.phase == ReservationPhase::Available {
        return capacity;
    }
    for (name, count) in for_one_pod(view, reservation) {
        let known = capacity.entry(name).or_default();
        *known = (*known).max(count.times(Quantity::whole(spec.replicas().into())));
    }
    capacity
}

/// The devices that a Reservation keeps for each of its pods.
pub(super) fn for_one_pod(view: &ClusterView, reservation: &ReservationObject) -> BTreeMap<String, Quantity> {
    let spec = &reservation.spec;
    let namespace = spec.template["metadata"]["namespace"].as_str().unwrap_or_default();
    let claims = spec.template["spec"]["resourceClaims"].as_array().into_iter().flatten();
    let templates = claims.filter_map(|it| it["resourceClaimTemplateName"].as_str());
    let of_template = |name: &str| view.facts.template(&ObjectKey::new(namespace, name)).map(|spec| wanted(spec));
    let asked = templates.filter_map(of_template).chain(spec.device_claims.iter().map(|it| wanted(&it.spec)));
    let mut sums: BTreeMap<String, Quantity> = BTreeMap::new();
    for (name, count) in asked.flatten() {
        let sum = sums.entry(name).or_default();
        *sum = sum.plus(count);
    }
    sums
}

/// Numbers of devices of each class that a claim wants, as quotas count them: for each class the most of any
/// alternative.
pub(super) fn wanted(spec: &ResourceClaimSpec) -> BTreeMap<String, Quantity> {
    let mut all: BTreeMap<String, Quantity> = BTreeMap::new();
    for request in &spec.devices.requests {
        let exactly = request.exactly.iter().filter(|it| it.admin_access != Some(true));
        let exactly = exactly.map(|it| (&it.device_class_name, &it.allocation_mode, it.count));
        let alternatives =
            request.first_available.iter().map(|it| (&it.device_class_name, &it.allocation_mode, it.count));
        let mut most: BTreeMap<&String, u64> = BTreeMap::new();
        for (class, mode, count) in exactly.chain(alternatives) {
            // All devices of a node are at least one.
            let count = if *mode == DeviceAllocationMode::All { 1 } else { count.unwrap_or(1) };
            let known = most.entry(class).or_default();
            *known = (*known).max(u64::try_from(count).unwrap_or_default());
        }
        for (class, count) in most {
            let sum = all.entry(format!("{class}{QUOTA_OF_DEVICES}")).or_default();
            *sum = sum.plus(Quantity::whole(count));
        }
    }
    all
}
