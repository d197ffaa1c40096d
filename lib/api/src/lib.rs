//! Terms of devices and claims that every part of hostler shares: names, quantities, grants, limits, and the shapes
//! of `resource.k8s.io` in all versions that are spoken, of nodes and pods, and of hostler's own kinds. No I/O, no
//! clock, nothing of a daemon or of a controller.

mod chain;
mod claim;
pub mod classic;
mod config_problem;
pub mod core;
mod doubling;
pub mod fabric;
mod finding;
mod fingerprint;
mod grant;
pub mod hardware;
mod kubernetes_version;
pub mod limits;
mod listed;
mod names;
mod near;
mod object_key;
pub mod opaque;
mod packed;
mod plain;
pub mod provisioning;
mod quantity;
pub mod reservation;
pub mod resource;
mod shared_map;
pub mod well_known;

pub use chain::Chain;
pub use claim::{Allocation, ClaimRef, ClaimState};
pub use config_problem::ConfigProblem;
pub use doubling::Doubling;
pub use finding::ManifestFinding;
pub use fingerprint::fingerprint;
pub use grant::{Access, Grant, ShareId};
pub use kubernetes_version::KubernetesVersion;
pub use listed::{few, listed};
pub use names::{
    BackendName, ClaimUid, DeviceName, DriverName, LabelKey, NameError, NodeName, ObjectName, QualifiedName,
};
pub use near::did_you_mean;
pub use object_key::ObjectKey;
pub use packed::Packed;
pub use plain::{cut_middle, plain, plain_line};
pub use quantity::{AskedQuantity, ExactQuantity, ParseQuantityError, Quantity};
pub use shared_map::SharedMap;
