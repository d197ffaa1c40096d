//! Made-up machines for tests and examples of pictures, from a handful of CPUs to more than a screen has room for.

use std::collections::BTreeMap;

use hostler_api::{ClaimState, Quantity};
use hostler_linux::IdSet;

use super::{
    holders::{DeviceDrain, DeviceHealth, DeviceHold, DeviceUsage, HeldAmount, MachineUsage, UsageHolder},
    layout::{LayoutCache, LayoutCore, LayoutGroup, LayoutNode, MachineLayout},
};

/// How many of each are within the one before.
#[derive(Clone, Copy)]
pub(crate) struct MadeUpMachine {
    pub(crate) packages: u32,
    pub(crate) nodes: u32,
    pub(crate) caches: u32,
    pub(crate) cores: u32,
    pub(crate) threads: u32,
}

impl MadeUpMachine {
    fn all_nodes(self) -> u32 {
        self.packages * self.nodes
    }

    fn cpus_of_node(self) -> u32 {
        self.caches * self.cores * self.threads
    }

    fn node_cpus(self, node: u32) -> IdSet {
        let cpus = self.cpus_of_node();
        (node * cpus..(node + 1) * cpus).collect()
    }

    /// CPUs are numbered core by core.
    pub(crate) fn layout(self) -> MachineLayout {
        let block = |size: u32| move |index: u32| -> IdSet { (index * size..(index + 1) * size).collect() };
        let (per_package, per_cache) = (self.nodes * self.cpus_of_node(), self.cores * self.threads);
        let all = self.all_nodes() * self.cpus_of_node();
        let distance = |from: u32, to: u32| match (from == to, from / self.nodes == to / self.nodes) {
            (true, _) => 10,
            (false, true) => 16,
            (false, false) => 32,
        };
        let node = |id: u32| LayoutNode {
            cpus: self.node_cpus(id),
            memory_bytes: Some(64 << 30),
            distances: (0..self.all_nodes()).map(|to| (to, distance(id, to))).collect(),
            gpu: None,
        };
        MachineLayout {
            packages: (0..self.packages).map(|id| LayoutGroup { id: Some(id), cpus: block(per_package)(id) }).collect(),
            caches: (0..all / per_cache)
                .map(|id| LayoutCache { level: 3, size_bytes: Some(32 << 20), cpus: block(per_cache)(id) })
                .collect(),
            cores: (0..all / self.threads).map(|id| LayoutCore { cpus: block(self.threads)(id), kind: None }).collect(),
            nodes: (0..self.all_nodes()).map(|id| (id, node(id))).collect(),
            ..MachineLayout::default()
        }
    }

    /// With CPUs and memory of each node as devices, and nobody who holds any.
    pub(crate) fn usage(self) -> MachineUsage {
        let nodes = 0..self.all_nodes();
        let cpus = nodes.clone().map(|node| cpu_device(node, self.node_cpus(node)));
        let memory = nodes.map(|node| device("memory", &format!("node{node}"), Some(node), &[("memory", 62 << 30)]));
        MachineUsage {
            node: "n1".to_owned(),
            machine: self.layout(),
            devices: cpus.chain(memory).collect(),
            ..MachineUsage::default()
        }
    }
}

/// A healthy device that several claims may share if it has a capacity.
pub(crate) fn device(backend: &str, name: &str, numa_node: Option<u32>, amounts: &[(&str, u64)]) -> DeviceUsage {
    let amounts: BTreeMap<String, HeldAmount> = amounts
        .iter()
        .map(|(name, all)| {
            let all = Quantity::whole(*all);
            ((*name).to_owned(), HeldAmount { capacity: all, held: Quantity::default(), free: all })
        })
        .collect();
    DeviceUsage {
        backend: backend.to_owned(),
        pool: format!("n1/{backend}"),
        name: name.to_owned(),
        numa_node,
        health: DeviceHealth::Healthy,
        health_reason: None,
        drained: None,
        stale: false,
        blocked: false,
        shared: Some(!amounts.is_empty()),
        amounts,
        cpus: IdSet::new(),
        holds: Vec::new(),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "callers make it on the spot")]
fn cpu_device(node: u32, cpus: IdSet) -> DeviceUsage {
    DeviceUsage {
        cpus: cpus.clone(),
        ..device("cpu", &format!("numa{node}"), Some(node), &[("cpus", cpus.len() as u64)])
    }
}

pub(crate) fn holder(usage: &mut MachineUsage, namespace: &str, name: &str) -> usize {
    usage.holders.push(UsageHolder {
        uid: format!("uid-{namespace}-{name}"),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        state: ClaimState::Prepared,
    });
    usage.holders.len() - 1
}

/// Gives a holder so much of a device, and these CPUs.
pub(crate) fn give(usage: &mut MachineUsage, holder: usize, path: &str, amount: Option<(&str, u64)>, cpus: &str) {
    let device = usage.devices.iter_mut().find(|device| device.path() == path).unwrap();
    let cpus: IdSet = cpus.parse().unwrap();
    let taken = amount.map(|(name, amount)| (name.to_owned(), Quantity::whole(amount)));
    if let Some((name, amount)) = &taken {
        let known = device.amounts.get_mut(name).unwrap();
        (known.held, known.free) = (known.held.plus(*amount), known.free.minus(*amount));
    }
    let hold = DeviceHold { holder, amounts: taken.into_iter().collect(), cpus, ..DeviceHold::default() };
    device.holds.push(hold);
}

/// Two packages of four CPUs, of everything a bit: holders, a drain, a fault, CPUs that stay with the system or are off.
pub(crate) fn small() -> MachineUsage {
    let mut usage = MadeUpMachine { packages: 2, nodes: 1, caches: 1, cores: 2, threads: 2 }.usage();
    usage.devices.push(device("fpga", "card-0", Some(1), &[]));
    usage.devices.push(device("fpga", "card-1", Some(1), &[]));
    usage.devices.push(device("fpga", "card-2", None, &[]));
    let train = holder(&mut usage, "ml", "train");
    let front = holder(&mut usage, "web", "front");
    give(&mut usage, train, "cpu/numa0", Some(("cpus", 2)), "0-1");
    give(&mut usage, train, "memory/node0", Some(("memory", 16 << 30)), "");
    give(&mut usage, train, "fpga/card-0", None, "");
    give(&mut usage, front, "cpu/numa0", Some(("cpus", 1)), "2");
    let card = usage.devices.iter_mut().find(|device| device.name == "card-1").unwrap();
    (card.health, card.health_reason) = (DeviceHealth::Unhealthy, Some("hot: 104 °C".to_owned()));
    let card = usage.devices.iter_mut().find(|device| device.name == "card-2").unwrap();
    card.drained = Some(DeviceDrain { since: 1000, reason: Some("fan <loud> & \"broken\"".to_owned()), evict: false });
    let cpus = usage.devices.iter_mut().find(|device| device.name == "numa1").unwrap();
    cpus.cpus = "5-7".parse().unwrap();
    let three = Quantity::whole(3);
    cpus.amounts.insert("cpus".to_owned(), HeldAmount { capacity: three, held: Quantity::default(), free: three });
    usage.machine.offline = "8-9".parse().unwrap();
    usage
}
