//! The next step of a connection that was made without its FabricAttachment, and that an operator had taken over. Pure.
//!
//! ```text
//!   Pending ── the manager shows it, alone, to this node ──► Attached ── a claim uses the device ──► Ready
//!      └── it is gone: Detached                                 └── none does (any more) ──► Releasing ──► Detaching: isolate
//! ```
//!
//! The connection has no key of the object. So the manager is never asked for its state by key, and only the connection
//! that was taken over is ended, by an isolation after the node has let go.

use hostler_api::fabric::{
    AdoptedConnection, AttachmentPhase as Phase, FabricAttachmentSpec, FabricAttachmentStatus, NodeDeviceState,
};
use hostler_fabric::{ExpectedConnection, ObjectPath};

use super::{
    claim::{ClaimNews, ClaimOfDevice},
    context::{AttachmentContext, AttachmentStep, AttachmentWrite, BoardDevice, ManagerCall, SeenAttachment},
    decide::{spec_write, status_write},
    status::short,
};

/// The reason why a connection is not taken over.
struct AdoptionObstacle {
    reason: &'static str,
    message: String,
}

/// The result of the look at a connection that is to be taken over.
enum Adoptable {
    Yes(AdoptedConnection),
    /// No connection has the device.
    Gone,
    No(AdoptionObstacle),
}

impl AttachmentContext {
    /// The connection is to be taken over. Nothing was touched yet, and nothing is touched on doubt.
    pub(super) fn taking_over(&self, seen: &SeenAttachment) -> AttachmentStep {
        // An object that was used again may remember that the device holds data of an earlier claim: it goes when a node
        // has erased the device, and no node gets it before the connection is ended.
        if seen.is_deleting() && !seen.status().used {
            return AttachmentStep::Write(AttachmentWrite::Finalizer { is_wanted: false });
        }
        let connection = match self.adoptable(seen) {
            Adoptable::Yes(connection) => connection,
            Adoptable::Gone => return spec_write(FabricAttachmentSpec { release: true, ..seen.spec().clone() }),
            Adoptable::No(AdoptionObstacle { reason, message }) => return self.say(seen, reason, &message),
        };
        let claim = self.claim_in_use(seen).map(ClaimOfDevice::named);
        if seen.spec().claim != claim {
            // Another claim is another attempt: the API server takes it no other way.
            let attempt = seen.spec().attempt.saturating_add(1);
            return spec_write(FabricAttachmentSpec { attempt, claim, ..seen.spec().clone() });
        }
        let message = "the connection is taken over; what the device holds counts as somebody's data";
        let mut status = self.phase(seen, Phase::Attached, "Adopted", message);
        (status.connection, status.used, status.deadline) = (Some(connection), true, None);
        status_write(status)
    }

    /// The connection was taken over.
    pub(super) fn taken_over(&self, seen: &SeenAttachment) -> AttachmentStep {
        if seen.spec().release {
            return self.ending(seen);
        }
        match (seen.status().phase, self.holder(seen)) {
            (Phase::Unknown, _) => AttachmentStep::Rest,
            (Phase::Attached, Some(claim)) if !seen.is_deleting() => self.found_in_use(seen, claim),
            (Phase::Ready, Some(claim)) if !seen.is_deleting() => match claim.is_told_attached() {
                true => AttachmentStep::Rest,
                false => self.tell(claim, ClaimNews::Attached),
            },
            (_, claim) => self.let_go(seen, claim),
        }
    }

    /// A claim uses the device: it is not taken away because its node does not report.
    fn found_in_use(&self, seen: &SeenAttachment, claim: &ClaimOfDevice) -> AttachmentStep {
        let report = seen.attachment.node_report();
        if report.is_some_and(|report| report.state == NodeDeviceState::Ready) {
            let mut status = self.phase(seen, Phase::Ready, "Ready", "the node has the device, and a claim uses it");
            (status.failures, status.retry_at) = (0, None);
            return status_write(status);
        }
        let node = &seen.spec().node_name;
        let said = report.map_or("has not reported on it", |report| match report.message.as_str() {
            "" => "does not report it ready",
            said => said,
        });
        let message = format!("the connection is taken over for claim {}; node {node}: {said}", claim.key);
        self.say(seen, "Adopted", &message)
    }

