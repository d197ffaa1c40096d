//! Containers that run with claims, on any container runtime: one small file per container and claim.
//!
//! ```text
//! <state>/containers/<claim uid>/<container id>.<start>.json  {"boot_id": …, "pid": …, "started": …, "cgroup": …, …}
//! ```
//!
//! Writer: the hook, while a container is made. Reader: all code that must not touch the hardware of a container.
//! Remover: the claims task and the janitor. The folder is beside the records because several instances of the daemon
//! share it.
//!
//! Wrongly taking a container for ended would take its hardware away, so everything that cannot be known counts as
//! running: a file that is not understood, processes or cgroups that are not visible from here. The time of the start
//! is in the file's name, so that removing the note of an ended container never hits that of its next start.

mod life;
mod owner;
pub mod seen;

pub use life::ContainerSight;
pub(crate) use life::started;

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use hostler_api::{Chain, ClaimUid};
use hostler_files::{Durability, FileError, FileReplacement, TemporaryName, TrustError, read_trusted, replace};
use hostler_linux::{
    IdSet, SysRoot, boot,
    cgroup::{CgroupError, CpusetCgroup},
};
use serde::{Deserialize, Serialize};
use tracing::warn;

pub use owner::{ContainerOwner, NotedPod};

/// Size limit of a note: notes have a few hundred bytes; a path has 4096 at most.
const MOST_BYTES: u64 = 64 << 10;

/// The id of a container, as its runtime calls it. It becomes a file name, so its characters are restricted.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ContainerId(String);

/// Error of a text that cannot be a container's id.
#[derive(Debug, thiserror::Error)]
#[error(
    "container id {0:?} is not valid: 1 to 200 characters of a-z, A-Z, 0-9, '_', '+', '-' and '.', not beginning with a dot"
)]
pub struct ContainerIdError(String);

impl ContainerId {
    /// Checks `value` and wraps it.
    ///
    /// # Errors
    /// When it is empty, too long, or holds characters that have no place in a file name.
    pub fn new(value: impl Into<String>) -> Result<Self, ContainerIdError> {
        let value = value.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
        let ok = (1..=200).contains(&value.len()) && value.bytes().all(plain) && !value.starts_with('.');
        if ok { Ok(Self(value)) } else { Err(ContainerIdError(value)) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Note about a container from the moment in which it was made.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ContainerNote {
    /// The boot in which that was; nothing outlives it.
    pub boot_id: String,
    /// The container's first process.
    pub pid: u32,
    /// Start of that process, in ticks since the boot: another process can get the number, not the time.
    pub started: u64,
    /// The container's cgroup, as a path of the machine; absent where it has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// The namespace in which the process has that number.
    pub pid_namespace: PathBuf,
    /// The namespace in which the cgroup has that path.
    pub cgroup_namespace: PathBuf,
    /// True if the process is the first of a namespace of processes: all others in there end with it.
    #[serde(default)]
    pub is_init: bool,
    /// Binding of the container for this claim, which may be a part of the claim. Absent in notes of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<ContainerSets>,
    /// Owner of the container, as far as its runtime tells. Absent in notes of earlier versions.
    #[serde(flatten)]
    pub owner: ContainerOwner,
}

/// Binding of a container for a claim; an empty set binds nothing.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ContainerSets {
    /// CPUs.
    pub cpus: IdSet,
    /// NUMA nodes.
    pub mems: IdSet,
}

/// A container's use of a claim.
#[derive(Clone, Debug)]
pub struct ContainerUse<'a> {
    /// The claim.
    pub claim: &'a ClaimUid,
    /// The container.
    pub container: &'a ContainerId,
    /// The container's first process.
    pub pid: u32,
    /// Binding of the container for the claim, where that is known.
    pub sets: Option<ContainerSets>,
    /// Owner of the container, as far as its runtime tells.
    pub owner: ContainerOwner,
}

/// Error of recording a container.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file about the container could not be read.
    #[error("failed to read /{path} of the container")]
    Look {
        /// The file, without the leading slash.
        path: String,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] FileError),
}

impl RecordError {
    /// True if it failed as it fails for a runtime of an ordinary user. Root can meet the same errors, on a file
    /// system that went read-only for example.
    pub fn is_denied(&self) -> bool {
        let (Self::Look { source, .. } | Self::Write(FileError { source, .. })) = self;
        matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }
}

/// Notes that a container uses a claim. For the hook; takes well under a millisecond.
///
/// # Errors
/// When the process cannot be looked at or the file cannot be written.
pub fn record(root: &SysRoot, folder: &Path, used: ContainerUse<'_>) -> Result<(), RecordError> {
    let note = ContainerNote { sets: used.sets, ..look(root, used.pid, used.owner)? };
    let folder = folder.join(used.claim.as_str());
    let name = format!("{}.{}", used.container.as_str(), note.started);
    let (path, hidden) = (folder.join(format!("{name}.json")), format!(".{name}.tmp"));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    let content = made.and_then(|()| Ok(serde_json::to_vec(&note)?)).map_err(FileError::at("write", &path))?;
    let temporary = TemporaryName::Fixed(&hidden);
    let file = FileReplacement { path: &path, temporary, mode: 0o600, content: &content };
    // No container outlives a boot, and every container would wait for the disk.
    Ok(replace(&file, Durability::Unsynced).map_err(|error| error.as_part_of("write", &path))?)
}

