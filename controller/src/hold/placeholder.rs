//! Claims that stand for parts of devices that are kept, so that schedulers count these as given: made and written while the device
//! is closed, emptied while it is closed when an owner comes, and taken away when the part is kept no longer.

use std::time::UNIX_EPOCH;

use hostler_api::{
    ObjectKey,
    core::NodeSelector,
    reservation::{RESERVATION_UID, ReservedDevice, ReservedDeviceState as State},
    resource::{
        AllocationResult, CapacityRequirements, DeviceAllocationResult, DeviceRequest, DeviceRequestAllocationResult,
        ExactDeviceRequest, ResourceClaimSpec, SliceQuantity,
    },
};
use hostler_cluster::rfc3339;

use super::{
    core::{HoldCore, device_key},
    event::{AllocatedClaim, HoldTarget, HoldWrite, PlaceholderMark},
};
use crate::claim_write::{ClaimWrite, DELETE_PROTECTION, NewClaim, WrittenClaim, WrittenClaimStatus};

/// For people: the name of the Reservation. Another word than in claims that pods name, which somebody else looks after.
const PART_OF: &str = "hostler.dev/part-of-reservation";
/// What the request of such a claim is called.
const REQUEST: &str = "part";

/// The name of the claim that stands for a part.
pub(super) fn placeholder_name(share_id: &str) -> String {
    format!("hold-{share_id}")
}

/// What a claim shall be that stands for a part which is kept.
struct WantedPart {
    reservation: String,
    uid: String,
    device: ReservedDevice,
    /// Nobody but owners can get anything of the device now, and none of them wants it: the claim can take the part.
    can_take: bool,
    /// An owner waits for it, and nobody else can get it: the claim gives it back.
    is_wanted: bool,
}

impl HoldCore {
    /// Whether the claim of a part has it, for all to see.
    pub(super) fn is_accounted(&self, device: &ReservedDevice) -> bool {
        let Some(namespace) = &self.settings.namespace else { return false };
        let key = ObjectKey { namespace: namespace.clone(), name: placeholder_name(&device.share_id) };
        self.seen.claims.get(&key).is_some_and(|claim| has_part(claim, device))
    }

    /// Whether claims stand for parts of this Reservation.
    pub(super) fn has_placeholders(&self, uid: &str) -> bool {
        self.seen.placeholders(uid).next().is_some() || self.is_making_placeholders(uid)
    }

    /// Does what is next for the claim with this name.
    pub(super) fn settle_placeholder(&mut self, name: &str) {
        let Some(namespace) = self.settings.namespace.clone() else { return };
        let key = ObjectKey { namespace, name: name.to_owned() };
        let wanted = self.wanted_part(name);
        let known = self.seen.claims.get(&key).cloned();
        let now = rfc3339(UNIX_EPOCH + self.clock.told());
        let write = match (known, wanted) {
            (None, Some(part)) if part.can_take => Some(ClaimWrite::Create(Box::new(new_claim(&key, &part)))),
            (None, _) => None,
            (Some(claim), _)
                if claim.placeholder.as_ref().is_some_and(|it| self.is_of_unreadable(&it.reservation_uid)) =>
            {
                None
            }
            (Some(claim), wanted) => next_write(&claim, wanted.as_ref(), now),
        };
        if let Some(write) = write.filter(|_| self.can_write(&HoldTarget::Claim(key))) {
            self.write(HoldWrite::Claim(Box::new(write)));
        }
    }

    /// What the claim shall stand for, if a Reservation still keeps it and no owner has it.
    fn wanted_part(&mut self, claim: &str) -> Option<WantedPart> {
        let reservation = self.parts.names.get(claim)?.clone();
        let hold = self.holds.get(&reservation).filter(|hold| hold.is_open())?;
        let uid = hold.object.uid.clone();
        let is_it = |device: &&ReservedDevice| device.is_part() && placeholder_name(&device.share_id) == claim;
        let device = hold.object.status.devices.iter().find(is_it)?.clone();
        if matches!(device.state, State::HandedOver | State::Releasing) {
            return None;
        }
        let is_asked = self.is_asked_for(&reservation);
        let is_closed = self.is_closed_for(&reservation, &device_key(&device));
        let is_closed_for_all = self.is_closed_for_all(&reservation, &device);
        // An owner may have got it, and the status not say so yet.
        let now = self.look_at_devices(&reservation);
        let is_free = now.iter().any(|it| it.share_id == device.share_id && it.state == State::Held);
        let is_held = device.state == State::Held && is_free;
        let can_take = is_held && is_closed && is_asked == Some(false);
        let is_wanted = is_held && is_asked == Some(true) && is_closed_for_all;
        Some(WantedPart { reservation, uid, device, can_take, is_wanted })
    }
}

/// Whether the claim has just the part that it stands for.
fn has_part(claim: &AllocatedClaim, device: &ReservedDevice) -> bool {
    let [part] = &claim.parts[..] else { return false };
    claim.placeholder.as_ref().is_some_and(|mark| !mark.is_deleting)
        && part.device == device_key(device)
        && part.share_id == device.share_id
        && part.amounts == device.consumed_capacity
}

/// From what is there to what shall be: with devices it has a finalizer, and it goes without devices.
fn next_write(claim: &AllocatedClaim, wanted: Option<&WantedPart>, now: String) -> Option<ClaimWrite> {
    let PlaceholderMark { finalizers, is_deleting, .. } = claim.placeholder.clone()?;
    let written = WrittenClaim { key: claim.key.clone(), uid: claim.uid.clone(), version: claim.version.clone() };
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

fn new_claim(key: &ObjectKey, part: &WantedPart) -> NewClaim {
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

/// As a scheduler would have written it. Nobody is a consumer, so that nobody but the controller takes it away.
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
