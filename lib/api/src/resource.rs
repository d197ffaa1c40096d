//! The API group `resource.k8s.io`, as far as it is read or written here: ResourceClaims, ResourceSlices,
//! DeviceClasses and DeviceTaintRules.
//!
//! Types have the names of Kubernetes' own. Only what hostler uses is in them, and fields that are not known are let
//! through: a newer API server sends some.

use serde::{Deserialize, Deserializer};

mod claim;
pub mod policy;
mod request;
mod slice;
mod sorted_map;
mod taint;
mod template;
mod version;

pub use claim::{
    AllocationConfigSource, AllocationError, AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
    DeviceRequestAllocationResult, OpaqueDeviceConfiguration, ResourceClaim, ResourceClaimConsumerReference,
    ResourceClaimMetadata, ResourceClaimStatus,
};
pub use request::{
    CapacityRequirements, CelDeviceSelector, DeviceAllocationMode, DeviceClaim, DeviceClaimConfiguration, DeviceClass,
    DeviceClassConfiguration, DeviceClassSpec, DeviceConstraint, DeviceRequest, DeviceSelector, DeviceSubRequest,
    ExactDeviceRequest, ResourceClaimSpec,
};
pub use slice::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, DeviceAttribute, DeviceCapacity,
    DeviceCounterConsumption, NodeAllocatableMapping136, NodeAllocatableMapping137, NodeAllocatableResource137,
    ResourcePool, ResourceSlice, ResourceSliceSpec, SliceContent, SliceCounterSet, SliceDevice, SliceQuantity,
};
pub use sorted_map::SortedMap;
pub use taint::{DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector, DeviceToleration};
pub use template::{ResourceClaimTemplate, ResourceClaimTemplateSpec};
pub use version::{ApiVersion, GROUP};

/// Reads `null` as an empty list: Go writes a list that was never made as `null`.
pub(crate) fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
