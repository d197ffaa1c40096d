//! The next step of an attachment. Pure: one write or one call follows from what was read alone, so a controller that
//! takes over goes on with the same steps.

use std::time::Duration;

use hostler_api::{
    Quantity,
    fabric::{
        AttachmentPhase as Phase, FabricAttachmentSpec, FabricAttachmentStatus, FabricNodeReport, NodeDeviceState,
        of_fabric_pool,
    },
};
use hostler_cluster::since_1970;
use hostler_fabric::AttachRequest;

use super::{
    claim::{ClaimNews, ClaimOfDevice},
    context::{AttachmentContext, AttachmentStep, AttachmentWrite, HostFact, ManagerCall, SeenAttachment},
    status::{AttemptFailure, time},
};

/// Time before the deadline from which on no attempt begins: hardware that is found takes seconds.
pub(super) const TOO_LATE: Duration = Duration::from_secs(30);
/// Pause before something that is not told is looked at again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The reason of a call that the manager works on.
pub(super) const UNDER_WAY: &str = "UnderWay";
/// The reason of a call whose end is not known.
pub(super) const UNANSWERED: &str = "Unanswered";
/// The reason for which a claim waits for a device that is not free yet.
pub(super) const RELEASING: &str = "Releasing";
/// The reason for which a claim waits whose FabricAttachment a user deletes.
const DELETED: &str = "AttachmentDeleted";

/// Decides the next step.
pub(super) fn decide(cx: &AttachmentContext) -> AttachmentStep {
    let Some(seen) = &cx.seen else { return cx.first_attempt() };
    if !seen.has_finalizer() && !seen.is_deleting() {
        return AttachmentStep::Write(AttachmentWrite::Finalizer { is_wanted: true });
    }
    // Before claims are told anything: one that uses the device may not be known to the object yet.
    if seen.spec().adopted && seen.status().phase == Phase::Pending && !seen.spec().release {
        return cx.taking_over(seen);
    }
    if let Some(write) = cx.hand_over(seen).or_else(|| cx.tell_others(seen)) {
        return AttachmentStep::Write(write);
    }
    match (seen.status().phase, seen.spec().release) {
        (Phase::Detached, _) => cx.detached(seen),
        _ if seen.spec().adopted => cx.taken_over(seen),
        (_, true) => cx.released(seen),
        (_, false) => cx.held(seen),
    }
}

pub(super) fn spec_write(spec: FabricAttachmentSpec) -> AttachmentStep {
    AttachmentStep::Write(AttachmentWrite::Spec(Box::new(spec)))
}

pub(super) fn status_write(status: FabricAttachmentStatus) -> AttachmentStep {
    AttachmentStep::Write(AttachmentWrite::Status(Box::new(status)))
}

impl AttachmentContext {
    /// Creates the attachment for the first claim that has the device.
    fn first_attempt(&self) -> AttachmentStep {
        let Some(claim) = self.next_claim() else { return self.first_kept_attempt() };
        match of_fabric_pool(&claim.pool) {
            Some((manager, domain)) => AttachmentStep::Write(AttachmentWrite::Create(Box::new(FabricAttachmentSpec {
                manager: manager.to_owned(),
                domain: domain.to_owned(),
                device: self.device,
                node_name: claim.node.clone().unwrap_or_default(),
                claim: Some(claim.named()),
                memory: claim.memory,
                ..FabricAttachmentSpec::default()
            }))),
            None => AttachmentStep::Rest,
        }
    }

    /// The claim that the device is attached for next.
    pub(super) fn next_claim(&self) -> Option<&ClaimOfDevice> {
        // The scheduler itself gives a claim up whose time is over. One that uses the device waits for an operator: its
        // FabricAttachment was lost.
        let waits = |claim: &&ClaimOfDevice| {
            !claim.is_failed() && !claim.is_told_attached() && self.now + TOO_LATE < self.deadline(claim)
        };
        self.claims.iter().find(waits)
    }

    /// Tells claims that have the device while the attachment is another claim's: they wait, or are given another
    /// device.
    fn tell_others(&self, seen: &SeenAttachment) -> Option<AttachmentWrite> {
        let holder = self.holder(seen).filter(|_| !seen.spec().release);
        let is_next = |claim: &ClaimOfDevice| {
            let is_free = seen.status().phase == Phase::Detached && seen.spec().release;
            let is_kept = !seen.is_deleting() || seen.status().used;
            is_free
                && is_kept
                && self.retry_at(seen) <= self.now
                && self.next_claim().is_some_and(|next| next.uid == claim.uid)
        };
        let waits = |claim: &&ClaimOfDevice| {
            !claim.is_failed() && holder.is_none_or(|holder| holder.uid != claim.uid) && !is_next(claim)
        };
        let now = time(self.now);
        self.claims.iter().filter(waits).find_map(|claim| {
            let message = self.reason_to_wait(seen);
            // A device without the taint would be given to the claim again at once.
            if self.now >= self.deadline(claim) && self.is_tainted {
                let news = ClaimNews::Failed { reason: RELEASING.to_owned(), message };
                return Some(AttachmentWrite::Claim(claim.with(news, &now)));
            }
            let news = ClaimNews::Waits { reason: RELEASING, message };
            (!claim.is_told_to_wait(RELEASING)).then(|| AttachmentWrite::Claim(claim.with(news, &now)))
        })
    }

