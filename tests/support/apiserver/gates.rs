//! Feature gates with what each release has them set to.

use super::resources::Release;

/// A gate: the release that brought it, and the one that switched it on, if any.
struct Gate {
    name: &'static str,
    since: Release,
    on_since: Option<Release>,
}

const fn gate(name: &'static str, since: Release, on_since: Option<Release>) -> Gate {
    Gate { name, since, on_since }
}

const GATES: &[Gate] = &[
    gate("DRAAdminAccess", Release::V1_32, Some(Release::V1_34)),
    gate("DRAResourceClaimDeviceStatus", Release::V1_32, Some(Release::V1_33)),
    gate("DRAPrioritizedList", Release::V1_33, Some(Release::V1_34)),
    gate("DRADeviceTaints", Release::V1_33, Some(Release::V1_36)),
    gate("DRAPartitionableDevices", Release::V1_33, Some(Release::V1_36)),
    gate("DRAConsumableCapacity", Release::V1_34, Some(Release::V1_36)),
    gate("DRADeviceBindingConditions", Release::V1_34, Some(Release::V1_36)),
    gate("DRAExtendedResource", Release::V1_34, Some(Release::V1_36)),
    gate("DRAResourceClaimGranularStatusAuthorization", Release::V1_36, Some(Release::V1_36)),
    gate("DRAListTypeAttributes", Release::V1_36, None),
    gate("DRANodeAllocatableResources", Release::V1_36, None),
    gate("DRAPartitionableDevicesType", Release::V1_37, None),
    gate("DRAOptionalNodeOperations", Release::V1_37, None),
    gate("DRADeviceCompatibilityGroups", Release::V1_37, None),
    gate("WatchList", Release::V1_32, Some(Release::V1_34)),
];

/// Whether a gate is on by default. `None`: the release has none of that name.
pub fn default(release: Release, name: &str) -> Option<bool> {
    let gate = GATES.iter().find(|gate| gate.name == name && gate.since <= release)?;
    // On in 1.32, and off again in 1.33.
    let exception = name == "WatchList" && release == Release::V1_32;
    Some(exception || gate.on_since.is_some_and(|on| on <= release))
}
