//! One pass over all containers with claims, which also puts back those that are bound otherwise. Blocking.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::{Instant, SystemTime},
};

use hostler_api::{Chain, ClaimRef};
use hostler_linux::{
    SysRoot,
    cgroup::{CgroupError, CpusetCgroup, CpusetStanding, with_kernel_memory},
};
use tracing::{debug, warn};

use super::{
    AuditNews, AuditRemark, AuditTable,
    cause::{CauseEvidence, LikelyCause, likely},
    history::{BindingHistory, BindingVerdict, MOST_REPAIRS},
    intent::{self, BindingIntent, NotedContainer},
};
use crate::{
    claims::ClaimTable,
    containers::{ContainerDir, ContainerSight},
    metrics::Metrics,
    pinning::Pins,
};

/// A container, told apart from any other of its name: id and start of its first process.
type ContainerKey = (String, u64);

/// Auditor of containers, which remembers what it did to each.
#[derive(Debug)]
pub struct Auditor {
    root: SysRoot,
    containers: ContainerDir,
    kubelet: PathBuf,
    metrics: Metrics,
    known: BTreeMap<ContainerKey, AuditedContainer>,
}

/// State that is kept of a container that runs.
#[derive(Debug, Default)]
struct AuditedContainer {
    history: BindingHistory,
    /// The container's cgroup: finding it costs more than all the rest of a check.
    cgroup: Option<CpusetCgroup>,
    /// The finding about the container.
    remark: Option<AuditRemark>,
    /// True if the container was checked before: a fault at the first check arose before the audit watched.
    seen: bool,
}

/// Findings of a pass.
#[derive(Debug, Default)]
pub struct AuditLook {
    /// Faults now.
    pub table: AuditTable,
    /// News of the pass.
    pub news: Vec<AuditNews>,
    /// The folders in which a write may change what was found.
    pub folders: BTreeSet<PathBuf>,
    /// Number of containers that were checked.
    pub containers: usize,
}

/// Reason why a container is not checked, or not touched.
#[derive(Debug, thiserror::Error)]
enum AuditError {
    #[error("its first process has ended, and nobody can tell whose cgroup it is now")]
    Ended,
    #[error("its first process cannot be looked at")]
    Unreadable,
    #[error("it is in another namespace of processes than the daemon, which cannot tell whose process it is")]
    OtherNamespace,
    #[error("its cgroup was not noted when it was made")]
    NoCgroup,
    #[error("its process has left the cgroup {}", .0.display())]
    Left(PathBuf),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("the memory that programs need besides cannot be told")]
    Memory(#[from] hostler_linux::ReadFailure),
}

/// A container that is not bound as it should be.
struct Drift<'a> {
    container: &'a NotedContainer,
    wanted: Pins,
    seen: CpusetStanding,
    cause: LikelyCause,
}

impl Auditor {
    /// Makes an auditor that has checked no container yet.
    pub fn new(root: SysRoot, containers: ContainerDir, kubelet: PathBuf, metrics: Metrics) -> Self {
        Self { root, containers, kubelet, metrics, known: BTreeMap::new() }
    }

    /// Checks every container that runs with a claim on record, and puts back those that may be put back.
    pub fn look(&mut self, table: &ClaimTable, now: Instant) -> AuditLook {
        let mut look = AuditLook::default();
        let running = self.running(table);
        self.known.retain(|key, _| running.contains_key(key));
        for (key, container) in &running {
            let mut known = self.known.remove(key).unwrap_or_default();
            look.news.extend(self.audit(container, table, &mut known, now));
            if let Some(cgroup) = &known.cgroup {
                known.seen = true;
                look.folders.insert(cgroup.path());
                look.folders.extend(cgroup.path().parent().map(PathBuf::from));
            }
            if let Some(remark) = &known.remark {
                for uid in container.shares.keys() {
                    look.table.remarks.entry(uid.clone()).or_default().push(remark.clone());
                }
            }
            self.known.insert(key.clone(), known);
        }
        look.containers = running.len();
        look
    }

