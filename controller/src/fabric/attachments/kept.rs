//! The next step of an attachment that a Reservation keeps: the device is attached before a claim has it, is given to a
//! claim of an owner without a detour, and is let go with the Reservation.

use hostler_api::fabric::{
    AttachmentPhase as Phase, FabricAttachmentSpec, FabricAttachmentStatus, NodeDeviceState, of_fabric_pool,
};

use super::{
    claim::ClaimOfDevice,
    context::{AttachmentContext, AttachmentStep, AttachmentWrite, SeenAttachment},
    decide::{spec_write, status_write},
};
use crate::fabric::keepers::DeviceKeeper;

impl AttachmentContext {
    /// True if the attempt is for the Reservation that keeps the device, and for the node that it keeps the device for.
    fn is_kept(&self, seen: &SeenAttachment) -> bool {
        let spec = seen.spec();
        let is_it = |kept: &DeviceKeeper| {
            spec.kept_for.as_ref().is_some_and(|keeper| keeper.uid == kept.keeper.uid)
                && kept.node == spec.node_name
                && kept.pool == seen.pool()
        };
        self.kept.as_ref().is_some_and(is_it)
    }

    /// True if a claim has the device on the node of the attempt.
    fn is_here(seen: &SeenAttachment, claim: &ClaimOfDevice) -> bool {
        claim.pool == seen.pool() && claim.node.as_deref() == Some(&seen.spec().node_name)
    }

    /// Gives the kept device to the claim that was allocated with it: the device is on the node of the claim already, or
    /// on the way there.
    pub(super) fn hand_over(&self, seen: &SeenAttachment) -> Option<AttachmentWrite> {
        let spec = seen.spec();
        let is_coming =
            matches!(seen.status().phase, Phase::Pending | Phase::Attaching | Phase::Attached | Phase::Ready);
        if spec.release || spec.claim.is_some() || spec.kept_for.is_none() || seen.is_deleting() || !is_coming {
            return None;
        }
        let claim = self.next_claim().filter(|claim| Self::is_here(seen, claim))?;
        let given = FabricAttachmentSpec { claim: Some(claim.named()), ..spec.clone() };
        Some(AttachmentWrite::Spec(Box::new(given)))
    }

    /// No claim has the device as in the spec: it stays on its node as long as a Reservation keeps it there, and no
    /// container may have used it.
    pub(super) fn without_claim(&self, seen: &SeenAttachment) -> AttachmentStep {
        let (spec, status) = (seen.spec(), seen.status());
        // What is used before the node has the device is from an earlier attempt, and erased in this one.
        let is_used = status.used && status.phase == Phase::Ready;
        // A device that holds data forgets them with its object: a node erases it first.
        let is_erased_first = spec.erase && status.phase != Phase::Ready;
        let is_unwanted = seen.is_deleting() && !is_erased_first;
        let is_elsewhere = self.claims.iter().any(|claim| !claim.is_failed() && !Self::is_here(seen, claim));
        if !self.is_kept(seen) || is_used || is_unwanted || is_elsewhere || self.is_node_gone(seen) {
            return self.let_go(seen, None);
        }
        if spec.claim.is_some() {
            // The claim was never told of the device: none of its containers has begun.
            return spec_write(FabricAttachmentSpec { claim: None, ..spec.clone() });
        }
        match status.phase {
            Phase::Pending => self.pending(seen, self.now + self.limits.attach),
            Phase::Attaching => self.attaching(seen),
            Phase::Attached => self.attached(seen),
            Phase::Failed => self.let_go(seen, None),
            Phase::Releasing | Phase::Detaching => spec_write(FabricAttachmentSpec { release: true, ..spec.clone() }),
            Phase::Ready => self.stays_ready(seen),
            Phase::Detached | Phase::Unknown => AttachmentStep::Rest,
        }
    }

    /// A device that is kept and turns out not to be in order is no device for an owner: another one is looked for.
    fn stays_ready(&self, seen: &SeenAttachment) -> AttachmentStep {
        let report = seen.attachment.node_report();
        match report.filter(|it| matches!(it.state, NodeDeviceState::Found | NodeDeviceState::Absent)) {
            Some(report) => self.failing(seen, &self.not_ready(seen, Some(report))),
            None => AttachmentStep::Rest,
        }
    }

    /// Notes that a container may use the device from now on. Only then the claim is told that it has the device.
    pub(super) fn used_from_now(&self, seen: &SeenAttachment) -> AttachmentStep {
        status_write(FabricAttachmentStatus { used: true, ..seen.status().clone() })
    }

    /// The first attempt for a Reservation.
    pub(super) fn first_kept_attempt(&self) -> AttachmentStep {
        let Some(kept) = self.kept.as_ref().filter(|kept| kept.is_wanted) else { return AttachmentStep::Rest };
        let Some((manager, domain)) = of_fabric_pool(&kept.pool) else { return AttachmentStep::Rest };
        AttachmentStep::Write(AttachmentWrite::Create(Box::new(FabricAttachmentSpec {
            manager: manager.to_owned(),
            domain: domain.to_owned(),
            device: self.device,
            node_name: kept.node.clone(),
            kept_for: Some(kept.keeper.clone()),
            memory: kept.memory,
            ..FabricAttachmentSpec::default()
        })))
    }

    /// The next attempt for the Reservation that keeps a detached device.
    pub(super) fn next_kept_attempt(&self, seen: &SeenAttachment) -> Option<AttachmentWrite> {
        let is_possible = !seen.is_deleting() || seen.status().used;
        let kept = self.kept.as_ref().filter(|kept| kept.is_wanted && is_possible)?;
        let attempt = FabricAttachmentSpec {
            attempt: seen.spec().attempt.saturating_add(1),
            node_name: kept.node.clone(),
            claim: None,
            kept_for: Some(kept.keeper.clone()),
            memory: kept.memory,
            erase: seen.status().used,
            release: false,
            adopted: false,
            ..self.place_of(seen, &kept.pool)
        };
        Some(AttachmentWrite::Spec(Box::new(attempt)))
    }
}