    /// The node lets go of the device; then the connection is ended.
    fn ending(&self, seen: &SeenAttachment) -> AttachmentStep {
        let status = seen.status();
        let state = seen.attachment.node_report().map(|report| report.state);
        match status.phase {
            Phase::Pending => {
                let message = "nothing was taken over: the manager shows no connection of the device";
                AttachmentStep::Write(self.detached_status(seen, message, None))
            }
            Phase::Releasing if self.is_node_gone(seen) => self.end_connection(seen),
            Phase::Releasing => match state {
                Some(NodeDeviceState::Released) => self.let_go_of(seen),
                None | Some(NodeDeviceState::Absent) => self.unreported(seen),
                Some(_) => AttachmentStep::Rest,
            },
            Phase::Detaching if state != Some(NodeDeviceState::Released) && !self.is_node_gone(seen) => {
                // The node was started anew, and its kernel has found the device once more.
                status_write(self.phase(seen, Phase::Releasing, "Releasing", &status.message))
            }
            Phase::Detaching => self.end_connection(seen),
            _ => status_write(self.phase(seen, Phase::Releasing, "Releasing", "the node lets go of the device")),
        }
    }

    fn let_go_of(&self, seen: &SeenAttachment) -> AttachmentStep {
        let erased = seen.attachment.node_report().and_then(|report| report.erased);
        let mut status = self.phase(seen, Phase::Detaching, "Released", &seen.status().message);
        status.used &= erased.is_none();
        status_write(status)
    }

    /// The node says nothing of the device. Only where the connection is gone, nothing is left to be let go of.
    fn unreported(&self, seen: &SeenAttachment) -> AttachmentStep {
        let adopted = seen.status().connection.as_ref();
        let is_it = |path: &ObjectPath| adopted.is_some_and(|adopted| adopted.path == path.as_str());
        match &self.board {
            Some(board) if !board.others.iter().any(|other| is_it(&other.path)) => {
                let message = "the connection that was taken over is gone: another program has ended it";
                AttachmentStep::Write(self.detached_status(seen, message, None))
            }
            _ => {
                let node = &seen.spec().node_name;
                let message = format!(
                    "node {node} is to report that it has let go of the device: its daemon does, from version 0.2 on; \
                     where the machine is off, delete the Node or taint it with node.kubernetes.io/out-of-service"
                );
                self.say(seen, "Releasing", &message)
            }
        }
    }

    fn end_connection(&self, seen: &SeenAttachment) -> AttachmentStep {
        let expected = seen.status().connection.as_ref().map(|connection| ExpectedConnection::Shown {
            path: ObjectPath::new(&connection.path),
            host: connection.host.clone(),
        });
        let expected = expected.into_iter().collect();
        AttachmentStep::Call(ManagerCall::Isolate { device: self.device, expected })
    }

    /// The claim that uses the device on the node of the spec. A claim that was never told that the device is attached has
    /// not used it, and is not given the data of another.
    fn claim_in_use(&self, seen: &SeenAttachment) -> Option<&ClaimOfDevice> {
        let pool = seen.pool();
        self.claims.iter().find(|claim| {
            claim.is_told_attached()
                && !claim.is_failed()
                && claim.pool == pool
                && claim.node.as_ref() == Some(&seen.spec().node_name)
        })
    }

    fn adoptable(&self, seen: &SeenAttachment) -> Adoptable {
        let no = |reason, message: String| Adoptable::No(AdoptionObstacle { reason, message });
        let (spec, name) = (seen.spec(), self.device.device_name());
        let node = &spec.node_name;
        if spec.device != self.device {
            return no("OtherDevice", format!("the object is called {name}, and its spec.device is {}", spec.device));
        }
        let twin = self.twins.iter().find(|twin| twin.may_be_attached && twin.node == *node);
        if let Some(twin) = twin {
            let why =
                format!("node {node} has {}, which has the same serial number: release that one first", twin.name);
            return no("SameSerial", why);
        }
        let Some(BoardDevice { trouble, others }) = &self.board else {
            return no("Unread", format!("fabric manager {} cannot be read now", spec.manager));
        };
        match (trouble, others.as_slice()) {
            (Some(trouble), _) => no("NotInOrder", trouble.clone()),
            (None, []) => Adoptable::Gone,
            (None, [only]) => match (&only.host, &only.node) {
                (Some(host), Some(at)) if at == node => {
                    Adoptable::Yes(AdoptedConnection { path: only.path.to_string(), host: host.clone() })
                }
                (_, Some(at)) => no(
                    "OtherNode",
                    format!("connection {} gives the device to node {at}: have it taken over anew", only.path),
                ),
                (host, None) => {
                    let host = host.as_ref().map_or("no known host".to_owned(), ToString::to_string);
                    no("NoNode", format!("connection {} gives the device to {host}, which is no node", only.path))
                }
            },
            (None, several) => {
                no("Several", format!("{} connections have the device: remove all but one", several.len()))
            }
        }
    }

    /// Writes a reason, if the status says another one.
    fn say(&self, seen: &SeenAttachment, reason: &str, message: &str) -> AttachmentStep {
        let said =
            FabricAttachmentStatus { reason: reason.to_owned(), message: short(message), ..seen.status().clone() };
        if said == *seen.status() { AttachmentStep::Rest } else { status_write(said) }
    }
}
