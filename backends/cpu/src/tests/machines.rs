//! Made-up machines.

use std::collections::BTreeMap;

use hostler_linux::{
    IdSet,
    topology::{CoreType, CpuCache, CpuCore, CpuGroup, LogicalCpu, NumaNode, Topology},
};

/// A regular machine; each number is how many of one thing there are in the next larger.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineShape {
    pub(super) packages: u32,
    pub(super) nodes: u32,
    pub(super) caches: u32,
    pub(super) cores: u32,
    pub(super) threads: u32,
}

impl MachineShape {
    fn all_cores(self) -> u32 {
        self.packages * self.nodes * self.caches * self.cores
    }

    pub(super) fn cpus(self) -> u32 {
        self.all_cores() * self.threads
    }

    /// The CPUs of a core: like most firmware, the first threads of all cores come before the second ones.
    pub(super) fn core(self, core: u32) -> IdSet {
        (0..self.threads).map(|thread| core + thread * self.all_cores()).collect()
    }

    pub(super) fn machine(self) -> Topology {
        let all: IdSet = (0..self.cpus()).collect();
        let mut topology = Topology {
            possible: all.clone(),
            present: all.clone(),
            online: all.clone(),
            allowed_cpus: all,
            cores: (0..self.all_cores()).map(|core| CpuCore { cpus: self.core(core) }).collect(),
            ..Topology::default()
        };
        let per_node = self.caches * self.cores;
        for core in 0..self.all_cores() {
            let (package, node, cache) = (core / (per_node * self.nodes), core / per_node, core / self.cores);
            for number in self.core(core).iter() {
                let cpu = LogicalCpu {
                    core: core as usize,
                    package: package as usize,
                    l3: Some(cache as usize),
                    node,
                    core_id: Some(core % (per_node * self.nodes)),
                    ..LogicalCpu::default()
                };
                topology.cpus.insert(number, cpu);
            }
        }
        rebuild(&mut topology);
        topology
    }
}

/// Makes packages, caches and nodes from what the CPUs say.
pub(super) fn rebuild(topology: &mut Topology) {
    let by = |of: &dyn Fn(&LogicalCpu) -> Option<usize>| {
        let mut groups: BTreeMap<usize, IdSet> = BTreeMap::new();
        for (number, cpu) in &topology.cpus {
            if let Some(group) = of(cpu) {
                groups.entry(group).or_default().insert(*number);
            }
        }
        groups
    };
    let group = |(id, cpus): (usize, IdSet)| CpuGroup { id: u32::try_from(id).ok(), cpus };
    let packages = by(&|cpu| Some(cpu.package)).into_iter().map(group).collect();
    let caches = by(&|cpu| cpu.l3).into_iter().map(|(id, cpus)| CpuCache {
        level: 3,
        cache_type: "Unified".to_owned(),
        size_bytes: None,
        id: u32::try_from(id).ok(),
        cpus,
    });
    let caches = caches.collect();
    let nodes = by(&|cpu| Some(cpu.node as usize)).into_iter();
    let nodes =
        nodes.map(|(id, cpus)| (u32::try_from(id).unwrap(), NumaNode { cpus, ..NumaNode::default() })).collect();
    (topology.packages, topology.caches, topology.nodes) = (packages, caches, nodes);
}

/// Takes CPUs offline as the kernel does: they vanish from everything but `possible` and `present`.
pub(super) fn offline(topology: &mut Topology, cpus: &str) {
    let gone: IdSet = cpus.parse().unwrap();
    topology.online = topology.online.difference(&gone);
    topology.allowed_cpus = topology.allowed_cpus.difference(&gone);
    topology.cpus.retain(|cpu, _| !gone.contains(*cpu));
    for cpus in topology.cores.iter_mut().map(|core| &mut core.cpus) {
        *cpus = cpus.difference(&gone);
    }
    for cpus in topology.caches.iter_mut().map(|cache| &mut cache.cpus) {
        *cpus = cpus.difference(&gone);
    }
}

/// Two packages of two nodes with two L3 caches of two cores with two threads: 32 CPUs.
pub(super) fn server() -> Topology {
    MachineShape { packages: 2, nodes: 2, caches: 2, cores: 2, threads: 2 }.machine()
}

/// One package: two performance cores of two threads (CPUs 0-3), four efficiency cores (CPUs 4-7).
pub(super) fn hybrid() -> Topology {
    let all: IdSet = (0..8).collect();
    let mut topology = Topology {
        possible: all.clone(),
        present: all.clone(),
        online: all.clone(),
        allowed_cpus: all,
        smt_active: Some(true),
        ..Topology::default()
    };
    for cpus in ["0-1", "2-3", "4", "5", "6", "7"] {
        let cpus: IdSet = cpus.parse().unwrap();
        let core_type = if cpus.len() == 2 { CoreType::Performance } else { CoreType::Efficiency };
        for number in cpus.iter() {
            let core = topology.cores.len();
            let core_id = Some(number * 4);
            let cpu = LogicalCpu { core, core_id, core_type, l3: Some(0), ..LogicalCpu::default() };
            topology.cpus.insert(number, cpu);
        }
        topology.cores.push(CpuCore { cpus });
    }
    rebuild(&mut topology);
    topology
}
