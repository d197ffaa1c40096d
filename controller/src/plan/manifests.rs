//! All objects that were read, by kind and name.

mod stock;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use hostler_allocator::plan::{ClusterFacts, Snapshot};
use hostler_api::{
    ManifestFinding, ObjectKey,
    core::{Namespace, Node, ObjectMeta, Pod},
    hardware::{self, NodeHardware},
    reservation::RESERVATION_KIND,
    resource::{ResourceClaim, ResourceClaimTemplate},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    read::{InputProblem, InputText, ObjectHead, RawObject, for_each_object},
    workload::{CronJob, Job, ReplicatedWorkload, Workload},
};
use crate::{reservation_object::ReservationObject, view::LazySnapshot};

/// A PriorityClass.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PriorityClass {
    /// The priority; a greater one comes first.
    pub(crate) value: i32,
    /// True if the priority is that of pods that name no class.
    #[serde(default)]
    pub(crate) global_default: bool,
}

/// All objects that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifests {
    /// Facts of the cluster.
    pub(crate) facts: ClusterFacts,
    /// The snapshot that the facts were taken from, if it is ready for questions.
    base: Option<Arc<LazySnapshot>>,
    /// Pods, with and without a node.
    pub(crate) pods: BTreeMap<ObjectKey, Pod>,
    /// Objects that make pods, in the order of being read.
    pub(crate) workloads: Vec<Workload>,
    /// Claims; true if the claim has devices.
    pub(crate) claims: BTreeMap<ObjectKey, bool>,
    /// Templates of claims, in the order of being read.
    pub(crate) templates: Vec<ObjectKey>,
    /// PriorityClasses.
    pub(crate) priorities: BTreeMap<String, PriorityClass>,
    /// Reports of daemons about their nodes.
    pub(crate) reports: Vec<NodeHardware>,
    /// Reservations, by name.
    pub(crate) reservations: BTreeMap<String, Arc<ReservationObject>>,
    /// Kinds that have no meaning here, with the number of objects.
    pub(crate) unread: BTreeMap<String, usize>,
    /// The namespace of objects that name none; empty for `default`.
    pub(crate) namespace: String,
    origins: BTreeMap<(String, ObjectKey), Origin>,
    /// Number of names that were generated.
    generated: usize,
}

/// The origin of an object.
#[derive(Clone, Debug)]
struct Origin {
    source: String,
    document: usize,
    layer: InputLayer,
}

/// The layers of input: objects of files replace those of a cluster.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum InputLayer {
    /// A live cluster, or a captured node.
    Base,
    /// Files.
    Files,
}

/// The groups of the API that are read, and the versions of each, the best first.
const VERSIONS: [(&str, &[&str]); 6] = [
    ("", &["v1"]),
    ("apps", &["v1"]),
    ("batch", &["v1"]),
    (hardware::GROUP, &[hardware::VERSION]),
    ("resource.k8s.io", &["v1", "v1beta2", "v1beta1"]),
    ("scheduling.k8s.io", &["v1"]),
];

/// The versions of DeviceTaintRules, which came later than the rest of their group.
const RULE_VERSIONS: &[&str] = &["v1", "v1beta2", "v1alpha3"];

/// Kinds without a namespace.
const OF_THE_CLUSTER: [&str; 8] = [
    "DeviceClass",
    "DeviceTaintRule",
    "Namespace",
    "Node",
    hardware::NODE_HARDWARE_KIND,
    "PriorityClass",
    RESERVATION_KIND,
    "ResourceSlice",
];

/// An object that is being read into the manifests.
struct TakenObject<'a, 'o> {
    object: &'a RawObject<'o>,
    head: &'a ObjectHead,
    origin: Origin,
}

impl Manifests {
    /// Begins without objects, above the facts of a watched cluster.
    pub(crate) fn over(planner: &Arc<LazySnapshot>) -> Self {
        Self { facts: planner.get().facts().clone(), base: Some(planner.clone()), ..Self::default() }
    }

    /// Returns the cluster, ready for questions.
    pub(crate) fn snapshot(&self) -> Snapshot {
        match &self.base {
            Some(base) => base.get().with(self.facts.clone()),
            None => Snapshot::new(self.facts.clone()),
        }
    }