fn look(root: &SysRoot, pid: u32, owner: ContainerOwner) -> Result<ContainerNote, RecordError> {
    let failed = |path: &str| {
        let path = path.to_owned();
        move |source| RecordError::Look { path, source }
    };
    let stat = format!("proc/{pid}/stat");
    let started = started(root, pid).map_err(failed(&stat))?;
    let namespace = |path: &str| fs::read_link(root.path(path)).map_err(failed(path));
    let pid_namespace = namespace(life::PID_NAMESPACE)?;
    Ok(ContainerNote {
        boot_id: boot::boot_id(root).map_err(failed("proc/sys/kernel/random/boot_id"))?,
        pid,
        started,
        cgroup: own_cgroup(root, pid)?,
        cgroup_namespace: namespace(life::CGROUP_NAMESPACE)?,
        // Where it cannot be known, the cgroup is asked as well.
        is_init: namespace(&format!("proc/{pid}/ns/pid")).is_ok_and(|own| own != pid_namespace),
        pid_namespace,
        sets: None,
        owner,
    })
}

/// Returns the cgroup of a process, where it can be seen from here. A cgroup that is also the hook's own is the
/// runtime's, and is never empty.
fn own_cgroup(root: &SysRoot, pid: u32) -> Result<Option<PathBuf>, RecordError> {
    let path = CpusetCgroup::of_process(root, pid).and_then(|cgroup| {
        let is_ours = cgroup.holds(std::process::id())?;
        Ok((!is_ours).then(|| cgroup.path()))
    });
    match path {
        Err(CgroupError::Read(failure)) => {
            let path = failure.path().display().to_string();
            Err(RecordError::Look { path, source: failure.into_error() })
        }
        path => Ok(path.ok().flatten()),
    }
}

/// A container that was made with a claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimContainer {
    /// Id of the container.
    pub id: ContainerId,
    /// Note about the container; `None` if its file is not understood.
    pub note: Option<ContainerNote>,
    /// True if the container runs, or may run for all that can be known.
    pub runs: bool,
    file: PathBuf,
}

/// The folder of all containers.
#[derive(Clone, Debug)]
pub struct ContainerDir {
    path: PathBuf,
    root: SysRoot,
    boot_id: String,
}

impl ContainerDir {
    /// The folder at `path`, of the machine under `root` in this boot.
    pub fn new(path: impl Into<PathBuf>, root: SysRoot, boot_id: impl Into<String>) -> Self {
        Self { path: path.into(), root, boot_id: boot_id.into() }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the containers that were made with a claim and not noticed to have ended, by id.
    ///
    /// # Errors
    /// When the folder is there and cannot be read.
    pub fn of(&self, claim: &ClaimUid) -> io::Result<Vec<ClaimContainer>> {
        let folder = self.path.join(claim.as_str());
        let mut containers: Vec<ClaimContainer> =
            names(&folder)?.iter().filter_map(|name| self.container(&folder, name)).collect();
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(containers)
    }

    /// State of the first process of a container right now.
    pub fn sight(&self, note: &ContainerNote) -> ContainerSight {
        life::sight(&self.root, note, &self.boot_id)
    }

    /// True if a container runs with a claim, or may run for all that can be known.
    pub fn any_runs(&self, claim: &ClaimUid) -> bool {
        self.of(claim).map_or(true, |containers| containers.iter().any(|container| container.runs))
    }

    /// Forgets the containers of a claim.
    ///
    /// # Errors
    /// When the folder is there and cannot be removed.
    pub fn forget(&self, claim: &ClaimUid) -> io::Result<()> {
        ignore_absent(fs::remove_dir_all(self.path.join(claim.as_str())))
    }

    /// Returns the claims that have a folder.
    ///
    /// # Errors
    /// When the folder of all containers is there and cannot be read.
    pub fn claims(&self) -> io::Result<Vec<ClaimUid>> {
        Ok(names(&self.path)?.into_iter().filter_map(|name| ClaimUid::new(name).ok()).collect())
    }

    /// Removes the files of a claim's containers that have ended, and returns how many.
    ///
    /// # Errors
    /// When the folder cannot be read or a file cannot be removed.
    pub fn sweep(&self, claim: &ClaimUid) -> io::Result<usize> {
        let ended: Vec<ClaimContainer> = self.of(claim)?.into_iter().filter(|container| !container.runs).collect();
        for container in &ended {
            ignore_absent(fs::remove_file(&container.file))?;
        }
        Ok(ended.len())
    }

    fn container(&self, folder: &Path, name: &str) -> Option<ClaimContainer> {
        let (id, _started) = name.strip_suffix(".json")?.rsplit_once('.')?;
        let (id, file) = (ContainerId::new(id).ok()?, folder.join(name));
        let read = read_trusted(&file, MOST_BYTES);
        if read.as_ref().is_err_and(TrustError::is_absent) {
            return None;
        }
        let parsed = |bytes: Vec<u8>| {
            Ok(serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(FileError::at("parse", &file))?)
        };
        let note: Result<ContainerNote, TrustError> = read.and_then(parsed);
        let note = note.inspect_err(|error| warn!(error = %Chain(error), "a container counts as running")).ok();
        let runs = note.as_ref().is_none_or(|note| life::may_run(&self.root, note, &self.boot_id));
        Some(ClaimContainer { id, note, runs, file })
    }
}

/// Returns the names in a folder that do not begin with a dot; none if it is absent.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok().filter(|name| !name.starts_with('.')));
    }
    Ok(names)
}

fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests;
