//! Everything that was read about an attachment, at one moment.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::fabric::{
    AttachmentPhase, DeviceIdentity, FabricAttachment, FabricAttachmentSpec, FabricAttachmentStatus, SystemUuid,
    fabric_pool, of_fabric_pool,
};
use hostler_cluster::ObjectVersion;
use hostler_fabric::{
    AttachKey, AttachRequest, ExpectedConnection, FabricConnection, FabricError, FabricOutcome, Isolation, KeyError,
    ObjectPath,
};
use serde::Deserialize;
use serde_json::Value;

use super::claim::{ClaimConditions, ClaimOfDevice};
use crate::fabric::keepers::DeviceKeeper;

/// The finalizer of attachments: an object does not go before its device is detached.
pub(crate) const FABRIC_FINALIZER: &str = "hostler.dev/fabric";

/// Everything that decides the next step.
#[derive(Clone, Debug)]
pub(super) struct AttachmentContext {
    /// Identity of the device.
    pub(super) device: DeviceIdentity,
    /// The attachment, if there is one.
    pub(super) seen: Option<SeenAttachment>,
    /// Claims that have the device by their allocation, the oldest allocation first.
    pub(super) claims: Vec<ClaimOfDevice>,
    /// The device as a Reservation keeps it, if one does.
    pub(super) kept: Option<DeviceKeeper>,
    /// The nodes that attachment, claims and Reservation name.
    pub(super) nodes: BTreeMap<String, AttachmentNode>,
    /// Attachments of other logical devices of the same serial number.
    pub(super) twins: Vec<TwinAttachment>,
    /// Connections that the manager showed under keys of this attachment when its inventory was read last.
    pub(super) shown: Vec<ShownConnection>,
    /// The device as the manager shows it; `None`: the manager cannot be read now.
    pub(super) board: Option<BoardDevice>,
    /// The key under which memory was made for the device, as the manager showed it when its inventory was read last.
    pub(super) made_memory: Option<AttachKey>,
    /// True if the published slice shows the device with the taint of attachments.
    pub(super) is_tainted: bool,
    /// Times that are waited for.
    pub(super) limits: AttachmentLimits,
    /// Time since 1970 by the API server's clock.
    pub(super) now: Duration,
}

/// Times that are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttachmentLimits {
    /// Time from the allocation until the claim is given another device.
    pub(super) attach: Duration,
    /// Time for which a call may still be carried out after its caller has lost the Lease.
    pub(super) late_call: Duration,
}

/// An attachment as it was read.
#[derive(Clone, Debug)]
pub(super) struct SeenAttachment {
    pub(super) attachment: FabricAttachment,
    pub(super) version: ObjectVersion,
    /// The whole object.
    pub(super) object: Value,
}

/// Facts about a node.
#[derive(Clone, Debug)]
pub(super) struct AttachmentNode {
    /// True if there is such a Node.
    pub(super) exists: bool,
    /// True if an operator says that the machine is off.
    pub(super) is_out_of_service: bool,
    pub(super) host: HostFact,
}

/// The host of a node, as the manager knows it.
#[derive(Clone, Debug)]
pub(super) enum HostFact {
    Known(SystemUuid),
    /// There is none, for this reason.
    Unknown(String),
    /// The manager was not read yet.
    Unread(String),
}

/// An attachment of another logical device of the same serial number.
#[derive(Clone, Debug)]
pub(super) struct TwinAttachment {
    pub(super) name: String,
    pub(super) node: String,
    /// True if the twin may be attached.
    pub(super) may_be_attached: bool,
}

/// A connection under a key of this attachment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ShownConnection {
    pub(super) key: AttachKey,
    /// The node of the connection's host, if one has its UUID.
    pub(super) node: Option<String>,
}

/// A device as its manager showed it when its inventory was read last.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct BoardDevice {
    /// The reason why nothing is done with the device on the word of the manager alone.
    pub(super) trouble: Option<String>,
    /// Connections of the device under no key of this attachment.
    pub(super) others: Vec<OtherConnection>,
}

/// A connection that this attachment has not made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct OtherConnection {
    pub(super) path: ObjectPath,
    /// The host. `None`: no known host, or several.
    pub(super) host: Option<SystemUuid>,
    /// The node that is the host.
    pub(super) node: Option<String>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttachmentStep {
    /// Nothing until something changes.
    Rest,
    /// Nothing before this time since 1970, if nothing changes.
    Until(Duration),
    Write(AttachmentWrite),
    Call(ManagerCall),
}

/// A write. Each names the version that it was decided on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttachmentWrite {
    /// Creates the attachment. An existing one of its name is a conflict.
    Create(Box<FabricAttachmentSpec>),
    /// Gives the attachment another spec.
    Spec(Box<FabricAttachmentSpec>),
    Status(Box<FabricAttachmentStatus>),
    /// Adds the finalizer, or takes it away.
    Finalizer {
        is_wanted: bool,
    },
    Delete,
    Claim(Box<ClaimConditions>),
}

/// A write that was made: the object as the answer returns it.
pub(super) enum AnsweredWrite {
    Attachment(Box<SeenAttachment>),
    /// A claim; `None`: it does not have the device any more.
    Claim(Option<Box<ClaimOfDevice>>),
    /// The object is gone, or is going.
    Gone,
}