    /// Reads every object of a text; a mistake in one object hides no other.
    pub(crate) fn read(&mut self, input: &InputText, layer: InputLayer, problems: &mut Vec<InputProblem>) {
        for_each_object(input, problems, &mut |object, head| {
            let origin = Origin { source: input.name.clone(), document: object.document(), layer };
            let taken = TakenObject { object: &object, head: &head, origin };
            self.take(taken).map_err(|finding| ManifestFinding { object: head.title(), ..finding })
        });
    }

    fn take(&mut self, taken: TakenObject<'_, '_>) -> Result<(), ManifestFinding> {
        let (group, kind) = (taken.head.group().to_owned(), taken.head.kind.clone());
        match (&*group, &*kind) {
            ("", "Node") => self.keep_one_of_many(taken, |all, _, it: Node| all.facts.add_node(it)),
            ("", "Namespace") => self.keep(taken, |all, _, it: Namespace| all.facts.add_namespace(it)),
            ("", "Pod") => self.keep_one_of_many(taken, Self::add_pod),
            ("resource.k8s.io", "ResourceSlice") => self.keep_one_of_many(taken, |all, _, it| all.facts.add_slice(it)),
            ("resource.k8s.io", "ResourceClaim") => self.keep_one_of_many(taken, |all, key, it| all.add_claim(key, it)),
            ("resource.k8s.io", "ResourceClaimTemplate") => self.keep(taken, |all, key, it: ResourceClaimTemplate| {
                all.templates.push(key.clone());
                all.facts.add_template(key, it.spec.spec);
            }),
            ("resource.k8s.io", "DeviceClass") => self.keep(taken, |all, _, it| all.facts.add_class(it)),
            ("resource.k8s.io", "DeviceTaintRule") => self.keep(taken, |all, _, it| all.facts.add_rule(it)),
            (hardware::GROUP, hardware::NODE_HARDWARE_KIND) => self.keep(taken, |all, _, it| all.reports.push(it)),
            (hardware::GROUP, RESERVATION_KIND) => self.keep(taken, |all, key, it: ReservationObject| {
                all.reservations.insert(key.name, Arc::new(it));
            }),
            ("scheduling.k8s.io", "PriorityClass") => {
                self.keep(taken, |all, key, it: PriorityClass| all.priorities.extend([(key.name, it)]))
            }
            _ => self.take_workload(&group, &kind, taken),
        }
    }

    /// Returns unallocated claims of files: those of a cluster wait for pods of their own.
    pub(crate) fn own_claims(&self) -> impl Iterator<Item = &ObjectKey> {
        let open = self.claims.iter().filter(|(_, is_allocated)| !**is_allocated).map(|(key, _)| key);
        open.filter(|key| self.is_of_files("ResourceClaim", key))
    }

    /// Returns the templates of files.
    pub(crate) fn own_templates(&self) -> impl Iterator<Item = &ObjectKey> {
        self.templates.iter().filter(|key| self.is_of_files("ResourceClaimTemplate", key))
    }

    fn is_of_files(&self, kind: &str, key: &ObjectKey) -> bool {
        let origin = self.origins.get(&(kind.to_owned(), key.clone()));
        origin.is_none_or(|origin| origin.layer == InputLayer::Files)
    }

    fn add_pod(&mut self, key: ObjectKey, mut pod: Pod) {
        name(&mut pod.metadata, &key);
        self.facts.add_pod(&pod);
        self.pods.insert(key, pod);
    }

    fn add_claim(&mut self, key: ObjectKey, mut claim: ResourceClaim) {
        claim.metadata.namespace.clone_from(&key.namespace);
        self.facts.add_claim(&claim);
        self.claims.insert(key, claim.status.allocation.is_some());
    }

    fn take_workload(&mut self, group: &str, kind: &str, taken: TakenObject<'_, '_>) -> Result<(), ManifestFinding> {
        let replicated = match (group, kind) {
            ("", "ReplicationController") => "ReplicationController",
            ("apps", "Deployment") => "Deployment",
            ("apps", "ReplicaSet") => "ReplicaSet",
            ("apps", "StatefulSet") => "StatefulSet",
            ("batch", "Job") => return self.keep(taken, |all, key, it: Job| all.workloads.push(it.workload(key))),
            ("batch", "CronJob") => {
                return self.keep(taken, |all, key, it: CronJob| all.workloads.push(it.workload(key)));
            }
            _ => {
                *self.unread.entry(kind.to_owned()).or_default() += 1;
                return Ok(());
            }
        };
        self.keep(taken, |all, key, it: ReplicatedWorkload| all.workloads.push(it.workload(replicated, key)))
    }

