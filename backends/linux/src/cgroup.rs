//! The cpuset cgroup of a process, on cgroup v1, v2 and machines that mix them: finding it and pinning it.
//!
//! Used by the container hook, so it is quick (a dozen small files) and every failure says what to do. Nothing that the
//! kernel accepts is believed: on v2 a set that cannot be had is accepted and silently replaced by the parent's.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{IdSet, ReadFailure, SysRoot};

mod affinity;
mod explain;
mod fixed;
mod locate;
mod standing;

pub use fixed::{KernelMemory, with_kernel_memory};
pub use standing::{CpusetStanding, SetStanding};

/// A resource to pin: the names by which the kernel knows CPUs and memory nodes.
#[derive(Clone, Copy, Debug)]
struct CpusetResource {
    noun: &'static str,
    file: &'static str,
    effective_v1: &'static str,
    effective_v2: &'static str,
    status: &'static str,
    usable: &'static str,
}

const CPUS: CpusetResource = CpusetResource {
    noun: "CPUs",
    file: "cpuset.cpus",
    effective_v1: "cpuset.effective_cpus",
    effective_v2: "cpuset.cpus.effective",
    status: "Cpus_allowed_list:",
    usable: "sys/devices/system/cpu/online",
};

const MEMS: CpusetResource = CpusetResource {
    noun: "memory nodes",
    file: "cpuset.mems",
    effective_v1: "cpuset.effective_mems",
    effective_v2: "cpuset.mems.effective",
    status: "Mems_allowed_list:",
    usable: "sys/devices/system/node/has_memory",
};

impl CpusetResource {
    /// The file that says what a cgroup has.
    fn effective(&self, version: CgroupVersion) -> &'static str {
        match version {
            CgroupVersion::V1 => self.effective_v1,
            CgroupVersion::V2 => self.effective_v2,
        }
    }
}

/// Version of the hierarchy that has the cpusets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CgroupVersion {
    /// A hierarchy for cpusets alone (or with other controllers).
    V1,
    /// The unified hierarchy.
    V2,
}

/// The cgroup that decides on which CPUs and memory nodes a process may run.
#[derive(Clone, Debug)]
pub struct CpusetCgroup {
    root: SysRoot,
    pid: u32,
    version: CgroupVersion,
    /// The cgroup as the kernel names it.
    name: String,
    /// Mount point of the hierarchy, absolute.
    mount: PathBuf,
    /// The cgroup below `mount`; empty at its top.
    below: PathBuf,
}

/// Why a process was not pinned.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// Something could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The kernel has no cpusets, or the process is a kernel thread of another world.
    #[error("process {pid} is in no cgroup with cpusets; the kernel needs CONFIG_CPUSETS")]
    NoCpuset {
        /// The process.
        pid: u32,
    },
    /// The hierarchy is not visible.
    #[error("the {hierarchy} cgroups of process {pid} are not mounted here; mount them or run the hook on the host")]
    NotMounted {
        /// The process.
        pid: u32,
        /// `cpuset` (v1) or `unified` (v2).
        hierarchy: &'static str,
    },
    /// Only another part of the hierarchy is visible.
    #[error(
        "cgroup {cgroup} of process {pid} is not below any cgroup mount here; run the hook in the host's namespaces"
    )]
    Outside {
        /// The process.
        pid: u32,
        /// Name of the process's cgroup, as the kernel gives it.
        cgroup: String,
    },
    /// A v2 cgroup without the controller.
    #[error("cgroup {} has no cpuset controller: {reason}", cgroup.display())]
    NotDelegated {
        /// The cgroup.
        cgroup: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The kernel refused a set.
    #[error("failed to write {wanted} to {}, which has {seen:?}: {cause}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The set.
        wanted: String,
        /// Content of the file.
        seen: String,
        /// Likely cause and fix.
        cause: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel accepted a set and uses another.
    #[error("{} is {seen:?} instead of {wanted}: {cause}", file.display())]
    Mismatch {
        /// The file, of the cgroup or of the process.
        file: PathBuf,
        /// The set that was written.
        wanted: String,
        /// Content of the file.
        seen: String,
        /// Likely cause and fix.
        cause: String,
    },
}

impl CpusetCgroup {
    /// Finds the cgroup of a process by the `proc` and mounts under `root`.
    ///
    /// # Errors
    /// When the process is gone, or its cgroup cannot be seen from here.
    pub fn of_process(root: &SysRoot, pid: u32) -> Result<Self, CgroupError> {
        let member = locate::membership(root, pid)?;
        let (mount, below) = locate::mounted(root, pid, &member)?;
        Ok(Self { root: root.clone(), pid, version: member.version, name: member.path, mount, below })
    }

