//! The devices of each NUMA node, as lines of the tree.

use std::collections::BTreeMap;

use hostler_backend::Device;

use super::{
    super::{
        scan::{ScannedMachine, ScannedPool},
        table::{capacity, device_path, health},
    },
    MOST_EQUAL,
};
use crate::cli::inventory::text_tree::TextTree;

/// All devices by the node where they are drawn; `None` holds those without a node that is there. Each device is looked
/// at once, however many nodes there are.
pub(super) struct DevicesByNode<'a>(BTreeMap<Option<u32>, Vec<PoolDevices<'a>>>);

/// Those of one pool, in its order.
struct PoolDevices<'a> {
    pool: &'a ScannedPool,
    devices: Vec<&'a Device>,
}

impl<'a> DevicesByNode<'a> {
    /// The devices of a machine; `node_of` says what a device has to say about its place.
    pub(super) fn of(machine: &'a ScannedMachine, mut node_of: impl FnMut(&Device) -> Option<i64>) -> Self {
        let nodes = &machine.topology.nodes;
        let mut by_node: BTreeMap<Option<u32>, Vec<PoolDevices<'a>>> = BTreeMap::new();
        for pool in &machine.pools {
            let mut here: BTreeMap<Option<u32>, Vec<&Device>> = BTreeMap::new();
            for device in &pool.devices {
                let node = node_of(device).and_then(|node| u32::try_from(node).ok());
                here.entry(node.filter(|node| nodes.contains_key(node))).or_default().push(device);
            }
            for (node, devices) in here {
                by_node.entry(node).or_default().push(PoolDevices { pool, devices });
            }
        }
        Self(by_node)
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
        self.0.get(&node).into_iter().flatten().flat_map(PoolDevices::lines).collect()
    }
}

impl PoolDevices<'_> {
    /// Many neighbours that differ by name alone are one line.
    fn lines(&self) -> Vec<TextTree> {
        let facts = |device: &Device| (capacity(device), health(device));
        let mut lines = Vec::new();
        for run in self.devices.chunk_by(|one, next| facts(one) == facts(next)) {
            if run.len() > MOST_EQUAL {
                lines.push(device_run(self.pool, run));
            } else {
                lines.extend(run.iter().map(|device| device_line(&device_path(self.pool, device), device)));
            }
        }
        lines
    }
}

fn device_run(pool: &ScannedPool, run: &[&Device]) -> TextTree {
    let path = format!("{} … {} ({})", device_path(pool, run[0]), run[run.len() - 1].name, run.len());
    device_line(&path, run[0])
}

fn device_line(path: &str, device: &Device) -> TextTree {
    let mut text = format!("▪ {path}");
    let health = health(device);
    for fact in [capacity(device), health].iter().filter(|fact| !fact.is_empty() && *fact != "Healthy") {
        text.push_str("  ");
        text.push_str(fact);
    }
    TextTree::leaf(text)
}
