//! The devices of each NUMA node, as lines of the tree.

use std::collections::BTreeMap;

use hostler_backend::Device;

use super::{
    super::{
        scan::{ScannedMachine, ScannedPool},
        shares::{KnownShares, capacity, holders},
        table::{device_path, health},
    },
    MOST_EQUAL,
};
use crate::{cli::inventory::text_tree::TextTree, inventory::view::DeviceShares};

/// All devices by the node where they are drawn; `None` holds those without a node that is there. Each device is looked
/// at once, however many nodes there are.
pub(super) struct DevicesByNode<'a> {
    by_node: BTreeMap<Option<u32>, Vec<PoolDevices<'a>>>,
    shares: &'a KnownShares,
}

/// Devices of one pool, in its order.
struct PoolDevices<'a> {
    pool: &'a ScannedPool,
    devices: Vec<&'a Device>,
}

impl<'a> DevicesByNode<'a> {
    /// The devices of a machine; `node_of` says what a device has to say about its place.
    pub(super) fn of(machine: &'a ScannedMachine, mut node_of: impl FnMut(&Device) -> Option<u32>) -> Self {
        let nodes = &machine.topology.nodes;
        let mut by_node: BTreeMap<Option<u32>, Vec<PoolDevices<'a>>> = BTreeMap::new();
        for pool in &machine.pools {
            let mut here: BTreeMap<Option<u32>, Vec<&Device>> = BTreeMap::new();
            for device in &pool.devices {
                let node = node_of(device);
                here.entry(node.filter(|node| nodes.contains_key(node))).or_default().push(device);
            }
            for (node, devices) in here {
                by_node.entry(node).or_default().push(PoolDevices { pool, devices });
            }
        }
        Self { by_node, shares: &machine.shares }
    }

    /// The lines of a node's devices.
    pub(super) fn of_node(&self, id: u32) -> Vec<TextTree> {
        self.lines(Some(id))
    }

    /// The lines of the devices that are nowhere else.
    pub(super) fn elsewhere(&self) -> Vec<TextTree> {
        self.lines(None)
    }

    fn lines(&self, node: Option<u32>) -> Vec<TextTree> {
        self.by_node.get(&node).into_iter().flatten().flat_map(|devices| devices.lines(self.shares)).collect()
    }
}

impl PoolDevices<'_> {
    /// Many neighbours that differ by name alone are one line.
    fn lines(&self, shares: &KnownShares) -> Vec<TextTree> {
        let facts = |device: &Device| facts(device, shares.get(self.pool.backend, device));
        let mut lines = Vec::new();
        for run in self.devices.chunk_by(|one, next| facts(one) == facts(next)) {
            if run.len() > MOST_EQUAL {
                lines.push(device_line(&run_path(self.pool, run), &facts(run[0])));
            } else {
                let line = |device: &&Device| device_line(&device_path(self.pool, device), &facts(device));
                lines.extend(run.iter().map(line));
            }
        }
        lines
    }
}

/// Returns the words beside the name of a device.
fn facts(device: &Device, shares: Option<&DeviceShares>) -> [String; 3] {
    let held = holders(shares);
    let held = if held.is_empty() { held } else { format!("held by {held}") };
    [capacity(device, shares), health(device), held]
}

fn run_path(pool: &ScannedPool, run: &[&Device]) -> String {
    format!("{} … {} ({})", device_path(pool, run[0]), run[run.len() - 1].name, run.len())
}

fn device_line(path: &str, facts: &[String; 3]) -> TextTree {
    let mut text = format!("▪ {path}");
    for fact in facts.iter().filter(|fact| !fact.is_empty() && *fact != "Healthy") {
        text.push_str("  ");
        text.push_str(fact);
    }
    TextTree::leaf(text)
}
