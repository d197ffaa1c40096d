//! The status of a Reservation that keeps claims.

use hostler_api::{
    ObjectKey,
    core::NodeSelector,
    few,
    hardware::ConditionStatus,
    reservation::{
        DeviceOwner, ObjectReference, ReservationConditionReason as Reason, ReservationConditionType as Type,
        ReservationPhase as Phase, ReservationStatus, ReservedClaim, ReservedDevice, ReservedDeviceState as State,
    },
    resource::ResourceClaimConsumerReference,
};

use super::{
    context::{ObservedClaim, SharedContext, WantedClaim},
    objects::claim_key,
};
use crate::{
    hold::{OwnerPod, asked::class_of_spec, status::NewStatus},
    reservation_object::ReservationObject,
};

/// The stage of a Reservation before all of its devices are kept.
pub(super) enum Stand {
    /// The scheduler has to give the claims their devices.
    Asking,
    /// Progress has stopped for now; holds the reason.
    Unschedulable(String),
    /// Devices that were kept are no longer kept.
    Lost(String),
}

/// Pods that use the claims of a Reservation.
pub(super) struct ClaimUsers {
    owners: Vec<ObjectReference>,
    strangers: Vec<String>,
}

impl SharedContext {
    pub(super) fn new_status(&self, reservation: &ReservationObject) -> NewStatus {
        NewStatus::after(reservation, self.now)
    }

    /// Returns the status of a Reservation whose devices are not all kept; it names the claims before any of them is
    /// made.
    pub(super) fn pending(
        &self,
        reservation: &ReservationObject,
        claims: Vec<ReservedClaim>,
        stand: &Stand,
    ) -> ReservationStatus {
        let mut new = self.new_status(reservation);
        new.status.phase = Phase::Pending;
        new.status.claims = claims;
        new.with_devices(Vec::new(), Vec::new());
        let (reason, message) = match stand {
            Stand::Asking => (Reason::Unschedulable, "the scheduler is asked for devices"),
            Stand::Unschedulable(why) => (Reason::Unschedulable, why.as_str()),
            Stand::Lost(what) => (Reason::Lost, what.as_str()),
        };
        new.say_no(reason, message);
        new.status
    }

    /// Returns the status of a Reservation whose claims all have their devices, and keep them.
    pub(super) fn available(&self, reservation: &ReservationObject, wanted: &[WantedClaim]) -> ReservationStatus {
        let users = self.users(reservation, wanted);
        let devices: Vec<ReservedDevice> = wanted.iter().flat_map(|it| self.devices(it, &users)).collect();
        let names: Vec<String> = wanted.iter().map(|it| claim_key(&it.is).to_string()).collect();
        let mut message = format!("ResourceClaims keep {} devices: {}", devices.len(), few(&names));
        if !users.strangers.is_empty() {
            message.push_str(&format!("; used by no owner: {}", few(&users.strangers)));
        }
        let mut new = self.new_status(reservation);
        new.status.phase = Phase::Available;
        new.status.claims = wanted.iter().map(|it| it.is.clone()).collect();
        new.with_devices(devices, users.owners);
        new.say(Type::Scheduled, ConditionStatus::True, Reason::Scheduled, "devices are chosen");
        new.say(Type::Ready, ConditionStatus::True, Reason::Available, &message);
        new.say(Type::Settled, ConditionStatus::True, Reason::Settled, "nothing is left to do");
        new.status
    }

    /// Returns the status of a Reservation whose time is over, and whose claims are being released.
    pub(super) fn ended(&self, reservation: &ReservationObject, reason: Reason, message: &str) -> ReservationStatus {
        self.new_status(reservation).ended(reason, message)
    }

    /// Returns the status that names what the release of claims waits for.
    pub(super) fn releasing(&self, reservation: &ReservationObject, message: &str) -> ReservationStatus {
        let mut new = self.new_status(reservation);
        new.say(Type::Settled, ConditionStatus::False, Reason::Releasing, message);
        new.status
    }

