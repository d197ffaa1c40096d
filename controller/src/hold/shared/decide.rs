//! The next step for a Reservation that keeps claims. Pure: takes everything that was read, and returns one write.

use std::time::Duration;

use hostler_api::{
    Chain, ObjectKey,
    reservation::{
        RESERVATION_FINALIZER, ReservationConditionReason as Reason, ReservationConditionType, ReservationStatus,
        ReservedClaim,
    },
    resource::ResourceClaimConsumerReference,
};
use hostler_cluster::since_1970;

use super::{
    context::{ObservedClaim, ReservePod, SharedContext, SharedStep, SharedWrite, WantedClaim},
    objects::{claim_key, new_claim, pod_key, reserve_pod},
    release::{cleared, delete_pod},
    status::Stand,
};
use crate::{
    claim_write::ClaimWrite,
    hold::{HoldWrite, WrittenReservation, reconcile::deadline},
    reservation_object::ReservationObject,
};

/// The shortest wait before clocks are read anew, where one of them is behind.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// The limit of consumers of a claim.
const MOST_CONSUMERS: usize = 256;
const TOO_OLD: &str = "mode SharedClaim takes Kubernetes 1.36 or later: before, the controller manager does not go on with claims \
                       that something else than a pod keeps; write mode Fence";

/// Decides the next step. A refusal of the server is written to the status before the write is tried again.
pub(super) fn decide(cx: &SharedContext) -> SharedStep {
    let step = next_step(cx);
    let is_of_others = matches!(&step, SharedStep::Write(write) if !matches!(write, SharedWrite::Reservation(_)));
    match (&cx.reservation, &cx.trouble) {
        (Some(reservation), Some(trouble)) if is_of_others => match cx.troubled(reservation, trouble) {
            status if status == reservation.status => step,
            status => write(HoldWrite::Status(written(reservation), Box::new(status))),
        },
        _ => step,
    }
}

fn next_step(cx: &SharedContext) -> SharedStep {
    let Some(reservation) = &cx.reservation else {
        // The Reservation is gone, so no status can be written.
        return cx.release().map_or(SharedStep::Rest(None), SharedStep::Write);
    };
    if reservation.is_deleting {
        return cx.step_of_deleted(reservation);
    }
    if reservation.status.phase.is_over() {
        return cx.step_of_ended(reservation);
    }
    cx.step_of_open(reservation)
}

fn write(write: HoldWrite) -> SharedStep {
    SharedStep::Write(SharedWrite::Reservation(write))
}

pub(super) fn written(reservation: &ReservationObject) -> WrittenReservation {
    let ReservationObject { name, uid, version, .. } = reservation.clone();
    WrittenReservation { name, uid, version }
}

fn finalizers(reservation: &ReservationObject, is_kept: bool) -> SharedStep {
    let others = reservation.finalizers.iter().filter(|it| *it != RESERVATION_FINALIZER).cloned();
    let own = is_kept.then(|| RESERVATION_FINALIZER.to_owned());
    write(HoldWrite::Finalizers(written(reservation), others.chain(own).collect()))
}

fn is_kept(reservation: &ReservationObject) -> bool {
    reservation.finalizers.iter().any(|it| it == RESERVATION_FINALIZER)
}

impl SharedContext {
    fn step_of_deleted(&self, reservation: &ReservationObject) -> SharedStep {
        if !is_kept(reservation) {
            return SharedStep::Rest(None);
        }
        if let Some(step) = self.step_of_release(reservation) {
            return step;
        }
        finalizers(reservation, false)
    }

    /// Returns the step of a Reservation that is over: its claims are released, its finalizer is removed, and it is
    /// deleted after a while.
    fn step_of_ended(&self, reservation: &ReservationObject) -> SharedStep {
        if let Some(step) = self.step_of_release(reservation) {
            return step;
        }
        let status = &reservation.status;
        if !status.devices.is_empty() || !status.claims.is_empty() {
            return write(HoldWrite::Status(written(reservation), Box::new(self.cleared(reservation))));
        }
        if is_kept(reservation) {
            return finalizers(reservation, false);
        }
        let ended = status.condition(ReservationConditionType::Ready);
        let ended = ended.and_then(|it| since_1970(&it.last_transition_time)).unwrap_or_default();
        match self.left(ended + self.keep) {
            Some(left) => SharedStep::Rest(Some(left)),
            None => write(HoldWrite::Delete(written(reservation))),
        }
    }