    /// Returns the containers that run with claims that bind anything. A missing note would take from a container
    /// what it has of that claim, so every container that may have one is in doubt.
    fn running(&self, table: &ClaimTable) -> BTreeMap<ContainerKey, NotedContainer> {
        let mut running: BTreeMap<ContainerKey, NotedContainer> = BTreeMap::new();
        let (mut doubts, mut unread) = (BTreeMap::new(), None);
        for uid in intent::binding_claims(table) {
            let found = match self.containers.of(uid) {
                Ok(found) => found,
                Err(error) => {
                    warn!(claim.uid = %uid, error = %error, "containers are not audited: their notes cannot be read");
                    unread = Some(format!("whether it has claim {uid} cannot be read: {error}"));
                    continue;
                }
            };
            for container in found.into_iter().filter(|container| container.runs) {
                let Some(note) = container.note else {
                    let reason = format!("its note of claim {uid} is not understood");
                    doubts.insert(container.id.as_str().to_owned(), reason);
                    continue;
                };
                let share = note.sets.as_ref().map(|sets| Pins { cpus: sets.cpus.clone(), mems: sets.mems.clone() });
                let id = container.id.as_str().to_owned();
                let key = (id.clone(), note.started);
                let new = NotedContainer { id, note, shares: BTreeMap::new(), doubt: None };
                running.entry(key).or_insert(new).shares.insert(uid.clone(), share);
            }
        }
        for container in running.values_mut() {
            container.doubt = doubts.get(&container.id).cloned().or_else(|| unread.clone());
        }
        running
    }

    /// Checks one container; returns its news.
    fn audit(
        &self,
        container: &NotedContainer,
        table: &ClaimTable,
        known: &mut AuditedContainer,
        now: Instant,
    ) -> Vec<AuditNews> {
        let happened = match intent::intent(container, table) {
            BindingIntent::Bound(wanted) => match self.drift(container, wanted, known) {
                Ok(drift) => self.settle(drift, known, now),
                // A container that has gone is not found by the next pass.
                Err(AuditError::Ended) => {
                    known.remark = None;
                    None
                }
                Err(error) => self.leave_unseen(container, known, Chain(&error).to_string()),
            },
            BindingIntent::Later => None,
            BindingIntent::Unknown(reason) => self.leave_unseen(container, known, reason),
        };
        let claims = intent::claims_of(container, table);
        claims.iter().filter_map(|claim| happened.as_ref().map(|happening| happening.about(claim))).collect()
    }

