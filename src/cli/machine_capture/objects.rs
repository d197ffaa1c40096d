//! The API objects that the captured machine would have in a cluster: a Node and the ResourceSlices of its devices.
//! Who plans with a node that is not there yet needs neither a backend nor the machine.
//!
//! They are made of the capture and not of the machine: what is not in the one is not in the other, and a second
//! time makes the same.

use std::{collections::BTreeMap, io, sync::Arc};

use hostler_api::{BackendName, resource::ResourceSlice};
use hostler_linux::{
    archive::{TreeSnapshot, UnpackedCapture, private_folder},
    topology::Topology,
};
use serde_json::{Map, Value, json};

use crate::{
    cli::{
        CliFailure,
        inventory::scan::{ScannedMachine, ScannedPool, scan_machine},
    },
    config::DaemonConfig,
    inventory::{Inventory, Pool},
    kubernetes::{
        holds::HoldsInForce,
        slices::{Dropped, SliceSettings, desired_slices},
    },
};

/// The file in the archive; docs/capture.md describes it.
pub(super) const FILE: &str = "hostler-objects.json";

/// The number that a kubelet takes by default.
const PODS: u64 = 110;

const HUGE_PAGES: &str = "hugepages-";

/// The objects of what is in `snapshot`, looked at as `config` says.
pub(super) fn of(snapshot: &TreeSnapshot, config: &DaemonConfig) -> Result<String, CliFailure> {
    let capture = unpacked(snapshot)?;
    // The node is called what the capture calls it.
    let config = DaemonConfig { node_name: String::new(), ..config.clone() };
    let machine = scan_machine(&config, &capture.root(), None);
    let slices =
        desired_slices(&inventory(&machine), &HoldsInForce::default(), &SliceSettings::of(&config), &Dropped::new());
    let mut items = vec![node(&machine)];
    let slices = slices.iter().flat_map(|pool| pool.objects(&machine.node, &config.driver));
    items.extend(slices.map(|slice| slice_object(&slice)));
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    serde_json::to_string_pretty(&list)
        .map(|text| text + "\n")
        .map_err(|source| CliFailure::step(format!("write {FILE}"), source))
}

fn unpacked(snapshot: &TreeSnapshot) -> Result<UnpackedCapture, CliFailure> {
    let failed = |source: io::Error| CliFailure::step("look at the capture", source);
    let folder = private_folder().map_err(failed)?;
    let path = folder.path().join("machine.tar.zst");
    std::fs::write(&path, snapshot.to_archive().map_err(failed)?).map_err(failed)?;
    UnpackedCapture::open(&path).map_err(|source| CliFailure::step("look at the capture", source))
}

fn inventory(machine: &ScannedMachine) -> Inventory {
    let pool = |pool: &ScannedPool| {
        let ScannedPool { name, devices, counter_sets, .. } = pool.clone();
        Some((BackendName::new(pool.backend).ok()?, Arc::new(Pool { name, devices, counter_sets, ..Pool::default() })))
    };
    Inventory { pools: machine.pools.iter().filter_map(pool).collect(), ..Inventory::default() }
}

/// A ResourceSlice with what `kubectl` wants to be told of it.
fn slice_object(slice: &ResourceSlice) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": slice.metadata,
        "spec": slice.spec,
    })
}

/// With what there is. A kubelet may set some of it aside: how much is not the machine's to know.
fn node(machine: &ScannedMachine) -> Value {
    let capacity = capacity(&machine.topology);
    let huge_pages: u64 =
        capacity.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES)).map(|(_, amount)| amount).sum();
    let mut allocatable = capacity.clone();
    allocatable.entry("memory".to_owned()).and_modify(|memory| *memory = memory.saturating_sub(huge_pages));
    let labels = json!({ "kubernetes.io/hostname": machine.node, "kubernetes.io/os": "linux" });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": machine.node, "labels": labels },
        "status": { "capacity": texts(capacity), "allocatable": texts(allocatable) },
    })
}

/// Quantities are texts.
fn texts(amounts: BTreeMap<String, u64>) -> Map<String, Value> {
    amounts.into_iter().map(|(name, amount)| (name, amount.to_string().into())).collect()
}

fn capacity(topology: &Topology) -> BTreeMap<String, u64> {
    let memory: u64 = topology.nodes.values().filter_map(|node| node.memory_bytes).sum();
    let mut capacity = BTreeMap::from([
        ("cpu".to_owned(), topology.cpus.len() as u64),
        ("memory".to_owned(), memory),
        ("pods".to_owned(), PODS),
    ]);
    for size in &topology.huge_page_sizes {
        let pages = topology.nodes.values().filter_map(|node| node.huge_pages.get(size));
        let bytes: u64 = pages.map(|pages| pages.total * size).sum();
        capacity.insert(format!("{HUGE_PAGES}{}", binary(*size)), bytes);
    }
    capacity
}

/// `2Mi`, as the kubelet writes sizes.
fn binary(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti"];
    let steps = (bytes.trailing_zeros() / 10).min(4);
    format!("{}{}", bytes >> (10 * steps), units[steps as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_the_kubelet_does() {
        assert_eq!([4096, 2 << 20, 1 << 30, 16 << 20, 1000].map(binary), ["4Ki", "2Mi", "1Gi", "16Mi", "1000"]);
    }
}
