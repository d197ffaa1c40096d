//! Tells if a noted container still runs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use hostler_linux::{ReadFailure, SysRoot};

use super::ContainerNote;

pub(super) const PID_NAMESPACE: &str = "proc/self/ns/pid";
pub(super) const CGROUP_NAMESPACE: &str = "proc/self/ns/cgroup";

/// Returns the start of a process, in ticks since the boot.
pub(crate) fn started(root: &SysRoot, pid: u32) -> io::Result<u64> {
    let stat = stat(root, pid)?;
    stat.started.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it names no start time"))
}

struct ProcessStat {
    /// True if the process waits to be collected by its parent, or nearly so: it runs nothing any more.
    dead: bool,
    started: Option<u64>,
}

fn stat(root: &SysRoot, pid: u32) -> io::Result<ProcessStat> {
    let bytes = root.required_bytes(format!("proc/{pid}/stat"), u64::MAX).map_err(ReadFailure::into_error)?;
    let text = String::from_utf8_lossy(&bytes);
    // The name, in parentheses, may hold anything. Behind it, the state is the first field, the start the 20th.
    let mut fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let dead = matches!(fields.next(), Some("Z" | "X"));
    Ok(ProcessStat { dead, started: fields.nth(18).and_then(|ticks| ticks.parse().ok()) })
}

/// True if the container runs, or may run for all that can be seen from here.
pub(super) fn may_run(root: &SysRoot, note: &ContainerNote, boot_id: &str) -> bool {
    if note.boot_id != boot_id {
        return false;
    }
    let sees = |path: &str, namespace: &PathBuf| fs::read_link(root.path(path)).is_ok_and(|own| own == *namespace);
    if !sees(PID_NAMESPACE, &note.pid_namespace) || process_runs(root, note) {
        return true;
    }
    // A daemon in a pod sees the processes of the host, and often not its cgroups.
    !note.is_init
        && (!sees(CGROUP_NAMESPACE, &note.cgroup_namespace)
            || note.cgroup.as_deref().is_some_and(|cgroup| is_populated(root, cgroup)))
}

/// State of the first process of a container, as it is seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ContainerSight {
    /// The process is there, and no other than the one that was noted.
    There,
    /// The process has ended; others of the container may run on.
    Ended,
    /// The number means another process here.
    OtherNamespace,
    /// The process may be there, and cannot be looked at.
    Unreadable,
}

/// Looks for the first process of a container.
pub(super) fn sight(root: &SysRoot, note: &ContainerNote, boot_id: &str) -> ContainerSight {
    if note.boot_id != boot_id {
        return ContainerSight::Ended;
    }
    if fs::read_link(root.path(PID_NAMESPACE)).is_ok_and(|own| own != note.pid_namespace) {
        return ContainerSight::OtherNamespace;
    }
    match stat(root, note.pid) {
        Ok(stat) if !stat.dead && stat.started == Some(note.started) => ContainerSight::There,
        Ok(_) => ContainerSight::Ended,
        Err(error) if error.kind() == io::ErrorKind::NotFound => ContainerSight::Ended,
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => ContainerSight::Ended,
        Err(_) => ContainerSight::Unreadable,
    }
}

/// True if the noted process runs. One whose file is there and cannot be read counts: only absence is proof.
fn process_runs(root: &SysRoot, note: &ContainerNote) -> bool {
    match stat(root, note.pid) {
        Ok(stat) => !stat.dead && stat.started.is_none_or(|started| started == note.started),
        // ESRCH comes from a process that ended between open and read.
        Err(error) => error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(nix::libc::ESRCH),
    }
}

/// True if there are processes in a cgroup or below it, as far as can be seen: a cgroup that is gone has none.
fn is_populated(root: &SysRoot, cgroup: &Path) -> bool {
    let cgroup = cgroup.strip_prefix("/").unwrap_or(cgroup);
    match root.text(cgroup.join("cgroup.events")) {
        Ok(Some(events)) => events.lines().any(|line| line == "populated 1"),
        Ok(None) => has_processes(root, cgroup),
        Err(_) => true,
    }
}

/// Looks at all cgroups below: version 1 has no summary of them.
fn has_processes(root: &SysRoot, cgroup: &Path) -> bool {
    let own = root.text(cgroup.join("cgroup.procs")).map_or(true, |text| text.is_some_and(|text| !text.is_empty()));
    let below = || root.names(cgroup).map_or(true, |names| names.iter().any(|name| may_have(root, &cgroup.join(name))));
    own || below()
}

/// True if there may be processes in `below`: what cannot be looked at may be a cgroup like any other.
fn may_have(root: &SysRoot, below: &Path) -> bool {
    let is_folder = root.metadata(below).map_or(true, |found| found.is_some_and(|found| found.is_dir()));
    is_folder && has_processes(root, below)
}
