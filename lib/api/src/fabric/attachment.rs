//! FabricAttachment: a device behind a switch that is given to a node, from the intent to the device's return.

use serde::{Deserialize, Serialize};

use super::{DeviceIdentity, SystemUuid};
use crate::{Quantity, core::ObjectMeta};

/// A device behind a switch that a node has, gets or gives back. There is one object for each device at most, with the
/// device's name: so no device is given to two nodes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct FabricAttachment {
    /// Has the name of the device in its pool.
    pub metadata: ObjectMeta,
    /// The device and its node, as the controller wants them.
    pub spec: FabricAttachmentSpec,
    /// State of the attachment.
    pub status: FabricAttachmentStatus,
}

/// The device and its node, as the controller wants them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FabricAttachmentSpec {
    /// Fabric manager, by its name in the controller's configuration.
    pub manager: String,
    /// Switch domain, by its name in the pool.
    pub domain: String,
    /// Identity of the device: serial number and logical device, as in 4C-1D-96-FF-FE-DD-D8-35:0001 (GCXLID).
    pub device: DeviceIdentity,
    /// Node that is given the device.
    pub node_name: String,
    /// Claim that was given the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<AttachedClaim>,
    /// Reservation that keeps the device on the node: the device is attached before a claim has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_for: Option<AttachmentKeeper>,
    /// Number of the attempt, which grows with every node or claim that the device is given to. The fabric manager
    /// knows the attachment under the UID of the object and this number. A Reservation that keeps the device gives it
    /// to a claim in the same attempt, once.
    pub attempt: u32,
    /// Memory that is made for the device where it has none, as the claim asks for it. Absent: all that is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// If true, the device may hold data of an earlier claim: the node erases it before it is used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub erase: bool,
    /// If true, the node lets go of the device: it is detached next.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub release: bool,
    /// If true, the attempt is about a connection that was made without this object, and that an operator had taken over.
    /// It has no key of this object, so it is ended as a connection to a node that is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

/// A claim that was given a device.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachedClaim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Identity.
    pub uid: String,
}

/// A Reservation that keeps a device on its node.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentKeeper {
    /// Name.
    pub name: String,
    /// Identity.
    pub uid: String,
}

/// State of an attachment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FabricAttachmentStatus {
    /// Phase of the attachment.
    pub phase: AttachmentPhase,
    /// Reason of the phase, in one word for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Reason of the phase and the next step, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Time since which the attachment has this phase, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Time after which the claim is given another device, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Number of attempts that failed one after the other.
    #[serde(skip_serializing_if = "is_none")]
    pub failures: u32,
    /// Time before which the device is not offered again, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
    /// If true, a container may have used the device since it was last erased.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub used: bool,
    /// Connection that was taken over, as long as it may be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<AdoptedConnection>,
    /// Report of the node, which its daemon writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<FabricNodeReport>,
}

/// A connection that was made without its FabricAttachment, and that an operator had taken over. No other one is ended in
/// its place.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedConnection {
    /// Path of the connection at the fabric manager.
    pub path: String,
    /// UUID of the host that has the device by it.
    pub host: SystemUuid,
}

/// Phase of an attachment.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum AttachmentPhase {
    /// Nothing was asked of the fabric manager yet.
    #[default]
    Pending,
    /// The fabric manager was asked to attach the device. It may have done so.
    Attaching,
    /// The device is attached; its node has not found it yet.
    Attached,
    /// The node has the device, and has checked it: claims can be prepared.
    Ready,
    /// The device is not given to the claim. It may be attached all the same, until it is detached.
    Failed,
    /// The node lets go of the device, and erases it.
    Releasing,
    /// The fabric manager was asked to detach the device.
    Detaching,
    /// The device is attached to no node. The object is kept while the device holds data, or after failures.
    Detached,
    /// A phase of a later version.
    #[serde(other)]
    Unknown,
}

/// Report of a node on a device.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FabricNodeReport {
    /// Attempt of the spec that the report is about: one about an earlier attempt counts for nothing.
    pub attempt: u32,
    /// State of the device on the node.
    pub state: NodeDeviceState,
    /// Name of the device on the node, as in cxl/memory-4c1d96fffeddd835.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Method by which the device was erased in this attempt; absent where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erased: Option<ErasureMethod>,
    /// Reason of the state and what to do, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Time since which the device has this state, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// State of a device on a node.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum NodeDeviceState {
    /// The node does not see the device, or not yet.
    #[default]
    Absent,
    /// The node sees the device, and it is not ready: it is being erased, or it is not healthy.
    Found,
    /// The device is there, is the one that was asked for, and is in order.
    Ready,
    /// The node lets go of the device: what is in the way stands in the message.
    Releasing,
    /// No program of the node uses the device, and the kernel has let it go: it can be detached.
    Released,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

/// Method by which the data of a device were removed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum ErasureMethod {
    /// The device erased itself (CXL Sanitize).
    Sanitize,
    /// All of its memory was overwritten.
    Overwrite,
    /// The device's function was reset, which clears its memory: an operator says so of the model (`backends.cxl.reset_erases`).
    Reset,
    /// Every region of an FPGA was programmed with its blank image, which clears the card's memory as well: an operator says
    /// so of the image (`backends.fpga.blank_erases`).
    Scrub,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

impl AttachmentPhase {
    /// True if the device may be attached to the node, or is going to be.
    pub fn is_under_way(self) -> bool {
        self != Self::Detached
    }

    /// Returns the phase as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Attaching => "Attaching",
            Self::Attached => "Attached",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::Releasing => "Releasing",
            Self::Detaching => "Detaching",
            Self::Detached => "Detached",
            Self::Unknown => "Unknown",
        }
    }
}

impl FabricAttachment {
    /// The report of the node on the present attempt, if it made one.
    pub fn node_report(&self) -> Option<&FabricNodeReport> {
        self.status.node.as_ref().filter(|report| report.attempt == self.spec.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_on_an_earlier_attempt_counts_for_nothing() {
        let report = FabricNodeReport { attempt: 1, state: NodeDeviceState::Ready, ..Default::default() };
        let status = FabricAttachmentStatus { node: Some(report.clone()), ..Default::default() };
        let spec = FabricAttachmentSpec { attempt: 2, ..Default::default() };
        let mut attachment = FabricAttachment { spec, status, ..Default::default() };
        assert_eq!(attachment.node_report(), None);
        attachment.spec.attempt = 1;
        assert_eq!(attachment.node_report(), Some(&report));
    }

    #[test]
    fn words_of_later_versions_are_unknown() {
        let status = serde_json::json!({"phase": "Rehearsing", "node": {"state": "Dreaming"}});
        let status: FabricAttachmentStatus = serde_json::from_value(status).unwrap();
        assert_eq!(status.phase, AttachmentPhase::Unknown);
        assert_eq!(status.node.unwrap().state, NodeDeviceState::Unknown);
        assert!(status.phase.is_under_way(), "what is not understood may be attached");
    }
}
