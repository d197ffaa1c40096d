//! Where the figures were taken.

use std::{fs, path::Path, process::Command};

/// One paragraph: processor, kernel, disk, compiler, commit, date, and how busy the machine was.
pub(crate) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let memory_kib = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let dirty =
        if program("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty() { "" } else { " and changes" };
    format!(
        "Taken on {date} at commit {commit}{dirty}: {cpus} CPUs ({model}), {memory} GiB, Linux {kernel}; state on {disk}; {rustc}; \
         load average at the end {load}.\n",
        date = program("date", &["-u", "+%Y-%m-%d"]),
        commit = program("git", &["rev-parse", "--short", "HEAD"]),
        cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        model = model.map_or("unnamed", |(_, model)| model),
        memory = memory_kib.unwrap_or_default() >> 20,
        kernel = read("/proc/sys/kernel/osrelease").trim(),
        disk = file_system(&disk()),
        rustc = program("rustc", &["--version"]),
        load = read("/proc/loadavg").split(' ').next().unwrap_or_default(),
    )
}

/// A folder that is most likely on a disk: where cargo builds.
pub(crate) fn disk() -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(folder).unwrap();
    folder.to_owned()
}

/// A folder in memory.
pub(crate) fn memory() -> &'static Path {
    Path::new("/dev/shm")
}

/// The type of the file system that a folder is on (`ext4`), from the longest mount point above it.
pub(crate) fn file_system(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let above = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        folder.starts_with(point).then_some((point.len(), kind))
    });
    // Of several mounts on one point the last one is seen.
    above.max_by_key(|(length, _)| *length).map_or("an unknown file system", |(_, kind)| kind).to_owned()
}

/// What a program says, trimmed; empty if it fails or is absent.
fn program(name: &str, args: &[&str]) -> String {
    let output = Command::new(name).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
