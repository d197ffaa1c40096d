//! Caches, and who shares them.

use std::collections::BTreeMap;

use super::{
    CpuCache,
    cpus::ends,
    reader::{CPU, TreeReader, parse_size},
};
use crate::IdSet;

/// More cache leaves than any CPU has; bounds what a made-up tree can cost.
const MOST_LEAVES: u32 = 32;

/// Every cache once, by level, type and lowest online CPU.
pub(super) fn read(reader: &mut TreeReader<'_>, online: &IdSet) -> Vec<CpuCache> {
    let mut scan = CacheScan::new(reader, online);
    let mut known = IdSet::new();
    for cpu in online.iter() {
        if !known.contains(cpu) {
            known.extend(scan.caches_of(cpu).iter());
        }
    }
    let mut caches = scan.caches;
    caches.sort_by(|a, b| (a.level, &a.cache_type, a.cpus.first()).cmp(&(b.level, &b.cache_type, b.cpus.first())));
    caches
}

struct CacheScan<'r, 'root> {
    reader: &'r mut TreeReader<'root>,
    online: &'r IdSet,
    /// Whether this machine's caches have ids: arm64 and old kernels have none.
    has_ids: bool,
    caches: Vec<CpuCache>,
    /// The CPUs whose cache of a level and type is among `caches`.
    placed: BTreeMap<(u32, String), IdSet>,
}

impl<'r, 'root> CacheScan<'r, 'root> {
    fn new(reader: &'r mut TreeReader<'root>, online: &'r IdSet) -> Self {
        let has_ids = ends(online).any(|cpu| reader.tree().exists(format!("{CPU}/cpu{cpu}/cache/index0/id")));
        Self { reader, online, has_ids, caches: Vec::new(), placed: BTreeMap::new() }
    }

    /// Reads the caches of one CPU; gives the CPUs that share every one of them and need not be asked any more.
    fn caches_of(&mut self, cpu: u32) -> IdSet {
        let mut shared_by_all: Option<IdSet> = None;
        for leaf in 0..MOST_LEAVES {
            let folder = format!("{CPU}/cpu{cpu}/cache/index{leaf}");
            let Some(level) = self.reader.number(&format!("{folder}/level")) else {
                if self.reader.tree().exists(&folder) {
                    continue;
                }
                break;
            };
            let Some(cache_type) = self.reader.text(&format!("{folder}/type")) else { continue };
            let cpus = self.cache(cpu, &folder, level, cache_type);
            shared_by_all = Some(shared_by_all.map_or(cpus.clone(), |all| all.intersection(&cpus)));
        }
        shared_by_all.unwrap_or_default()
    }

    /// The CPUs of the cache in `folder`, which is read unless a sharer showed it already.
    fn cache(&mut self, cpu: u32, folder: &str, level: u32, cache_type: String) -> IdSet {
        let placed = self.placed.entry((level, cache_type.clone())).or_default();
        if placed.contains(cpu) {
            let same_kind = |cache: &&CpuCache| cache.level == level && cache.cache_type == cache_type;
            let mut seen = self.caches.iter().rev().filter(same_kind);
            return seen.find(|cache| cache.cpus.contains(cpu)).map(|cache| cache.cpus.clone()).unwrap_or_default();
        }
        let sharers = ["shared_cpu_list", "shared_cpu_map"].iter();
        let sharers =
            sharers.filter_map(|name| self.reader.set(&format!("{folder}/{name}"))).next().unwrap_or_default();
        let mut cpus = sharers.intersection(self.online);
        // Old kernels and VMs leave the list out or empty; a CPU has its own caches at least.
        cpus.insert(cpu);
        let taken = cpus.intersection(placed);
        if !taken.is_empty() {
            let reason = format!("names CPUs {taken}, which have another cache of this level and type; they keep it");
            self.reader.warn(&format!("{folder}/shared_cpu_list"), reason);
            cpus = cpus.difference(&taken);
        }
        placed.extend(cpus.iter());
        let size_bytes = self.reader.text(&format!("{folder}/size")).as_deref().and_then(parse_size);
        let id = if self.has_ids { self.reader.number(&format!("{folder}/id")) } else { None };
        self.caches.push(CpuCache { level, cache_type, size_bytes, id, cpus: cpus.clone() });
        cpus
    }
}