    /// Version of the hierarchy.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// The cgroup's folder, as a path of the machine.
    pub fn path(&self) -> PathBuf {
        self.mount.join(&self.below)
    }

    /// True if a process is in this cgroup or below it.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn holds(&self, pid: u32) -> Result<bool, CgroupError> {
        let member = locate::membership(&self.root, pid)?;
        Ok(member.version == self.version && Path::new(&member.path).starts_with(&self.name))
    }

    /// Restricts the cgroup to these CPUs and memory nodes, and proves that the process has exactly these; an empty set
    /// leaves the resource alone. Memory first: what CPUs of the new set allocate is then already in place. A narrower
    /// affinity of the process is undone.
    ///
    /// # Errors
    /// When the kernel refuses a set, or accepts it and uses another. The cgroup may be half-changed then.
    pub fn pin(&self, cpus: &IdSet, mems: &IdSet) -> Result<(), CgroupError> {
        if self.version == CgroupVersion::V2 {
            self.require_controller()?;
        }
        let wanted = [(&MEMS, mems), (&CPUS, cpus)];
        let wanted = wanted.into_iter().filter(|(_, set)| !set.is_empty());
        for (resource, set) in wanted.clone() {
            self.write(resource, set)?;
        }
        if !cpus.is_empty() {
            affinity::widen(&self.root, self.pid);
        }
        for (resource, set) in wanted {
            self.verify(resource, set)?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The cgroup above; `None` at the top of what is mounted.
    fn parent(&self) -> Option<PathBuf> {
        Some(self.mount.join(self.below.parent()?))
    }

    fn read(&self, path: &Path) -> Result<String, CgroupError> {
        let bytes = self.root.required_bytes(relative(path), u64::MAX)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Writes a file and never creates it: a missing one is a missing controller or an ended container.
    fn put(&self, path: &Path, text: &str) -> io::Result<()> {
        self.root.write(relative(path), text)
    }

    fn write(&self, resource: &CpusetResource, set: &IdSet) -> Result<(), CgroupError> {
        let (file, wanted) = (self.file(resource.file), set.to_string());
        self.put(&file, &wanted).map_err(|source| CgroupError::Write {
            seen: self.read(&file).unwrap_or_default(),
            cause: self.refusal(resource, set, &source),
            file,
            wanted,
            source,
        })
    }

    /// Checks that the requested value, the effective one and the one that the process itself is told are all the set.
    fn verify(&self, resource: &CpusetResource, set: &IdSet) -> Result<(), CgroupError> {
        let same = |seen: &str| seen.parse::<IdSet>().is_ok_and(|seen| seen == *set);
        let mismatch = |file, seen: String, cause| {
            let error = CgroupError::Mismatch { file, wanted: set.to_string(), seen, cause };
            Err(error)
        };
        let effective = match self.version {
            CgroupVersion::V1 => {
                let file = self.file(resource.effective_v1);
                self.root.exists(relative(&file))?.then_some(file)
            }
            CgroupVersion::V2 => Some(self.file(resource.effective_v2)),
        };
        for file in std::iter::once(self.file(resource.file)).chain(effective) {
            let seen = self.read(&file)?;
            if !same(&seen) {
                return mismatch(file, seen, self.replacement(resource, set));
            }
        }
        let file = PathBuf::from(format!("/proc/{}/status", self.pid));
        let status = self.read(&file)?;
        let seen = status.lines().find_map(|line| line.strip_prefix(resource.status)).unwrap_or_default().trim();
        if same(seen) { Ok(()) } else { mismatch(file, seen.to_owned(), explain::narrowed(resource)) }
    }

    /// Passes the controller on where the parent has it, as the runtime would have done: a runtime that was asked for
    /// no cpuset may have made the cgroup without.
    fn require_controller(&self) -> Result<(), CgroupError> {
        if self.has_controller(&self.path())? {
            return Ok(());
        }
        let refuse = |reason| Err(CgroupError::NotDelegated { cgroup: self.path(), reason });
        let Some(parent) = self.parent() else { return refuse(explain::top(&self.mount)) };
        if !self.has_controller(&parent)? {
            return refuse(explain::parent_without_controller(&parent));
        }
        let control = parent.join("cgroup.subtree_control");
        if let Err(error) = self.put(&control, "+cpuset") {
            return refuse(explain::not_passed_on(&control, &error));
        }
        if self.has_controller(&self.path())? { Ok(()) } else { refuse(explain::still_without(&control)) }
    }

    fn has_controller(&self, cgroup: &Path) -> Result<bool, CgroupError> {
        let controllers = self.read(&cgroup.join("cgroup.controllers"))?;
        Ok(controllers.split_whitespace().any(|controller| controller == "cpuset"))
    }
}

/// Makes a path of the machine relative to its root.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests;
