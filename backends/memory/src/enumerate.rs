//! Makes devices of the memory of a machine. Pure: from a [`Topology`], [`ZoneInfo`] and a [`MemoryBackendConfig`] to
//! devices.

use hostler_api::{ConfigProblem, DeviceName, NameError, QualifiedName, Quantity};
use hostler_backend::{
    AttributeValue, Attributes, BackendError, BackendWarning, Capacity, Device, Enumeration, NodeAllocatable,
    RequestPolicy, Sharing,
};
use hostler_linux::topology::{NumaNode, Topology};
use serde::{Deserialize, Serialize};

use crate::{
    config::{MemoryBackendConfig, ReservedMemory},
    zones::ZoneInfo,
};

/// Name of the capacity: bytes.
pub(crate) const MEMORY: &str = "memory";
/// Unit in which base memory is handed out: small enough for any wish, and coarse enough to read.
const STEP_BYTES: u64 = 1 << 20;

/// Facts of a device that a plan must know; travel in [`Device::data`].
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct NodeMemory {
    /// The NUMA node.
    pub(crate) node: u32,
    /// The size of its huge pages, bytes; `None` for base memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) huge_page_bytes: Option<u64>,
}

/// The devices that `config` makes of the memory of `topology`, and what could not be offered or understood.
///
/// # Errors
/// When the machine shows no NUMA node, or the configuration is not valid.
pub fn enumeration(
    topology: &Topology,
    zones: &ZoneInfo,
    config: &MemoryBackendConfig,
) -> Result<Enumeration, BackendError> {
    let fail = |reason: &str, source| BackendError::Enumerate { reason: reason.to_owned(), source };
    if topology.nodes.is_empty() {
        return Err(fail("no online NUMA node was found in /sys/devices/system/node", None));
    }
    let first = |problems: Vec<ConfigProblem>| problems.into_iter().next().map(Into::into);
    let reserved = config.reserved().map_err(|problems| fail("bad configuration", first(problems)))?;
    let mut enumeration =
        Enumeration { devices: Vec::new(), counter_sets: Vec::new(), warnings: warnings(topology, &reserved) };
    for (number, node) in &topology.nodes {
        if topology.allowed_nodes.contains(*number) && node.gpu.is_none() {
            let found = node_devices(*number, node, zones, reserved.of(*number));
            let found = found.map_err(|error| fail("bad name", Some(error.into())))?;
            enumeration.devices.extend(found.devices);
            enumeration.warnings.extend(found.warnings);
        }
    }
    Ok(enumeration)
}

fn warnings(topology: &Topology, reserved: &ReservedMemory) -> Vec<BackendWarning> {
    let mut warnings: Vec<BackendWarning> = topology
        .warnings
        .iter()
        .map(|warning| BackendWarning { path: warning.path.clone(), reason: warning.reason.clone() })
        .collect();
    for node in reserved.by_node.keys() {
        if !topology.possible_nodes.contains(*node) && !topology.nodes.contains_key(node) {
            let reason = format!("memory of node {node} is reserved by the configuration, but the node cannot exist");
            warnings.push(BackendWarning { path: "/sys/devices/system/node/possible".to_owned(), reason });
        }
    }
    warnings
}

