//! Containers that the runtime has told of, their intended binding, and their present one as far as it is known. Pure.
//!
//! ```text
//!   Synchronize, CreateContainer, any event of a container not told of before ──► known
//!        │ what its specification says is what records give: served             │ else: quarantined, left alone
//!        ▼                                                                        ▼ (until records say otherwise)
//!   told ≠ intended: pending ── an answer or an update ──► told            no update, refused when it is made
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use hostler_api::Doubling;
use hostler_linux::IdSet;
use hostler_proto::nri::{
    Container, ContainerState, ContainerUpdate, LinuxContainerUpdate, LinuxCpu, LinuxResources, PodSandbox,
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    facts::PinningFacts,
    shares::{ContainerShares, OddContainer},
};
use crate::{
    containers::{
        ContainerId,
        seen::{SeenContainer, SeenContainers},
    },
    pinning::Pins,
};

/// Pauses before an update that failed is tried again.
const RETRIES: Doubling = Doubling::new(Duration::from_secs(5), Duration::from_secs(300));

/// A container that the runtime has told of.
#[derive(Debug)]
struct KnownContainer {
    seen: Arc<SeenContainer>,
    /// Claims and bindings in the container's specification.
    shares: Result<ContainerShares, OddContainer>,
    /// Binding by the container's claims, according to the records.
    own: Result<Pins, OddContainer>,
    /// Intended binding.
    intended: Pins,
    /// Binding that the runtime has.
    told: Pins,
    /// True if the container can be updated: not after its end.
    lives: bool,
    failures: u32,
    retry_at: Option<Instant>,
}

impl KnownContainer {
    fn is_pending(&self) -> bool {
        self.lives && differs(&self.intended, &self.told)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_pending() && self.retry_at.is_none_or(|retry_at| retry_at <= now)
    }

    /// Holds the container to the records, and logs what is odd about it, once.
    fn consider(&mut self, facts: &PinningFacts) {
        let own = self.shares.as_ref().map_err(Clone::clone).and_then(|shares| shares.pins(&facts.table));
        if own != self.own
            && self.lives
            && let Err(reason) = &own
        {
            // Ordinary while a pod ends: its claims are taken back before the runtime tells that its containers are
            // gone. Lasting faults stand in the status.
            info!(
                container = self.seen.id.as_str(), pod = %format_args!("{}/{}", self.seen.namespace, self.seen.pod),
                reason = %reason, "a container is left as it is"
            );
        }
        self.intended = own.as_ref().map(|own| facts.intended(own)).unwrap_or_default();
        self.own = own;
        let quarantined = self.quarantine();
        if quarantined != self.seen.quarantined {
            Arc::make_mut(&mut self.seen).quarantined = quarantined;
        }
    }

    /// Notes, for readers, the container's CPUs of the shared pool.
    fn note_pool(&mut self) {
        let is_pooled = self.lives && self.own.as_ref().is_ok_and(|own| own.cpus.is_empty());
        let pool = Some(&self.intended.cpus).filter(|pool| is_pooled && !self.is_pending() && !pool.is_empty());
        if pool != self.seen.pool.as_ref() {
            let pool = pool.cloned();
            Arc::make_mut(&mut self.seen).pool = pool;
        }
    }

    fn quarantine(&self) -> Option<String> {
        self.own.as_ref().err().filter(|_| self.lives).map(ToString::to_string)
    }
}

/// True if something that is wanted is not there. Sets that are not wanted are left alone.
fn differs(intended: &Pins, told: &Pins) -> bool {
    [(&intended.cpus, &told.cpus), (&intended.mems, &told.mems)]
        .into_iter()
        .any(|(intended, told)| !intended.is_empty() && intended != told)
}

/// All containers that the runtime has told of.
#[derive(Debug)]
pub(super) struct KnownContainers {
    /// The qualified class of our CDI devices.
    kind: String,
    containers: BTreeMap<String, KnownContainer>,
    /// Ids that are not usable in names.
    unnamed: BTreeSet<String>,
    /// Pods by the runtime's id, while it tells of all containers.
    pods: BTreeMap<String, PodSandbox>,
}

