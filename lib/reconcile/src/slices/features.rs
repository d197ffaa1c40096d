//! Fields that an API server drops without a word when their feature gate is off: which there are, who uses them, and
//! how to find out before anything is published.

use std::collections::BTreeSet;

use hostler_api::resource::{DeviceTaint, SliceContent, SliceDevice};

use super::Dropped;

/// A feature gate of the API server that devices can depend on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Feature {
    /// Devices that no new claim shall get.
    Taints,
    /// Devices that exclude each other.
    Counters,
    /// Devices of several claims.
    Sharing,
    /// Devices that are attached after scheduling.
    Binding,
    /// Devices that are a part of the node's own resources.
    NodeAllocatable,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Taints, Self::Counters, Self::Sharing, Self::Binding, Self::NodeAllocatable];

    /// The fields of a device that come and go with it.
    pub fn fields(self) -> &'static str {
        match self {
            Self::Taints => "taints",
            Self::Counters => "sharedCounters, consumesCounters",
            Self::Sharing => "allowMultipleAllocations, requestPolicy",
            Self::Binding => "bindsToNode, bindingConditions, bindingFailureConditions",
            Self::NodeAllocatable => "nodeAllocatableResources, nodeAllocatableResourceMappings",
        }
    }

    /// Name of the feature gate.
    pub fn gate(self) -> &'static str {
        match self {
            Self::Taints => "DRADeviceTaints",
            Self::Counters => "DRAPartitionableDevices",
            Self::Sharing => "DRAConsumableCapacity",
            Self::Binding => "DRADeviceBindingConditions",
            Self::NodeAllocatable => "DRANodeAllocatableResources",
        }
    }

    /// Consequence for the devices that use the feature.
    pub fn consequence(self) -> &'static str {
        match self {
            Self::Taints => "devices that are not known to work are left out instead",
            Self::Counters => "devices that draw on shared counters are left out",
            Self::Sharing => "shared devices go to one claim at a time",
            Self::Binding => "pods are bound before their devices are attached",
            Self::NodeAllocatable => "the scheduler counts what devices take of the node once more",
        }
    }

    fn is_used_by(self, device: &SliceDevice) -> bool {
        match self {
            Self::Taints => !device.taints.is_empty(),
            Self::Counters => !device.consumes_counters.is_empty(),
            Self::Sharing => {
                device.allow_multiple_allocations
                    || device.capacity.iter().any(|(_, capacity)| capacity.request_policy.is_some())
            }
            Self::Binding => device.binds_to_node || !device.binding_conditions.is_empty(),
            Self::NodeAllocatable => {
                !device.node_allocatable_resources.is_empty() || !device.node_allocatable_resource_mappings.is_empty()
            }
        }
    }
}

/// Features that were sent and did not come back.
pub fn dropped(sent: &SliceContent, kept: &SliceContent) -> Dropped {
    let lost = |feature: Feature| {
        let mut pairs = sent.devices.iter().zip(&kept.devices);
        pairs.any(|(sent, kept)| feature.is_used_by(sent) && !feature.is_used_by(kept))
            || (feature == Feature::Counters && !sent.shared_counters.is_empty() && kept.shared_counters.is_empty())
    };
    Feature::ALL.into_iter().filter(|feature| lost(*feature)).collect()
}

/// A slice that shows what the server does with the features of which nothing is known yet, and which features it
/// shows: an example of each that `contents` use. Taints are always among them, since how devices are spread over
/// slices depends on them.
pub fn probe(contents: &[&SliceContent], known: impl Fn(Feature) -> bool) -> Option<(SliceContent, BTreeSet<Feature>)> {
    let mut probe = SliceContent::default();
    let mut shows = BTreeSet::new();
    for feature in Feature::ALL.into_iter().filter(|feature| !known(*feature)) {
        let mut devices = contents.iter().flat_map(|content| &content.devices);
        let example = devices.find(|device| feature.is_used_by(device)).cloned();
        let Some(device) = example.or_else(|| (feature == Feature::Taints).then(tainted)) else { continue };
        shows.insert(feature);
        if !probe.devices.iter().any(|other| other.name == device.name) {
            probe.devices.push(device);
        }
    }
    (!shows.is_empty()).then_some((probe, shows))
}

fn tainted() -> SliceDevice {
    let taint = DeviceTaint { key: "probe".into(), value: None, effect: "NoSchedule".into(), time_added: None };
    SliceDevice { name: "probe".into(), taints: vec![taint], ..SliceDevice::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(device: SliceDevice) -> SliceContent {
        SliceContent { devices: vec![device], ..SliceContent::default() }
    }

    fn shared() -> SliceDevice {
        SliceDevice { name: "shared".into(), allow_multiple_allocations: true, ..tainted() }
    }

    #[test]
    fn what_does_not_come_back_is_named() {
        let bare = content(SliceDevice { name: "shared".into(), ..SliceDevice::default() });
        assert_eq!(dropped(&content(shared()), &bare), [Feature::Taints, Feature::Sharing].into());
        assert_eq!(dropped(&content(shared()), &content(shared())), Dropped::new());
        assert_eq!(dropped(&bare, &content(shared())), Dropped::new());
    }

    #[test]
    fn a_probe_has_one_example_of_every_feature_that_is_used_and_unknown() {
        let (one, other) = (content(shared()), content(SliceDevice { name: "other".into(), ..shared() }));
        let used = [&one, &other];
        let (probe_content, shows) = probe(&used, |_| false).unwrap();
        assert_eq!(shows, [Feature::Taints, Feature::Sharing].into());
        assert_eq!(probe_content, content(shared()));
        let (probe_content, shows) = probe(&used, |feature| feature == Feature::Taints).unwrap();
        assert_eq!((probe_content, shows), (content(shared()), [Feature::Sharing].into()));
        assert_eq!(probe(&used, |_| true), None);
    }

    #[test]
    fn taints_are_tried_even_where_nothing_is_tainted_yet() {
        let (probe_content, shows) = probe(&[], |_| false).unwrap();
        assert_eq!((probe_content, shows), (content(tainted()), [Feature::Taints].into()));
    }
}
