//! Reads what a container's cgroup has, long after it was pinned, and puts it back.
//!
//! Nothing outside of the cgroup is written, and no process in it is touched: a program may narrow itself, and its
//! children may be in cgroups that have less.

use std::path::{Path, PathBuf};

use super::{CPUS, CgroupError, CgroupVersion, CpusetCgroup, CpusetResource, MEMS, relative};
use crate::IdSet;

/// Most cgroups below a container's that are looked at: a program that makes more harms only itself.
const MOST_BELOW: usize = 256;

/// One resource of a cgroup.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SetStanding {
    /// Set that the cgroup is asked to have.
    pub requested: IdSet,
    /// Set that the cgroup has.
    pub effective: IdSet,
    /// Set that the cgroup above has to give; empty where that is not known.
    pub above: IdSet,
}

/// CPUs and memory nodes of a cgroup.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CpusetStanding {
    /// State of the CPUs.
    pub cpus: SetStanding,
    /// State of the memory nodes.
    pub mems: SetStanding,
}

impl SetStanding {
    /// True if the cgroup has just the `wanted` set; an empty set is not asked after.
    pub fn is(&self, wanted: &IdSet) -> bool {
        wanted.is_empty() || self.requested == *wanted && self.effective == *wanted
    }
}

impl CpusetCgroup {
    /// Moves up to the cgroup at `path`, in which or below which the process is; `None` if the process is neither, or
    /// has left it.
    #[must_use]
    pub fn around(self, path: &Path) -> Option<Self> {
        let below = path.strip_prefix(&self.mount).ok()?.to_owned();
        // The top holds every process.
        if below.as_os_str().is_empty() || !self.below.starts_with(&below) {
            return None;
        }
        let levels = self.below.components().count() - below.components().count();
        let name = Path::new(&self.name).ancestors().nth(levels)?.to_str()?.to_owned();
        Some(Self { name, below, ..self })
    }

    /// Reads what the cgroup has now.
    ///
    /// # Errors
    /// When the cgroup is gone, or cannot be read.
    pub fn standing(&self) -> Result<CpusetStanding, CgroupError> {
        Ok(CpusetStanding { cpus: self.standing_of(&CPUS)?, mems: self.standing_of(&MEMS)? })
    }

    /// Gives the cgroup these CPUs and memory nodes again; an empty set leaves the resource alone.
    ///
    /// # Errors
    /// When the kernel refuses a set, or accepts it and uses another.
    pub fn put_back(&self, cpus: &IdSet, mems: &IdSet) -> Result<(), CgroupError> {
        for (resource, set) in [(&MEMS, mems), (&CPUS, cpus)].into_iter().filter(|(_, set)| !set.is_empty()) {
            let standing = self.standing_of(resource)?;
            if standing.is(set) {
                continue;
            }
            if self.version == CgroupVersion::V1 {
                self.make_room(resource, &standing.requested, set)?;
            }
            self.write(resource, set)?;
            self.expect(resource, set)?;
        }
        Ok(())
    }

    fn standing_of(&self, resource: &CpusetResource) -> Result<SetStanding, CgroupError> {
        let requested = self.set_in(&self.file(resource.file))?;
        let effective = match self.version {
            CgroupVersion::V1 => {
                self.set_if_there(&self.file(resource.effective_v1))?.unwrap_or_else(|| requested.clone())
            }
            CgroupVersion::V2 => self.set_in(&self.file(resource.effective_v2))?,
        };
        Ok(SetStanding { requested, effective, above: IdSet::new() })
    }

    /// Adds what the cgroup above has to give, for callers that want to know why this one has less.
    pub fn with_above(&self, mut standing: CpusetStanding) -> CpusetStanding {
        let above = |resource: &CpusetResource| {
            let file = self.parent()?.join(match self.version {
                CgroupVersion::V1 => resource.file,
                CgroupVersion::V2 => resource.effective_v2,
            });
            self.set_in(&file).ok()
        };
        standing.cpus.above = above(&CPUS).unwrap_or_default();
        standing.mems.above = above(&MEMS).unwrap_or_default();
        standing
    }