impl KnownContainers {
    /// Starts without containers.
    pub(super) fn new(kind: String) -> Self {
        Self { kind, containers: BTreeMap::new(), unnamed: BTreeSet::new(), pods: BTreeMap::new() }
    }

    /// Remembers pods whose containers may follow. Their labels are not needed.
    pub(super) fn remember_pods(&mut self, pods: &[PodSandbox]) {
        let named = |pod: &PodSandbox| PodSandbox {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            ..PodSandbox::default()
        };
        self.pods.extend(pods.iter().map(|pod| (pod.id.clone(), named(pod))));
    }

    /// Forgets the pods, when all containers have been told of.
    pub(super) fn forget_pods(&mut self) {
        self.pods = BTreeMap::new();
    }

    /// Number of containers.
    pub(super) fn len(&self) -> usize {
        self.containers.len() + self.unnamed.len()
    }

    /// Returns the containers that are left alone, with the reasons.
    pub(super) fn quarantined(&self) -> impl Iterator<Item = (&str, String)> {
        let odd = self.containers.iter().filter_map(|(id, known)| Some((id.as_str(), known.quarantine()?)));
        odd.chain(self.unnamed.iter().map(|id| (id.as_str(), OddContainer::Id.to_string())))
    }

    /// Returns the containers for readers.
    pub(super) fn seen(&mut self) -> SeenContainers {
        self.containers.values_mut().for_each(KnownContainer::note_pool);
        SeenContainers::Connected(Arc::new(
            self.containers.iter().map(|(id, known)| (id.clone(), known.seen.clone())).collect(),
        ))
    }

    /// Takes the runtime's description of a container, in place of what was known of it. Without `pod`, the pod is
    /// one of those that are remembered.
    pub(super) fn learn(&mut self, pod: Option<&PodSandbox>, container: &Container, facts: &PinningFacts) {
        let unknown = PodSandbox::default();
        let pod = pod.or_else(|| self.pods.get(&container.pod_sandbox_id)).unwrap_or(&unknown);
        let Ok(id) = ContainerId::new(container.id.as_str()) else {
            if self.unnamed.insert(container.id.clone()) {
                warn!(container = ?container.id, pod = %pod.name, "a container is left as it is: its id is not usable");
            }
            return;
        };
        let shares = ContainerShares::of(container, &self.kind);
        let mut known = KnownContainer {
            seen: Arc::new(seen(id, pod, container, &shares)),
            own: Ok(Pins::default()),
            intended: Pins::default(),
            told: reported(container.linux.as_ref().and_then(|linux| linux.resources.as_ref())),
            lives: container.state() != ContainerState::ContainerStopped,
            shares,
            failures: 0,
            retry_at: None,
        };
        known.consider(facts);
        self.containers.insert(container.id.clone(), known);
    }

    /// Takes, as [`learn`](Self::learn) does, a container that may be known already.
    pub(super) fn meet(&mut self, pod: Option<&PodSandbox>, container: &Container, facts: &PinningFacts) {
        if !self.containers.contains_key(&container.id) {
            self.learn(pod, container, facts);
        }
    }

    /// Returns the intended binding of a container; `None` where it is left alone.
    pub(super) fn intended(&self, id: &str) -> Option<&Pins> {
        self.containers.get(id).filter(|known| known.own.is_ok()).map(|known| &known.intended)
    }

    /// Returns the binding of a container by its claims, or what is odd about it.
    pub(super) fn own(&self, id: &str) -> Result<&Pins, OddContainer> {
        self.containers.get(id).ok_or(OddContainer::Id)?.own.as_ref().map_err(Clone::clone)
    }

    /// Notes the first process of a container, which may have started.
    pub(super) fn runs(&mut self, id: &str, pid: u32) {
        if let Some(known) = self.containers.get_mut(id) {
            Arc::make_mut(&mut known.seen).pid = (pid != 0).then_some(pid);
        }
    }

    /// Notes that a container has ended.
    pub(super) fn ended(&mut self, id: &str) {
        if let Some(known) = self.containers.get_mut(id) {
            known.lives = false;
            let seen = Arc::make_mut(&mut known.seen);
            (seen.pid, seen.quarantined) = (None, None);
        }
    }

    /// Notes that a container is gone.
    pub(super) fn removed(&mut self, id: &str) {
        self.containers.remove(id);
        self.unnamed.remove(id);
    }

