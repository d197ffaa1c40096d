//! The place and kind by which CPUs are put into groups; each group becomes a device.

use hostler_linux::topology::{CoreType, LogicalCpu};

use crate::config::CpuGrouping;

/// Folder that the warnings of this backend point to.
pub(crate) const CPU_FOLDER: &str = "/sys/devices/system/cpu";

/// Properties that the CPUs of a group have in common.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct GroupKey {
    /// Node number, index of the L3 cache, package or core; 0 for the machine.
    pub(crate) place: usize,
    /// The NUMA node, where CPUs have no L3 cache to be grouped by.
    pub(crate) node_without_l3: Option<u32>,
    pub(crate) core_type: CoreType,
}

impl GroupKey {
    pub(crate) fn of(cpu: &LogicalCpu, mode: CpuGrouping) -> Self {
        let place = match mode {
            CpuGrouping::Numa => cpu.node as usize,
            CpuGrouping::L3 => cpu.l3.unwrap_or(usize::MAX),
            CpuGrouping::Socket => cpu.package,
            CpuGrouping::Machine => 0,
            CpuGrouping::Core => cpu.core,
        };
        let node_without_l3 = (mode == CpuGrouping::L3 && cpu.l3.is_none()).then_some(cpu.node);
        Self { place, node_without_l3, core_type: cpu.core_type }
    }
}
