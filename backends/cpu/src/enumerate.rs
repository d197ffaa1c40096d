//! Makes devices of the CPUs of a machine. Pure: from a [`Topology`] and a [`CpuBackendConfig`] to devices.

use std::collections::BTreeMap;

use hostler_api::{DeviceName, NameError, QualifiedName, Quantity};
use hostler_backend::{
    AttributeValue, Attributes, BackendError, BackendWarning, Capacity, Device, Enumeration, NodeAllocatable,
    RequestPolicy, Sharing,
};
use hostler_linux::{
    IdSet,
    topology::{CoreType, LogicalCpu, Topology},
};

use crate::{
    config::{CpuBackendConfig, CpuGrouping},
    group::{CPU_FOLDER, GroupKey},
    names::DeviceNaming,
    pick::{CorePlace, NO_CACHE, OfferedCore, OfferedCpus},
};

/// Name of the capacity: logical CPUs.
pub(crate) const CPUS: &str = "cpus";

/// The devices that `config` makes of the CPUs of `topology`, and what could not be offered or understood.
///
/// # Errors
/// When the machine shows no CPU, or the configuration is not valid.
pub fn enumeration(topology: &Topology, config: &CpuBackendConfig) -> Result<Enumeration, BackendError> {
    let fail = |reason: &str, source| BackendError::Enumerate { reason: reason.to_owned(), source };
    if topology.cpus.is_empty() {
        return Err(fail("no online CPU was found in /sys/devices/system/cpu", None));
    }
    let reserved = config.reserved_cpus().map_err(|error| fail("bad configuration", Some(error.into())))?;
    let mut enumeration =
        Enumeration { devices: Vec::new(), counter_sets: Vec::new(), warnings: warnings(topology, &reserved) };
    let names = DeviceNaming::new(topology, config.mode);
    enumeration.warnings.extend(names.warning());
    let offered = offered_cpus(topology, config, &reserved);
    for group in groups(topology, config.mode) {
        let (offer, left_over) = group.offer(config.full_cores, &offered, topology);
        let name = names.device(group.key).map_err(|error| fail("bad device name", Some(error.into())))?;
        enumeration.warnings.extend(left_over_warning(&name, &left_over));
        if !offer.cores.is_empty() {
            let device = device(name, &group, &offer, config.mode, topology);
            enumeration.devices.push(device.map_err(|error| fail("bad attribute name", Some(error.into())))?);
        }
    }
    Ok(enumeration)
}

/// The CPUs of one device: those of one NUMA node, L3 cache, package or core, or all; of one kind of core.
#[derive(Debug)]
struct CpuGroup<'a> {
    key: GroupKey,
    /// The online CPUs by number, with what is known of each.
    cpus: BTreeMap<u32, &'a LogicalCpu>,
}

fn groups(topology: &Topology, mode: CpuGrouping) -> Vec<CpuGroup<'_>> {
    let mut groups: BTreeMap<GroupKey, BTreeMap<u32, &LogicalCpu>> = BTreeMap::new();
    for (number, cpu) in &topology.cpus {
        groups.entry(GroupKey::of(cpu, mode)).or_default().insert(*number, cpu);
    }
    groups.into_iter().map(|(key, cpus)| CpuGroup { key, cpus }).collect()
}

/// The CPUs that may be handed out at all.
fn offered_cpus(topology: &Topology, config: &CpuBackendConfig, reserved: &IdSet) -> IdSet {
    let offered = topology.allowed_cpus.difference(reserved);
    if config.exclude_isolated { offered.difference(&topology.isolated) } else { offered }
}

