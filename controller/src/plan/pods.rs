//! The pods to place: those that have no node, and those that workloads lack.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::{PodSet, shared_labels};
use hostler_api::{
    ObjectKey,
    core::{ObjectMeta, OwnerReference, Pod, PodResourceClaim, PodSpec, PodTemplateSpec},
    few,
};

use super::{
    manifests::Manifests,
    read::InputProblem,
    workload::{Workload, controller_of},
};

/// The label that names a pod's ReplicaSet within its Deployment; it is the end of the ReplicaSet's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The name of a template of which no pod was made yet; no hash has a dash.
const NEW_TEMPLATE: &str = "to-be-made";

/// Pods that are alike and need a place, with facts about them.
#[derive(Clone, Debug)]
pub(crate) struct AskedPods {
    /// The pods.
    pub(crate) set: PodSet,
    /// Facts about the pods, in sentences.
    pub(crate) notes: Vec<String>,
}

/// The most pods of one set that a plan is made for and tested with. More are a mistake in a manifest.
const MOST_PODS: u32 = 16_384;

/// Returns a problem for each set that is larger than a plan can be. The number of sets is not limited: each set costs
/// its own time and no more.
pub(crate) fn excess(asked: &[AskedPods]) -> Vec<InputProblem> {
    let too_large = asked.iter().map(|asked| &asked.set).filter(|set| set.count > MOST_PODS);
    too_large.map(excess_of).collect()
}

fn excess_of(set: &PodSet) -> InputProblem {
    let field = match set.name.split_once(' ') {
        Some(("Job" | "CronJob", _)) => "spec.parallelism",
        _ => "spec.replicas",
    };
    let reason = format!("{field}: {} pods that are alike; a plan takes up to {MOST_PODS}, lower it", set.count);
    InputProblem::whole(format!("{} in {}", set.name, set.namespace), reason)
}

/// Returns the claims that were made for the pod, and go with it.
fn uses_generated(pod: &Pod) -> Vec<String> {
    pod.status.resource_claim_statuses.iter().filter_map(|status| status.resource_claim_name.clone()).collect()
}

/// Returns the pods that need a place: those that workloads lack, and pods without a workload, in the order in which
/// they were read.
fn asked(all: &Manifests) -> Vec<AskedPods> {
    let owners = PodOwners::new(all);
    let mut asked = of_workloads(all, &owners);
    asked.extend(waiting(all, &owners).into_iter().map(|set| AskedPods { set, notes: Vec::new() }));
    asked
}

/// Returns the pods that need a place, and for each claim and template of a file that no pod names, a pod with it
/// alone.
pub(crate) fn asked_or_alone(all: &Manifests) -> Vec<AskedPods> {
    let mut asked = asked(all);
    let (claims, templates) = named(all);
    let is_alone = |named: &Names<'_>, key: &ObjectKey| !named.contains(&(&*key.namespace, &*key.name));
    let claims = all.own_claims().filter(|key| is_alone(&claims, key)).map(|key| pod_with("ResourceClaim", key));
    let templates = all.own_templates().filter(|key| is_alone(&templates, key));
    let templates = templates.map(|key| pod_with("ResourceClaimTemplate", key));
    let note = "no pod names it: asked for as the only wish of a pod";
    asked.extend(claims.chain(templates).map(|set| AskedPods { set, notes: vec![note.to_owned()] }));
    asked
}

/// Namespaces and names.
type Names<'a> = BTreeSet<(&'a str, &'a str)>;

/// Returns the claims, and the templates, that pods and workloads name.
fn named(all: &Manifests) -> (Names<'_>, Names<'_>) {
    let of_pods = all.pods.iter().map(|(key, pod)| (key, &pod.spec));
    let of_workloads = all.workloads.iter().map(|workload| (&workload.key, &workload.template.spec));
    let (mut claims, mut templates) = (BTreeSet::new(), BTreeSet::new());
    for (key, spec) in of_pods.chain(of_workloads) {
        for wish in &spec.resource_claims {
            claims.extend(wish.resource_claim_name.as_deref().map(|name| (&*key.namespace, name)));
            templates.extend(wish.resource_claim_template_name.as_deref().map(|name| (&*key.namespace, name)));
        }
    }
    for (key, pod) in &all.pods {
        let made = pod.status.resource_claim_statuses.iter().filter_map(|status| status.resource_claim_name.as_deref());
        claims.extend(made.map(|name| (&*key.namespace, name)));
    }
    (claims, templates)
}

/// A pod with a claim and nothing else.
fn pod_with(kind: &str, key: &ObjectKey) -> PodSet {
    let name = Some(key.name.clone());
    let claim = match kind {
        "ResourceClaim" => PodResourceClaim { resource_claim_name: name, ..PodResourceClaim::default() },
        _ => PodResourceClaim { resource_claim_template_name: name, ..PodResourceClaim::default() },
    };
    let claim = PodResourceClaim { name: "claim".to_owned(), ..claim };
    let spec = PodSpec { resource_claims: vec![claim], ..PodSpec::default() };
    let (name, namespace) = (format!("{kind} {}", key.name), key.namespace.clone());
    PodSet { name, namespace, count: 1, spec, ..PodSet::default() }
}

