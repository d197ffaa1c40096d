//! What the kernel says of this process: memory, processor time, descriptors.

use std::{fs, io};

use hostler_linux::SysRoot;

/// Of this process, at one moment. What the kernel does not say is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Memory that is in RAM, bytes.
    pub resident_bytes: u64,
    /// Address space, bytes.
    pub virtual_bytes: u64,
    /// Processor time, in the kernel and outside of it.
    pub cpu_seconds: f64,
    /// When it started, seconds since 1970.
    pub started_seconds: f64,
    /// Open descriptors.
    pub open_fds: u64,
    /// How many can be open.
    pub max_fds: u64,
}

/// Units of time in /proc; part of the kernel's interface, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessFigures {
    /// Asks the kernel.
    pub fn now() -> Self {
        let host = SysRoot::host();
        let read = |name: &str| host.text(name).ok().flatten().unwrap_or_default();
        let status = read("proc/self/status");
        let times = ProcessTimes::parse(&read("proc/self/stat"));
        Self {
            resident_bytes: kilobytes(&status, "VmRSS:") * 1024,
            virtual_bytes: kilobytes(&status, "VmSize:") * 1024,
            cpu_seconds: times.cpu_ticks as f64 / TICKS_PER_SECOND,
            started_seconds: boot_seconds(&read("proc/stat")) as f64 + times.start_ticks as f64 / TICKS_PER_SECOND,
            open_fds: open_descriptors().unwrap_or_default(),
            max_fds: most_descriptors(&read("proc/self/limits")),
        }
    }
}

/// Resident memory of this process, bytes; 0 if the system does not say.
pub(super) fn resident_bytes() -> u64 {
    ProcessFigures::now().resident_bytes
}

#[derive(Debug, Default, Eq, PartialEq)]
struct ProcessTimes {
    cpu_ticks: u64,
    start_ticks: u64,
}

impl ProcessTimes {
    /// From /proc/self/stat. The second field is the name, which may have spaces and brackets in it.
    fn parse(stat: &str) -> Self {
        let Some((_, after_name)) = stat.rsplit_once(')') else { return Self::default() };
        let fields: Vec<u64> = after_name.split_whitespace().map(|word| word.parse().unwrap_or_default()).collect();
        // As proc(5) counts them, from 1; the first one here is the third there.
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
        Self { cpu_ticks: field(14) + field(15), start_ticks: field(22) }
    }
}

/// `VmRSS:      1234 kB`
fn kilobytes(status: &str, key: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB"));
    value.and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// `btime 1700000000`
fn boot_seconds(stat: &str) -> u64 {
    let value = stat.lines().find_map(|line| line.strip_prefix("btime "));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

/// `Max open files            1024                 524288               files`
fn most_descriptors(limits: &str) -> u64 {
    let value = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    match value {
        Some("unlimited") => u64::MAX,
        value => value.and_then(|value| value.parse().ok()).unwrap_or_default(),
    }
}

fn open_descriptors() -> io::Result<u64> {
    // One of them is that of the folder itself.
    Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1) as u64)
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

    #[test]
    fn the_kernels_lines_are_understood() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 12345 678 90 18446744073709551615";
        assert_eq!(ProcessTimes::parse(stat), ProcessTimes { cpu_ticks: 300, start_ticks: 12345 });
        assert_eq!(ProcessTimes::parse(""), ProcessTimes::default());
        let status = "Name:\tVmRSS: 1 kB\nVmSize:\t   20 kB\nVmRSS:\t   16 kB\n";
        assert_eq!((kilobytes(status, "VmRSS:"), kilobytes(status, "VmSwap:")), (16, 0));
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\n"), 1_700_000_000);
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024   4096   files\n";
        assert_eq!(most_descriptors(limits), 1024);
        assert_eq!(most_descriptors("Max open files   unlimited  unlimited files"), u64::MAX);
    }
}
