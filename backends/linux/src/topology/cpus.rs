//! Reads the CPUs, and how they form cores, packages, dies and clusters.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CpuCache, CpuCore, CpuGroup, LogicalCpu,
    reader::{CPU, TreeReader},
};
use crate::IdSet;

/// Lists of the kernel that are about all CPUs together.
pub(super) struct CpuLists {
    pub(super) possible: IdSet,
    pub(super) present: IdSet,
    pub(super) online: IdSet,
    /// By the boot command line alone.
    pub(super) isolated: IdSet,
    pub(super) nohz_full: IdSet,
    pub(super) smt_active: Option<bool>,
}

impl CpuLists {
    pub(super) fn read(reader: &mut TreeReader<'_>) -> Self {
        let online = reader.list(&path!("{CPU}/online")).unwrap_or_else(|| online_by_folder(reader));
        if online.is_empty() {
            reader.warn(CPU, "no CPU is online; the tree says nothing about CPUs");
        }
        let present = reader.list(&path!("{CPU}/present"));
        let present =
            present.unwrap_or_else(|| reader.numbered(CPU, "cpu").into_iter().collect::<IdSet>().union(&online));
        let possible = reader.list(&path!("{CPU}/possible")).unwrap_or_else(|| present.clone());
        let smt_active = match reader.text(&path!("{CPU}/smt/active")).as_deref() {
            Some("1") => Some(true),
            Some("0") => Some(false),
            _ => None,
        };
        // The boot command line names CPUs that are not there, or not yet.
        let isolated = boot_list(reader, "isolated").intersection(&online);
        let nohz_full = boot_list(reader, "nohz_full").intersection(&online);
        Self { possible, present, online, isolated, nohz_full, smt_active }
    }
}

/// Finds the online CPUs of old kernels, which have no list of them: a CPU is online unless it says otherwise; the
/// boot CPU often does not say.
fn online_by_folder(reader: &mut TreeReader<'_>) -> IdSet {
    let cpus = reader.numbered(CPU, "cpu").into_iter();
    cpus.filter(|cpu| reader.text(&path!("{CPU}/cpu{cpu}/online")).as_deref() != Some("0")).collect()
}

/// A list from the boot command line, which prints as `(null)` on some kernels where nothing was asked for.
fn boot_list(reader: &mut TreeReader<'_>, name: &str) -> IdSet {
    let path = path!("{CPU}/{name}");
    match reader.text(&path).as_deref().map(str::trim) {
        None | Some("(null)") => IdSet::new(),
        Some(_) => reader.list(&path).unwrap_or_default(),
    }
}

/// The files of a kind of group: those that name the members, best first, and the one with the id.
struct GroupFiles {
    members: &'static [&'static str],
    id: Option<&'static str>,
}

const CORE: GroupFiles =
    GroupFiles { members: &["core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings"], id: None };
const PACKAGE: GroupFiles = GroupFiles {
    members: &["package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings"],
    id: Some("physical_package_id"),
};
const DIE: GroupFiles = GroupFiles { members: &["die_cpus_list", "die_cpus"], id: Some("die_id") };
const CLUSTER: GroupFiles = GroupFiles { members: &["cluster_cpus_list", "cluster_cpus"], id: Some("cluster_id") };
const BOOK: GroupFiles = GroupFiles { members: &["book_siblings_list", "book_siblings"], id: Some("book_id") };
const DRAWER: GroupFiles = GroupFiles { members: &["drawer_siblings_list", "drawer_siblings"], id: Some("drawer_id") };

/// Groups of the online CPUs. Members come from sibling masks: ids repeat, have gaps and may be −1.
pub(super) struct CpuGrouping {
    pub(super) cores: Vec<CpuCore>,
    pub(super) packages: Vec<CpuGroup>,
    pub(super) dies: Vec<CpuGroup>,
    pub(super) clusters: Vec<CpuGroup>,
    pub(super) books: Vec<CpuGroup>,
    pub(super) drawers: Vec<CpuGroup>,
}

impl CpuGrouping {
    pub(super) fn read(reader: &mut TreeReader<'_>, online: &IdSet) -> Self {
        let mut scan = GroupScan::new(reader, online);
        let packages = scan.packages();
        let cores = scan.cores();
        let mut clusters = scan.named_groups(&CLUSTER);
        // Where each cluster is one core, the kernel only repeats itself (x86 without module ids, most VMs).
        let core_of = places(cores.iter().map(|core| &core.cpus));
        let cores_in =
            |cluster: &CpuGroup| cluster.cpus.iter().map(|cpu| core_of.get(&cpu)).collect::<BTreeSet<_>>().len();
        if clusters.iter().all(|cluster| cores_in(cluster) == 1) {
            clusters.clear();
        }
        let (dies, books, drawers) = (scan.named_groups(&DIE), scan.named_groups(&BOOK), scan.named_groups(&DRAWER));
        Self { cores, packages, dies, clusters, books, drawers }
    }
}