    /// Returns the next step of the release; its status names what the release waits for.
    fn step_of_release(&self, reservation: &ReservationObject) -> Option<SharedStep> {
        if let Some(write) = self.release() {
            return Some(SharedStep::Write(write));
        }
        let waits_for = self.waits_for()?;
        Some(self.tell(reservation, self.releasing(reservation, &waits_for), None))
    }

    fn step_of_open(&self, reservation: &ReservationObject) -> SharedStep {
        if !is_kept(reservation) {
            return finalizers(reservation, true);
        }
        let deadline = deadline(reservation);
        let left = match &deadline {
            Ok(Some(deadline)) => match self.left(*deadline) {
                None => return self.end(reservation, Reason::Expired, "its time is over"),
                left => left,
            },
            _ => None,
        };
        if let Some(node) = &self.lost_node {
            return self.end(reservation, Reason::NodeLost, &format!("node {node} is gone"));
        }
        let refused = deadline.err().map(|error| Chain(&error).to_string());
        let too_old = (!self.is_served).then(|| TOO_OLD.to_owned());
        let invalid = |message: String| {
            let status = self.new_status(reservation).invalid(&message);
            self.tell(reservation, status, left)
        };
        if let Some(message) = refused.or(too_old) {
            return invalid(message);
        }
        match &self.wanted {
            Ok(wanted) => self.step_of_wanted(reservation, wanted, left),
            Err(message) => invalid(message.clone()),
        }
    }

    fn step_of_wanted(
        &self,
        reservation: &ReservationObject,
        wanted: &[WantedClaim],
        left: Option<Duration>,
    ) -> SharedStep {
        let named: Vec<ReservedClaim> = wanted.iter().map(|it| it.is.clone()).collect();
        let pending = |stand: &Stand| self.pending(reservation, named.clone(), stand);
        if reservation.status.claims != named {
            // The status names the claims before any of them is made: the next leader knows which claims may exist.
            return self.tell(reservation, pending(&Stand::Asking), left);
        }
        match self.next_of_claims(reservation, wanted) {
            Ok(Some(write)) => SharedStep::Write(write),
            Ok(None) => self.tell(reservation, self.available(reservation, wanted), left),
            Err(stand) => self.tell(reservation, pending(&stand), left),
        }
    }

    /// Returns the next write towards claims that all have their devices and keep them; `None` if they do.
    fn next_of_claims(
        &self,
        reservation: &ReservationObject,
        wanted: &[WantedClaim],
    ) -> Result<Option<SharedWrite>, Stand> {
        let mut claims = Vec::new();
        for it in wanted {
            let key = claim_key(&it.is);
            let Some(claim) = self.claims.get(&key) else {
                let missing = |key: &ObjectKey| {
                    Stand::Unschedulable(format!("ResourceClaimTemplate {key} is not there; create it"))
                };
                let spec = it.spec.as_ref().map_err(missing)?;
                return Ok(Some(SharedWrite::Claim(ClaimWrite::Create(Box::new(new_claim(
                    reservation,
                    &it.is,
                    spec,
                ))))));
            };
            if !claim.metadata.is_made_for(&reservation.name) {
                return Err(Stand::Unschedulable(format!(
                    "ResourceClaim {key} is somebody else's; delete it, or give the Reservation another name"
                )));
            }
            // A claim of an earlier Reservation of the name, or one that is being deleted, makes room for a new one.
            if !claim.metadata.is_of(reservation) || claim.metadata.is_going() {
                let waits = || Stand::Lost(format!("ResourceClaim {key} is being deleted{}", self.used_by(claim)));
                return self.release_of(claim).map(Some).ok_or_else(waits);
            }
            claims.push(claim);
        }
        let (_, pod) = self.reserve_pod(reservation, wanted);
        let is_to_go = |pod: &ReservePod| pod.metadata.is_made_for(&reservation.name) && !pod.metadata.is_going();
        if claims.iter().all(|claim| claim.is_allocated()) {
            let open = claims.iter().find(|claim| !claim.is_pinned_by(&reservation.uid));
            return match open {
                Some(claim) => pin(reservation, claim).map(Some),
                None => Ok(pod.filter(|pod| is_to_go(pod)).map(delete_pod)),
            };
        }
        self.next_of_asking(reservation, wanted, &claims)
    }

