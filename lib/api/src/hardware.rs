//! hostler's own kinds that tell of hardware: NodeHardware, which each node daemon writes of its node, and ClusterHardware,
//! which the controller writes of all of them. And the one rule by which a device is free, or why it is not.
//!
//! ```text
//!   inventory, claims ──► daemon ──► NodeHardware ──┐
//!   ResourceSlices, DeviceTaintRules, claims ───────┴──► controller ──► ClusterHardware
//! ```
//!
//! What cannot be read is unknown: never absent, and never free.

mod cluster;
mod condition;
mod counts;
mod grant;
mod life;
mod node;
mod state;

pub use cluster::{ClusterClassCounts, ClusterHardware, ClusterHardwareStatus, ClusterNodeCounts};
pub use condition::{Condition, ConditionStatus, HardwareConditionReason, HardwareConditionType};
pub use counts::{AmountCounts, DeviceCounts, DeviceTotals};
pub use grant::NodeGrant;
pub use life::{SIGN_OF_LIFE, STALE_AFTER, UNKNOWN_AFTER, until_sign_of_life};
pub use node::{
    BackendHardware, BackendKnowledge, ClassHardware, NodeHardware, NodeHardwareSpec, NodeHardwareStatus, NodeHold,
    ZoneHardware,
};
pub use state::{DeviceImpediments, DeviceState, Occupancy, PartsLeft};

/// Rows of a class in a report, and so NUMA nodes that are told apart.
pub const MAX_ZONES: usize = 64;
/// Slices in a report.
pub const MAX_OFFERED_SLICES: usize = 256;
/// Bytes of all slices in a report together. The API server's store takes 1.5 MiB, and a report says more than them.
pub const MAX_OFFERED_BYTES: usize = 1 << 20;
/// Devices of a node that can be held at once.
pub const MAX_HOLDS: usize = 2048;
/// Bytes of a message in a report: thousands of nodes have one.
pub const MAX_MESSAGE_BYTES: usize = 256;

/// The API group of hostler's own kinds.
pub const GROUP: &str = "hostler.dev";
/// The version of these kinds.
pub const VERSION: &str = "v1alpha1";
/// The kind of a node's report.
pub const NODE_HARDWARE_KIND: &str = "NodeHardware";
/// Hardware has no plural: singular and plural of the kind.
pub const NODE_HARDWARE: &str = "nodehardware";
/// The kind of the cluster's sums.
pub const CLUSTER_HARDWARE_KIND: &str = "ClusterHardware";
/// Singular and plural of that kind.
pub const CLUSTER_HARDWARE: &str = "clusterhardware";
/// The only object of that kind.
pub const CLUSTER_HARDWARE_NAME: &str = "cluster";