struct GroupScan<'r, 'root> {
    reader: &'r mut TreeReader<'root>,
    online: &'r IdSet,
    /// The files that topology folders have: asking each CPU for what no kernel of this age has costs as much as
    /// reading.
    files: BTreeSet<String>,
}

impl<'r, 'root> GroupScan<'r, 'root> {
    fn new(reader: &'r mut TreeReader<'root>, online: &'r IdSet) -> Self {
        let files = ends(online).flat_map(|cpu| reader.names(&path!("{CPU}/cpu{cpu}/topology"))).collect();
        reader.tree().enter(CPU);
        Self { reader, online, files }
    }

    fn cores(&mut self) -> Vec<CpuCore> {
        let (groups, alone) = self.groups(&CORE);
        let mut cores: Vec<CpuCore> = groups.into_iter().map(|group| CpuCore { cpus: group.cpus }).collect();
        if self.files.iter().any(|file| CORE.members.contains(&file.as_str())) {
            for cpu in alone.iter() {
                self.reader.warn(&path!("{CPU}/cpu{cpu}/topology"), "names no siblings; taken as a core of its own");
            }
        }
        cores.extend(alone.iter().map(|cpu| CpuCore { cpus: IdSet::from_iter([cpu]) }));
        cores.sort_by_key(|core| core.cpus.first());
        cores
    }

    /// Packages; CPUs that name no package form one together, as on the machines that have no topology folder at all.
    fn packages(&mut self) -> Vec<CpuGroup> {
        let (mut packages, rest) = self.groups(&PACKAGE);
        if !rest.is_empty() {
            packages.push(CpuGroup { id: None, cpus: rest });
        }
        packages.sort_by_key(|package| package.cpus.first());
        packages
    }

    /// Groups that the kernel gives a name: an id of −1 says that it cannot tell them apart, and where both ends of
    /// the machine say so, no other CPU is asked.
    fn named_groups(&mut self, files: &GroupFiles) -> Vec<CpuGroup> {
        let mut unnamed = |id: &str| {
            let path = |cpu| path!("{CPU}/cpu{cpu}/topology/{id}");
            ends(self.online).all(|cpu| self.reader.number::<i64>(&path(cpu)) == Some(-1))
        };
        if files.id.filter(|id| self.files.contains(*id)).is_some_and(&mut unnamed) {
            return Vec::new();
        }
        let mut groups = self.groups(files).0;
        groups.retain(|group| group.id.is_some());
        groups
    }

    /// Disjoint groups by lowest CPU, and the CPUs that name none. One CPU of a group is asked: its siblings would say
    /// the same, or contradict it, which would leave no better answer.
    fn groups(&mut self, files: &GroupFiles) -> (Vec<CpuGroup>, IdSet) {
        let online = self.online;
        let members: Vec<&str> = files.members.iter().copied().filter(|name| self.files.contains(*name)).collect();
        let (mut groups, mut placed, mut alone) = (Vec::new(), IdSet::new(), IdSet::new());
        for cpu in online.iter() {
            if placed.contains(cpu) {
                continue;
            }
            let folder = path!("{CPU}/cpu{cpu}/topology");
            let set = members.iter().find_map(|name| self.reader.set(&path!("{folder}/{name}")));
            let Some(set) = set else {
                alone.insert(cpu);
                continue;
            };
            let cpus = self.plausible(cpu, &set, &placed, &folder, members[0]);
            placed.extend(cpus.iter());
            let id = files.id.and_then(|id| self.reader.number::<i64>(&path!("{folder}/{id}")));
            groups.push(CpuGroup { id: id.and_then(|id| u32::try_from(id).ok()), cpus });
        }
        let alone = alone.difference(&placed);
        (groups, alone)
    }

    /// Plausible members in a sibling mask: online CPUs that no other group has, and this one.
    fn plausible(&mut self, cpu: u32, set: &IdSet, placed: &IdSet, folder: &str, file: &str) -> IdSet {
        let (mut set, path) = (set.intersection(self.online), path!("{folder}/{file}"));
        if set.insert(cpu) {
            self.reader.warn(&path, format!("does not name CPU {cpu} itself; taken as if it did"));
        }
        let taken = set.intersection(placed);
        if !taken.is_empty() {
            self.reader.warn(&path, format!("names CPUs {taken}, which are in another group; they stay there"));
        }
        set.difference(&taken)
    }
}

