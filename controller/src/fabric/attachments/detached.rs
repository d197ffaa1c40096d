//! The next step of an attachment whose node is to let go of the device, or has.

use std::time::Duration;

use hostler_api::fabric::{AttachmentPhase as Phase, FabricAttachmentSpec, FabricAttachmentStatus, NodeDeviceState};

use hostler_fabric::{AttachKey, KeyError};

use super::{
    context::{AttachmentContext, AttachmentStep, AttachmentWrite, ManagerCall, SeenAttachment, ShownConnection},
    decide::{UNANSWERED, UNDER_WAY, status_write},
};

/// Time for which the failures of a device are remembered after it was offered again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60 * 60);

impl AttachmentContext {
    /// The node is to let go of the device; then it is detached.
    pub(super) fn released(&self, seen: &SeenAttachment) -> AttachmentStep {
        match seen.status().phase {
            Phase::Releasing => self.releasing(seen),
            Phase::Detaching => self.detach(seen),
            _ if !seen.was_asked() => {
                AttachmentStep::Write(self.detached_status(seen, "the device was not attached", None))
            }
            // What failed stays in sight until the device is offered again.
            Phase::Failed => status_write(self.phase(seen, Phase::Releasing, "Releasing", &seen.status().message)),
            _ => status_write(self.phase(seen, Phase::Releasing, "Releasing", "the node lets go of the device")),
        }
    }

    fn releasing(&self, seen: &SeenAttachment) -> AttachmentStep {
        if self.is_node_gone(seen) {
            return self.call(self.attached_key(seen).map(|key| ManagerCall::of_key(self.device, key)));
        }
        let report = seen.attachment.node_report();
        match report.map(|report| report.state) {
            Some(NodeDeviceState::Released) => {
                let message = &seen.status().message;
                let mut status = self.phase(seen, Phase::Detaching, "Released", message);
                status.used &= report.is_some_and(|report| report.erased.is_none());
                status_write(status)
            }
            // A node that does not see the device may never report: the manager may know that nothing is attached.
            None | Some(NodeDeviceState::Absent) => self.call(self.attached_key(seen).map(ManagerCall::LookFor)),
            Some(_) => AttachmentStep::Rest,
        }
    }

    fn detach(&self, seen: &SeenAttachment) -> AttachmentStep {
        let report = seen.attachment.node_report();
        let is_back = report.is_some_and(|report| report.state != NodeDeviceState::Released);
        if is_back && !self.is_node_gone(seen) {
            // The node was started anew, and its kernel has found the device once more.
            return status_write(self.phase(seen, Phase::Releasing, "Releasing", &seen.status().message));
        }
        // What did not end may not be the detachment: an attach of a controller that died may have been carried out since,
        // and the device come to the node after its word.
        let has_ended = !matches!(&*seen.status().reason, UNDER_WAY | UNANSWERED);
        let call = if has_ended { ManagerCall::Detach } else { ManagerCall::LookFor };
        self.call(self.attached_key(seen).map(call))
    }

    /// The node has the device, or gets it, after it said that it let go of it: it is to say so once more.
    pub(super) fn ask_node_again(&self, seen: &SeenAttachment) -> AttachmentWrite {
        let mut status = self.phase(seen, Phase::Releasing, "Releasing", &seen.status().message);
        if let Some(report) = status.node.as_mut().filter(|report| report.state == NodeDeviceState::Released) {
            report.state = NodeDeviceState::Releasing;
        }
        AttachmentWrite::Status(Box::new(status))
    }

    /// The key under which the device may be attached. Without a claim, the attempt is about a connection that was made
    /// too late, under the key of an earlier one.
    fn attached_key(&self, seen: &SeenAttachment) -> Result<AttachKey, KeyError> {
        let is_late = seen.spec().claim.is_none() && seen.spec().kept_for.is_none();
        let late = self.late_connection(seen).filter(|_| is_late);
        late.map_or_else(|| seen.key(), |late| Ok(late.key.clone()))
    }

    fn call<E>(&self, call: Result<ManagerCall, E>) -> AttachmentStep {
        // The server's UIDs are keys: without one nothing was attached.
        call.map_or(AttachmentStep::Rest, AttachmentStep::Call)
    }

