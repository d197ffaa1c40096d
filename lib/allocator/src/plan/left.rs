//! Free devices, by driver and class, and free resources of nodes. The judge that counts the stock of a cluster
//! counts the devices here, too: free has one meaning.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{DeviceGroup, DeviceJudge, PlanOptions, Snapshot, amounts::shown, snapshot::NodePlace};

/// Free devices and resources of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterLeft {
    /// Devices, by driver.
    pub devices: BTreeMap<String, DeviceCount>,
    /// Devices, by class, as far as the selectors of classes have an answer; a device can be of several classes.
    pub classes: BTreeMap<String, DeviceCount>,
    /// Nodes, by name.
    pub nodes: Vec<NodeLeft>,
}

/// Numbers of devices.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct DeviceCount {
    /// All devices.
    pub there: usize,
    /// Devices that are in service and can be allocated, whole or in part. Not always all of them together: parts of
    /// one card exclude each other.
    pub free: usize,
}

/// Free resources and devices of a node.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct NodeLeft {
    /// Name of the node.
    pub node: String,
    /// Amounts by resource, as people write them.
    pub resources: BTreeMap<String, String>,
    /// Devices of this node alone, by driver.
    pub devices: BTreeMap<String, DeviceCount>,
}

impl Snapshot {
    /// Counts free devices and resources.
    pub fn left(&self, options: &PlanOptions) -> ClusterLeft {
        let facts = self.facts();
        let mut judge = DeviceJudge::new(facts, options);
        let mut left = ClusterLeft {
            classes: judge.class_names().map(|name| (name.to_owned(), DeviceCount::default())).collect(),
            ..ClusterLeft::default()
        };
        let mut of_nodes: BTreeMap<String, BTreeMap<String, DeviceCount>> = BTreeMap::new();
        for pool in self.cluster.pools.iter() {
            for group in judge.stock_after(self, (pool.driver, pool.name)).groups {
                let (count, driver) = (DeviceCount::from(&group), &*group.kind.driver);
                left.devices.entry(driver.to_owned()).or_default().add(count);
                for class in group.kind.classes.iter() {
                    left.classes.entry(class.to_string()).or_default().add(count);
                }
                if let Some(node) = &group.node {
                    let of_node = of_nodes.entry(node.to_string()).or_default();
                    of_node.entry(driver.to_owned()).or_default().add(count);
                }
            }
        }
        left.nodes = (self.cluster.nodes.iter().enumerate())
            .map(|(at, place)| NodeLeft {
                node: place.name().to_owned(),
                resources: self.resources(at, place),
                devices: of_nodes.remove(place.name()).unwrap_or_default(),
            })
            .collect();
        left
    }

    fn resources(&self, at: usize, place: &NodePlace) -> BTreeMap<String, String> {
        let used = &self.usage.node(at).amounts;
        let left = place.allocatable.iter().map(|(name, amount)| (name, amount.saturating_sub(used.get(name))));
        left.map(|(name, amount)| (name.to_owned(), shown(name, amount))).collect()
    }
}

impl From<&DeviceGroup> for DeviceCount {
    fn from(group: &DeviceGroup) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self { there: count(group.counts.capacity), free: count(group.counts.free()) }
    }
}

impl DeviceCount {
    fn add(&mut self, more: Self) {
        self.there += more.there;
        self.free += more.free;
    }
}