impl CpuGroup<'_> {
    /// The cores to hand out, and the CPUs that might be but are not because they are no whole core.
    fn offer(&self, whole_cores: bool, offered: &IdSet, topology: &Topology) -> (OfferedCpus, IdSet) {
        let mut cores: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (number, cpu) in &self.cpus {
            cores.entry(cpu.core).or_default().push(*number);
        }
        let threads = cores.values().map(Vec::len).max().unwrap_or(0);
        let mut offer = OfferedCpus { whole_cores, ..OfferedCpus::default() };
        let mut left_over = IdSet::new();
        for mut cpus in cores.into_values() {
            let running = cpus.len();
            cpus.retain(|cpu| offered.contains(*cpu));
            if whole_cores && cpus.len() != threads {
                left_over = left_over.union(&cpus.into_iter().collect());
            } else if let Some(first) = cpus.first() {
                let place = self.cpus.get(first).map_or([0; 3], |cpu| place_of(cpu));
                if cpus.len() < running {
                    offer.partial.extend(cpus.iter().copied());
                }
                if let Some(cache) = topology.caches.get(place[2] as usize) {
                    offer.caches.insert(place[2], cache.cpus.clone());
                }
                offer.cores.push(OfferedCore(cpus, place));
            }
        }
        (offer, left_over)
    }

    /// Value on which all CPUs of the group agree.
    fn common<T: PartialEq>(&self, of: impl Fn(&LogicalCpu) -> Option<T>) -> Option<T> {
        let mut values = self.cpus.values().map(|cpu| of(cpu));
        let first = values.next()??;
        values.all(|value| value.as_ref() == Some(&first)).then_some(first)
    }

    fn attributes(&self, offer: &OfferedCpus, topology: &Topology) -> Result<Attributes, NameError> {
        let id = |id: Option<u32>| id.map(|id| AttributeValue::Int(id.into()));
        let socket = self.common(|cpu| topology.packages.get(cpu.package)?.id);
        let die = self.common(|cpu| topology.dies.get(cpu.die?)?.id);
        let l3 = self.common(|cpu| topology.caches.get(cpu.l3?)?.id);
        let smt = offer.cores.iter().any(|core| core.0.len() > 1);
        let count = i64::try_from(offer.cpus()).ok().map(AttributeValue::Int);
        [
            ("resource.kubernetes.io/numaNode", id(self.common(|cpu| Some(cpu.node)))),
            ("socket", id(socket)),
            ("die", id(die)),
            ("l3", id(l3)),
            ("coreType", Some(core_type(self.key.core_type).into())),
            ("smt", Some(smt.into())),
            (CPUS, count),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| Ok((QualifiedName::new(name)?, value))))
        .collect()
    }
}

fn place_of(cpu: &LogicalCpu) -> CorePlace {
    // No machine has so many caches or packages; what is too large is one place together.
    let index = |index: Option<usize>| index.and_then(|index| u32::try_from(index).ok()).unwrap_or(NO_CACHE);
    [index(Some(cpu.package)), cpu.node, index(cpu.l3)]
}

fn core_type(core_type: CoreType) -> &'static str {
    match core_type {
        CoreType::Uniform => "uniform",
        CoreType::Performance => "performance",
        CoreType::Balanced => "balanced",
        CoreType::Efficiency => "efficiency",
    }
}

fn device(
    name: DeviceName,
    group: &CpuGroup<'_>,
    offer: &OfferedCpus,
    mode: CpuGrouping,
    topology: &Topology,
) -> Result<Device, NameError> {
    let mut device = Device::new(name);
    device.attributes = group.attributes(offer, topology)?;
    device.data = serde_json::json!(offer);
    if mode == CpuGrouping::Core {
        stand_for_cpus(&mut device, NodeAllocatable::PerDevice(quantity(offer.cpus())));
    } else {
        let step = quantity(offer.step());
        let policy = Some(RequestPolicy { default: step, min: step, step });
        device.sharing = Sharing::Shared;
        device.capacity.insert(QualifiedName::new(CPUS)?, Capacity { value: quantity(offer.cpus()), policy });
        let capacity = QualifiedName::new(CPUS)?;
        stand_for_cpus(&mut device, NodeAllocatable::PerCapacity { capacity, factor: Quantity::whole(1) });
    }
    Ok(device)
}

/// Declares that the CPUs of a device are among those that the node accounts for.
fn stand_for_cpus(device: &mut Device, amount: NodeAllocatable) {
    device.node_allocatable.insert("cpu".to_owned(), amount);
}

fn quantity(cpus: usize) -> Quantity {
    Quantity::whole(cpus as u64)
}

fn warnings(topology: &Topology, reserved: &IdSet) -> Vec<BackendWarning> {
    let mut warnings: Vec<BackendWarning> = topology
        .warnings
        .iter()
        .map(|warning| BackendWarning { path: warning.path.clone(), reason: warning.reason.clone() })
        .collect();
    let known = topology.possible.union(&topology.online);
    let unknown = reserved.difference(&known);
    if !unknown.is_empty() {
        let reason = format!("CPUs {unknown} are reserved by the configuration but not possible on this machine");
        warnings.push(BackendWarning { path: format!("{CPU_FOLDER}/possible"), reason });
    }
    warnings
}

fn left_over_warning(device: &DeviceName, left_over: &IdSet) -> Option<BackendWarning> {
    (!left_over.is_empty()).then(|| BackendWarning {
        path: CPU_FOLDER.to_owned(),
        reason: format!(
            "CPUs {left_over} of {device} are not offered: other threads of their cores are offline, reserved or not \
             ours; set full_cores = false to offer them all the same"
        ),
    })
}