    /// A connection of this attachment to the node of the spec.
    fn late_connection(&self, seen: &SeenAttachment) -> Option<&ShownConnection> {
        self.shown.iter().find(|it| it.node.as_ref() == Some(&seen.spec().node_name))
    }

    /// No node has the device: the next claim gets it, or the object goes.
    pub(super) fn detached(&self, seen: &SeenAttachment) -> AttachmentStep {
        let (spec, status) = (seen.spec(), seen.status());
        if !spec.release {
            let begun = match spec.adopted || spec.claim.is_some() || spec.kept_for.is_some() {
                true => self.phase(seen, Phase::Pending, "", ""),
                false => {
                    let why = "the manager attached the device after it was detached: the node is to let go of it";
                    self.phase(seen, Phase::Attached, "AttachedLate", why)
                }
            };
            return status_write(FabricAttachmentStatus { deadline: None, ..begun });
        }
        // A call that was sent before its sender lost the Lease may be carried out this late.
        if let Some(shown) = self.shown.iter().find(|it| it.node.is_some()) {
            return AttachmentStep::Call(ManagerCall::Verify(shown.clone()));
        }
        if let Some(call) = self.giving_back(seen) {
            return AttachmentStep::Call(call);
        }
        let kept_until = self.since(seen) + self.limits.late_call;
        if seen.is_deleting() && !status.used {
            return self.once(kept_until, AttachmentWrite::Finalizer { is_wanted: false });
        }
        let retry_at = self.retry_at(seen);
        if let Some(claim) = self.next_claim() {
            let attempt = FabricAttachmentSpec {
                attempt: spec.attempt.saturating_add(1),
                node_name: claim.node.clone().unwrap_or_default(),
                claim: Some(claim.named()),
                kept_for: None,
                memory: claim.memory,
                erase: status.used,
                release: false,
                adopted: false,
                ..self.place_of(seen, &claim.pool)
            };
            return self.once(retry_at, AttachmentWrite::Spec(Box::new(attempt)));
        }
        if let Some(attempt) = self.next_kept_attempt(seen) {
            return self.once(retry_at, attempt);
        }
        if status.used {
            return AttachmentStep::Rest;
        }
        let forgiven = if status.failures > 0 { retry_at + FORGIVEN_AFTER } else { retry_at };
        self.once(forgiven.max(kept_until), AttachmentWrite::Delete)
    }

    /// Gives back memory that an earlier attempt had, while nothing is attached: a call for it that is late must find none
    /// that the next attempt uses. Nothing is free as long as it may hold data: the node of the next claim erases it. A
    /// Reservation keeps the memory with the device.
    pub(super) fn giving_back(&self, seen: &SeenAttachment) -> Option<ManagerCall> {
        let is_free = !seen.status().used && self.kept.is_none();
        let key = self.made_memory.clone().filter(|_| is_free)?;
        Some(ManagerCall::Free { device: self.device, key })
    }

    /// The spec with the manager and the domain of a pool.
    pub(super) fn place_of(&self, seen: &SeenAttachment, pool: &str) -> FabricAttachmentSpec {
        let known = seen.spec();
        let (manager, domain) = hostler_api::fabric::of_fabric_pool(pool).unwrap_or((&known.manager, &known.domain));
        FabricAttachmentSpec {
            manager: manager.to_owned(),
            domain: domain.to_owned(),
            device: self.device,
            ..known.clone()
        }
    }

    fn once(&self, at: Duration, write: AttachmentWrite) -> AttachmentStep {
        if self.now < at { AttachmentStep::Until(at) } else { AttachmentStep::Write(write) }
    }

    /// Takes the device back from a node to which it was attached too late. That is an attempt of its own: what the node
    /// reported on earlier ones counts for nothing.
    pub(super) fn take_back(&self, seen: &SeenAttachment, shown: &ShownConnection) -> Option<AttachmentWrite> {
        let node_name = shown.node.clone()?;
        let attempt = seen.spec().attempt.saturating_add(1);
        let (claim, kept_for, erase, release, adopted) = (None, None, false, false, false);
        let known = seen.spec().clone();
        let next = FabricAttachmentSpec { attempt, node_name, claim, kept_for, erase, release, adopted, ..known };
        Some(AttachmentWrite::Spec(Box::new(next)))
    }
}
