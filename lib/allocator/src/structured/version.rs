//! Versions of Kubernetes, their features, and the allocator of upstream that is at work with them.

use hostler_api::KubernetesVersion;
use serde::{Deserialize, Serialize};

/// A feature of kube-scheduler that can be switched on or off, and that changes allocations.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Feature {
    /// Access to devices that others hold.
    #[serde(rename = "DRAAdminAccess")]
    AdminAccess,
    /// Parts of devices.
    #[serde(rename = "DRAConsumableCapacity")]
    ConsumableCapacity,
    /// Devices that must become ready before a pod is bound; a second gate belongs to it.
    #[serde(rename = "DRADeviceBindingConditions")]
    DeviceBindingConditions,
    /// Taints of devices.
    #[serde(rename = "DRADeviceTaints")]
    DeviceTaints,
    /// Attributes with several values.
    #[serde(rename = "DRAListTypeAttributes")]
    ListTypeAttributes,
    /// Counters that devices share.
    #[serde(rename = "DRAPartitionableDevices")]
    PartitionableDevices,
    /// Requests with alternatives.
    #[serde(rename = "DRAPrioritizedList")]
    PrioritizedList,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 7] = [
        Self::AdminAccess,
        Self::ConsumableCapacity,
        Self::DeviceBindingConditions,
        Self::DeviceTaints,
        Self::ListTypeAttributes,
        Self::PartitionableDevices,
        Self::PrioritizedList,
    ];

    /// Name of its feature gate.
    pub fn gate(self) -> &'static str {
        match self {
            Self::AdminAccess => "DRAAdminAccess",
            Self::ConsumableCapacity => "DRAConsumableCapacity",
            Self::DeviceBindingConditions => "DRADeviceBindingConditions",
            Self::DeviceTaints => "DRADeviceTaints",
            Self::ListTypeAttributes => "DRAListTypeAttributes",
            Self::PartitionableDevices => "DRAPartitionableDevices",
            Self::PrioritizedList => "DRAPrioritizedList",
        }
    }
}

/// The features that are on.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Features(u8);

impl Features {
    /// Features that are on by default. 1.37 keeps those of 1.36.
    pub fn for_version(version: KubernetesVersion) -> Self {
        let first = [Feature::AdminAccess, Feature::PrioritizedList];
        match version {
            KubernetesVersion::V1_34 | KubernetesVersion::V1_35 => first.into_iter().collect(),
            KubernetesVersion::V1_36 | KubernetesVersion::V1_37 => Self::all().without(Feature::ListTypeAttributes),
        }
    }

    /// All features.
    pub fn all() -> Self {
        Feature::ALL.into_iter().collect()
    }

    /// Returns true if a feature is on.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }

    /// Returns the features with one more.
    #[must_use]
    pub fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u8)
    }

    /// Returns the features with one less.
    #[must_use]
    pub fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u8))
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        features.into_iter().fold(Self::default(), Self::with)
    }
}

/// The three allocators that upstream has side by side; the first that knows all features that are on is at work.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// The oldest one.
    Stable,
    /// The one that is to become stable next.
    Incubating,
    /// The newest one.
    Experimental,
}

impl Variant {
    /// All variants, in the order in which upstream asks them.
    pub const ALL: [Self; 3] = [Self::Stable, Self::Incubating, Self::Experimental];

    /// Returns the variant at work.
    pub fn at_work(version: KubernetesVersion, features: Features) -> Self {
        let knows_all = |variant: &Self| {
            Feature::ALL.iter().all(|feature| !features.has(*feature) || variant.knows(version, *feature))
        };
        Self::ALL.into_iter().find(knows_all).unwrap_or(Self::Experimental)
    }

    fn knows(self, version: KubernetesVersion, feature: Feature) -> bool {
        let first = match feature {
            Feature::AdminAccess | Feature::DeviceTaints | Feature::PartitionableDevices | Feature::PrioritizedList => {
                0
            }
            Feature::ConsumableCapacity | Feature::DeviceBindingConditions => 1,
            Feature::ListTypeAttributes => 2,
        };
        // In 1.36 every feature moved on by one variant.
        let moved = i32::from(version >= KubernetesVersion::V1_36);
        self as i32 > first - moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beta_is_on() {
        let on = |version, feature| Features::for_version(version).has(feature);
        assert!(on(KubernetesVersion::V1_34, Feature::PrioritizedList));
        assert!(!on(KubernetesVersion::V1_35, Feature::DeviceTaints));
        assert!(on(KubernetesVersion::V1_36, Feature::DeviceTaints));
        assert!(!on(KubernetesVersion::V1_37, Feature::ListTypeAttributes));
    }

    #[test]
    fn the_first_allocator_that_knows_all_features_is_at_work() {
        let at_work = |version, features: &[Feature]| Variant::at_work(version, features.iter().copied().collect());
        for (version, features, expected) in [
            (KubernetesVersion::V1_34, &[][..], Variant::Stable),
            (KubernetesVersion::V1_34, &[Feature::AdminAccess], Variant::Incubating),
            (KubernetesVersion::V1_35, &[Feature::ConsumableCapacity], Variant::Experimental),
            (KubernetesVersion::V1_36, &[Feature::PartitionableDevices], Variant::Stable),
            (KubernetesVersion::V1_36, &[Feature::ConsumableCapacity], Variant::Incubating),
            (KubernetesVersion::V1_37, &[Feature::ListTypeAttributes], Variant::Experimental),
        ] {
            assert_eq!(at_work(version, features), expected, "{version} {features:?}");
        }
        for version in KubernetesVersion::ALL {
            assert_eq!(Variant::at_work(version, Features::for_version(version)), Variant::Incubating);
        }
    }

    #[test]
    fn gates_are_written_as_kubernetes_writes_them() {
        for feature in Feature::ALL {
            assert_eq!(serde_json::to_value(feature).unwrap(), feature.gate());
        }
    }
}
