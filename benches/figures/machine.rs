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

/// The type of the file system that a folder is on (`ext4`), from the longest mount point above it. A journal is most of
/// what a flush costs ext4, so it is said where there is none.
pub(crate) fn file_system(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let above = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        folder.starts_with(point).then_some((point.len(), device, kind))
    });
    // Of several mounts on one point the last one is seen.
    let Some((_, device, kind)) = above.max_by_key(|(length, ..)| *length) else {
        return "an unknown file system".to_owned();
    };
    if kind == "ext4" && !has_journal(device) { "ext4 without a journal".to_owned() } else { kind.to_owned() }
}

/// Whether ext4 keeps a journal for a device: its thread is called `vda-8`, after the journal's inode.
fn has_journal(device: &str) -> bool {
    let name = fs::canonicalize(device).ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let journals = fs::read_dir("/proc/fs/jbd2").into_iter().flatten().flatten();
    let mut journals = journals.filter_map(|entry| entry.file_name().into_string().ok());
    name.is_some_and(|name| journals.any(|journal| journal.rsplit_once('-').is_some_and(|(device, _)| device == name)))
}

/// What a program says, trimmed; empty if it fails or is absent.
fn program(name: &str, args: &[&str]) -> String {
    let output = Command::new(name).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
