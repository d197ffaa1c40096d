//! The structured allocator: claims of one pod, the devices that one node can use, and what of them would be allocated.

mod quirks;
mod version;

pub use quirks::{Quirk, Quirks};
pub use version::{Feature, Features, KubernetesVersion, Variant};