    /// Returns the status once nothing is kept any more.
    pub(super) fn cleared(&self, reservation: &ReservationObject) -> ReservationStatus {
        let mut status = self.new_status(reservation).cleared(Reason::Settled);
        status.claims.clear();
        status.current_owners.clear();
        status.allocatable.clear();
        status.allocated.clear();
        status.held = 0;
        status
    }

    /// Returns the status after the server refused the next write.
    pub(super) fn troubled(&self, reservation: &ReservationObject, trouble: &str) -> ReservationStatus {
        let message = format!("the API server refuses it: {trouble}");
        if reservation.is_deleting || reservation.status.phase.is_over() {
            return self.releasing(reservation, &message);
        }
        self.pending(reservation, reservation.status.claims.clone(), &Stand::Unschedulable(message))
    }

    fn users(&self, reservation: &ReservationObject, wanted: &[WantedClaim]) -> ClaimUsers {
        let (mut owners, mut strangers) = (Vec::new(), Vec::new());
        let claims = wanted.iter().filter_map(|it| self.claims.get(&claim_key(&it.is)));
        for consumer in claims.flat_map(ObservedClaim::users) {
            // The controller of claims takes out a consumer that is gone.
            let Some((key, pod)) = self.consumer(consumer) else { continue };
            if reservation.spec.is_owned_by(&pod.candidate(key)) {
                owners.push(ObjectReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                    uid: pod.uid.clone(),
                });
            } else {
                strangers.push(format!("pod {key}"));
            }
        }
        owners.sort();
        owners.dedup();
        strangers.sort();
        strangers.dedup();
        ClaimUsers { owners, strangers }
    }

    fn consumer(&self, consumer: &ResourceClaimConsumerReference) -> Option<&(ObjectKey, OwnerPod)> {
        self.consumers.get(&consumer.uid).filter(|_| consumer.is_pod())
    }

    fn devices(&self, wanted: &WantedClaim, users: &ClaimUsers) -> Vec<ReservedDevice> {
        let key = claim_key(&wanted.is);
        let Some(claim) = self.claims.get(&key) else { return Vec::new() };
        let Some(allocation) = &claim.status.allocation else { return Vec::new() };
        let is_user = |owner: &&ObjectReference| claim.users().iter().any(|user| user.uid == owner.uid);
        let owner = users.owners.iter().find(is_user).map(|owner| DeviceOwner {
            namespace: key.namespace.clone(),
            pod: owner.name.clone(),
            claim: key.name.clone(),
            uid: claim.metadata.uid.clone(),
        });
        let node = allocation.node_selector.as_ref().and_then(only_node).unwrap_or_default();
        let given = allocation.devices.results.iter().filter(|result| result.admin_access != Some(true));
        let device = given.map(|result| ReservedDevice {
            claim: wanted.is.name.clone(),
            request: result.request.clone(),
            device_class_name: class_of_spec(&claim.spec, &result.request),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            node_name: node.clone(),
            state: if owner.is_some() { State::HandedOver } else { State::Held },
            owner: owner.clone(),
            ..ReservedDevice::default()
        });
        device.collect()
    }

    /// Returns the nodes that the devices of its claims are on.
    pub(super) fn nodes(&self) -> Vec<String> {
        let allocations = self.claims.values().filter_map(|claim| claim.status.allocation.as_ref());
        allocations.filter_map(|it| it.node_selector.as_ref().and_then(only_node)).collect()
    }
}

/// Returns the node of devices that belong to one node.
fn only_node(selector: &NodeSelector) -> Option<String> {
    let [term] = &selector.node_selector_terms[..] else { return None };
    let [field] = &term.match_fields[..] else { return None };
    match &field.values[..] {
        [node] if field.key == "metadata.name" => Some(node.clone()),
        _ => None,
    }
}
