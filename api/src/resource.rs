//! The API group `resource.k8s.io`, as far as it is read or written here: ResourceClaims and ResourceSlices.
//!
//! Types have the names of Kubernetes' own. Only what hostler uses is in them, and fields that are not known are let
//! through: a newer API server sends some.

mod claim;
mod slice;
mod sorted_map;
mod version;

pub use claim::{
    AllocationConfigSource, AllocationError, AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
    DeviceRequestAllocationResult, OpaqueDeviceConfiguration, ResourceClaim, ResourceClaimConsumerReference,
    ResourceClaimMetadata, ResourceClaimStatus,
};
pub use slice::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, DeviceAttribute, DeviceCapacity,
    DeviceCounterConsumption, DeviceTaint, NodeAllocatableMapping136, NodeAllocatableMapping137,
    NodeAllocatableResource137, ResourcePool, ResourceSliceSpec, SliceContent, SliceCounterSet, SliceDevice,
    SliceQuantity,
};
pub use sorted_map::SortedMap;
pub use version::{ApiVersion, GROUP};