    /// Returns the fault of the binding, if there is one.
    fn drift<'a>(
        &self,
        container: &'a NotedContainer,
        mut wanted: Pins,
        known: &mut AuditedContainer,
    ) -> Result<Option<Drift<'a>>, AuditError> {
        wanted.mems = with_kernel_memory(&self.root, &wanted.mems)?;
        if known.cgroup.is_none() {
            known.cgroup = Some(self.find(container)?);
        }
        let Some(cgroup) = &known.cgroup else { return Ok(None) };
        let seen = cgroup.standing().map_err(|error| self.gone_or(container, error))?;
        if seen.cpus.is(&wanted.cpus) && seen.mems.is(&wanted.mems) {
            return Ok(None);
        }
        let seen = cgroup.with_above(seen);
        let cause = likely(&seen, &wanted, &cgroup.path(), &CauseEvidence::read(&self.root, &self.kubelet));
        Ok(Some(Drift { container, wanted, seen, cause }))
    }

    /// Finds the cgroup of a container, in which its first process is right now.
    fn find(&self, container: &NotedContainer) -> Result<CpusetCgroup, AuditError> {
        let note = &container.note;
        match self.containers.sight(note) {
            ContainerSight::There => {}
            ContainerSight::Ended => return Err(AuditError::Ended),
            ContainerSight::OtherNamespace => return Err(AuditError::OtherNamespace),
            ContainerSight::Unreadable => return Err(AuditError::Unreadable),
        }
        let noted = note.cgroup.as_ref().ok_or(AuditError::NoCgroup)?;
        let cgroup = CpusetCgroup::of_process(&self.root, note.pid).map_err(|error| self.gone_or(container, error))?;
        cgroup.around(noted).ok_or_else(|| AuditError::Left(noted.clone()))
    }

    /// Classes a read error: of a container that has ended it says nothing.
    fn gone_or(&self, container: &NotedContainer, error: CgroupError) -> AuditError {
        match self.containers.sight(&container.note) {
            ContainerSight::Ended => AuditError::Ended,
            _ => error.into(),
        }
    }

    /// Acts on a finding, and returns the news of it.
    fn settle(&self, drift: Option<Drift<'_>>, known: &mut AuditedContainer, now: Instant) -> Option<Happening> {
        let verdict = known.history.judge(drift.is_none(), now);
        let Some(drift) = drift else {
            // A container that was given up stays so for a while, whatever is there at the moment.
            if verdict == BindingVerdict::Sound {
                known.remark = None;
            }
            return None;
        };
        match verdict {
            BindingVerdict::Repair => self.repair(&drift, known),
            // The log said already that it cannot be put back, and why.
            BindingVerdict::GiveUp if known.remark.as_ref().is_some_and(|remark| remark.degraded) => None,
            BindingVerdict::GiveUp => {
                let text =
                    format!("{}; it was put back {MOST_REPAIRS} times and is left as it is now", drift.in_words());
                self.degrade(known, &drift, text)
            }
            BindingVerdict::Leave | BindingVerdict::Sound => None,
        }
    }

    fn repair(&self, drift: &Drift<'_>, known: &mut AuditedContainer) -> Option<Happening> {
        // The process is looked at again: only what is its cgroup at this moment is written.
        let put_back = |cgroup: CpusetCgroup| cgroup.put_back(&drift.wanted.cpus, &drift.wanted.mems);
        match self.find(drift.container).and_then(|cgroup| Ok(put_back(cgroup)?)) {
            Ok(()) => {
                known.remark = None;
                self.metrics.audit_repaired(drift.cause.as_str());
                let (reason, when) =
                    if known.seen { ("CpusetRepaired", "") } else { ("CpusetMended", " while nobody looked") };
                let (id, seen) = (drift.id(), drift.seen_in_words());
                warn!(container = id, cause = drift.cause.as_str(), seen, "container is bound again as its claims say");
                let wanted = drift.wanted.in_words();
                let message = format!("container {id}: {}{when}; it is bound to {wanted} again", drift.in_words());
                Some(Happening { reason, message })
            }
            Err(error) => {
                let text = format!("{}; it cannot be put back: {}", drift.in_words(), Chain(&error));
                self.degrade(known, drift, text)
            }
        }
    }

    /// Reports that a container is not bound as it should be, unless that was reported.
    fn degrade(&self, known: &mut AuditedContainer, drift: &Drift<'_>, text: String) -> Option<Happening> {
        self.metrics.audit_failed(drift.cause.as_str());
        let remark = AuditRemark { container: drift.id().to_owned(), degraded: true, text };
        if known.remark.as_ref() == Some(&remark) {
            return None;
        }
        warn!(container = remark.container, reason = remark.text, "container is not bound as its claims say");
        let message = format!("container {}: {}", remark.container, remark.text);
        known.remark = Some(remark);
        Some(Happening { reason: "CpusetDegraded", message })
    }

    /// Reports once that a container cannot be checked.
    fn leave_unseen(
        &self,
        container: &NotedContainer,
        known: &mut AuditedContainer,
        text: String,
    ) -> Option<Happening> {
        known.cgroup = None;
        let remark = AuditRemark { container: container.id.clone(), degraded: false, text };
        if known.remark.as_ref() != Some(&remark) {
            debug!(container = container.id, reason = remark.text, "container is not audited");
            known.remark = Some(remark);
        }
        None
    }
}

/// An event of a container, before it is reported for each of its claims.
struct Happening {
    reason: &'static str,
    message: String,
}

impl Happening {
    fn about(&self, claim: &ClaimRef) -> AuditNews {
        AuditNews { claim: claim.clone(), reason: self.reason, message: self.message.clone(), at: SystemTime::now() }
    }
}

impl Drift<'_> {
    fn id(&self) -> &str {
        &self.container.id
    }

    /// Describes what the container has of what it should have.
    fn seen_in_words(&self) -> String {
        let pairs = [
            ("CPUs", &self.wanted.cpus, &self.seen.cpus.effective),
            ("NUMA nodes", &self.wanted.mems, &self.seen.mems.effective),
        ];
        let asked = pairs.into_iter().filter(|(_, wanted, _)| !wanted.is_empty());
        asked.map(|(noun, _, seen)| format!("{noun} {seen}")).collect::<Vec<_>>().join(" and ")
    }

    fn in_words(&self) -> String {
        let (seen, wanted, cause) = (self.seen_in_words(), self.wanted.in_words(), self.cause.sentence());
        format!("it was changed to {seen} from {wanted}, {cause}")
    }
}
