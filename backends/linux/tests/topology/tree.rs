//! Trees made up in a temporary folder.

use std::fs;

use hostler_linux::{
    IdSet, ReadFailure, SysRoot,
    topology::{CoreType, Topology},
};
use tempfile::TempDir;

use crate::sound::assert_sound;

pub(crate) const CPU: &str = "sys/devices/system/cpu";
pub(crate) const NODE: &str = "sys/devices/system/node";

/// A made-up machine.
pub(crate) struct TopologyTree(TempDir);

impl TopologyTree {
    /// Nothing at all.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// CPUs with possible, present and online lists, and nothing else.
    pub(crate) fn with_online(online: &str) -> Self {
        let tree = Self::new();
        for name in ["possible", "present", "online"] {
            tree.file(&format!("{CPU}/{name}"), online);
        }
        tree
    }

    /// `count` CPUs, each a core, in one package.
    pub(crate) fn with_cores(count: u32) -> Self {
        let all = format!("0-{}", count - 1);
        let tree = Self::with_online(&all);
        for cpu in 0..count {
            tree.cpu(cpu, &cpu.to_string(), &all);
        }
        tree
    }

    /// A file, with the line end that the kernel adds.
    pub(crate) fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    /// A folder; in place of a file, it makes an attribute that exists and cannot be read, for root too.
    pub(crate) fn folder(&self, path: &str) -> &Self {
        let path = self.0.path().join(path);
        if path.is_file() {
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir_all(path).unwrap();
        self
    }

    pub(crate) fn remove(&self, path: &str) -> &Self {
        fs::remove_file(self.0.path().join(path)).unwrap();
        self
    }

    /// A CPU as current kernels show it: the lists of its core's and its package's CPUs.
    pub(crate) fn cpu(&self, cpu: u32, core: &str, package: &str) -> &Self {
        let topology = format!("{CPU}/cpu{cpu}/topology");
        self.file(&format!("{topology}/core_cpus_list"), core);
        self.file(&format!("{topology}/package_cpus_list"), package);
        self.file(&format!("{topology}/physical_package_id"), "0").file(&format!("{topology}/core_id"), "0")
    }

    /// A cache leaf of a CPU.
    pub(crate) fn cache(&self, cpu: u32, leaf: u32, kind: (u32, &str, &str), shared: &str) -> &Self {
        let folder = format!("{CPU}/cpu{cpu}/cache/index{leaf}");
        self.file(&format!("{folder}/level"), &kind.0.to_string()).file(&format!("{folder}/type"), kind.1);
        self.file(&format!("{folder}/size"), kind.2).file(&format!("{folder}/shared_cpu_list"), shared)
    }

    /// A node of so many KiB.
    pub(crate) fn node(&self, id: u32, cpus: &str, distance: &str, kilobytes: u64) -> &Self {
        let folder = format!("{NODE}/node{id}");
        let meminfo = format!(
            "Node {id} MemTotal:       {kilobytes} kB\nNode {id} MemFree:        {} kB\nNode {id} HugePages_Total:     0",
            kilobytes / 2
        );
        self.file(&format!("{folder}/cpulist"), cpus).file(&format!("{folder}/distance"), distance);
        self.file(&format!("{folder}/meminfo"), &meminfo)
    }

    /// The tree.
    pub(crate) fn root(&self) -> SysRoot {
        SysRoot::new(self.0.path())
    }

    /// The topology, if all of it can be read.
    pub(crate) fn try_read(&self) -> Result<Topology, ReadFailure> {
        Topology::read(&self.root())
    }

    /// Reads the machine and checks what holds for every machine.
    pub(crate) fn read(&self) -> Topology {
        let topology = self.try_read().unwrap();
        assert_sound(&topology);
        topology
    }

    /// Reads a machine that makes sense.
    pub(crate) fn read_clean(&self) -> Topology {
        let topology = self.read();
        assert_eq!(topology.warnings, []);
        topology
    }
}

/// The CPUs of each core type.
pub(crate) fn of_type(topology: &Topology, core_type: CoreType) -> String {
    let cpus = topology.cpus.iter().filter(|(_, cpu)| cpu.core_type == core_type);
    cpus.map(|(id, _)| *id).collect::<IdSet>().to_string()
}

/// The sets as lists.
pub(crate) fn lists<'a>(sets: impl IntoIterator<Item = &'a IdSet>) -> Vec<String> {
    sets.into_iter().map(IdSet::to_string).collect()
}

/// The one warning of a tree.
pub(crate) fn only_warning(topology: &Topology) -> (&str, &str) {
    let [warning] = topology.warnings.as_slice() else { panic!("one warning expected: {:?}", topology.warnings) };
    (&warning.path, &warning.reason)
}
