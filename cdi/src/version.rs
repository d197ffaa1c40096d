//! Versions of the CDI specification, and the fields that came with each.
//!
//! A runtime refuses a file whose `cdiVersion` it does not know, and one whose version is below what its fields need.
//! So a file is best written with the lowest version that holds it: [`minimum_version`].

use std::{fmt, str::FromStr};

use crate::spec::{CdiSpec, ContainerEdits};

/// A version of the CDI specification that runtimes accept, oldest first.
///
/// 0.1.0 and 0.2.0 exist, but no runtime takes a file that declares them. 0.8.0 and 1.0.0 only moved code in the
/// reference library: they add no field, no file ever needs them, and a runtime of before them refuses a file that
/// declares them for nothing.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum CdiVersion {
    /// The base.
    V0_3_0,
    /// Mount types.
    V0_4_0,
    /// Host paths of device nodes, device names that begin with a digit.
    V0_5_0,
    /// Annotations, dots in class names.
    V0_6_0,
    /// Intel RDT, supplementary groups.
    V0_7_0,
    /// Nothing new in the format.
    V0_8_0,
    /// Nothing new in the format.
    V1_0_0,
    /// Network devices, RDT schemata and monitoring; drops the RDT fields `enableCMT` and `enableMBM`.
    V1_1_0,
}

const NAMES: [(CdiVersion, &str); 8] = [
    (CdiVersion::V0_3_0, "0.3.0"),
    (CdiVersion::V0_4_0, "0.4.0"),
    (CdiVersion::V0_5_0, "0.5.0"),
    (CdiVersion::V0_6_0, "0.6.0"),
    (CdiVersion::V0_7_0, "0.7.0"),
    (CdiVersion::V0_8_0, "0.8.0"),
    (CdiVersion::V1_0_0, "1.0.0"),
    (CdiVersion::V1_1_0, "1.1.0"),
];

impl CdiVersion {
    /// The newest version known here.
    pub const LATEST: Self = Self::V1_1_0;

    /// The version as it stands in a file.
    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(version, _)| *version == self).map_or("", |(_, name)| name)
    }
}

impl fmt::Display for CdiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A version that no runtime accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("is no released CDI version from 0.3.0 to {latest}", latest = CdiVersion::LATEST)]
pub struct UnknownVersion;

impl FromStr for CdiVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        // Runtimes ignore one leading `v`, which the specification (Semantic Versioning) does not know.
        let bare = text.strip_prefix('v').unwrap_or(text);
        NAMES.iter().find(|(_, name)| *name == bare).map(|(version, _)| *version).ok_or(UnknownVersion)
    }
}

/// A feature that a file can use only from a version on.
pub(crate) struct VersionedFeature {
    pub(crate) since: CdiVersion,
    /// Name of the feature, for messages.
    pub(crate) name: &'static str,
    pub(crate) used: fn(&CdiSpec) -> bool,
}

pub(crate) const FEATURES: &[VersionedFeature] = &[
    VersionedFeature {
        since: CdiVersion::V0_4_0,
        name: "the type of a mount",
        used: |spec| any_edits(spec, |e| e.mounts.iter().any(|m| is_set(m.fs_type.as_ref()))),
    },
    VersionedFeature {
        since: CdiVersion::V0_5_0,
        name: "the hostPath of a device node",
        used: |spec| any_edits(spec, |e| e.device_nodes.iter().any(|n| is_set(n.host_path.as_ref()))),
    },
    VersionedFeature {
        since: CdiVersion::V0_5_0,
        name: "a device name that begins with a digit",
        used: |spec| spec.devices.iter().any(|d| d.name.starts_with(|c: char| c.is_ascii_digit())),
    },
    VersionedFeature {
        since: CdiVersion::V0_6_0,
        name: "annotations",
        used: |spec| !spec.annotations.is_empty() || spec.devices.iter().any(|d| !d.annotations.is_empty()),
    },
    VersionedFeature {
        since: CdiVersion::V0_6_0,
        name: "a dot in the class",
        used: |spec| spec.kind.split_once('/').is_some_and(|(_, class)| class.contains('.')),
    },
    VersionedFeature {
        since: CdiVersion::V0_7_0,
        name: "intelRdt",
        used: |spec| any_edits(spec, |e| e.intel_rdt.is_some()),
    },
    VersionedFeature {
        since: CdiVersion::V0_7_0,
        name: "additionalGids",
        used: |spec| any_edits(spec, |e| !e.additional_gids.is_empty()),
    },
    VersionedFeature {
        since: CdiVersion::V1_1_0,
        name: "netDevices",
        used: |spec| any_edits(spec, |e| !e.net_devices.is_empty()),
    },
    VersionedFeature {
        since: CdiVersion::V1_1_0,
        name: "the schemata of intelRdt",
        used: |spec| any_edits(spec, |e| e.intel_rdt.as_ref().is_some_and(|rdt| rdt.schemata.is_some())),
    },
    VersionedFeature {
        // Runtimes in Go need 1.1.0 only for `true`; those in Rust for any value. The stricter one decides.
        since: CdiVersion::V1_1_0,
        name: "the enableMonitoring of intelRdt",
        used: |spec| any_edits(spec, |e| e.intel_rdt.as_ref().is_some_and(|rdt| rdt.enable_monitoring.is_some())),
    },
];

