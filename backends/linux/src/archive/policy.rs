//! Decides what of a machine may be captured at all: by the place of a file, before it is read.

use std::path::Path;

/// How much of a file may be captured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CapturePolicy {
    /// Content of the file.
    Content,
    /// Existence of the file.
    Presence,
    /// Nothing.
    Nothing,
}

/// Files of procfs whose content is about the machine. All others may be about its users: process ids lead to
/// processes, and the boot command line can hold passwords.
const PROC: [&str; 14] = [
    "cpuinfo",
    "driver/nvidia/gpus/*/numa_status",
    "iomem",
    "meminfo",
    "mounts",
    "self/cgroup",
    "self/cpuset",
    "self/mountinfo",
    "self/mounts",
    "sys/kernel/osrelease",
    "sys/kernel/random/boot_id",
    "version",
    "vmstat",
    "zoneinfo",
];

/// The host's name, which is kept on request only.
pub(super) const HOST_NAME: &str = "proc/sys/kernel/hostname";

/// Parts of sysfs that hold keys, traces of what programs do, or data that only the firmware's maker understands.
const SYS_HIDDEN: [&str; 5] =
    ["sys/firmware", "sys/fs/pstore", "sys/kernel/debug", "sys/kernel/security", "sys/kernel/tracing"];

/// Binary files that name the board they are on.
const HIDDEN_FILES: [&str; 3] = ["eeprom", "rom", "vpd"];

/// How much of the file at `path` (relative to the root, without links) may be captured.
pub(super) fn keep(path: &Path, host_name: bool) -> CapturePolicy {
    let Some(path) = path.to_str() else { return CapturePolicy::Nothing };
    let (top, rest) = path.split_once('/').unwrap_or((path, ""));
    match top {
        "sys" => keep_of_sys(path),
        "proc" if path == HOST_NAME && host_name => CapturePolicy::Content,
        "proc" => keep_of_proc(rest),
        // Device nodes are opened, not read; the links below name disks by serial number.
        "dev" if rest.starts_with("disk") || rest.starts_with("mapper") => CapturePolicy::Nothing,
        "dev" => CapturePolicy::Presence,
        // The socket shows that there is a udev daemon.
        "run" if "udev/control".starts_with(rest) => CapturePolicy::Presence,
        _ => CapturePolicy::Nothing,
    }
}

fn keep_of_sys(path: &str) -> CapturePolicy {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let name = path.rsplit('/').next().unwrap_or_default();
    // The layout of trace records is a fact about the kernel; the records are not.
    let is_format = path.starts_with("sys/kernel/tracing/events/") && name == "format";
    let hidden = SYS_HIDDEN.iter().copied().any(below) || HIDDEN_FILES.contains(&name);
    if hidden && !is_format { CapturePolicy::Presence } else { CapturePolicy::Content }
}

fn keep_of_proc(rest: &str) -> CapturePolicy {
    let first = rest.split('/').next().unwrap_or_default();
    if first.bytes().next().is_some_and(|byte| byte.is_ascii_digit()) {
        return CapturePolicy::Nothing;
    }
    if PROC.iter().any(|known| fits(known, rest)) { CapturePolicy::Content } else { CapturePolicy::Presence }
}

/// True if `path` is the one that `known` names; `*` stands for one component.
fn fits(known: &str, path: &str) -> bool {
    let (mut known, mut path) = (known.split('/'), path.split('/'));
    loop {
        match (known.next(), path.next()) {
            (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_the_machine_is_kept() {
        for path in [
            "sys/bus/pci/devices",
            "sys/devices/pci0000:00/0000:00:01.0/config",
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            "sys/kernel/tracing/events/cxl/cxl_poison/format",
            "proc/cpuinfo",
            "proc/self/cpuset",
            "proc/sys/kernel/osrelease",
            "proc/driver/nvidia/gpus/0004:04:00.0/numa_status",
        ] {
            assert_eq!(keep(Path::new(path), false), CapturePolicy::Content, "{path}");
        }
    }

    #[test]
    fn what_may_be_about_people_is_not_read() {
        for path in [
            "proc/cmdline",
            "proc/keys",
            "proc/self/environ",
            "proc/driver/nvidia/gpus/0004:04:00.0/information",
            HOST_NAME,
            "sys/firmware/efi/efivars/x",
            "sys/kernel/tracing/trace_pipe",
            "sys/kernel/debug/cxl/mem0/x",
            "sys/devices/pci0000:00/0000:00:01.0/vpd",
            "dev/cxl/mem0",
            "run/udev/control",
        ] {
            assert_eq!(keep(Path::new(path), false), CapturePolicy::Presence, "{path}");
        }
        for path in ["proc/1/environ", "proc/4711", "etc/shadow", "dev/disk/by-id/x", "run/secrets", "root", ""] {
            assert_eq!(keep(Path::new(path), true), CapturePolicy::Nothing, "{path}");
        }
        assert_eq!(keep(Path::new(HOST_NAME), true), CapturePolicy::Content);
    }
}
