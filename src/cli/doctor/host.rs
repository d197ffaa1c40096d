//! The kernel and the hardware.

use super::DoctorFinding;
use crate::{cli::host_facts::HostFacts, units::count};

/// 2024-01-01: earlier than any build of hostler.
const EARLIEST_SECONDS: u64 = 1_704_067_200;

/// The first kernel with a cpuset controller for cgroup v2.
const FIRST_UNIFIED_CPUSET: (u32, u32) = (5, 0);

pub(super) fn checks(facts: &HostFacts) -> Vec<DoctorFinding> {
    [vec![user(facts), clock(facts)], machine_checks(facts)].concat()
}

/// Makes the checks that make sense of a captured machine too.
pub(super) fn machine_checks(facts: &HostFacts) -> Vec<DoctorFinding> {
    if let Some(unread) = &facts.unread {
        let fix = "find out why, and look again: nothing else can be told of the machine before";
        return vec![DoctorFinding::fail("machine", unread, fix)];
    }
    vec![
        kernel(facts),
        boot(facts),
        sysfs(facts),
        faked(facts),
        cgroup(facts),
        udev(facts),
        iommu(facts),
        huge_pages(facts),
        hot_memory(facts),
    ]
}

fn user(facts: &HostFacts) -> DoctorFinding {
    if facts.is_root {
        return DoctorFinding::ok("user", "root");
    }
    DoctorFinding::warn("user", "not root: what follows may be hidden from us", "run `sudo hostler doctor`")
}

fn kernel(facts: &HostFacts) -> DoctorFinding {
    let Some(release) = &facts.kernel else {
        return DoctorFinding::warn("kernel", "it does not tell its release", "mount /proc");
    };
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let version = (numbers.next().and_then(Result::ok).unwrap_or(0), numbers.next().and_then(Result::ok).unwrap_or(0));
    if version < FIRST_UNIFIED_CPUSET {
        let found = format!("{release} cannot bind CPUs with cgroup v2");
        return DoctorFinding::warn(
            "kernel",
            found,
            "run 5.0 or newer, or boot with systemd.unified_cgroup_hierarchy=0",
        );
    }
    DoctorFinding::ok("kernel", release)
}

fn boot(facts: &HostFacts) -> DoctorFinding {
    match &facts.boot_id {
        Some(id) => DoctorFinding::ok("boot id", id),
        None => DoctorFinding::fail(
            "boot id",
            "/proc/sys/kernel/random/boot_id cannot be read",
            "mount /proc: without it a reboot cannot be told from a restart",
        ),
    }
}

fn clock(facts: &HostFacts) -> DoctorFinding {
    if facts.clock_seconds < EARLIEST_SECONDS {
        return DoctorFinding::warn("clock", "it is years behind", "set it: logs and records carry its time");
    }
    DoctorFinding::ok("clock", "plausible")
}

fn sysfs(facts: &HostFacts) -> DoctorFinding {
    match &facts.online_cpus {
        Some(cpus) => DoctorFinding::ok("sysfs", format!("CPUs {cpus} are online")),
        None => DoctorFinding::fail(
            "sysfs",
            "/sys/devices/system/cpu/online cannot be read",
            "mount sysfs at /sys, and keep ProtectKernelTunables and the like from hiding it",
        ),
    }
}

/// A file system in user space in place of a kernel file shows what a container should believe.
fn faked(facts: &HostFacts) -> DoctorFinding {
    let is_kernel_file = |point: &str| point.starts_with("/proc/") || point.starts_with("/sys/devices/");
    let faked: Vec<&str> = facts
        .mounts
        .iter()
        .filter(|(point, kind)| kind.starts_with("fuse") && is_kernel_file(point))
        .map(|(point, _)| point.as_str())
        .collect();
    if faked.is_empty() {
        return DoctorFinding::ok("kernel files", "the kernel's own");
    }
    DoctorFinding::fail(
        "kernel files",
        format!("{} come from a program (lxcfs?), not from the kernel", faked.join(", ")),
        "run hostler on the host itself, not in a system container",
    )
}

fn cgroup(facts: &HostFacts) -> DoctorFinding {
    let legacy = facts.mounts.iter().any(|(point, kind)| kind == "cgroup" && point.contains("cpuset"));
    let unified = facts.unified_controllers.as_deref();
    if unified.is_some_and(|controllers| controllers.split(' ').any(|name| name == "cpuset")) {
        return DoctorFinding::ok("cgroup", "v2 with cpuset");
    }
    if legacy {
        return DoctorFinding::ok("cgroup", "v1 with cpuset");
    }
    let found =
        if unified.is_some() { "v2 without the cpuset controller" } else { "no hierarchy with cpuset is mounted" };
    DoctorFinding::fail("cgroup", found, "containers cannot be bound to CPUs: boot without cgroup_disable=cpuset")
}

fn udev(facts: &HostFacts) -> DoctorFinding {
    if facts.has_udevd {
        return DoctorFinding::ok("udev", "its daemon runs");
    }
    DoctorFinding::warn(
        "udev",
        "no udev daemon: hot-plug is heard from the kernel directly",
        "nothing, unless this host should have one (systemd-udevd)",
    )
}

fn iommu(facts: &HostFacts) -> DoctorFinding {
    if facts.iommus > 0 {
        return DoctorFinding::ok("IOMMU", count(facts.iommus, "unit"));
    }
    if facts.pci_functions == 0 {
        return DoctorFinding::ok("IOMMU", "none, and no PCI device that needs one");
    }
    DoctorFinding::warn(
        "IOMMU",
        "off: a device that is handed out can read all memory",
        "switch VT-d, AMD-Vi or SMMU on in the firmware and boot with intel_iommu=on where it is Intel's",
    )
}

fn huge_pages(facts: &HostFacts) -> DoctorFinding {
    if facts.huge_pages == 0 {
        return DoctorFinding::ok("huge pages", "none are set aside, so none are offered");
    }
    DoctorFinding::ok("huge pages", format!("{} are set aside", facts.huge_pages))
}

/// Memory that comes online as ordinary memory gets kernel data and can never be taken out again.
fn hot_memory(facts: &HostFacts) -> DoctorFinding {
    const CHECK: &str = "hot-plugged memory";
    let Some(policy) = &facts.auto_online else { return DoctorFinding::ok(CHECK, "the kernel knows none") };
    let fix = "write online_movable to /sys/devices/system/memory/auto_online_blocks, or boot with memhp_default_state=online_movable";
    match (policy.as_str(), facts.cxl_memories) {
        ("online_movable", _) => DoctorFinding::ok(CHECK, "comes online so that it can go again"),
        (_, 0) => DoctorFinding::ok(CHECK, format!("policy {policy}; no CXL memory is here")),
        ("offline", _) => DoctorFinding::warn(CHECK, "stays offline until someone brings it online", fix),
        _ => DoctorFinding::warn(CHECK, format!("policy {policy}: once online, it cannot be taken out again"), fix),
    }
}