    fn reason_to_wait(&self, seen: &SeenAttachment) -> String {
        let (spec, status) = (seen.spec(), seen.status());
        let name = self.device.device_name();
        let of = match &spec.claim {
            Some(claim) => format!(", which claim {}/{} had", claim.namespace, claim.name),
            None => String::new(),
        };
        let phase = status.phase.as_str();
        format!(
            "device {name} is not free yet: it is {phase} on node {:?}{of}; see kubectl describe fabricattachment {name}",
            spec.node_name
        )
    }

    /// Time since 1970 before which the device is not offered again.
    pub(super) fn retry_at(&self, seen: &SeenAttachment) -> Duration {
        seen.status().retry_at.as_deref().and_then(since_1970).unwrap_or_default()
    }

    /// Time since 1970 from which on the attachment has its phase.
    pub(super) fn since(&self, seen: &SeenAttachment) -> Duration {
        seen.status().since.as_deref().and_then(since_1970).unwrap_or_default()
    }

    /// The attachment is for a claim, as long as that has the device.
    fn held(&self, seen: &SeenAttachment) -> AttachmentStep {
        let Some(claim) = self.holder(seen) else { return self.without_claim(seen) };
        // A device that holds data forgets them with its object: a node erases it first.
        if seen.is_deleting() && !seen.spec().erase {
            return self.let_go(seen, Some(claim));
        }
        match seen.status().phase {
            Phase::Pending => self.pending(seen, self.deadline(claim)),
            Phase::Attaching => self.attaching(seen),
            Phase::Attached => self.attached(seen),
            Phase::Ready if !seen.status().used && seen.spec().kept_for.is_some() => self.used_from_now(seen),
            Phase::Ready if claim.is_told_attached() => AttachmentStep::Rest,
            Phase::Ready => self.tell(claim, ClaimNews::Attached),
            Phase::Failed => self.failed(seen, claim),
            // Another writer took the order back: the node may have heard it.
            Phase::Releasing | Phase::Detaching => {
                spec_write(FabricAttachmentSpec { release: true, ..seen.spec().clone() })
            }
            Phase::Detached | Phase::Unknown => AttachmentStep::Rest,
        }
    }

    pub(super) fn tell(&self, claim: &ClaimOfDevice, news: ClaimNews) -> AttachmentStep {
        AttachmentStep::Write(AttachmentWrite::Claim(claim.with(news, &time(self.now))))
    }

    pub(super) fn failing(&self, seen: &SeenAttachment, failure: &AttemptFailure) -> AttachmentStep {
        AttachmentStep::Write(self.fail(seen, failure))
    }

    /// Has the node let go of the device. No claim has it any more, or a user deletes the object.
    pub(super) fn let_go(&self, seen: &SeenAttachment, claim: Option<&ClaimOfDevice>) -> AttachmentStep {
        // Also one that was not told of the device: a write that does may be on its way, and finds another version after this.
        let is_to_hear = |claim: &&ClaimOfDevice| !claim.is_failed() && !claim.is_told_to_wait(DELETED);
        if let Some(claim) = claim.filter(is_to_hear) {
            let message = "the FabricAttachment of the device was deleted: the node lets go of the device".to_owned();
            return self.tell(claim, ClaimNews::Waits { reason: DELETED, message });
        }
        // A node that lets go of a device before it has come would see it come after it said so; one that is gone may
        // come back.
        let may_come = matches!(seen.status().phase, Phase::Attaching | Phase::Failed | Phase::Unknown);
        if may_come && seen.was_asked() {
            return seen.key().map_or(AttachmentStep::Rest, |key| AttachmentStep::Call(ManagerCall::Settle(key)));
        }
        spec_write(FabricAttachmentSpec { release: true, ..seen.spec().clone() })
    }

    /// The reason why the device cannot be attached to the node, and the host if there is none.
    fn host(&self, seen: &SeenAttachment) -> Result<HostFact, AttemptFailure> {
        let node = &seen.spec().node_name;
        if node.is_empty() {
            let why = "the allocation of the claim names no single node: give the device binding conditions and \
                       bindsToNode in its ResourceSlice";
            return Err(AttemptFailure::of_node("NoNode", why));
        }
        let Some(facts) = self.nodes.get(node).filter(|facts| !facts.is_gone()) else {
            return Err(AttemptFailure::of_node("NodeGone", format!("node {node} is deleted or out of service")));
        };
        let twin = self.twins.iter().find(|twin| twin.may_be_attached && twin.node == *node);
        if let Some(twin) = twin {
            let why = format!(
                "node {node} has {} or is getting it, which has the same serial number: the node cannot tell the two \
                 apart; use them on two nodes",
                twin.name
            );
            return Err(AttemptFailure::of_node("SameSerial", why));
        }
        match &facts.host {
            HostFact::Unknown(why) => Err(AttemptFailure::of_node("NoHost", why.clone())),
            host => Ok(host.clone()),
        }
    }

