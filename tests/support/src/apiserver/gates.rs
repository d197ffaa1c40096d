//! Feature gates with what each release has them set to.

use super::resources::ApiServerRelease;

/// A gate: the release that brought it, and the one that switched it on, if any.
struct FeatureGate {
    name: &'static str,
    since: ApiServerRelease,
    on_since: Option<ApiServerRelease>,
}

const fn gate(name: &'static str, since: ApiServerRelease, on_since: Option<ApiServerRelease>) -> FeatureGate {
    FeatureGate { name, since, on_since }
}

const GATES: &[FeatureGate] = &[
    gate("DRAControlPlaneController", ApiServerRelease::V1_31, None),
    gate("DRAAdminAccess", ApiServerRelease::V1_32, Some(ApiServerRelease::V1_34)),
    gate("DRAResourceClaimDeviceStatus", ApiServerRelease::V1_32, Some(ApiServerRelease::V1_33)),
    gate("DRAPrioritizedList", ApiServerRelease::V1_33, Some(ApiServerRelease::V1_34)),
    gate("DRADeviceTaints", ApiServerRelease::V1_33, Some(ApiServerRelease::V1_36)),
    gate("DRAPartitionableDevices", ApiServerRelease::V1_33, Some(ApiServerRelease::V1_36)),
    gate("DRAConsumableCapacity", ApiServerRelease::V1_34, Some(ApiServerRelease::V1_36)),
    gate("DRADeviceBindingConditions", ApiServerRelease::V1_34, Some(ApiServerRelease::V1_36)),
    gate("DRAExtendedResource", ApiServerRelease::V1_34, Some(ApiServerRelease::V1_36)),
    gate("DRAResourceClaimGranularStatusAuthorization", ApiServerRelease::V1_36, Some(ApiServerRelease::V1_36)),
    gate("DRAListTypeAttributes", ApiServerRelease::V1_36, None),
    gate("DRANodeAllocatableResources", ApiServerRelease::V1_36, None),
    gate("DRAPartitionableDevicesType", ApiServerRelease::V1_37, None),
    gate("DRAOptionalNodeOperations", ApiServerRelease::V1_37, None),
    gate("DRADeviceCompatibilityGroups", ApiServerRelease::V1_37, None),
    gate("WatchList", ApiServerRelease::V1_32, Some(ApiServerRelease::V1_34)),
];

/// Returns true if a gate is on by default. `None`: the release has none of that name.
pub(crate) fn default(release: ApiServerRelease, name: &str) -> Option<bool> {
    let gate = GATES.iter().find(|gate| gate.name == name && gate.since <= release)?;
    // On in 1.32, and off again in 1.33.
    let exception = name == "WatchList" && release == ApiServerRelease::V1_32;
    Some(exception || gate.on_since.is_some_and(|on| on <= release))
}