/// Returns the pods that workloads lack.
fn of_workloads(all: &Manifests, owners: &PodOwners<'_>) -> Vec<AskedPods> {
    let (running, mut nominated) = (owners.running(all), owners.nominated(all));
    let asked = all.workloads.iter().filter(|workload| !owners.is_part(workload)).filter_map(|workload| {
        let there = running.get(&(workload.kind, &workload.key)).copied().unwrap_or_default();
        let count = workload.wanted.checked_sub(there).filter(|lacking| *lacking > 0)?;
        let mut notes: Vec<String> = workload.unseen.map(str::to_owned).into_iter().collect();
        if there > 0 {
            notes.push(format!("{there} of its {} pods have their place", workload.wanted));
        }
        let name = format!("{} {}", workload.kind, workload.key.name);
        let template = PodTemplateSpec {
            metadata: ObjectMeta { labels: owners.labels(all, workload), ..ObjectMeta::default() },
            spec: workload.template.spec.clone(),
        };
        let mut set = pod_set(all, name, &workload.key.namespace, count, template);
        set.nominated = nominated.remove(&(workload.kind, &workload.key)).unwrap_or_default();
        Some(AskedPods { set, notes })
    });
    asked.collect()
}

/// Workloads that replace a pod when it is gone, by kind, namespace and name.
struct PodOwners<'a>(BTreeMap<(&'a str, &'a str, &'a str), WorkloadName<'a>>);

type WorkloadName<'a> = (&'static str, &'a ObjectKey);

impl<'a> PodOwners<'a> {
    fn new(all: &'a Manifests) -> Self {
        let name = |workload: &'a Workload| {
            let Workload { kind, key, .. } = workload;
            ((*kind, &*key.namespace, &*key.name), (*kind, key))
        };
        Self(all.workloads.iter().map(name).collect())
    }

    fn find(&self, namespace: &str, kind: &str, name: &str) -> Option<WorkloadName<'a>> {
        let workloads: &BTreeMap<(&str, &str, &str), WorkloadName<'a>> = &self.0;
        workloads.get(&(kind, namespace, name)).copied()
    }

    /// Returns the workload of a pod, if it was read. ReplicaSets stand between Deployments and pods, and have names
    /// made of both.
    fn of(&self, key: &ObjectKey, pod: &Pod) -> Option<WorkloadName<'a>> {
        let owner = controller(pod)?;
        let hash = pod.metadata.labels.get(TEMPLATE_HASH).filter(|_| owner.kind == "ReplicaSet");
        let deployment = hash.and_then(|hash| owner.name.strip_suffix(&**hash)?.strip_suffix('-'));
        let of_deployment = deployment.and_then(|name| self.find(&key.namespace, "Deployment", name));
        of_deployment.or_else(|| self.find(&key.namespace, &owner.kind, &owner.name))
    }

    /// True if the workload belongs to another workload that was read.
    fn is_part(&self, workload: &Workload) -> bool {
        let owner = workload.owner.as_ref();
        owner.is_some_and(|owner| self.find(&workload.key.namespace, &owner.kind, &owner.name).is_some())
    }

    /// Returns the labels of the pods that a workload makes. Those of a Deployment have the name of their template,
    /// which terms can look at: the one that all its pods have, or else a new one.
    fn labels(&self, all: &Manifests, workload: &Workload) -> BTreeMap<String, String> {
        let mut labels = workload.template.metadata.labels.clone();
        if workload.kind == "Deployment" {
            let own = |(key, pod): &(&ObjectKey, &Pod)| self.of(key, pod) == Some((workload.kind, &workload.key));
            let pods = all.pods.iter().filter(own);
            let hashes: BTreeSet<&String> =
                pods.filter_map(|(_, pod)| pod.metadata.labels.get(TEMPLATE_HASH)).collect();
            let hash = match hashes.first().filter(|_| hashes.len() == 1) {
                Some(hash) => (*hash).clone(),
                None => NEW_TEMPLATE.to_owned(),
            };
            labels.insert(TEMPLATE_HASH.to_owned(), hash);
        }
        labels
    }

    /// Returns the pods of each workload that are nominated for a node.
    fn nominated(&self, all: &Manifests) -> BTreeMap<WorkloadName<'a>, Vec<ObjectKey>> {
        let mut nominated: BTreeMap<WorkloadName<'a>, Vec<ObjectKey>> = BTreeMap::new();
        for (key, pod) in all.pods.iter().filter(|(_, pod)| pod.nominated_node().is_some()) {
            if let Some(owner) = self.of(key, pod) {
                nominated.entry(owner).or_default().push(key.clone());
            }
        }
        nominated
    }

    /// Counts the pods of each workload that have a node.
    fn running(&self, all: &Manifests) -> BTreeMap<WorkloadName<'a>, u32> {
        let mut running = BTreeMap::new();
        for owner in all.pods.iter().filter(|(_, pod)| pod.is_on_a_node()).filter_map(|(key, pod)| self.of(key, pod)) {
            *running.entry(owner).or_default() += 1;
        }
        running
    }
}

