//! The CPU affinity that a process brings into its cgroup.
//!
//! A container inherits the affinity of the runtime that starts it, which `CPUAffinity=` of systemd may narrow for
//! every service of a host. Since Linux 6.2 such an affinity outlives the writing of a cpuset: the process would have
//! the CPUs that are in both. Newer runtimes undo it by themselves, older ones do not.

use std::path::Path;

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

use crate::SysRoot;

/// Lets every thread of a process use all CPUs of its cpuset. A thread that cannot be widened stays as it is; callers
/// that need to know look at the process.
pub(super) fn widen(root: &SysRoot, pid: u32) {
    // Process ids of another tree are not those of this machine.
    if root.path("") != Path::new("/") {
        return;
    }
    let mut all = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        // Never fails below the count.
        let _ = all.set(cpu);
    }
    let threads = root.names(format!("proc/{pid}/task")).unwrap_or_default();
    for thread in threads.iter().filter_map(|name| name.parse().ok()) {
        // The kernel takes away CPUs that the cpuset has not. A thread that has ended needs nothing.
        let _ = sched_setaffinity(Pid::from_raw(thread), &all);
    }
}
