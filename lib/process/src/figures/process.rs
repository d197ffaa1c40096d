//! Figures of the kernel about this process: memory, processor time, descriptors.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use sysinfo::{Process, ProcessRefreshKind, ProcessesToUpdate, System};

/// Figures of this process, at one moment. Those that the kernel does not give are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Memory that is in RAM, bytes.
    pub resident_bytes: u64,
    /// Address space, bytes.
    pub virtual_bytes: u64,
    /// Processor time, in the kernel and outside of it.
    pub cpu_seconds: f64,
    /// Time at which the process started, seconds since 1970.
    pub started_seconds: f64,
    /// Open descriptors.
    pub open_fds: u64,
    /// Most descriptors that can be open.
    pub max_fds: u64,
}

impl ProcessFigures {
    /// Asks the kernel.
    pub fn now() -> Self {
        let (Ok(mut system), Ok(pid)) = (System::new(), sysinfo::get_current_pid()) else { return Self::default() };
        let what = ProcessRefreshKind::nothing().with_memory().with_cpu().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
        system.process(pid).map(Self::of).unwrap_or_default()
    }

    fn of(process: &Process) -> Self {
        Self {
            resident_bytes: process.memory(),
            virtual_bytes: process.virtual_memory(),
            cpu_seconds: process.accumulated_cpu_time() as f64 / 1000.0,
            started_seconds: process.start_time() as f64,
            open_fds: process.open_files().unwrap_or_default() as u64,
            max_fds: process.open_files_limit().unwrap_or_default() as u64,
        }
    }

    /// Registers the figures under the names that every other program has for them.
    pub fn register(self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("process");
        let cpu = Counter::<f64, AtomicU64>::default();
        cpu.inc_by(self.cpu_seconds);
        registry.register("cpu_seconds", "Processor time, in the kernel and outside of it", cpu);
        let started = Gauge::<f64, AtomicU64>::default();
        started.set(self.started_seconds);
        registry.register("start_time_seconds", "Time at which the process started, since the epoch", started);
        for (name, help, value) in [
            ("resident_memory_bytes", "Memory of the process that is in RAM", self.resident_bytes),
            ("virtual_memory_bytes", "Address space of the process", self.virtual_bytes),
            ("open_fds", "Open file descriptors", self.open_fds),
            ("max_fds", "Most file descriptors that can be open", self.max_fds),
        ] {
            let gauge = <Gauge>::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            registry.register(name, help, gauge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_figures() {
        let now = ProcessFigures::now();
        assert!(now.resident_bytes > 1 << 20 && now.virtual_bytes >= now.resident_bytes, "{now:?}");
        assert!((3..now.max_fds).contains(&now.open_fds), "{now:?}");
        // Later than the first Linux of this century, and not in the future.
        let seconds = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        assert!((1e9..=seconds + 1.0).contains(&now.started_seconds), "{now:?}");
    }
}
