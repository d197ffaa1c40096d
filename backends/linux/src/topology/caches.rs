//! Caches, and the CPUs that share them.

use std::{collections::BTreeMap, ops::RangeInclusive};

use super::{
    CpuCache,
    cpus::ends,
    reader::{CPU, TreeReader, parse_size},
};
use crate::IdSet;

/// More cache leaves than any CPU has; bounds what a made-up tree can cost.
const MOST_LEAVES: usize = 32;
/// Levels of caches: as many as the registers of arm64 can tell apart; no machine has more.
const LEVELS: RangeInclusive<u32> = 1..=7;
/// Types of caches, by the kernel's names.
const TYPES: [&str; 3] = ["Data", "Instruction", "Unified"];
/// From this level on caches are shared by cores, and handed out.
const LAST_LEVEL: u32 = 3;

/// Every cache once, by level, type and lowest online CPU.
pub(super) fn read(reader: &mut TreeReader<'_>, online: &IdSet) -> Vec<CpuCache> {
    let mut scan = CacheScan::new(reader, online);
    // By CPU: the folders of an earlier one with which it shares every cache. A CPU with other folders has caches
    // besides.
    let mut shared: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in online.iter() {
        let indexes = scan.indexes(cpu);
        if shared.get(&cpu) == Some(&indexes) {
            continue;
        }
        for sharer in scan.caches_of(cpu, &indexes).iter() {
            shared.entry(sharer).or_insert_with(|| indexes.clone());
        }
    }
    let mut caches = scan.caches;
    caches.sort_by(|a, b| (a.level, &a.cache_type, a.cpus.first()).cmp(&(b.level, &b.cache_type, b.cpus.first())));
    caches
}

struct CacheScan<'r, 'root> {
    reader: &'r mut TreeReader<'root>,
    online: &'r IdSet,
    /// True if this machine's caches have ids: arm64 and old kernels have none.
    has_ids: bool,
    caches: Vec<CpuCache>,
    /// Index in `caches` of the cache of a level and type, by CPU.
    placed: BTreeMap<CacheKind, BTreeMap<u32, usize>>,
    patterns: Vec<CachePattern>,
}

/// Level and type.
type CacheKind = (u32, String);

/// Caches of the first CPU behind an outermost cache. The kernel fills in the folders of the others behind it in the
/// same order, unless they are of another kind.
#[derive(Clone)]
struct CachePattern {
    /// All CPUs behind the outermost cache.
    cpus: IdSet,
    /// Index in the scan's caches of the one of each folder, by the folder's number.
    leaves: BTreeMap<u32, usize>,
}

impl<'r, 'root> CacheScan<'r, 'root> {
    fn new(reader: &'r mut TreeReader<'root>, online: &'r IdSet) -> Self {
        let has_ids = ends(online).any(|cpu| reader.tree().exists(path!("{CPU}/cpu{cpu}/cache/index0/id")));
        let (caches, placed, patterns) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { reader, online, has_ids, caches, placed, patterns }
    }

    /// The numbers of a CPU's cache folders. A leaf that is not there says nothing of those behind it.
    fn indexes(&self, cpu: u32) -> Vec<u32> {
        let mut indexes = self.reader.numbered(&path!("{CPU}/cpu{cpu}/cache"), "index");
        indexes.truncate(MOST_LEAVES);
        indexes
    }

    /// Reads the caches of one CPU, which are in the folders `indexes`; gives the CPUs that share every one of them.
    fn caches_of(&mut self, cpu: u32, indexes: &[u32]) -> IdSet {
        let all = path!("{CPU}/cpu{cpu}/cache");
        let like = |pattern: &&CachePattern| pattern.cpus.contains(cpu) && pattern.leaves.keys().eq(indexes);
        let pattern = self.patterns.iter().find(like).cloned();
        let mut leaves = BTreeMap::new();
        let mut shared = Vec::new();
        for &leaf in indexes {
            let expected = pattern.as_ref().and_then(|pattern| pattern.leaves.get(&leaf).copied());
            let found = self.leaf(cpu, &path!("{all}/index{leaf}"), expected);
            leaves.extend(found.map(|cache| (leaf, cache)));
            // The CPU knows nothing of the cache, but those that share it may.
            shared.push(found.map_or_else(|| IdSet::from_iter([cpu]), |cache| self.caches[cache].cpus.clone()));
        }
        if pattern.is_none() {
            let cpus = shared.iter().max_by_key(|cpus| cpus.len()).cloned().unwrap_or_default();
            self.patterns.push(CachePattern { cpus, leaves });
        }
        shared.into_iter().reduce(|all, cpus| all.intersection(&cpus)).unwrap_or_default()
    }