/// A call of a fabric manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ManagerCall {
    /// Attaches the device.
    Attach(AttachRequest),
    /// Asks for the end of an attach that is under way.
    Progress(AttachKey),
    /// Asks for the end of an attach, before the node is told to let go.
    Settle(AttachKey),
    /// Asks whether a device is attached that its node does not see.
    LookFor(AttachKey),
    /// Asks whether a connection is there that no attempt needs any more.
    Verify(ShownConnection),
    Detach(AttachKey),
    /// Gives back the memory that was made for the device under a key.
    Free {
        device: DeviceIdentity,
        key: AttachKey,
    },
    /// Takes the device from the hosts of these connections.
    Isolate {
        device: DeviceIdentity,
        expected: Vec<ExpectedConnection>,
    },
}

/// The answer to a call.
#[derive(Debug)]
pub(super) enum ManagerAnswer {
    /// Of attach and state.
    Connection(Result<FabricOutcome<FabricConnection>, FabricError>),
    /// Of detach and free.
    Undone(Result<FabricOutcome<()>, FabricError>),
    Isolated(Result<FabricOutcome<Isolation>, FabricError>),
}

impl AttachmentWrite {
    /// Returns the kind of the write, in one word.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Create(_) => "attachment",
            Self::Spec(_) => "attachment_spec",
            Self::Status(_) => "attachment_status",
            Self::Finalizer { .. } => "attachment_finalizer",
            Self::Delete => "attachment_deletion",
            Self::Claim(_) => "claim_conditions",
        }
    }
}

impl ManagerCall {
    /// The isolation of a device that was attached under a key.
    pub(super) fn of_key(device: DeviceIdentity, key: AttachKey) -> Self {
        Self::Isolate { device, expected: vec![ExpectedConnection::Key(key)] }
    }

    /// Returns the kind of the call, in one word.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Attach(_) => "attach",
            Self::Progress(_) | Self::Settle(_) | Self::LookFor(_) | Self::Verify(_) => "state",
            Self::Detach(_) => "detach",
            Self::Free { .. } => "free",
            Self::Isolate { .. } => "isolate",
        }
    }
}

impl SeenAttachment {
    /// Reads an attachment.
    ///
    /// # Errors
    /// When the object is none.
    pub(super) fn of(object: Value) -> Result<Self, serde_json::Error> {
        let attachment = FabricAttachment::deserialize(&object)?;
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let uid = attachment.metadata.uid.clone().unwrap_or_default();
        Ok(Self { attachment, version: ObjectVersion { uid, resource_version: version }, object })
    }

    pub(super) fn spec(&self) -> &FabricAttachmentSpec {
        &self.attachment.spec
    }

    pub(super) fn status(&self) -> &FabricAttachmentStatus {
        &self.attachment.status
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.attachment.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.attachment.metadata.finalizers.iter().any(|it| it == FABRIC_FINALIZER)
    }

    /// The pool of the device.
    pub(super) fn pool(&self) -> String {
        fabric_pool(&self.spec().manager, &self.spec().domain)
    }

    /// True if the manager may have attached the device under the present key: it was asked to.
    pub(super) fn was_asked(&self) -> bool {
        use AttachmentPhase as Phase;
        match self.status().phase {
            Phase::Pending | Phase::Detached => false,
            // The deadline is written before the manager is asked.
            Phase::Failed => self.status().deadline.is_some(),
            _ => true,
        }
    }

    /// The manager's name for the present attempt.
    ///
    /// # Errors
    /// When the UID of the object cannot be a part of a key.
    pub(super) fn key(&self) -> Result<AttachKey, KeyError> {
        AttachKey::new(format!("{}-{}", self.version.uid, self.spec().attempt))
    }
}

impl AttachmentNode {
    /// True if no kernel of the node can use the device any more.
    pub(super) fn is_gone(&self) -> bool {
        !self.exists || self.is_out_of_service
    }
}

/// The manager and the pool that a reading is about: of the attachment, or else of the claim or Reservation that it is to
/// be made for.
pub(super) fn place_of(
    seen: Option<&SeenAttachment>,
    claims: &[ClaimOfDevice],
    kept: Option<&DeviceKeeper>,
) -> Option<(String, String)> {
    let of_pool = |pool: &String| Some((of_fabric_pool(pool)?.0.to_owned(), pool.clone()));
    let of_claim = || claims.first().and_then(|claim| of_pool(&claim.pool));
    let of_seen = seen.map(|seen| (seen.spec().manager.clone(), seen.pool()));
    of_seen.or_else(of_claim).or_else(|| of_pool(&kept?.pool))
}

impl AttachmentContext {
    /// The claim that the attachment is for, if it has the device by its allocation as the spec says.
    pub(super) fn holder(&self, seen: &SeenAttachment) -> Option<&ClaimOfDevice> {
        let spec = seen.spec();
        let named = spec.claim.as_ref()?;
        let pool = seen.pool();
        let fits = |claim: &&ClaimOfDevice| {
            claim.uid == named.uid && claim.pool == pool && claim.node.as_deref().unwrap_or_default() == spec.node_name
        };
        self.claims.iter().find(fits).filter(|_| spec.device == self.device)
    }

    /// True if no kernel can use the device on the attachment's node any more.
    pub(super) fn is_node_gone(&self, seen: &SeenAttachment) -> bool {
        self.nodes.get(&seen.spec().node_name).is_some_and(AttachmentNode::is_gone)
    }

    /// Time since 1970 at which a claim is given another device.
    pub(super) fn deadline(&self, claim: &ClaimOfDevice) -> Duration {
        // Servers before 1.34 write no time.
        claim.allocated.unwrap_or(self.now) + self.limits.attach
    }

    /// Drops a connection, or memory, that the manager does not have any more.
    pub(super) fn forget_shown(&mut self, call: &ManagerCall) {
        self.shown.retain(|shown| *call != ManagerCall::Verify(shown.clone()));
        self.made_memory = self.made_memory.take().filter(|_| !matches!(call, ManagerCall::Free { .. }));
    }
}
