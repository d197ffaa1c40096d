//! Finds the kind of core of each CPU, on machines that mix kinds.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    CoreType, CpuCore, LogicalCpu,
    cpus::per_core,
    reader::{CPU, TreeReader},
};
use crate::IdSet;

/// Margin of capacities: those that differ by less are one kind with good and bad samples. The scheduler's own margin
/// (`capacity_greater`).
const CAPACITY_MARGIN: SeparationRatio = SeparationRatio { more: 1078, less: 1024 };
/// Margin of CPPC performance: favoured cores of one kind differ by a few per cent, kinds by a quarter and more.
const PERFORMANCE_MARGIN: SeparationRatio = SeparationRatio { more: 6, less: 5 };
/// Margin of CPPC performance where the stronger cores all have more threads than the weaker ones: a smaller
/// difference counts.
const THREADS_MARGIN: SeparationRatio = SeparationRatio { more: 21, less: 20 };

/// The kinds of cores, strongest first, as indices of cores.
type Classes = Vec<BTreeSet<usize>>;

struct SeparationRatio {
    more: u64,
    less: u64,
}

impl SeparationRatio {
    fn separates(&self, low: u64, high: u64) -> bool {
        high.saturating_mul(self.less) >= low.saturating_mul(self.more)
    }
}

/// Sets the core type of each CPU by the first source that tells more than one kind apart.
pub(super) fn assign(reader: &mut TreeReader<'_>, cores: &[CpuCore], cpus: &mut BTreeMap<u32, LogicalCpu>) {
    let classes = by_pmu(reader, cores)
        .or_else(|| by_midr(reader, cores, cpus))
        .or_else(|| by_capacity(cores, cpus))
        .or_else(|| by_performance(reader, cores));
    for (rank, class) in classes.iter().flatten().enumerate() {
        let last = classes.as_ref().is_some_and(|classes| rank + 1 == classes.len());
        let core_type = match (rank, last) {
            (0, _) => CoreType::Performance,
            (_, true) => CoreType::Efficiency,
            _ => CoreType::Balanced,
        };
        for cpu in class.iter().flat_map(|core| cores[*core].cpus.iter()) {
            cpus.entry(cpu).and_modify(|cpu| cpu.core_type = core_type);
        }
    }
}

/// Kinds on hybrid Intel: one performance monitoring unit per kind.
fn by_pmu(reader: &mut TreeReader<'_>, cores: &[CpuCore]) -> Option<Classes> {
    let kinds = ["cpu_core", "cpu_atom", "cpu_lowpower"];
    let lists: Vec<IdSet> = kinds.iter().filter_map(|kind| reader.list(&format!("sys/devices/{kind}/cpus"))).collect();
    let mut classes = vec![BTreeSet::new(); lists.len()];
    for (index, core) in cores.iter().enumerate() {
        let Some(kind) = lists.iter().position(|list| !list.is_disjoint(&core.cpus)) else {
            if !lists.is_empty() {
                let reason = format!("the lists of core kinds leave out CPUs {}; ignored", core.cpus);
                reader.warn("sys/devices/cpu_core/cpus", reason);
            }
            return None;
        };
        classes[kind].insert(index);
    }
    several(classes)
}

/// Kinds on arm64: implementer and part number say which design a core is; variant and revision do not matter.
fn by_midr(reader: &mut TreeReader<'_>, cores: &[CpuCore], cpus: &BTreeMap<u32, LogicalCpu>) -> Option<Classes> {
    const MIDR: &str = "regs/identification/midr_el1";
    // One look spares all other machines a look per core.
    let first = cores.first()?.cpus.first()?;
    reader.text(&path!("{CPU}/cpu{first}/{MIDR}"))?;
    let mut classes: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for (index, core) in cores.iter().enumerate() {
        let text = reader.text(&path!("{CPU}/cpu{}/{MIDR}", core.cpus.first()?))?;
        let midr = u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()?;
        classes.entry(midr & 0xff00_fff0).or_default().insert(index);
    }
    if classes.len() < 2 {
        return None;
    }
    let performance = per_core(reader, cores, "acpi_cppc/highest_perf");
    let mut classes: Vec<(u64, BTreeSet<usize>)> = classes.into_iter().collect();
    // Where nothing measures strength, the higher part number is the stronger design within a generation.
    classes.sort_by_cached_key(|(part, class)| {
        let cpu = |core: &usize| cpus.get(&cores[*core].cpus.first()?);
        let capacity = class.iter().filter_map(|core| cpu(core)?.capacity).max();
        let performance = class.iter().filter_map(|core| performance.get(core)).max();
        let frequency = class.iter().filter_map(|core| cpu(core)?.max_frequency_khz).max();
        Reverse((capacity, performance, frequency, *part))
    });
    Some(classes.into_iter().map(|(_, class)| class).collect())
}

/// Kinds by capacity, which arm64 and riscv always have, x86 on new kernels.
fn by_capacity(cores: &[CpuCore], cpus: &BTreeMap<u32, LogicalCpu>) -> Option<Classes> {
    let strengths = cores.iter().enumerate().map(|(core, CpuCore { cpus: threads })| {
        let value = u64::from(cpus.get(&threads.first()?)?.capacity?);
        Some(CoreStrength { value, threads: threads.len(), core })
    });
    several(buckets(strengths.collect::<Option<_>>()?, |low, high| CAPACITY_MARGIN.separates(low.value, high.value)))
}

fn by_performance(reader: &mut TreeReader<'_>, cores: &[CpuCore]) -> Option<Classes> {
    let performance = per_core(reader, cores, "acpi_cppc/highest_perf");
    let strengths = cores.iter().enumerate().map(|(core, CpuCore { cpus: threads })| {
        // Zero: the firmware does not say.
        let value = performance.get(&core).copied().filter(|value| *value > 0)?;
        Some(CoreStrength { value, threads: threads.len(), core })
    });
    let strengths: Vec<CoreStrength> = strengths.collect::<Option<_>>()?;
    let most_threads = |value| strengths.iter().filter(|core| core.value <= value).map(|core| core.threads).max();
    let least_threads = |value| strengths.iter().filter(|core| core.value >= value).map(|core| core.threads).min();
    several(buckets(strengths.clone(), |low, high| {
        PERFORMANCE_MARGIN.separates(low.value, high.value)
            || THREADS_MARGIN.separates(low.value, high.value) && least_threads(high.value) > most_threads(low.value)
    }))
}

#[derive(Clone)]
struct CoreStrength {
    value: u64,
    threads: usize,
    core: usize,
}

/// Cuts cores, ordered by strength, wherever two neighbours are far enough apart.
fn buckets(mut cores: Vec<CoreStrength>, apart: impl Fn(&CoreStrength, &CoreStrength) -> bool) -> Classes {
    cores.sort_by_key(|core| Reverse(core.value));
    let runs = cores.chunk_by(|high, low| high.value == low.value || !apart(low, high));
    runs.map(|run| run.iter().map(|core| core.core).collect()).collect()
}

fn several(mut classes: Classes) -> Option<Classes> {
    classes.retain(|class| !class.is_empty());
    (classes.len() > 1).then_some(classes)
}