/// The devices of one node: its base memory, then its huge pages.
fn node_devices(number: u32, node: &NumaNode, zones: &ZoneInfo, reserved: u64) -> Result<Enumeration, NameError> {
    let mut found = Enumeration::default();
    let Some(total) = node.memory_bytes else {
        found.warnings.push(warning(number, "the size of its memory is not known; it is not offered".to_owned()));
        return Ok(found);
    };
    let kernel = zones.kernel_bytes(number, total);
    let pools: u64 = node.huge_pages.keys().map(|size| pool_bytes(node, *size)).fold(0, u64::saturating_add);
    let taken = kernel.saturating_add(pools).saturating_add(reserved);
    let free = total.saturating_sub(taken) / STEP_BYTES * STEP_BYTES;
    if free > 0 {
        let memory = NodeMemory { node: number, huge_page_bytes: None };
        found.devices.push(device(node, memory, free, zones.page_bytes(number, total))?);
    } else if total > 0 {
        let human = |bytes| Quantity::whole(bytes).human();
        found.warnings.push(warning(
            number,
            format!(
                "nothing of its {} is left to offer: huge pages take {}, the configuration reserves {}, the kernel \
                 keeps {}",
                human(total),
                human(pools),
                human(reserved),
                human(kernel)
            ),
        ));
    }
    for size in node.huge_pages.keys() {
        let bytes = pool_bytes(node, *size);
        if bytes > 0 {
            let memory = NodeMemory { node: number, huge_page_bytes: Some(*size) };
            found.devices.push(device(node, memory, bytes, Some(*size))?);
        }
    }
    Ok(found)
}

/// The bytes of a pool. Surplus pages come and go with their users and are never handed out.
fn pool_bytes(node: &NumaNode, size: u64) -> u64 {
    node.huge_pages.get(&size).map_or(0, |pool| pool.total.saturating_sub(pool.surplus).saturating_mul(size))
}

fn warning(node: u32, reason: String) -> BackendWarning {
    BackendWarning { path: format!("/sys/devices/system/node/node{node}"), reason }
}

fn device(node: &NumaNode, memory: NodeMemory, bytes: u64, page_bytes: Option<u64>) -> Result<Device, NameError> {
    let suffix = memory.huge_page_bytes.map_or_else(String::new, |size| format!("-hugepages-{}", page_size(size)));
    let mut device = Device::new(DeviceName::new(format!("node{}{}", memory.node, suffix.to_lowercase()))?);
    // The resource that the node accounts for: `memory`, or `hugepages-2Mi`, both in bytes.
    let resource = suffix.strip_prefix('-').filter(|name| !name.is_empty()).unwrap_or(MEMORY);
    let per_byte = NodeAllocatable::PerCapacity { capacity: QualifiedName::new(MEMORY)?, factor: Quantity::whole(1) };
    device.node_allocatable.insert(resource.to_owned(), per_byte);
    let step = Quantity::whole(memory.huge_page_bytes.unwrap_or(STEP_BYTES));
    let policy = Some(RequestPolicy { default: step, min: step, step });
    device.sharing = Sharing::Shared;
    device.capacity.insert(QualifiedName::new(MEMORY)?, Capacity { value: Quantity::whole(bytes), policy });
    device.attributes = attributes(node, memory, page_bytes)?;
    device.data = serde_json::json!(memory);
    Ok(device)
}

/// Writes a page size: `2Mi`, `64Ki`.
fn page_size(bytes: u64) -> String {
    Quantity::whole(bytes).human()
}

fn attributes(node: &NumaNode, memory: NodeMemory, page_bytes: Option<u64>) -> Result<Attributes, NameError> {
    let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok()).map(AttributeValue::Int);
    let access = node.access.clone().unwrap_or_default();
    let cache = node.memory_side_caches.iter().max_by_key(|cache| cache.level).map(|cache| cache.size_bytes);
    [
        ("resource.kubernetes.io/numaNode", number(Some(memory.node.into()))),
        ("hugepages", Some(memory.huge_page_bytes.is_some().into())),
        ("pageSize", page_bytes.map(|bytes| page_size(bytes).as_str().into())),
        ("cpuless", Some(node.cpus.is_empty().into())),
        ("tier", number(node.tier.map(Into::into))),
        ("readBandwidth", number(access.read_bandwidth)),
        ("writeBandwidth", number(access.write_bandwidth)),
        ("readLatency", number(access.read_latency)),
        ("writeLatency", number(access.write_latency)),
        ("memorySideCache", number(cache)),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| Ok((QualifiedName::new(name)?, value))))
    .collect()
}
