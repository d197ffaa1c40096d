//! Processors and NUMA nodes of made-up machines.

use std::{fmt::Write, path::Path};

use super::MachineTree;

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";
const BLOCK: &str = "sys/devices/system/memory";
/// The size of a memory block: 2 GiB, as large machines have it.
const BLOCK_BYTES: u64 = 2 << 30;
/// Cores that share an L3 cache.
const CORES_PER_L3: u32 = 8;

/// A machine with all files that a recent x86 kernel has for its CPUs, caches, NUMA nodes and memory blocks. Every node
/// is a package of its own. Threads are numbered as x86 numbers them: first one of each core, then the others.
#[derive(Clone, Copy, Debug)]
pub struct CpuLayout {
    /// NUMA nodes.
    pub nodes: u32,
    /// Cores in each node.
    pub cores: u32,
    /// Threads in each core.
    pub threads: u32,
    /// Memory blocks in each node, of 2 GiB.
    pub blocks: u32,
}

impl CpuLayout {
    /// Puts them into a tree.
    pub fn plug(&self, tree: &MachineTree) {
        let (all, nodes) = (format!("0-{}", self.cpus() - 1), format!("0-{}", self.nodes - 1));
        for (name, text) in
            [("possible", &*all), ("present", &all), ("online", &all), ("isolated", ""), ("offline", "")]
        {
            tree.file(Path::new(CPU).join(name), text);
        }
        tree.files(Path::new(CPU).join("smt"), &[("active", if self.threads > 1 { "1" } else { "0" })]);
        for name in ["possible", "online", "has_cpu", "has_memory", "has_normal_memory"] {
            tree.file(Path::new(NODE).join(name), &nodes);
        }
        tree.file(Path::new(BLOCK).join("block_size_bytes"), format!("{BLOCK_BYTES:x}"));
        (0..self.cpus()).for_each(|cpu| self.cpu(tree, cpu));
        (0..self.nodes).for_each(|node| self.node(tree, node));
        let total = (u64::from(self.nodes) * self.node_bytes()) >> 10;
        tree.file("proc/meminfo", format!("MemTotal: {total} kB\nHugepagesize: 2048 kB"));
        tree.file("proc/cpuinfo", "processor\t: 0\nvendor_id\t: MadeUp\nmodel name\t: Made-up processor");
        tree.file("proc/sys/kernel/random/boot_id", "7d3f1a52-9f1e-4c55-8a51-3c1c4f6f0a11");
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> u32 {
        self.all_cores() * self.threads
    }

    fn all_cores(&self) -> u32 {
        self.nodes * self.cores
    }

    fn node_bytes(&self) -> u64 {
        u64::from(self.blocks) * BLOCK_BYTES
    }

    /// The CPUs of cores `from` to before `to`, as a list.
    fn list(&self, from: u32, to: u32) -> String {
        let range = |thread: u32| {
            let (first, last) = (thread * self.all_cores() + from, thread * self.all_cores() + to - 1);
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        (0..self.threads).map(range).collect::<Vec<_>>().join(",")
    }

    fn cpu(&self, tree: &MachineTree, cpu: u32) {
        let core = cpu % self.all_cores();
        let (node, folder) = (core / self.cores, Path::new(CPU).join(format!("cpu{cpu}")));
        let (siblings, package) = (self.list(core, core + 1), self.list(node * self.cores, (node + 1) * self.cores));
        let ids = [("physical_package_id", node), ("die_id", 0), ("cluster_id", core), ("core_id", core % self.cores)];
        for (name, id) in ids {
            tree.file(folder.join("topology").join(name), id.to_string());
        }
        for name in ["thread_siblings_list", "core_cpus_list", "cluster_cpus_list"] {
            tree.file(folder.join("topology").join(name), &siblings);
        }
        for name in ["core_siblings_list", "package_cpus_list", "die_cpus_list"] {
            tree.file(folder.join("topology").join(name), &package);
        }
        let l3 = core - core % self.cores % CORES_PER_L3;
        let sharers = self.list(l3, (l3 + CORES_PER_L3).min((node + 1) * self.cores));
        let private = |level, kind, size| (level, kind, size, siblings.as_str(), core);
        let caches =
            [private("1", "Data", "32K"), private("1", "Instruction", "32K"), private("2", "Unified", "1024K")];
        let shared = ("3", "Unified", "32768K", sharers.as_str(), l3 / CORES_PER_L3);
        for (index, (level, kind, size, cpus, id)) in caches.into_iter().chain([shared]).enumerate() {
            let folder = folder.join(format!("cache/index{index}"));
            tree.files(&folder, &[("level", level), ("type", kind), ("size", size), ("shared_cpu_list", cpus)]);
            tree.files(&folder, &[("id", &id.to_string()), ("coherency_line_size", "64"), ("number_of_sets", "1024")]);
        }
        tree.files(&folder, &[("online", "1"), ("cpufreq/cpuinfo_max_freq", "3700000")]);
        tree.file(folder.join("acpi_cppc/highest_perf"), "255");
        tree.link(folder.join(format!("node{node}")), Path::new(NODE).join(format!("node{node}")));
    }

    fn node(&self, tree: &MachineTree, node: u32) {
        let folder = Path::new(NODE).join(format!("node{node}"));
        let distance = |other: u32| if other == node { "10" } else { "21" };
        let distances: Vec<&str> = (0..self.nodes).map(distance).collect();
        tree.file(folder.join("cpulist"), self.list(node * self.cores, (node + 1) * self.cores));
        tree.file(folder.join("distance"), distances.join(" "));
        let kib = self.node_bytes() >> 10;
        let mut meminfo = String::new();
        for (name, value) in [("MemTotal", kib), ("MemFree", kib / 2), ("MemUsed", kib / 2)] {
            writeln!(meminfo, "Node {node} {name}: {value} kB").unwrap();
        }
        tree.bytes(folder.join("meminfo"), meminfo);
        for name in ["nr_hugepages", "free_hugepages", "surplus_hugepages"] {
            tree.file(folder.join("hugepages/hugepages-2048kB").join(name), "0");
        }
        for block in node * self.blocks..(node + 1) * self.blocks {
            let path = Path::new(BLOCK).join(format!("memory{block}"));
            tree.files(&path, &[("state", "online"), ("phys_index", &format!("{block:08x}")), ("removable", "1")]);
            tree.file(path.join("valid_zones"), "Normal");
            tree.link(folder.join(format!("memory{block}")), path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn a_machine_is_read_as_it_was_made_and_without_complaints() {
        let tree = MachineTree::new();
        CpuLayout { nodes: 2, cores: 12, threads: 2, blocks: 3 }.plug(&tree);
        let machine = Topology::read(&tree.root()).unwrap();
        assert_eq!(machine.warnings, []);
        assert_eq!(machine.online.to_string(), "0-47");
        assert_eq!(machine.nodes[&1].cpus.to_string(), "12-23,36-47");
        let l3 = machine.caches.iter().filter(|cache| cache.level == 3).map(|cache| cache.cpus.to_string());
        assert_eq!(l3.collect::<Vec<_>>(), ["0-7,24-31", "8-11,32-35", "12-19,36-43", "20-23,44-47"]);
    }
}