    fn expect(&self, resource: &CpusetResource, set: &IdSet) -> Result<(), CgroupError> {
        let seen = self.standing_of(resource)?;
        if seen.is(set) {
            return Ok(());
        }
        let (file, seen) = if seen.requested == *set {
            (resource.effective(self.version), seen.effective)
        } else {
            (resource.file, seen.requested)
        };
        let (file, wanted, seen) = (self.file(file), set.to_string(), seen.to_string());
        Err(CgroupError::Mismatch { file, wanted, seen, cause: self.replacement(resource, set) })
    }

    /// Takes from the cgroups below what they have beyond the set: version 1 lets no cgroup have less than those below
    /// it. One that would be left with nothing gets the set.
    fn make_room(&self, resource: &CpusetResource, has: &IdSet, set: &IdSet) -> Result<(), CgroupError> {
        let below = self.below_with_more(resource, set)?;
        if below.is_empty() {
            return Ok(());
        }
        // This cgroup must have what one of those below is to get.
        self.write(resource, &has.union(set))?;
        // The deepest first, as it is below the others.
        for cgroup in below.iter().rev() {
            let file = cgroup.join(resource.file);
            let rest = self.set_in(&file)?.intersection(set);
            let wanted = if rest.is_empty() { set } else { &rest };
            self.widen_to(&file, wanted, cgroup, resource)?;
        }
        Ok(())
    }

    /// Writes a set below; a cgroup above that has not all of it would refuse the set, so it gets the set first.
    fn widen_to(
        &self,
        file: &Path,
        wanted: &IdSet,
        cgroup: &Path,
        resource: &CpusetResource,
    ) -> Result<(), CgroupError> {
        let own = self.path();
        let between = cgroup.ancestors().skip(1).take_while(|above| above.starts_with(&own) && **above != *own);
        for above in between.collect::<Vec<&Path>>().into_iter().rev() {
            let file = above.join(resource.file);
            let has = self.set_in(&file)?;
            if !wanted.is_subset(&has) {
                self.write_file(&file, &has.union(wanted), resource)?;
            }
        }
        self.write_file(file, wanted, resource)
    }

    fn write_file(&self, file: &Path, set: &IdSet, resource: &CpusetResource) -> Result<(), CgroupError> {
        self.put(file, &set.to_string()).map_err(|source| CgroupError::Write {
            seen: self.read(file).unwrap_or_default(),
            cause: self.refusal(resource, set, &source),
            file: file.to_owned(),
            wanted: set.to_string(),
            source,
        })
    }

    /// The cgroups below that have something beyond the set, each after those that it is below.
    fn below_with_more(&self, resource: &CpusetResource, set: &IdSet) -> Result<Vec<PathBuf>, CgroupError> {
        let mut found = Vec::new();
        let mut open = vec![self.path()];
        let mut looked = 0;
        while let Some(folder) = open.pop() {
            for name in self.root.names(relative(&folder))? {
                let path = folder.join(name);
                let Some(has) = self.set_if_there(&path.join(resource.file))? else { continue };
                looked += 1;
                if looked > MOST_BELOW {
                    return Ok(found);
                }
                if !has.is_subset(set) {
                    found.push(path.clone());
                }
                open.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    fn set_in(&self, file: &Path) -> Result<IdSet, CgroupError> {
        let text = self.read(file)?;
        text.parse().map_err(|error| {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            CgroupError::Read(crate::ReadFailure::new(relative(file), error))
        })
    }

    fn set_if_there(&self, file: &Path) -> Result<Option<IdSet>, CgroupError> {
        match self.set_in(file) {
            Err(CgroupError::Read(failure)) if failure.is_absence() => Ok(None),
            set => set.map(Some),
        }
    }
}