/// The lowest version that a file with this content may declare.
pub fn minimum_version(spec: &CdiSpec) -> CdiVersion {
    FEATURES.iter().filter(|f| (f.used)(spec)).map(|f| f.since).max().unwrap_or(CdiVersion::V0_3_0)
}

impl CdiSpec {
    /// Declares the lowest version that holds the spec, whatever it declared before.
    #[must_use]
    pub fn with_minimum_version(mut self) -> Self {
        self.cdi_version = minimum_version(&self).to_string();
        self
    }
}

fn any_edits(spec: &CdiSpec, used: impl Fn(&ContainerEdits) -> bool) -> bool {
    used(&spec.container_edits) || spec.devices.iter().any(|d| used(&d.container_edits))
}

fn is_set(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{CdiDevice, CdiMount, DeviceNode, IntelRdt, NetDevice};

    fn spec_with(edits: ContainerEdits) -> CdiSpec {
        let device = CdiDevice { name: "d".to_owned(), container_edits: edits, ..CdiDevice::default() };
        CdiSpec { kind: "vendor.com/class".to_owned(), devices: vec![device], ..CdiSpec::default() }
    }

    #[test]
    fn versions_are_parsed_with_and_without_v() {
        assert_eq!("0.7.0".parse(), Ok(CdiVersion::V0_7_0));
        assert_eq!("v1.1.0".parse(), Ok(CdiVersion::V1_1_0));
        for text in ["", "0.2.0", "0.3", "vv0.3.0", "1.2.0", "0.3.0 "] {
            assert_eq!(text.parse::<CdiVersion>(), Err(UnknownVersion), "{text:?}");
        }
        assert!(NAMES.iter().all(|(version, name)| version.to_string() == *name));
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn plain_edits_need_the_base_version() {
        let edits = ContainerEdits { env: vec!["A=1".to_owned()], ..ContainerEdits::default() };
        assert_eq!(minimum_version(&spec_with(edits)), CdiVersion::V0_3_0);
    }

    #[test]
    fn each_field_needs_its_version_in_devices_and_in_the_whole_file() {
        let rdt = |rdt| ContainerEdits { intel_rdt: Some(Box::new(rdt)), ..ContainerEdits::default() };
        let mount = CdiMount { fs_type: Some("tmpfs".to_owned()), ..CdiMount::default() };
        let node = DeviceNode { host_path: Some("/dev/a".to_owned()), ..DeviceNode::default() };
        for (edits, version) in [
            (ContainerEdits { mounts: vec![mount], ..ContainerEdits::default() }, CdiVersion::V0_4_0),
            (ContainerEdits { device_nodes: vec![node], ..ContainerEdits::default() }, CdiVersion::V0_5_0),
            (rdt(IntelRdt::default()), CdiVersion::V0_7_0),
            (ContainerEdits { additional_gids: vec![7], ..ContainerEdits::default() }, CdiVersion::V0_7_0),
            (
                ContainerEdits { net_devices: vec![NetDevice::default()], ..ContainerEdits::default() },
                CdiVersion::V1_1_0,
            ),
            (rdt(IntelRdt { schemata: Some(vec![]), ..IntelRdt::default() }), CdiVersion::V1_1_0),
            (rdt(IntelRdt { enable_monitoring: Some(false), ..IntelRdt::default() }), CdiVersion::V1_1_0),
        ] {
            let whole_file = CdiSpec { container_edits: edits.clone(), ..spec_with(ContainerEdits::default()) };
            assert_eq!(minimum_version(&whole_file), version, "{edits:?}");
            assert_eq!(minimum_version(&spec_with(edits)), version);
        }
    }

    #[test]
    fn names_and_annotations_need_their_versions() {
        let mut spec = spec_with(ContainerEdits::default());
        spec.devices[0].name = "0".to_owned();
        assert_eq!(minimum_version(&spec), CdiVersion::V0_5_0);
        spec.kind = "vendor.com/a.b".to_owned();
        assert_eq!(minimum_version(&spec), CdiVersion::V0_6_0);
        spec.kind = "vendor.com/a".to_owned();
        spec.devices[0].annotations.insert("a".to_owned(), "b".to_owned());
        assert_eq!(minimum_version(&spec), CdiVersion::V0_6_0);
    }
}