/// Returns pods without a node that belong to no workload. Those of one owner that look alike are one set.
fn waiting(all: &Manifests, owners: &PodOwners<'_>) -> Vec<PodSet> {
    let mut sets: Vec<PodSet> = Vec::new();
    let mut last: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for (key, pod) in all.pods.iter().filter(|(key, pod)| waits(pod) && owners.of(key, pod).is_none()) {
        let name = match controller(pod) {
            Some(owner) => format!("{} {}", owner.kind, owner.name),
            None => format!("Pod {}", key.name),
        };
        let set = pod_set(all, name.clone(), &key.namespace, 1, with_given_claims(all, key, pod));
        let nominated = pod.nominated_node().map(|_| key.clone());
        let is_alike = |known: &&mut PodSet| known.spec == set.spec && known.labels == set.labels;
        match last.get(&(&*key.namespace, name.clone())).map(|at| &mut sets[*at]).filter(is_alike) {
            Some(known) => {
                known.count += 1;
                known.nominated.extend(nominated);
            }
            None => {
                last.insert((&key.namespace, name), sets.len());
                sets.push(PodSet { nominated: nominated.into_iter().collect(), ..set });
            }
        }
    }
    sets
}

/// Returns a pod that waits for a place as a set of its own.
pub(crate) fn waiting_set(all: &Manifests, key: &ObjectKey) -> Option<PodSet> {
    let pod = all.pods.get(key)?;
    let set = pod_set(all, format!("Pod {}", key.name), &key.namespace, 1, with_given_claims(all, key, pod));
    Some(PodSet { nominated: vec![key.clone()], ..set })
}

fn waits(pod: &Pod) -> bool {
    let has_ended = matches!(&*pod.status.phase, "Succeeded" | "Failed");
    pod.node().is_none() && !has_ended && pod.metadata.deletion_timestamp.is_none()
}

/// Returns the pod's spec, and the labels that it shares with others of its workload. A claim that was made for the pod and has its devices already is one that the spec names.
fn with_given_claims(all: &Manifests, key: &ObjectKey, pod: &Pod) -> PodTemplateSpec {
    let mut spec = pod.spec.clone();
    for claim in &mut spec.resource_claims {
        let made = pod.status.resource_claim_statuses.iter().find(|status| status.name == claim.name);
        let made = made.and_then(|status| status.resource_claim_name.clone());
        let is_given = |name: &String| all.claims.get(&ObjectKey::new(&key.namespace, name)) == Some(&true);
        if let Some(name) = made.filter(is_given) {
            claim.resource_claim_template_name = None;
            claim.resource_claim_name = Some(name);
        }
    }
    PodTemplateSpec {
        metadata: ObjectMeta { labels: shared_labels(&pod.metadata.labels), ..ObjectMeta::default() },
        spec,
    }
}

/// Makes a set, with the priority that the cluster would write into the pods.
fn pod_set(all: &Manifests, name: String, namespace: &str, count: u32, template: PodTemplateSpec) -> PodSet {
    let PodTemplateSpec { metadata, mut spec } = template;
    let class = match spec.priority_class_name.as_deref() {
        None | Some("") => all.priorities.values().find(|class| class.global_default),
        Some(name) => all.priorities.get(name),
    };
    spec.priority = spec.priority.or(class.map(|class| class.value));
    PodSet { name, namespace: namespace.to_owned(), count, labels: metadata.labels, spec, ..PodSet::default() }
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    controller_of(&pod.metadata)
}

/// Returns facts that make the answer as a whole less certain than it looks.
pub(crate) fn notes(all: &Manifests) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(sets) = all.unread.get("DaemonSet") {
        notes.push(format!("{sets} DaemonSet not asked for: only pods of it that have a node count"));
    }
    let others: Vec<String> = all
        .unread
        .iter()
        .filter(|(kind, _)| *kind != "DaemonSet")
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    if !others.is_empty() {
        notes.push(format!("not looked at: {}", others.join(", ")));
    }
    let lost = pods_with_lost_claims(all);
    if !lost.is_empty() {
        let pods = few(lost);
        notes.push(format!("claims of pods that run were not given, so their devices count as free: {pods}"));
    }
    notes
}

/// Returns pods on nodes with claims that were not read.
fn pods_with_lost_claims(all: &Manifests) -> BTreeSet<&ObjectKey> {
    let lacks = |(key, pod): &(&ObjectKey, &Pod)| {
        let named = pod.spec.resource_claims.iter().filter_map(|claim| claim.resource_claim_name.clone());
        let made = pod.spec.resource_claims.iter().filter(|claim| claim.resource_claim_template_name.is_some()).count();
        let generated = uses_generated(pod);
        let known = |name: String| all.claims.contains_key(&ObjectKey::new(&key.namespace, &name));
        generated.len() < made || !named.chain(generated).all(known)
    };
    all.pods.iter().filter(|(_, pod)| pod.is_on_a_node()).filter(lacks).map(|(key, _)| key).collect()
}
