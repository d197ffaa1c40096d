//! NUMA nodes that are made of CXL memory, as shared devices.

use std::str::FromStr;

use hostler_api::{DeviceName, Quantity};
use hostler_backend::{Device, Enumeration, Health, NodeAllocatable, Sharing};
use hostler_linux::{
    IdSet,
    memory_blocks::{self, PhysicalRange},
    memory_tiers,
};
use serde_json::json;

use super::{CxlScan, device_name};
use crate::{
    attributes::{AttributeBuilder, put_bytes, qualified},
    device::{CardId, CxlDevice},
    objects::{AccessCoordinates, CxlRegion, Memdev},
};

/// Unit in which memory is handed out, as in the memory backend.
const STEP_BYTES: u64 = 1 << 20;
/// Name of the capacity, and of the node's own resource that it is a part of.
const MEMORY: &str = "memory";

impl CxlScan<'_> {
    pub(super) fn node_devices(&self, found: &mut Enumeration) {
        let block_bytes = memory_blocks::known(self.tree, memory_blocks::block_bytes(self.tree.root()));
        let block_bytes = block_bytes.unwrap_or(0);
        for (node, blocks) in &self.nodes {
            let folder = format!("sys/devices/system/node/node{node}");
            let Some(name) = device_name(found, folder.as_ref(), format!("node{node}")) else { continue };
            let block = |number: &u64| number.saturating_mul(block_bytes);
            let holds = |region: &&CxlRegion| {
                region.range().is_some_and(|range: PhysicalRange| {
                    blocks.iter().any(|number| (range.start..range.end()).contains(&block(number)))
                })
            };
            let regions: Vec<&CxlRegion> = self.objects.regions.iter().filter(holds).collect();
            found.devices.push(self.node(name, *node, &folder, &regions));
        }
    }

    fn node(&self, name: DeviceName, node: u32, folder: &str, regions: &[&CxlRegion]) -> Device {
        let mut members: Vec<&Memdev> = regions.iter().flat_map(|region| self.objects.memdevs_of(region)).collect();
        members.sort_by_key(|memdev| CardId::of(memdev));
        members.dedup_by_key(|memdev| &memdev.name);
        let mut device = Device::new(name);
        device.sharing = Sharing::Shared;
        put_bytes(&mut device.capacity, MEMORY, self.node_bytes(folder), Some(STEP_BYTES));
        let per_byte = NodeAllocatable::PerCapacity { capacity: qualified(MEMORY), factor: Quantity::whole(1) };
        device.node_allocatable.insert(MEMORY.to_owned(), per_byte);
        let mut attributes = AttributeBuilder::of_kind("node");
        attributes.number("cxlType", Some(3_u64));
        attributes.number("resource.kubernetes.io/numaNode", Some(node));
        attributes.number("cardNode", self.near_node(&members));
        attributes.number("cards", Some(members.len() as u64));
        attributes.number("tier", self.tier(node));
        self.describe_regions(regions, &mut attributes);
        self.describe_access(regions, folder, &mut attributes);
        device.attributes = attributes.done();
        device.health = match self.watch.node_errors(self.tree, node) {
            Some(reason) => Health::Unhealthy { reason },
            None => self.health_of_all(&members),
        };
        let cards = members.iter().map(|memdev| CardId::of(memdev)).collect();
        device.data = json!(CxlDevice::Node { node, cards });
        device
    }

    /// Bytes of a node's memory that are not set aside as huge pages, in whole steps.
    fn node_bytes(&self, folder: &str) -> u64 {
        let pools = self.tree.names(format!("{folder}/hugepages"));
        let taken = pools.iter().filter_map(|pool| {
            let size: u64 = pool.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let pages: u64 = self.understood(&format!("{folder}/hugepages/{pool}/nr_hugepages"), "a number")?;
            size.checked_mul(pages)
        });
        let free = taken.fold(self.node_kilobytes(folder), u64::saturating_sub).saturating_mul(1024);
        free / STEP_BYTES * STEP_BYTES
    }

    fn node_kilobytes(&self, folder: &str) -> u64 {
        let meminfo = format!("{folder}/meminfo");
        let text = self.tree.text(&meminfo).unwrap_or_default();
        let total =
            text.lines().find_map(|line| line.split_once("MemTotal:")?.1.split_whitespace().next()?.parse().ok());
        if total.is_none() && !text.is_empty() {
            self.tree.warn(&meminfo, "does not say how much memory the node has (MemTotal); taken as none");
        }
        total.unwrap_or(0)
    }

    /// The tier that a node is in. Numbers order the tiers of one boot, lower is faster; another boot gives other
    /// numbers.
    fn tier(&self, node: u32) -> Option<u32> {
        const TIERS: &str = "sys/devices/virtual/memory_tiering";
        let _memory_stays = memory_tiers::reading();
        self.tree.names(TIERS).iter().find_map(|name| {
            let tier = name.strip_prefix("memory_tier")?.parse().ok()?;
            let nodes: IdSet = self.understood(&format!("{TIERS}/{name}/nodelist"), "a list of nodes")?;
            nodes.contains(node).then_some(tier)
        })
    }

    /// An attribute that is there and not empty; one that is not `expected` leaves a warning.
    fn understood<T: FromStr>(&self, path: &str, expected: &str) -> Option<T> {
        let text = self.tree.attribute(path).filter(|text| !text.is_empty())?;
        self.tree.understood(path, &text, expected, |text| text.parse().ok())
    }

    /// Adds how fast the memory of a node is, where no region says so. Some kernels tell it of regions, some of
    /// nodes.
    fn describe_access(&self, regions: &[&CxlRegion], folder: &str, attributes: &mut AttributeBuilder) {
        if regions.iter().any(|region| region.performance.is_some()) {
            return;
        }
        let Some(performance) = AccessCoordinates::of_node(self.tree, folder) else { return };
        attributes.number("readBandwidth", performance.read_bandwidth);
        attributes.number("writeBandwidth", performance.write_bandwidth);
        attributes.number("readLatency", performance.read_latency);
        attributes.number("writeLatency", performance.write_latency);
    }
}