    /// Reads an object as its own kind, and calls `place` with it.
    fn keep<T: DeserializeOwned>(
        &mut self,
        taken: TakenObject<'_, '_>,
        place: impl FnOnce(&mut Self, ObjectKey, T),
    ) -> Result<(), ManifestFinding> {
        self.keep_read(taken, |object| object.read(), place)
    }

    /// The same for a kind with very many objects.
    fn keep_one_of_many<T: DeserializeOwned>(
        &mut self,
        taken: TakenObject<'_, '_>,
        place: impl FnOnce(&mut Self, ObjectKey, T),
    ) -> Result<(), ManifestFinding> {
        self.keep_read(taken, |object| object.read_one_of_many(), place)
    }

    fn keep_read<T>(
        &mut self,
        taken: TakenObject<'_, '_>,
        read: impl Fn(&RawObject<'_>) -> Result<T, ManifestFinding>,
        place: impl FnOnce(&mut Self, ObjectKey, T),
    ) -> Result<(), ManifestFinding> {
        let TakenObject { object, head, origin } = taken;
        check_version(object, head)?;
        let read = read(object)?;
        let key = self.own_name(object, head, origin)?;
        place(self, key, read);
        Ok(())
    }

    /// Returns the name of an object, which no other object of its kind may have.
    fn own_name(
        &mut self,
        object: &RawObject<'_>,
        head: &ObjectHead,
        origin: Origin,
    ) -> Result<ObjectKey, ManifestFinding> {
        let namespace = match head.namespace() {
            _ if OF_THE_CLUSTER.contains(&&*head.kind) => "",
            "" if self.namespace.is_empty() => "default",
            "" => &self.namespace,
            namespace => namespace,
        };
        let key = ObjectKey { namespace: namespace.to_owned(), name: head.name().to_owned() };
        if key.name.is_empty() {
            return self.generated_name(object, head, key);
        }
        match self.origins.entry((head.kind.clone(), key.clone())) {
            Entry::Occupied(mut first) if first.get().layer < origin.layer => drop(first.insert(origin)),
            Entry::Occupied(first) => return Err(object.finding("metadata.name", twice(first.get()))),
            Entry::Vacant(entry) => drop(entry.insert(origin)),
        }
        Ok(key)
    }

    /// Makes a name; an API server would append characters that are not known yet.
    fn generated_name(
        &mut self,
        object: &RawObject<'_>,
        head: &ObjectHead,
        key: ObjectKey,
    ) -> Result<ObjectKey, ManifestFinding> {
        if head.generate_name().is_empty() {
            return Err(object.finding("metadata.name", "it is missing; give the object a name"));
        }
        self.generated += 1;
        Ok(ObjectKey { name: format!("{}{:05}", head.generate_name(), self.generated), ..key })
    }
}

/// Fills in namespace and name, since a file may leave both to the cluster.
fn name(metadata: &mut ObjectMeta, key: &ObjectKey) {
    metadata.namespace.clone_from(&key.namespace);
    metadata.name.clone_from(&key.name);
}

/// Refuses other versions, whose fields may have other meanings.
fn check_version(object: &RawObject<'_>, head: &ObjectHead) -> Result<(), ManifestFinding> {
    let of_group = VERSIONS.iter().find(|(group, _)| *group == head.group()).map_or(&[][..], |(_, known)| known);
    let known = if head.kind == "DeviceTaintRule" { RULE_VERSIONS } else { of_group };
    if known.contains(&head.version()) {
        return Ok(());
    }
    let slash = if head.group().is_empty() { "" } else { "/" };
    let best = known.first().copied().unwrap_or_default();
    let reason = format!("{:?} is not known; write {}{slash}{best}", head.api_version, head.group());
    Err(object.finding("apiVersion", reason))
}

fn twice(first: &Origin) -> String {
    let Origin { source, document, .. } = first;
    format!("there is one of that name already, in {source}, document {document}; remove one of the two")
}

#[cfg(test)]
mod tests;
