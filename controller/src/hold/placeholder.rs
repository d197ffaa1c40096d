//! Claims that stand for kept parts of devices, so that schedulers count these parts as given. A claim is made and
//! written while the device is closed, emptied while the device is closed when an owner comes, and deleted when the
//! part is no longer kept.

use hostler_api::{
    ObjectKey,
    core::NodeSelector,
    reservation::{RESERVATION_UID, ReservedDevice},
    resource::{
        AllocationResult, CapacityRequirements, DeviceAllocationResult, DeviceRequest, DeviceRequestAllocationResult,
        ExactDeviceRequest, ResourceClaimSpec, SliceQuantity,
    },
};

use super::objects::{AllocatedClaim, PlaceholderMark, device_key};
use crate::claim_write::{ClaimVersion, ClaimWrite, DELETE_PROTECTION, NewClaim, WrittenClaimStatus};

/// Annotation with the name of the Reservation, for people. Claims that pods name have another annotation.
const PART_OF: &str = "hostler.dev/part-of-reservation";
/// Name of the request of such a claim.
const REQUEST: &str = "part";

/// Name of the claim that stands for a part.
pub(super) fn placeholder_name(share_id: &str) -> String {
    format!("hold-{share_id}")
}

/// A part that a claim shall stand for.
pub(super) struct WantedPart {
    /// Name of the Reservation.
    pub(super) reservation: String,
    pub(super) uid: String,
    pub(super) device: ReservedDevice,
    /// True if only owners can get any of the device now, and none of them waits: the claim can take the part.
    pub(super) can_take: bool,
    /// True if an owner waits for the part, and no other pod can get it: the claim gives the part back.
    pub(super) is_wanted: bool,
}

/// True if the claim has the part that it stands for, and nothing else.
pub(super) fn has_part(claim: &AllocatedClaim, device: &ReservedDevice) -> bool {
    let [part] = &claim.parts[..] else { return false };
    claim.placeholder.as_ref().is_some_and(|mark| !mark.is_deleting)
        && part.device == device_key(device)
        && part.share_id == device.share_id
        && part.amounts == device.consumed_capacity
}

/// The next write from the claim's state to its wanted state. A claim with devices has a finalizer; a claim without
/// devices can be deleted.
pub(super) fn next_placeholder_write(
    claim: &AllocatedClaim,
    wanted: Option<&WantedPart>,
    now: String,
) -> Option<ClaimWrite> {
    let PlaceholderMark { finalizers, is_deleting, .. } = claim.placeholder.clone()?;
    let written = ClaimVersion { key: claim.key.clone(), uid: claim.uid.clone(), version: claim.version.clone() };
    let is_protected = finalizers.iter().any(|finalizer| finalizer == DELETE_PROTECTION);
    let has_devices = !claim.devices.is_empty();
    let empty = |written| ClaimWrite::Status(written, Box::default());
    match wanted.filter(|_| !is_deleting) {
        Some(part) if has_devices => Some(empty(written)).filter(|_| part.is_wanted),
        Some(part) if !part.can_take => None,
        Some(_) if !is_protected => Some(ClaimWrite::Finalizers(
            written,
            finalizers.into_iter().chain([DELETE_PROTECTION.to_owned()]).collect(),
        )),
        Some(part) => Some(ClaimWrite::Status(written, Box::new(allocated(&part.device, now)))),
        None if has_devices => Some(empty(written)),
        None if is_protected => {
            let others = finalizers.into_iter().filter(|finalizer| finalizer != DELETE_PROTECTION);
            Some(ClaimWrite::Finalizers(written, others.collect()))
        }
        None => Some(ClaimWrite::Delete(written)).filter(|_| !is_deleting),
    }
}

pub(super) fn new_placeholder(key: &ObjectKey, part: &WantedPart) -> NewClaim {
    let amounts = part.device.consumed_capacity.iter();
    let requests = amounts.map(|(name, amount)| (&**name, SliceQuantity::Exact((*amount).into()))).collect();
    let exactly = ExactDeviceRequest {
        device_class_name: part.device.device_class_name.clone(),
        capacity: Some(CapacityRequirements { requests }),
        ..ExactDeviceRequest::default()
    };
    let mut spec = ResourceClaimSpec::default();
    spec.devices.requests =
        vec![DeviceRequest { name: REQUEST.to_owned(), exactly: Some(exactly), ..DeviceRequest::default() }];
    let label = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    NewClaim {
        key: key.clone(),
        labels: [(RESERVATION_UID, &*part.uid), ("app.kubernetes.io/managed-by", "hostler-controller")]
            .map(label)
            .into(),
        annotations: [(PART_OF, &*part.reservation)].map(label).into(),
        spec,
    }
}

/// The status that a scheduler would have written. The claim has no consumer, so only the controller takes the part
/// away.
fn allocated(part: &ReservedDevice, now: String) -> WrittenClaimStatus {
    let amounts = part.consumed_capacity.iter();
    let result = DeviceRequestAllocationResult {
        request: REQUEST.to_owned(),
        driver: part.driver.clone(),
        pool: part.pool.clone(),
        device: part.device.clone(),
        share_id: Some(part.share_id.clone()),
        consumed_capacity: amounts.map(|(name, it)| (name.clone(), it.to_string().into())).collect(),
        ..DeviceRequestAllocationResult::default()
    };
    let selector = Some(&part.node_name).filter(|node| !node.is_empty()).map(NodeSelector::of_node);
    let allocation = AllocationResult {
        devices: DeviceAllocationResult { results: vec![result], ..DeviceAllocationResult::default() },
        node_selector: selector,
        allocation_timestamp: Some(now),
    };
    WrittenClaimStatus { allocation: Some(allocation), reserved_for: Vec::new() }
}
