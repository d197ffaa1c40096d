//! The load of each CPU, as the kernel counts it.

use std::{collections::BTreeMap, time::Duration};

use sysinfo::{CpuRefreshKind, MINIMUM_CPU_UPDATE_INTERVAL, System};

/// How busy CPUs were between two looks.
#[derive(Debug, Default)]
pub(super) struct CpuLoads {
    /// `None` for a machine that is not this one.
    system: Option<System>,
    percent: BTreeMap<u32, u8>,
}

impl CpuLoads {
    /// Less than this between two looks says nothing.
    pub(super) const SHORTEST: Duration = MINIMUM_CPU_UPDATE_INTERVAL;

    /// Looks for the first time, if the machine that is shown is this one.
    pub(super) fn new(is_here: bool) -> Self {
        let mut loads = Self { system: is_here.then(System::new).and_then(Result::ok), percent: BTreeMap::new() };
        loads.refresh();
        loads.percent.clear();
        loads
    }

    /// Looks again.
    pub(super) fn refresh(&mut self) {
        let Some(system) = &mut self.system else { return };
        system.refresh_cpu_specifics(CpuRefreshKind::nothing().with_usage());
        let load = |cpu: &sysinfo::Cpu| {
            let number = cpu.name().strip_prefix("cpu")?.parse().ok()?;
            // Between 0 and 100, and nothing is lost that could be shown.
            Some((number, cpu.usage().clamp(0.0, 100.0) as u8))
        };
        self.percent = system.cpus().iter().filter_map(load).collect();
    }

    /// The load of the whole machine, where it is known.
    pub(super) fn mean(&self) -> Option<u8> {
        let count = u32::try_from(self.percent.len()).ok()?;
        let sum: u32 = self.percent.values().map(|percent| u32::from(*percent)).sum();
        sum.checked_div(count).and_then(|mean| u8::try_from(mean).ok())
    }

    /// By number of the CPU; empty before the second look.
    pub(super) fn percent(&self) -> &BTreeMap<u32, u8> {
        &self.percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_of_this_machine_has_a_load_and_another_machine_has_none() {
        let mut loads = CpuLoads::new(true);
        std::thread::sleep(CpuLoads::SHORTEST);
        loads.refresh();
        assert!(!loads.percent().is_empty() && loads.percent().values().all(|percent| *percent <= 100), "{loads:?}");
        let mut loads = CpuLoads::new(false);
        loads.refresh();
        assert!(loads.percent().is_empty());
    }
}