    /// The cache in `folder`, which is read unless a sharer showed it already. Level and type are read only where
    /// something else is not as in the folder of the same number of the CPU that is `expected` to be alike.
    fn leaf(&mut self, cpu: u32, folder: &str, expected: Option<usize>) -> Option<usize> {
        let Some(expected) = expected else {
            let kind = self.kind(folder)?;
            return self.known(&kind, cpu).or_else(|| self.new_cache(cpu, folder, kind));
        };
        let CpuCache { level, cache_type, size_bytes, cpus, .. } = &self.caches[expected];
        let (kind, size_bytes, sharers) = ((*level, cache_type.clone()), *size_bytes, cpus.len());
        if let Some(known) = self.known(&kind, cpu) {
            return Some(known);
        }
        let listed = self.reader.set(&path!("{folder}/shared_cpu_list")).unwrap_or_default();
        let listed = listed.intersection(self.online);
        if listed.contains(cpu) && listed.len() == sharers && self.size(folder) == size_bytes {
            return Some(self.place(folder, kind, listed, size_bytes));
        }
        self.leaf(cpu, folder, None)
    }

    /// Level and type of a cache, if there are such caches.
    fn kind(&mut self, folder: &str) -> Option<CacheKind> {
        let level = self.reader.number(&path!("{folder}/level"))?;
        let cache_type = self.reader.text(&path!("{folder}/type"))?;
        if LEVELS.contains(&level) && TYPES.contains(&&*cache_type) {
            return Some((level, cache_type));
        }
        self.reader.warn(folder, format!("there is no cache of level {level} and type {cache_type:?}; left out"));
        None
    }

    fn size(&mut self, folder: &str) -> Option<u64> {
        let path = path!("{folder}/size");
        let text = self.reader.text(&path).filter(|text| !text.is_empty())?;
        self.reader.tree().understood(&path, &text, "a size such as 32K", parse_size)
    }

    fn known(&self, kind: &CacheKind, cpu: u32) -> Option<usize> {
        self.placed.get(kind)?.get(&cpu).copied()
    }

    fn new_cache(&mut self, cpu: u32, folder: &str, kind: CacheKind) -> Option<usize> {
        let cpus = self.sharers(cpu, folder, kind.0)?;
        let size_bytes = self.size(folder);
        Some(self.place(folder, kind, cpus, size_bytes))
    }

    /// Enters a cache; a CPU that has another of its kind already keeps that.
    fn place(&mut self, folder: &str, kind: CacheKind, mut cpus: IdSet, size_bytes: Option<u64>) -> usize {
        let placed = self.placed.entry(kind.clone()).or_default();
        let taken: IdSet = cpus.iter().filter(|cpu| placed.contains_key(cpu)).collect();
        if !taken.is_empty() {
            let reason = format!("names CPUs {taken}, which have another cache of this level and type; they keep it");
            self.reader.warn(&path!("{folder}/shared_cpu_list"), reason);
            cpus = cpus.difference(&taken);
        }
        let place = self.caches.len();
        placed.extend(cpus.iter().map(|cpu| (cpu, place)));
        let (level, cache_type) = kind;
        // The caches of a core are handed out with it, never by an id.
        let has_id = self.has_ids && level >= LAST_LEVEL;
        let id = if has_id { self.reader.number(&path!("{folder}/id")) } else { None };
        self.caches.push(CpuCache { level, cache_type, size_bytes, id, cpus });
        place
    }

    /// The online CPUs that share a cache: those in the first file that names the CPU itself. `None` for a cache of
    /// the last level without such a file: taken as the CPU's own, it would be handed out as one that no other CPU
    /// uses.
    fn sharers(&mut self, cpu: u32, folder: &str, level: u32) -> Option<IdSet> {
        let mut wrong = Vec::new();
        let mut found = None;
        for name in ["shared_cpu_list", "shared_cpu_map"] {
            match self.reader.set(&path!("{folder}/{name}")) {
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
            self.reader.warn(&path!("{folder}/{name}"), format!("does not name CPU {cpu} itself; {consequence}"));
        }
        if cpus.is_none() && wrong.is_empty() {
            self.reader.warn(folder, format!("names no CPUs; {consequence}"));
        }
        cpus
    }
}