    /// Asks the scheduler for the devices of all claims that have none, on a node where the pod can run.
    fn next_of_asking(
        &self,
        reservation: &ReservationObject,
        wanted: &[WantedClaim],
        claims: &[&ObservedClaim],
    ) -> Result<Option<SharedWrite>, Stand> {
        let (key, pod) = self.reserve_pod(reservation, wanted);
        // A claim that was kept and is alone now could bind the other claims to a node that has nothing for them.
        if let Some(claim) = claims.iter().find(|claim| claim.is_pinned()) {
            let lost = || Stand::Lost(format!("another claim lost its devices{}", self.used_by(claim)));
            let is_unused = claim.users().is_empty();
            return is_unused.then(|| Some(cleared(claim))).ok_or_else(lost);
        }
        match pod {
            None => {
                let pod = Box::new(reserve_pod(reservation, wanted, &self.image));
                Ok(Some(SharedWrite::CreatePod(key, pod)))
            }
            Some(pod) if !pod.metadata.is_made_for(&reservation.name) => Err(Stand::Unschedulable(format!(
                "Pod {key} is somebody else's; delete it, or give the Reservation another name"
            ))),
            Some(pod) if pod.metadata.is_going() => Err(Stand::Asking),
            Some(pod) if pod.is_done() || !pod.metadata.is_of(reservation) => Ok(Some(delete_pod(pod))),
            Some(pod) => Err(pod.refusal().map_or(Stand::Asking, |why| Stand::Unschedulable(why.to_owned()))),
        }
    }

    fn reserve_pod(&self, reservation: &ReservationObject, wanted: &[WantedClaim]) -> (ObjectKey, Option<&ReservePod>) {
        let namespace = wanted.first().map(|it| it.is.namespace.as_str()).unwrap_or_default();
        let key = pod_key(&reservation.name, namespace);
        let pod = self.pods.get(&key);
        (key, pod)
    }

    fn end(&self, reservation: &ReservationObject, reason: Reason, message: &str) -> SharedStep {
        let status = self.ended(reservation, reason, message);
        write(HoldWrite::Status(written(reservation), Box::new(status)))
    }

    /// Writes the status, unless it is written already.
    fn tell(&self, reservation: &ReservationObject, status: ReservationStatus, left: Option<Duration>) -> SharedStep {
        if status == reservation.status {
            return SharedStep::Rest(left);
        }
        write(HoldWrite::Status(written(reservation), Box::new(status)))
    }

    /// Returns the time left until `until`, by all clocks; `None` if that is past.
    fn left(&self, until: Duration) -> Option<Duration> {
        let left = until.saturating_sub(self.now);
        (!left.is_zero()).then(|| left.max(SHORTEST_WAIT))
    }
}

/// Writes the entry with which the claim keeps its devices for the Reservation.
fn pin(reservation: &ReservationObject, claim: &ObservedClaim) -> Result<SharedWrite, Stand> {
    let mut consumers = claim.status.reserved_for.clone();
    if consumers.len() >= MOST_CONSUMERS {
        let key = claim.metadata.key();
        return Err(Stand::Unschedulable(format!(
            "ResourceClaim {key} has {MOST_CONSUMERS} consumers, and takes no more"
        )));
    }
    consumers.push(ResourceClaimConsumerReference {
        api_group: hostler_api::hardware::GROUP.to_owned(),
        resource: hostler_api::reservation::RESERVATIONS.to_owned(),
        name: reservation.name.clone(),
        uid: reservation.uid.clone(),
    });
    Ok(SharedWrite::Claim(ClaimWrite::Consumers(claim.written(), consumers)))
}
