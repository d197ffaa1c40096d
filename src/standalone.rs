//! Claims for hosts without Kubernetes: `ResourceClaim` manifests in a folder.
//!
//! A manifest is a `resource.k8s.io/v1` ResourceClaim with `status.allocation`, in JSON or YAML. A manifest called
//! `<namespace>_<name>.json`, `.yaml` or `.yml` is found at once; other names are found by an index of the folder.
//! Writers: the operator, and `hostler claim create`. The claims task reads them through [`ReadClaims`](crate::claims::ReadClaims).

mod create;
mod folder;
mod in_service;
mod manifest;
mod rounding;

pub use create::{CreateClaim, CreateDevice, CreateError, allocate};
pub use folder::{ManifestFile, ManifestFolder, ManifestsError};
pub use in_service::{DrainedError, InService, refuse_drained};
pub use manifest::{DocumentError, ManifestError, UnallocatedClaim, parse, parse_unallocated};
pub use rounding::{rounded_devices, rounded_requests};