    /// Holds all containers to new facts.
    pub(super) fn consider(&mut self, facts: &PinningFacts) {
        self.containers.values_mut().for_each(|known| known.consider(facts));
    }

    /// Returns the containers whose update is due.
    pub(super) fn due(&self, now: Instant) -> Vec<String> {
        self.containers.iter().filter(|(_, known)| known.is_due(now)).map(|(id, _)| id.clone()).collect()
    }

    /// Returns when the next update is due that has failed before.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.containers.values().filter(|known| known.is_pending()).filter_map(|known| known.retry_at).min()
    }

    /// Returns the containers that still have CPUs which `pins` has to itself.
    pub(super) fn in_the_way(&self, pins: &Pins) -> Vec<String> {
        // A container without told CPUs runs everywhere.
        let is_on = |told: &IdSet| told.is_empty() || !told.is_disjoint(&pins.cpus);
        let stands = |known: &KnownContainer| known.is_pending() && is_on(&known.told.cpus);
        self.containers.iter().filter(|(_, known)| stands(known)).map(|(id, _)| id.clone()).collect()
    }

    /// Returns the update that the runtime is to be told of a container, if any.
    pub(super) fn update(&self, id: &str) -> Option<(Pins, ContainerUpdate)> {
        let known = self.containers.get(id).filter(|known| known.is_pending())?;
        Some((known.intended.clone(), update(id, &known.intended)))
    }

    /// Notes that the runtime has these sets now.
    pub(super) fn told(&mut self, id: &str, pins: &Pins) {
        if let Some(known) = self.containers.get_mut(id) {
            if !pins.cpus.is_empty() {
                known.told.cpus.clone_from(&pins.cpus);
            }
            if !pins.mems.is_empty() {
                known.told.mems.clone_from(&pins.mems);
            }
            (known.failures, known.retry_at) = (0, None);
        }
    }

    /// Notes that the runtime could not do an update. The container's present binding is not known then.
    pub(super) fn failed(&mut self, id: &str, reason: &str, now: Instant) {
        if let Some(known) = self.containers.get_mut(id) {
            if known.failures == 0 {
                warn!(container = id, pins = known.intended.in_words(), error = reason, "a container is not bound yet");
            }
            known.told = Pins::default();
            known.retry_at = Some(now + RETRIES.after(known.failures));
            known.failures = known.failures.saturating_add(1);
        }
    }
}

/// Encodes sets as the runtime takes them.
pub(super) fn resources(pins: &Pins) -> LinuxResources {
    let cpu = LinuxCpu { cpus: pins.cpus.to_string(), mems: pins.mems.to_string(), ..LinuxCpu::default() };
    LinuxResources { cpu: Some(cpu), ..LinuxResources::default() }
}

/// Makes an update of one container.
pub(super) fn update(id: &str, pins: &Pins) -> ContainerUpdate {
    let linux = LinuxContainerUpdate { resources: Some(resources(pins)) };
    ContainerUpdate { container_id: id.to_owned(), linux: Some(linux), ignore_failure: false }
}

/// Reads the binding that the runtime reports of a container. A list that cannot be parsed counts as none.
fn reported(resources: Option<&LinuxResources>) -> Pins {
    let Some(cpu) = resources.and_then(|resources| resources.cpu.as_ref()) else { return Pins::default() };
    Pins { cpus: cpu.cpus.parse().unwrap_or_default(), mems: cpu.mems.parse().unwrap_or_default() }
}

fn seen(
    id: ContainerId,
    pod: &PodSandbox,
    container: &Container,
    shares: &Result<ContainerShares, OddContainer>,
) -> SeenContainer {
    let cgroups_path = container.linux.as_ref().map(|linux| &linux.cgroups_path).filter(|path| !path.is_empty());
    SeenContainer {
        id,
        name: container.name.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        pod_uid: pod.uid.clone(),
        claims: shares.as_ref().map(|shares| shares.claims.clone()).unwrap_or_default(),
        cgroups_path: cgroups_path.map(PathBuf::from),
        pid: (container.pid != 0).then_some(container.pid),
        quarantined: None,
        pool: None,
    }
}

#[cfg(test)]
mod tests;