    pub(super) fn pending(&self, seen: &SeenAttachment, deadline: Duration) -> AttachmentStep {
        match self.host(seen) {
            Err(failure) => self.failing(seen, &failure.unattached()),
            Ok(HostFact::Unread(why)) if self.now >= deadline => {
                self.failing(seen, &AttemptFailure::of_device("DeadlineExceeded", why).unattached())
            }
            Ok(HostFact::Unread(_)) => AttachmentStep::Until(deadline),
            Ok(_) if self.now >= deadline => {
                let why = "the time to attach the device was over before the manager was asked";
                self.failing(seen, &AttemptFailure::of_node("DeadlineExceeded", why).unattached())
            }
            Ok(_) => {
                // The manager may not have been read when the attempt began.
                if let Some(call) = self.giving_back(seen) {
                    return AttachmentStep::Call(call);
                }
                let mut status = self.phase(seen, Phase::Attaching, "Asked", "the fabric manager attaches the device");
                status.deadline = Some(time(deadline));
                status_write(status)
            }
        }
    }

    /// Time since 1970 at which the attempt is given up.
    pub(super) fn end(&self, seen: &SeenAttachment) -> Duration {
        seen.status().deadline.as_deref().and_then(since_1970).unwrap_or_default()
    }

    pub(super) fn attaching(&self, seen: &SeenAttachment) -> AttachmentStep {
        let end = self.end(seen);
        if self.now >= end {
            let why = format!("the device was not attached in time: {}", seen.status().message);
            return self.failing(seen, &AttemptFailure::of_device("DeadlineExceeded", why));
        }
        match (self.host(seen), seen.key()) {
            (Err(failure), _) => self.failing(seen, &failure),
            (_, Err(error)) => self.failing(seen, &AttemptFailure::of_device("NoKey", error.to_string())),
            // An attach that is under way is not begun again: its state tells the end.
            (Ok(_), Ok(key)) if seen.status().reason == UNDER_WAY => AttachmentStep::Call(ManagerCall::Progress(key)),
            (Ok(HostFact::Known(host)), Ok(key)) => {
                let (device, memory) = (self.device, seen.spec().memory.and_then(Quantity::as_whole));
                AttachmentStep::Call(ManagerCall::Attach(AttachRequest { key, host, device, memory }))
            }
            (Ok(_), _) => AttachmentStep::Until(end),
        }
    }

    pub(super) fn attached(&self, seen: &SeenAttachment) -> AttachmentStep {
        if self.is_node_gone(seen) {
            let why = format!("node {} is deleted or out of service", seen.spec().node_name);
            return self.failing(seen, &AttemptFailure::of_node("NodeGone", why));
        }
        let report = seen.attachment.node_report();
        let is_ready = report.is_some_and(|report| report.state == NodeDeviceState::Ready);
        let is_erased = report.is_some_and(|report| report.erased.is_some());
        if is_ready && (is_erased || !seen.spec().erase) {
            let mut status = self.phase(seen, Phase::Ready, "Ready", "the node has the device, and has checked it");
            // One that is kept for a Reservation was not used by any container yet.
            (status.used, status.failures, status.retry_at) = (seen.spec().claim.is_some(), 0, None);
            return status_write(status);
        }
        if is_ready {
            let why = "the node reports the device ready, and did not erase it as it was asked to: update the daemon of \
                       the node";
            return self.failing(seen, &AttemptFailure::of_device("NotErased", why));
        }
        if self.now < self.end(seen) {
            return AttachmentStep::Until(self.end(seen));
        }
        self.failing(seen, &self.not_ready(seen, report))
    }

    /// The failure of an attempt whose node does not have the device ready.
    pub(super) fn not_ready(&self, seen: &SeenAttachment, report: Option<&FabricNodeReport>) -> AttemptFailure {
        let node = &seen.spec().node_name;
        let why = match report {
            None => format!("the daemon of node {node} did not report on the device in time: see its log"),
            Some(report) if report.message.is_empty() => {
                format!("node {node} does not have the device ready: it is {:?} there", report.state)
            }
            Some(report) => format!("node {node} does not have the device ready: {}", report.message),
        };
        AttemptFailure::of_device("NotReady", why)
    }

    /// Has the claim given another device, once no claim can be given this one.
    fn failed(&self, seen: &SeenAttachment, claim: &ClaimOfDevice) -> AttachmentStep {
        if claim.is_told_of_failure() {
            return AttachmentStep::Rest;
        }
        if !self.is_tainted {
            return AttachmentStep::Until(self.now + LOOK_AGAIN);
        }
        let FabricAttachmentStatus { reason, message, .. } = seen.status().clone();
        self.tell(claim, ClaimNews::Failed { reason, message })
    }
}
