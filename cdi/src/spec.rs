//! The CDI spec types, in the shape of the JSON files that container runtimes read.
//!
//! Reading is as strict on names as the runtimes are (an unknown field refuses the file) and as lax on absence: they
//! take a missing or `null` field for its empty value, so required fields default here too and it is
//! `CdiSpec::validate` that misses them, all at once and each with its place.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// One CDI file: devices of one kind, and edits that apply as soon as any of them is requested.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CdiSpec {
    /// Version of the CDI specification that the file needs, for example `0.6.0`.
    #[serde(default, deserialize_with = "or_empty")]
    pub cdi_version: String,
    /// `vendor/class`.
    #[serde(default, deserialize_with = "or_empty")]
    pub kind: String,
    /// Free-form notes on the whole file.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The devices, at least one.
    #[serde(default, deserialize_with = "or_empty")]
    pub devices: Vec<CdiDevice>,
    /// Edits that apply once to a container that requests at least one device of this file.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "ContainerEdits::is_empty")]
    pub container_edits: ContainerEdits,
}

/// A device of a [`CdiSpec`]; requested as `vendor/class=name`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CdiDevice {
    /// The part after the `=`.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Free-form notes on the device.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Changes to a container that requests the device. Must not be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub container_edits: ContainerEdits,
}

/// Changes to the OCI configuration of a container.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerEdits {
    /// `NAME=value` pairs.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes to create in the container.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces to move into the container (CDI 1.1.0).
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<NetDevice>,
    /// OCI hooks.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<CdiHook>,
    /// Mounts.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<CdiMount>,
    /// Intel RDT class (CDI 0.7.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<Box<IntelRdt>>,
    /// Supplementary groups of the container process (CDI 0.7.0).
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// A device node inside the container.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    /// Path in the container.
    #[serde(default, deserialize_with = "or_empty")]
    pub path: String,
    /// Path on the host, where it differs (CDI 0.5.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `b`, `c`, `u` or `p`; taken from the host's node where absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub node_type: Option<String>,
    /// Major number; taken from the host's node where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// Minor number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// File mode, permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// Device cgroup permissions, a combination of `r`, `w` and `m`; all three where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A network interface to move into the container.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetDevice {
    /// Name on the host.
    #[serde(default, deserialize_with = "or_empty")]
    pub host_interface_name: String,
    /// Name in the container.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
}

/// The point in a container's life at which a hook runs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HookName {
    /// Deprecated by the OCI in favour of the three that follow.
    Prestart,
    /// Runtime namespaces, before `pivot_root`, cgroup joined.
    CreateRuntime,
    /// Container namespaces, before `pivot_root`.
    CreateContainer,
    /// Container namespaces, before the user's process.
    StartContainer,
    /// Runtime namespaces, after the user's process has started.
    Poststart,
    /// Runtime namespaces, after the container is gone.
    Poststop,
}

/// An OCI hook.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CdiHook {
    /// Point in the container's life at which the hook runs.
    pub hook_name: HookName,
    /// Absolute path of the executable on the host.
    #[serde(default, deserialize_with = "or_empty")]
    pub path: String,
    /// Arguments; the first is the program's own name.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// `NAME=value` pairs.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds after which the runtime kills the hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// A mount of the container.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CdiMount {
    /// Path on the host.
    #[serde(default, deserialize_with = "or_empty")]
    pub host_path: String,
    /// Path in the container.
    #[serde(default, deserialize_with = "or_empty")]
    pub container_path: String,
    /// Mount options.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// File system type (CDI 0.4.0).
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
}

/// An Intel RDT (cache allocation) class.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IntelRdt {
    /// Class of service; absent means one of the container's own.
    #[serde(default, rename = "closID", skip_serializing_if = "Option::is_none")]
    pub clos_id: Option<String>,
    /// L3 cache schema line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l3_cache_schema: Option<String>,
    /// Memory bandwidth schema line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_bw_schema: Option<String>,
    /// Schemata lines (CDI 1.1.0). An empty list is not the same as none: runtimes count it as use of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemata: Option<Vec<String>>,
    /// Monitoring group (CDI 1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_monitoring: Option<bool>,
}

impl ContainerEdits {
    /// True if nothing would change in a container.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds `other` behind what is there already.
    pub fn append(&mut self, other: &Self) {
        self.env.extend_from_slice(&other.env);
        self.device_nodes.extend_from_slice(&other.device_nodes);
        self.net_devices.extend_from_slice(&other.net_devices);
        self.hooks.extend_from_slice(&other.hooks);
        self.mounts.extend_from_slice(&other.mounts);
        if other.intel_rdt.is_some() {
            self.intel_rdt.clone_from(&other.intel_rdt);
        }
        self.additional_gids.extend_from_slice(&other.additional_gids);
    }
}

/// Takes an explicit `null` for the empty value, as the runtimes do.
fn or_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
