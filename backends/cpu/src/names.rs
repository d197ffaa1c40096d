//! Names of CPU devices: from the kernel's ids where they tell the groups of the machine apart, else from CPU numbers.
//!
//! One scheme is used for the whole machine, so that a CPU that goes offline renames as little as possible.

use std::collections::BTreeSet;

use hostler_api::{DeviceName, NameError};
use hostler_backend::BackendWarning;
use hostler_linux::topology::{CoreType, CpuCore, Topology};

use crate::{
    config::CpuGrouping,
    group::{CPU_FOLDER, GroupKey},
};

/// Names for the groups of a machine, in the order of [`GroupKey::place`].
#[derive(Debug)]
pub(crate) struct DeviceNaming<'a> {
    topology: &'a Topology,
    mode: CpuGrouping,
    scheme: NamingScheme,
}

/// Source of names that tell the groups apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NamingScheme {
    /// The kernel's id of the group; for cores, the ids of package and core.
    Id,
    /// For cores: the ids of package, die and core.
    DieId,
    /// The lowest online CPU.
    LowestCpu,
}

impl<'a> DeviceNaming<'a> {
    pub(crate) fn new(topology: &'a Topology, mode: CpuGrouping) -> Self {
        let mut names = Self { topology, mode, scheme: NamingScheme::Id };
        let schemes =
            if mode == CpuGrouping::Core { &[NamingScheme::Id, NamingScheme::DieId][..] } else { &[NamingScheme::Id] };
        names.scheme =
            schemes.iter().copied().find(|scheme| names.is_unique(*scheme)).unwrap_or(NamingScheme::LowestCpu);
        names
    }

    /// The name of a group.
    ///
    /// # Errors
    /// Never for the groups of a real machine: the parts are numbers and words that a DNS label may hold.
    pub(crate) fn device(&self, key: GroupKey) -> Result<DeviceName, NameError> {
        let stem = match key.node_without_l3 {
            Some(node) => format!("numa{node}-no-l3"),
            None => self.stem(key.place, self.scheme).unwrap_or_else(|| self.lowest_cpu_stem(key.place)),
        };
        DeviceName::new(match (self.mode, key.core_type) {
            // A core has one kind; the strongest cores go without a suffix and so keep their name when all others go
            // offline.
            (CpuGrouping::Core, _) | (_, CoreType::Uniform | CoreType::Performance) => stem,
            (_, CoreType::Balanced) => format!("{stem}-balanced"),
            (_, CoreType::Efficiency) => format!("{stem}-efficiency"),
        })
    }

    /// Warns where names may change with the set of online CPUs and CPUs are offline.
    pub(crate) fn warning(&self) -> Option<BackendWarning> {
        let offline = self.topology.present.difference(&self.topology.online);
        (self.scheme == NamingScheme::LowestCpu && !offline.is_empty()).then(|| BackendWarning {
            path: CPU_FOLDER.to_owned(),
            reason: format!(
                "the kernel's ids do not tell the groups of CPUs apart, so devices are named after their lowest \
                 online CPU; names may change when CPUs {offline} come online"
            ),
        })
    }

    fn is_unique(&self, scheme: NamingScheme) -> bool {
        let places: BTreeSet<usize> = match self.mode {
            CpuGrouping::Numa | CpuGrouping::Machine => return true,
            CpuGrouping::L3 => self.topology.cpus.values().filter_map(|cpu| cpu.l3).collect(),
            CpuGrouping::Socket => self.topology.cpus.values().map(|cpu| cpu.package).collect(),
            CpuGrouping::Core => self.topology.cpus.values().map(|cpu| cpu.core).collect(),
        };
        let mut seen = BTreeSet::new();
        places.into_iter().all(|place| self.stem(place, scheme).is_some_and(|stem| seen.insert(stem)))
    }

    fn stem(&self, place: usize, scheme: NamingScheme) -> Option<String> {
        if scheme == NamingScheme::LowestCpu {
            return None;
        }
        match self.mode {
            CpuGrouping::Numa => Some(format!("numa{place}")),
            CpuGrouping::Machine => Some("machine".to_owned()),
            CpuGrouping::L3 => Some(format!("l3-{}", self.topology.caches.get(place)?.id?)),
            CpuGrouping::Socket => Some(format!("socket{}", self.topology.packages.get(place)?.id?)),
            CpuGrouping::Core => self.core_stem(self.topology.cores.get(place)?, scheme),
        }
    }

    fn core_stem(&self, core: &CpuCore, scheme: NamingScheme) -> Option<String> {
        let cpu = self.topology.cpus.get(&core.cpus.first()?)?;
        let package = self.topology.packages.get(cpu.package)?.id?;
        let core_id = cpu.core_id?;
        if scheme == NamingScheme::DieId {
            return Some(format!("core-{package}-{}-{core_id}", self.topology.dies.get(cpu.die?)?.id?));
        }
        Some(format!("core-{package}-{core_id}"))
    }

    fn lowest_cpu_stem(&self, place: usize) -> String {
        let (word, cpus) = match self.mode {
            CpuGrouping::L3 => ("l3", self.topology.caches.get(place).map(|cache| &cache.cpus)),
            CpuGrouping::Socket => ("socket", self.topology.packages.get(place).map(|package| &package.cpus)),
            _ => ("core", self.topology.cores.get(place).map(|core| &core.cpus)),
        };
        let lowest = cpus.and_then(|cpus| cpus.first());
        lowest.map_or_else(|| format!("{word}-{place}"), |cpu| format!("{word}-cpu{cpu}"))
    }
}
