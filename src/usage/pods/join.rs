//! The join of all sources of containers: the source that knows the most comes first, and a container that one source
//! has told of is not looked up in the next.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{ClaimRef, ClaimState, ClaimUid};

use super::{ClaimUse, ContainerUsage, NodePodUsage, PodEvidence, PodUsage, PodUsageFacts, UsedDevice};
use crate::{
    claims::{ClaimView, PreparedDevice, spec::prepared_devices},
    containers::{ClaimContainer, ContainerOwner, seen::SeenContainer, seen::SeenContainers},
    pods::{NodePod, PodClaim, PodContainer, PodMap, PodName, PodsOfNode},
};

/// Joins pods, containers, notes and records.
pub(super) fn join(facts: &PodUsageFacts<'_>) -> NodePodUsage {
    let mut join = PodJoin::new(facts);
    let known = known_pods(facts.pods);
    for pod in known.into_iter().flat_map(|pods| pods.values()) {
        join.add_pod(pod);
    }
    if let SeenContainers::Connected(seen) = facts.seen {
        seen.values().for_each(|container| join.add_seen(container));
    }
    for (uid, containers) in facts.notes {
        containers.iter().for_each(|container| join.add_note(uid, container));
    }
    join.add_reservations(matches!(facts.pods, PodsOfNode::Known(_)));
    join.finish()
}

/// Returns all pods, where they are known. Stale pods are better than none, but a pod that is not among them may exist.
fn known_pods(pods: &PodsOfNode) -> Option<&PodMap> {
    match pods {
        PodsOfNode::Known(pods) | PodsOfNode::Stale(pods, _) => Some(pods),
        PodsOfNode::Unwatched | PodsOfNode::Unknown(_) => None,
    }
}

/// A claim with everything that it holds.
struct RecordedUse<'a> {
    whole: ClaimUse,
    view: &'a ClaimView,
    is_used: bool,
}

struct PodJoin<'a> {
    claims: BTreeMap<&'a ClaimUid, RecordedUse<'a>>,
    /// Claims by namespace and name: several, if a claim was made anew before the earlier one was taken back.
    by_name: BTreeMap<(&'a str, &'a str), Vec<&'a ClaimUid>>,
    pods: BTreeMap<PodName, PodUsage>,
    ended: BTreeSet<PodName>,
    /// Ids of containers that were added already.
    told: BTreeSet<String>,
}

impl<'a> PodJoin<'a> {
    fn new(facts: &PodUsageFacts<'a>) -> Self {
        let claims: BTreeMap<_, _> =
            facts.claims.claims.iter().map(|(uid, view)| (uid, recorded_use(uid, view, facts))).collect();
        let mut by_name: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (uid, view) in facts.claims.claims.iter() {
            if let Some(claim) = view.claim() {
                by_name.entry((claim.namespace.as_str(), claim.name.as_str())).or_default().push(uid);
            }
        }
        Self { claims, by_name, pods: BTreeMap::new(), ended: BTreeSet::new(), told: BTreeSet::new() }
    }

    /// Adds a pod that the API server knows.
    fn add_pod(&mut self, pod: &NodePod) {
        if pod.ended {
            self.ended.insert(pod.name.clone());
            return;
        }
        let containers: Vec<ContainerUsage> =
            pod.containers.iter().map(|container| self.container(pod, container)).collect();
        let mut unplaced: Vec<ClaimUse> = Vec::new();
        for claim in pod.claims.values() {
            for uid in self.uids(pod, claim) {
                if self.claims.get(&uid).is_some_and(|recorded| !recorded.is_used) {
                    unplaced.extend(self.take(&uid, None));
                }
            }
        }
        let usage = PodUsage { name: pod.name.clone(), known_by: PodEvidence::Api, containers, claims: unplaced };
        self.pods.insert(pod.name.clone(), usage);
    }

    fn container(&mut self, pod: &NodePod, container: &PodContainer) -> ContainerUsage {
        let mut claims: Vec<ClaimUse> = Vec::new();
        for used in &container.claims {
            let Some(claim) = pod.claims.get(&used.name) else { continue };
            for uid in self.uids(pod, claim) {
                claims.extend(self.take(&uid, used.request.as_deref()));
            }
        }
        self.told.extend(container.runtime_id.clone());
        let (name, id) = (container.name.clone(), container.runtime_id.clone());
        ContainerUsage { name, kind: Some(container.kind), id, claims: merged(claims) }
    }

    /// Returns the claims on record that a pod refers to. A claim reserved for another pod of the same name is left
    /// out.
    fn uids(&self, pod: &NodePod, claim: &PodClaim) -> Vec<ClaimUid> {
        let (PodClaim::Named(name) | PodClaim::Generated(Some(name))) = claim else { return Vec::new() };
        let named = self.by_name.get(&(pod.name.namespace.as_str(), name.as_str()));
        let is_its = |uid: &&&ClaimUid| {
            let reserved = self.claims.get(**uid).map(|recorded| recorded.view.reserved_for()).unwrap_or_default();
            let is_other = |uid: &str| !uid.is_empty() && uid != pod.uid;
            !reserved.iter().any(|user| user.is_pod() && user.name == pod.name.name && is_other(&user.uid))
        };
        named.into_iter().flatten().filter(is_its).map(|uid| (*uid).clone()).collect()
    }

    /// Marks a claim as used, and returns the devices of the request, or all of them.
    fn take(&mut self, uid: &ClaimUid, request: Option<&str>) -> Option<ClaimUse> {
        let recorded = self.claims.get_mut(uid)?;
        recorded.is_used = true;
        let mut taken = recorded.whole.clone();
        taken.devices.retain(|device| device.is_for(request));
        Some(taken)
    }

