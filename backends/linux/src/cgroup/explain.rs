//! Why a cpuset could not be had, and what to do about it, from what the tree shows afterwards.

use std::{io, path::Path, str::FromStr};

use nix::errno::Errno;

use super::{CgroupVersion, CpusetCgroup, CpusetResource};
use crate::IdSet;

impl CpusetCgroup {
    /// Why the kernel refused a set.
    pub(super) fn refusal(&self, resource: &CpusetResource, set: &IdSet, error: &io::Error) -> String {
        let errno = error.raw_os_error().map(Errno::from_raw);
        // These errors hold for any set, so the set is not looked at.
        match errno {
            Some(Errno::EROFS) => {
                return "the cgroups are mounted read-only; run the hook where they are writable".into();
            }
            Some(Errno::EPERM) => return denied(self.version).into(),
            Some(Errno::ENOENT | Errno::ENODEV) => {
                return "the cgroup or its cpuset controller has gone; the container may have ended".into();
            }
            Some(Errno::EACCES) if self.parent().is_none() => return top(&self.mount),
            _ => {}
        }
        self.unavailable(resource, set).unwrap_or_else(|| match errno {
            Some(Errno::EACCES) => denied(self.version).into(),
            Some(Errno::EBUSY) => {
                "a process or a child cgroup uses what would be taken away; pin the container before it starts work".into()
            }
            Some(Errno::EINVAL) => format!(
                "another cgroup has some of these {} for itself; look for cpuset.cpus.partition or cpuset.cpu_exclusive",
                resource.noun
            ),
            _ => "the kernel gives no further reason".into(),
        })
    }

    /// Why the kernel uses another set than it accepted.
    pub(super) fn replacement(&self, resource: &CpusetResource, set: &IdSet) -> String {
        self.unavailable(resource, set).unwrap_or_else(|| {
            format!(
                "another cgroup has some of these {} for itself, or another program writes this cgroup too; \
                 look for cpuset.cpus.partition, a CPU manager or another hook",
                resource.noun
            )
        })
    }

    /// The part of the set that the machine or the parent cgroup does not have.
    fn unavailable(&self, resource: &CpusetResource, set: &IdSet) -> Option<String> {
        let noun = resource.noun;
        // This explains an error that there is already; a file that cannot be read does not help.
        let usable = self.root.text(resource.usable).ok().flatten().and_then(|text| IdSet::from_str(&text).ok());
        let offline = usable.map(|usable| set.difference(&usable)).filter(|offline| !offline.is_empty());
        if let Some(offline) = offline {
            return Some(format!("{noun} {offline} are offline; bring them online or prepare the claim anew"));
        }
        let parent = self.parent()?;
        let file = parent.join(match self.version {
            CgroupVersion::V1 => resource.file,
            CgroupVersion::V2 => resource.effective_v2,
        });
        let allowed: IdSet = self.read(&file).ok()?.parse().ok()?;
        let beyond = set.difference(&allowed);
        (!beyond.is_empty()).then(|| {
            format!(
                "the parent cgroup {} allows {noun} {allowed}, not {beyond}; widen it (AllowedCPUs= and \
                 AllowedMemoryNodes= of its systemd slice) or reserve {beyond} in the configuration",
                parent.display()
            )
        })
    }
}

/// Why a user without privileges cannot bind containers.
fn denied(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "the hook may not write here; run the container as root",
        CgroupVersion::V2 => {
            "the hook may not write here; run the container as root, or delegate cpuset to its user \
             (Delegate=cpu cpuset io memory pids in a drop-in of user@.service)"
        }
    }
}

/// Why a process has less than its cgroup.
pub(super) fn narrowed(resource: &CpusetResource) -> String {
    format!(
        "the cgroup has all of these {}, but the process is narrowed by itself or has left the cgroup; \
         look for CPUAffinity= in the units of the container runtime",
        resource.noun
    )
}

/// Why the top of a hierarchy is not pinned.
pub(super) fn top(mount: &Path) -> String {
    format!(
        "it is the top of what is mounted at {}, which holds every process; let the runtime make a cgroup for the container",
        mount.display()
    )
}

/// Why the controller cannot be passed on.
pub(super) fn parent_without_controller(parent: &Path) -> String {
    format!(
        "its parent {} does not have it either; enable it from the top on (for containers of users, \
         Delegate=cpu cpuset io memory pids in a drop-in of user@.service)",
        parent.display()
    )
}

/// Why the controller was not passed on.
pub(super) fn not_passed_on(control: &Path, error: &io::Error) -> String {
    let reason = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EBUSY) => "the parent has processes of its own; let the runtime move them into a child",
        Some(Errno::EROFS) => "the cgroups are mounted read-only; run the hook where they are writable",
        Some(Errno::EACCES | Errno::EPERM) => denied(CgroupVersion::V2),
        _ => "the kernel gives no further reason",
    };
    format!("failed to write +cpuset to {} ({error}): {reason}", control.display())
}

/// Passing the controller on succeeded and changed nothing.
pub(super) fn still_without(control: &Path) -> String {
    format!("+cpuset was written to {} and changed nothing; is this a cgroup file system?", control.display())
}
