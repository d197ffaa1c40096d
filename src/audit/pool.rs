//! Containers of the shared pool, to which a program other than the runtime may give CPUs that claims have
//! exclusively. Blocking.
//!
//! The plugin of the runtime says which containers are in the pool, and on which CPUs the runtime has put them. A
//! container that runs on a claim's CPUs all the same is put back into the pool, under the rules that hold for
//! containers with claims: its own process is seen in its own cgroup, and three repairs are the most. A container
//! that has less of the pool is left alone.

use std::{collections::BTreeMap, ffi::OsStr, io, path::PathBuf, time::Instant};

use hostler_api::Chain;
use hostler_linux::{
    IdSet, SysRoot,
    cgroup::{CgroupError, CpusetCgroup},
};
use tracing::{debug, warn};

use super::{
    cause::{CauseEvidence, LikelyCause, likely},
    history::{BindingHistory, BindingVerdict, MOST_REPAIRS},
};
use crate::{
    claims::{ClaimTable, ClaimView},
    containers::{
        seen::{SeenContainer, SeenContainers},
        started,
    },
    metrics::Metrics,
    pinning::{self, Pins},
};

/// Auditor of the pool's containers, which remembers what it did to each.
#[derive(Debug)]
pub(super) struct PoolAuditor {
    root: SysRoot,
    kubelet: PathBuf,
    metrics: Metrics,
    /// Containers by id and process.
    known: BTreeMap<(String, u32), PooledContainer>,
}

/// A container of the pool that runs.
#[derive(Debug)]
struct PooledContainer {
    /// Start of the container's first process.
    started: u64,
    cgroup: CpusetCgroup,
    history: BindingHistory,
}

/// Reason why a container is not checked, or not touched.
#[derive(Debug, thiserror::Error)]
enum PoolError {
    #[error("its first process cannot be looked at")]
    Process(#[source] io::Error),
    #[error("process {0} is in no cgroup of its name")]
    Elsewhere(u32),
    #[error("its first process is another than before")]
    Ended,
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

impl PoolAuditor {
    /// Makes an auditor that has checked no container yet.
    pub(super) fn new(root: SysRoot, kubelet: PathBuf, metrics: Metrics) -> Self {
        Self { root, kubelet, metrics, known: BTreeMap::new() }
    }

    /// Checks every container that the runtime has put into the pool, and puts back those that run on CPUs of claims.
    pub(super) fn look(&mut self, table: &ClaimTable, seen: &SeenContainers, now: Instant) {
        let SeenContainers::Connected(seen) = seen else { return };
        self.known.retain(|(id, pid), _| seen.get(id).is_some_and(|container| container.pid == Some(*pid)));
        let plans = table.claims.values().flat_map(ClaimView::devices).map(|device| &device.plan);
        let claimed = pinning::exclusive_cpus(plans);
        for container in seen.values() {
            let (Some(pool), Some(pid)) = (&container.pool, container.pid) else { continue };
            // The runtime is being told of the latest claims.
            if claimed.is_empty() || !pool.is_disjoint(&claimed) {
                continue;
            }
            if let Err(error) = self.audit(container, pid, pool, &claimed, now) {
                self.known.remove(&(container.id.as_str().to_owned(), pid));
                debug!(container = container.id.as_str(), error = %Chain(&error), "container of the pool is not audited");
            }
        }
    }

    fn audit(
        &mut self,
        container: &SeenContainer,
        pid: u32,
        pool: &IdSet,
        claimed: &IdSet,
        now: Instant,
    ) -> Result<(), PoolError> {
        let key = (container.id.as_str().to_owned(), pid);
        let mut known = match self.known.remove(&key) {
            Some(known) => known,
            None => self.find(container, pid)?,
        };
        let standing = known.cgroup.standing()?;
        let has = standing.cpus.effective.clone();
        match known.history.judge(has.is_disjoint(claimed), now) {
            BindingVerdict::Sound | BindingVerdict::Leave => {}
            verdict => {
                let wanted = Pins { cpus: pool.clone(), mems: IdSet::new() };
                let evidence = CauseEvidence::read(&self.root, &self.kubelet);
                let standing = known.cgroup.with_above(standing);
                let cause = likely(&standing, &wanted, &known.cgroup.path(), &evidence);
                let put_back = if verdict == BindingVerdict::Repair {
                    self.put_back(container, pid, &known, pool).map_err(|error| Chain(&error).to_string())
                } else {
                    Err(format!("it was put back {MOST_REPAIRS} times"))
                };
                self.tell(container, &has, pool, cause, put_back);
            }
        }
        self.known.insert(key, known);
        Ok(())
    }

    /// Finds the cgroup of a container, which bears its id, with its first process in it.
    fn find(&self, container: &SeenContainer, pid: u32) -> Result<PooledContainer, PoolError> {
        let started = started(&self.root, pid).map_err(PoolError::Process)?;
        let cgroup = CpusetCgroup::of_process(&self.root, pid)?;
        let path = cgroup.path();
        let is_own = |name: &OsStr| name.to_string_lossy().contains(container.id.as_str());
        // The outermost one: what is below it the container has made itself.
        let own = path.ancestors().filter(|it| it.file_name().is_some_and(is_own)).last();
        let cgroup = own.and_then(|own| cgroup.around(own)).ok_or(PoolError::Elsewhere(pid))?;
        Ok(PooledContainer { started, cgroup, history: BindingHistory::default() })
    }

    /// Gives a container the CPUs of the pool again, if its process is the one that was checked.
    fn put_back(
        &self,
        container: &SeenContainer,
        pid: u32,
        known: &PooledContainer,
        pool: &IdSet,
    ) -> Result<(), PoolError> {
        let found = self.find(container, pid)?;
        if found.started != known.started {
            return Err(PoolError::Ended);
        }
        Ok(found.cgroup.put_back(pool, &IdSet::new())?)
    }

    fn tell(
        &self,
        container: &SeenContainer,
        has: &IdSet,
        pool: &IdSet,
        cause: LikelyCause,
        put_back: Result<(), String>,
    ) {
        let SeenContainer { id, namespace, pod, .. } = container;
        let (container, cause) = (id.as_str(), cause.as_str());
        match put_back {
            Ok(()) => {
                self.metrics.audit_repaired(cause);
                warn!(container, namespace, pod, cause, seen = %has, pool = %pool, "container is back in the shared pool");
            }
            Err(reason) => {
                self.metrics.audit_failed(cause);
                warn!(
                    container, namespace, pod, cause, seen = %has, pool = %pool, reason,
                    "container of the shared pool is left on CPUs of claims"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
