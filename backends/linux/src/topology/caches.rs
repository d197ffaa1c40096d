//! Caches, and who shares them.

use std::{collections::BTreeMap, ops::RangeInclusive};

use super::{
    CpuCache,
    cpus::ends,
    reader::{CPU, TreeReader, parse_size},
};
use crate::IdSet;

/// More cache leaves than any CPU has; bounds what a made-up tree can cost.
const MOST_LEAVES: usize = 32;
/// As many as the registers of arm64 can tell apart; no machine has more.
const LEVELS: RangeInclusive<u32> = 1..=7;
/// What the kernel calls them.
const TYPES: [&str; 3] = ["Data", "Instruction", "Unified"];
/// From this level on caches are shared by cores, and handed out.
const LAST_LEVEL: u32 = 3;

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
    /// Where in `caches` the cache of a level and type is, by CPU.
    placed: BTreeMap<(u32, String), BTreeMap<u32, usize>>,
}

impl<'r, 'root> CacheScan<'r, 'root> {
    fn new(reader: &'r mut TreeReader<'root>, online: &'r IdSet) -> Self {
        let has_ids = ends(online).any(|cpu| reader.tree().exists(format!("{CPU}/cpu{cpu}/cache/index0/id")));
        Self { reader, online, has_ids, caches: Vec::new(), placed: BTreeMap::new() }
    }

    /// Reads the caches of one CPU; gives the CPUs that share every one of them and need not be asked any more.
    fn caches_of(&mut self, cpu: u32) -> IdSet {
        let mut shared_by_all: Option<IdSet> = None;
        let all = format!("{CPU}/cpu{cpu}/cache");
        // A leaf that is not there says nothing of those behind it.
        for leaf in self.reader.numbered(&all, "index").into_iter().take(MOST_LEAVES) {
            let folder = format!("{all}/index{leaf}");
            // Where nobody knows what it is, those who share it may.
            let cpus = self.kind(&folder).map(|(level, cache_type)| self.cache(cpu, &folder, level, cache_type));
            let cpus = cpus.unwrap_or_else(|| IdSet::from_iter([cpu]));
            shared_by_all = Some(shared_by_all.map_or(cpus.clone(), |all| all.intersection(&cpus)));
        }
        shared_by_all.unwrap_or_default()
    }

    /// Level and type of a cache, if there are such caches.
    fn kind(&mut self, folder: &str) -> Option<(u32, String)> {
        let level = self.reader.number(&format!("{folder}/level"))?;
        let cache_type = self.reader.text(&format!("{folder}/type"))?;
        if LEVELS.contains(&level) && TYPES.contains(&&*cache_type) {
            return Some((level, cache_type));
        }
        self.reader.warn(folder, format!("there is no cache of level {level} and type {cache_type:?}; left out"));
        None
    }

    /// The CPUs of the cache in `folder`, which is read unless a sharer showed it already.
    fn cache(&mut self, cpu: u32, folder: &str, level: u32, cache_type: String) -> IdSet {
        let kind = (level, cache_type);
        if let Some(known) = self.placed.get(&kind).and_then(|placed| placed.get(&cpu)) {
            return self.caches[*known].cpus.clone();
        }
        let Some(mut cpus) = self.sharers(cpu, folder, level) else { return IdSet::from_iter([cpu]) };
        let placed = self.placed.entry(kind.clone()).or_default();
        let taken: IdSet = cpus.iter().filter(|cpu| placed.contains_key(cpu)).collect();
        if !taken.is_empty() {
            let reason = format!("names CPUs {taken}, which have another cache of this level and type; they keep it");
            self.reader.warn(&format!("{folder}/shared_cpu_list"), reason);
            cpus = cpus.difference(&taken);
        }
        placed.extend(cpus.iter().map(|cpu| (cpu, self.caches.len())));
        let size_bytes = self.reader.text(&format!("{folder}/size")).as_deref().and_then(parse_size);
        let id = if self.has_ids { self.reader.number(&format!("{folder}/id")) } else { None };
        let (level, cache_type) = kind;
        self.caches.push(CpuCache { level, cache_type, size_bytes, id, cpus: cpus.clone() });
        cpus
    }

    /// The online CPUs that share a cache: what the first file says that names the CPU itself. `None` for a cache of the
    /// last level of which nobody knows: taken as the CPU's own, it would be handed out as one that nobody else uses.
    fn sharers(&mut self, cpu: u32, folder: &str, level: u32) -> Option<IdSet> {
        let mut wrong = Vec::new();
        let mut found = None;
        for name in ["shared_cpu_list", "shared_cpu_map"] {
            match self.reader.set(&format!("{folder}/{name}")) {
                Some(cpus) if cpus.contains(cpu) => found = Some(cpus.intersection(self.online)),
                Some(_) => wrong.push(name),
                None => continue,
            }
            if found.is_some() {
                break;
            }
        }
        // Old kernels and VMs have neither file; a CPU has its own first caches at least.
        let cpus = found.clone().or_else(|| (level < LAST_LEVEL).then(|| IdSet::from_iter([cpu])));
        let consequence = match (&found, &cpus) {
            (Some(_), _) => "shared_cpu_map is believed",
            (None, Some(_)) => "taken as the CPU's own",
            (None, None) => "nobody knows who shares this cache, and it is left out",
        };
        for name in &wrong {
            self.reader.warn(&format!("{folder}/{name}"), format!("does not name CPU {cpu} itself; {consequence}"));
        }
        if cpus.is_none() && wrong.is_empty() {
            self.reader.warn(folder, format!("names no CPUs; {consequence}"));
        }
        cpus
    }
}