/// The first and the last CPU: between them they show what kind of attributes the machine has, also a hybrid one.
pub(super) fn ends(cpus: &IdSet) -> impl Iterator<Item = u32> {
    let last = cpus.iter().next_back();
    cpus.first().into_iter().chain(last.filter(|last| cpus.first() != Some(*last)))
}

/// Puts together the facts of each CPU, except its core type.
pub(super) fn read(
    reader: &mut TreeReader<'_>,
    online: &IdSet,
    grouping: &CpuGrouping,
    caches: &[CpuCache],
    nodes: &BTreeMap<u32, u32>,
) -> BTreeMap<u32, LogicalCpu> {
    let cores = places(grouping.cores.iter().map(|core| &core.cpus));
    let packages = places(grouping.packages.iter().map(|package| &package.cpus));
    let dies = places(grouping.dies.iter().map(|die| &die.cpus));
    let clusters = places(grouping.clusters.iter().map(|cluster| &cluster.cpus));
    let mut last_level = BTreeMap::new();
    for (index, cache) in
        caches.iter().enumerate().filter(|(_, cache)| cache.level == 3 && cache.cache_type == "Unified")
    {
        last_level.extend(cache.cpus.iter().map(|cpu| (cpu, index)));
    }
    reader.tree().enter(CPU);
    let strengths = CpuStrengths::read(reader, &grouping.cores);
    let cpu = |id| LogicalCpu {
        core: cores.get(&id).copied().unwrap_or_default(),
        package: packages.get(&id).copied().unwrap_or_default(),
        die: dies.get(&id).copied(),
        cluster: clusters.get(&id).copied(),
        l3: last_level.get(&id).copied(),
        node: nodes.get(&id).copied().unwrap_or_default(),
        core_id: cores.get(&id).and_then(|core| strengths.core_ids.get(core).copied()),
        capacity: cores.get(&id).and_then(|core| strengths.capacities.get(core).copied()),
        max_frequency_khz: cores.get(&id).and_then(|core| strengths.frequencies.get(core).copied()),
        ..LogicalCpu::default()
    };
    online.iter().map(|id| (id, cpu(id))).collect()
}

/// Finds the group of each CPU.
fn places<'a>(groups: impl Iterator<Item = &'a IdSet>) -> BTreeMap<u32, usize> {
    groups.enumerate().flat_map(|(index, cpus)| cpus.iter().map(move |cpu| (cpu, index))).collect()
}

/// Numbers of single CPUs, read once per core, by its index, since its threads share them.
struct CpuStrengths {
    core_ids: BTreeMap<usize, u32>,
    capacities: BTreeMap<usize, u32>,
    frequencies: BTreeMap<usize, u64>,
}

impl CpuStrengths {
    fn read(reader: &mut TreeReader<'_>, cores: &[CpuCore]) -> Self {
        let core_ids = cores.iter().enumerate().filter_map(|(index, core)| {
            let id: i64 = reader.number(&path!("{CPU}/cpu{}/topology/core_id", core.cpus.first()?))?;
            Some((index, u32::try_from(id).ok()?))
        });
        let core_ids = core_ids.collect();
        let capacities = per_core(reader, cores, "cpu_capacity");
        let frequencies = per_core(reader, cores, "cpufreq/cpuinfo_max_freq");
        Self {
            core_ids,
            capacities: capacities
                .into_iter()
                .filter_map(|(core, value)| Some((core, u32::try_from(value).ok()?)))
                .collect(),
            frequencies,
        }
    }
}

/// A number of the first CPU of each core, which firmware may have to be asked for, by the core's index; empty where
/// neither end of the machine has the file.
pub(super) fn per_core(reader: &mut TreeReader<'_>, cores: &[CpuCore], file: &str) -> BTreeMap<usize, u64> {
    let asked: Vec<(usize, u32)> =
        cores.iter().enumerate().filter_map(|(index, core)| Some((index, core.cpus.first()?))).collect();
    let mut value = |&(core, cpu): &(usize, u32)| Some((core, reader.detail(&path!("{CPU}/cpu{cpu}/{file}"))?));
    let (Some(first), Some(last)) = (asked.first(), asked.last()) else { return BTreeMap::new() };
    if value(first).is_none() && value(last).is_none() {
        return BTreeMap::new();
    }
    asked.iter().filter_map(value).collect()
}