    /// Adds a container that the runtime knows.
    fn add_seen(&mut self, container: &SeenContainer) {
        let pod = PodName { namespace: container.namespace.clone(), name: container.pod.clone() };
        let place = ContainerPlace { pod, name: &container.name, id: container.id.as_str() };
        self.add_container(place, &container.claims, PodEvidence::Runtime);
    }

    /// Adds a container in front of which a hook has run.
    fn add_note(&mut self, uid: &ClaimUid, container: &ClaimContainer) {
        let id = container.id.as_str();
        if self.told.contains(id) {
            return;
        }
        let owner = container.note.as_ref().map(|note| note.owner.clone()).unwrap_or_default();
        let Some(pod) = self.pod_of(uid, id, &owner) else { return };
        let name = owner.name.as_deref().unwrap_or(if pod.name == id { id } else { "" });
        self.add_container(ContainerPlace { pod, name, id }, std::slice::from_ref(uid), PodEvidence::Note);
    }

    /// Returns the pod of a noted container: the one that its runtime named, else the only one that the claim is
    /// reserved for. A container without a pod counts as one.
    fn pod_of(&self, uid: &ClaimUid, id: &str, owner: &ContainerOwner) -> Option<PodName> {
        let recorded = self.claims.get(uid)?;
        let claim = &recorded.whole.claim;
        if let Some(pod) = &owner.pod {
            return Some(PodName { namespace: pod.namespace.clone(), name: pod.name.clone() });
        }
        let name = match recorded.view.reserved_for() {
            [only] if only.is_pod() => only.name.clone(),
            _ => owner.name.clone().unwrap_or_else(|| id.to_owned()),
        };
        Some(PodName { namespace: claim.namespace.clone(), name })
    }

    fn add_container(&mut self, place: ContainerPlace<'_>, claims: &[ClaimUid], evidence: PodEvidence) {
        if self.ended.contains(&place.pod) {
            return;
        }
        let uses: Vec<ClaimUse> = claims.iter().filter_map(|uid| self.take(uid, None)).collect();
        let pod = self.pods.entry(place.pod.clone()).or_insert_with(|| PodUsage::new(place.pod, evidence));
        let container = pod.container(place.name);
        container.id.get_or_insert_with(|| place.id.to_owned());
        uses.into_iter().for_each(|used| container.add(used));
        // A container has a note for each claim.
        if evidence == PodEvidence::Runtime {
            self.told.insert(place.id.to_owned());
        }
    }

    /// Adds claims without a known container to the pods that they were reserved for. Where all pods are known, a pod
    /// that is not among them is gone.
    fn add_reservations(&mut self, pods_are_known: bool) {
        let unused: Vec<ClaimUid> =
            self.claims.iter().filter(|(_, recorded)| !recorded.is_used).map(|(uid, _)| (*uid).clone()).collect();
        for uid in unused {
            let Some(recorded) = self.claims.get(&uid) else { continue };
            let namespace = &recorded.whole.claim.namespace;
            let pods = recorded.view.reserved_for().iter().filter(|user| user.is_pod());
            let pods: Vec<PodName> =
                pods.map(|user| PodName { namespace: namespace.clone(), name: user.name.clone() }).collect();
            for pod in pods {
                if pods_are_known && !self.pods.contains_key(&pod) {
                    continue;
                }
                let taken = self.take(&uid, None);
                let evidence = PodEvidence::Reservation;
                let usage = self.pods.entry(pod.clone()).or_insert_with(|| PodUsage::new(pod, evidence));
                usage.claims.extend(taken);
            }
        }
    }

    fn finish(self) -> NodePodUsage {
        let unused = self.claims.into_values().filter(|recorded| !recorded.is_used).map(|recorded| recorded.whole);
        NodePodUsage { pods: self.pods.into_values().collect(), unused: unused.collect(), ended: self.ended }
    }
}

/// Pod, name and id of a container.
struct ContainerPlace<'a> {
    pod: PodName,
    name: &'a str,
    id: &'a str,
}

/// Merges the uses of several requests of one claim into one.
fn merged(claims: Vec<ClaimUse>) -> Vec<ClaimUse> {
    let mut all: Vec<ClaimUse> = Vec::new();
    for used in claims {
        match all.iter_mut().find(|known| known.claim == used.claim) {
            Some(known) => {
                let new = used.devices.into_iter().filter(|device| !known.devices.contains(device));
                let new: Vec<UsedDevice> = new.collect();
                known.devices.extend(new);
            }
            None => all.push(used),
        }
    }
    all
}

fn recorded_use<'a>(uid: &ClaimUid, view: &'a ClaimView, facts: &PodUsageFacts<'_>) -> RecordedUse<'a> {
    let nameless = || ClaimRef { namespace: String::new(), name: String::new(), uid: uid.clone() };
    let state = view.state();
    let prepared: Vec<PreparedDevice> = match view {
        ClaimView::Recorded { record, .. } if state == ClaimState::Prepared => prepared_devices(record, facts.naming),
        _ => Vec::new(),
    };
    let devices = view.devices().iter().enumerate();
    let devices = devices.map(|(index, device)| UsedDevice::of(device, prepared.get(index), facts)).collect();
    let claim = view.claim().cloned().unwrap_or_else(nameless);
    RecordedUse { whole: ClaimUse { claim, state, devices }, view, is_used: false }
}
