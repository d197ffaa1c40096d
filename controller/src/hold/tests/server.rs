//! Objects of the API server that matter to the core, and its answers to writes.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::ClusterFacts;
use hostler_api::{
    ObjectKey,
    reservation::{LabelSelector, RESERVATION_ALLOCATED, RESERVATION_UID},
    resource::ResourceSlice,
    well_known::HELD_ATTRIBUTE,
};
use serde_json::{Value, json};

use super::super::{
    AllocatedClaim, ClaimPart, DeviceKey, FenceRule, HoldEvent, HoldWrite, NodeFences, OwnerPod, PlaceholderMark,
    PodBudget, PodRef, PodWrite, PriorityClasses, PublishedSlice,
};
use crate::{
    claim_write::{ClaimVersion, ClaimWrite, WrittenClaimStatus},
    reservation_object::ReservationObject,
    testkit::{ApiError, Change, ModelCluster, ModelMeta, ModelObject, ModelServer, Part, model_kind, over, serves},
};

/// A pod that wants devices, by a claim of its own that has its name.
#[derive(Clone, Debug)]
pub(super) struct ModelPod {
    pub(super) is: OwnerPod,
    pub(super) wants: usize,
    /// How many CPUs of a shared device it wants, where it wants no whole ones.
    pub(super) part: u64,
    /// The value of the taint that it tolerates; `*`: all.
    pub(super) tolerates: String,
}

/// An eviction that was asked for: of which pod, by its UID, and whether it goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Eviction {
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) is_done: bool,
}

/// Objects of the server.
#[derive(Debug)]
pub(crate) struct HoldCluster {
    pub(super) reservations: BTreeMap<String, ReservationObject>,
    pub(super) nodes: BTreeSet<String>,
    pub(super) node_fences: BTreeMap<String, NodeFences>,
    pub(super) slices: BTreeMap<String, PublishedSlice>,
    pub(super) rules: BTreeMap<String, FenceRule>,
    /// Names of rules that are somebody else's.
    pub(super) rules_of_others: BTreeSet<String>,
    pub(super) claims: BTreeMap<ObjectKey, AllocatedClaim>,
    pub(super) pods: BTreeMap<ObjectKey, ModelPod>,
    /// What PriorityClasses say.
    pub(super) priorities: Result<PriorityClasses, String>,
    /// How many pods with this label must stay.
    pub(super) budgets: BTreeMap<String, usize>,
    /// Nobody may list them.
    pub(super) hides_budgets: bool,
    pub(super) evictions: Vec<Eviction>,
    /// Pods may not be annotated.
    pub(super) forbids_annotations: bool,
    pub(super) facts: ClusterFacts,
}

impl Default for HoldCluster {
    fn default() -> Self {
        let priorities = PriorityClasses { values: [("high".to_owned(), 1000)].into(), default: 0 };
        Self {
            reservations: BTreeMap::new(),
            nodes: BTreeSet::new(),
            node_fences: BTreeMap::new(),
            slices: BTreeMap::new(),
            rules: BTreeMap::new(),
            rules_of_others: BTreeSet::new(),
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            priorities: Ok(priorities),
            budgets: BTreeMap::new(),
            hides_budgets: false,
            evictions: Vec::new(),
            forbids_annotations: false,
            facts: ClusterFacts::default(),
        }
    }
}

impl ModelCluster for HoldCluster {
    type Event = HoldEvent;
}

model_kind!(ReservationObject: String = |it| it.name.clone(), {
    uid: uid, version: version, generation: generation, finalizers: finalizers, is_deleting: is_deleting
});
model_kind!(PublishedSlice: String = |it| it.name.clone(), { version: version });
model_kind!(NodeFences: String = |it| it.node.clone(), { version: version });
model_kind!(FenceRule: String = |it| it.name.clone(), {});

impl ModelObject for AllocatedClaim {
    type Key = ObjectKey;

    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    /// Only what stands for a part says what keeps it, and that it is deleted.
    fn meta(&self) -> ModelMeta {
        let mark = self.placeholder.clone().unwrap_or_default();
        ModelMeta {
            uid: self.uid.clone(),
            version: self.version.clone(),
            finalizers: mark.finalizers,
            is_deleting: mark.is_deleting,
            ..ModelMeta::default()
        }
    }

    fn set_meta(&mut self, meta: ModelMeta) {
        (self.uid, self.version) = (meta.uid, meta.version);
        if let Some(mark) = &mut self.placeholder {
            (mark.finalizers, mark.is_deleting) = (meta.finalizers, meta.is_deleting);
        }
    }
}

serves!(HoldCluster, reservations: ReservationObject, |_cluster, change| {
    vec![match change {
        Change::Put(it) => HoldEvent::Reservation(Box::new(it.clone())),
        Change::Gone(it) => HoldEvent::ReservationGone(it.name.clone(), it.uid.clone()),
    }]
});

serves!(HoldCluster, slices: PublishedSlice, |cluster, change| {
    match change {
        Change::Put(slice) => {
            cluster.facts.add_slice(resource_slice(slice));
            vec![HoldEvent::Slice(Box::new(slice.clone())), HoldEvent::FactsChanged(cluster.facts.gains())]
        }
        Change::Gone(slice) => {
            cluster.facts.remove_slice(&slice.name);
            vec![HoldEvent::SliceGone(slice.name.clone())]
        }
    }
});

serves!(HoldCluster, node_fences: NodeFences, |_cluster, change| {
    vec![match change {
        Change::Put(it) => HoldEvent::NodeFences(Box::new(it.clone())),
        Change::Gone(it) => HoldEvent::NodeFencesGone(it.node.clone()),
    }]
});

serves!(HoldCluster, rules: FenceRule, |cluster, change| {
    match change {
        Change::Put(rule) => {
            cluster.facts.add_rule(taint_rule(rule));
            vec![HoldEvent::Rule(rule.clone())]
        }
        Change::Gone(rule) => {
            cluster.facts.remove_rule(&rule.name);
            vec![HoldEvent::RuleGone(rule.name.clone())]
        }
    }
});

serves!(HoldCluster, claims: AllocatedClaim, |cluster, change| {
    let event = match change {
        Change::Put(claim) => {
            cluster.facts.add_claim(&read(json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": claim.key.name, "namespace": claim.key.namespace, "uid": claim.uid},
                "spec": {"devices": {"requests": [
                    {"name": "r0", "exactly": {"deviceClassName": "gpu", "count": claim.devices.len().max(1)}},
                ]}},
                "status": status_of(claim),
            })));
            HoldEvent::Claim(Box::new(claim.clone()))
        }
        Change::Gone(claim) => {
            cluster.facts.remove_claim(&claim.key);
            HoldEvent::ClaimGone(claim.key.clone(), claim.uid.clone())
        }
    };
    vec![event, HoldEvent::FactsChanged(cluster.facts.gains())]
});

/// The object after a write, or the reason for which it is not written.
type Answer = Result<Option<HoldEvent>, ApiError>;

fn of_reservation(written: Result<ReservationObject, ApiError>) -> Answer {
    written.map(|object| Some(HoldEvent::Reservation(Box::new(object))))
}

/// The server.
pub(super) type Server = ModelServer<HoldCluster>;

impl Server {
    pub(super) fn delete_reservation(&mut self, name: &str) {
        drop(self.delete::<ReservationObject>(&name.to_owned(), None));
    }

    pub(super) fn remove_slice(&mut self, name: &str) {
        self.remove::<PublishedSlice>(&name.to_owned());
    }

    pub(super) fn put_node(&mut self, name: &str) {
        self.nodes.insert(name.to_owned());
        self.facts.add_node(read(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
        })));
        let gains = self.facts.gains();
        self.log.extend([HoldEvent::Node(name.to_owned()), HoldEvent::FactsChanged(gains)]);
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
        self.facts.remove_node(name);
        self.log.push(HoldEvent::NodeGone(name.to_owned()));
        self.remove::<NodeFences>(&name.to_owned());
    }

    pub(super) fn remove_rule(&mut self, name: &str) {
        self.remove::<FenceRule>(&name.to_owned());
    }

    pub(super) fn remove_claim(&mut self, key: &ObjectKey) {
        self.remove::<AllocatedClaim>(key);
    }

    pub(super) fn write(&mut self, write: &HoldWrite) -> Answer {
        match write {
            HoldWrite::Finalizers(it, finalizers) => of_reservation(self.update(
                &it.name,
                Some(&over(&it.uid, &it.version)),
                Part::Metadata,
                |object: &mut ReservationObject| object.finalizers.clone_from(finalizers),
            )),
            HoldWrite::Status(it, status) => of_reservation(self.update(
                &it.name,
                Some(&over(&it.uid, &it.version)),
                Part::Status,
                |object: &mut ReservationObject| object.status.clone_from(status),
            )),
            HoldWrite::Delete(it) => of_reservation(self.delete(&it.name, Some(&over(&it.uid, &it.version)))),
            HoldWrite::NodeFences { node, version, fences } => {
                let change = |known: &mut NodeFences| known.fences.clone_from(fences);
                let written = self.update(node, Some(&over("", version)), Part::Spec, change);
                written.map(|fences| Some(HoldEvent::NodeFences(Box::new(fences))))
            }
            HoldWrite::Pod(write) => self.write_pod(write),
            HoldWrite::CreateRule(rule) if self.rules_of_others.contains(&rule.name) => {
                Err(ApiError(409, format!("{} is of others", rule.name)))
            }
            HoldWrite::CreateRule(rule) => self.create(rule.clone()).map(|rule| Some(HoldEvent::Rule(rule))),
            HoldWrite::Claim(write) => self.write_claim(write),
            HoldWrite::DeleteRule(rule) if self.rules.get(&rule.name) != Some(rule) => {
                Err(ApiError(404, format!("{} is not there, or another one", rule.name)))
            }
            HoldWrite::DeleteRule(rule) => {
                self.remove_rule(&rule.name);
                Ok(None)
            }
        }
    }

    /// As their status says it: how many of its pods may go now.
    pub(super) fn pod_budgets(&self) -> Result<Vec<PodBudget>, String> {
        let budget = |(app, least): (&String, &usize)| {
            let selector =
                LabelSelector { match_labels: [("app".to_owned(), app.clone())].into(), ..Default::default() };
            let is_healthy = |it: &&ModelPod| selector.matches(&it.is.labels) && !it.is.is_deleting;
            let allowed = self.pods.values().filter(is_healthy).count().saturating_sub(*least);
            let key = ObjectKey::new("default", app);
            PodBudget { key, selector: Some(selector), allowed: allowed as u64, ..PodBudget::default() }
        };
        if self.hides_budgets {
            Err("no right to list budgets".to_owned())
        } else {
            Ok(self.budgets.iter().map(budget).collect())
        }
    }

    fn write_pod(&mut self, write: &PodWrite) -> Answer {
        let (PodWrite::Evict { pod, uid } | PodWrite::Annotate { pod, uid, .. }) = write;
        let missing = |pod: &ObjectKey| Err(ApiError(404, format!("{pod} not found")));
        let app = |pod: &ModelPod| pod.is.labels.get("app").cloned().unwrap_or_default();
        let Some(found) = self.pods.get(pod).filter(|_| !uid.is_empty()) else { return missing(pod) };
        if found.is.uid != *uid {
            return Err(ApiError(409, format!("{pod} is another one")));
        }
        let (of, is_going) = (app(found), found.is.is_deleting);
        let healthy = self.pods.values().filter(|it| app(it) == of && !it.is.is_deleting).count();
        let is_blocked = !is_going && self.budgets.get(&of).is_some_and(|least| healthy <= *least);
        let HoldCluster { pods, evictions, forbids_annotations, .. } = &mut self.cluster;
        let Some(found) = pods.get_mut(pod) else { return missing(pod) };
        match write {
            PodWrite::Annotate { .. } if *forbids_annotations => {
                return Err(ApiError(422, "pods is forbidden".to_owned()));
            }
            PodWrite::Annotate { value, .. } => {
                found.is.annotations.insert(RESERVATION_ALLOCATED.to_owned(), value.clone());
            }
            // One that goes already goes on.
            PodWrite::Evict { .. } if is_going => {}
            PodWrite::Evict { .. } => {
                found.is.is_deleting = !is_blocked;
                let (pod, uid) = (pod.name.clone(), uid.clone());
                evictions.push(Eviction { pod, uid, is_done: !is_blocked });
            }
        }
        if is_blocked && matches!(write, PodWrite::Evict { .. }) {
            return Err(ApiError(422, format!("budget {of} is against it")));
        }
        Ok(None)
    }

    /// A write of a claim that stands for a part.
    fn write_claim(&mut self, write: &ClaimWrite) -> Answer {
        fn mark(claim: &mut AllocatedClaim) -> &mut PlaceholderMark {
            claim.placeholder.as_mut().expect("only claims that stand for parts are written")
        }
        let version = |it: &ClaimVersion| over(&it.uid, &it.version);
        let written = match write {
            ClaimWrite::Create(new) => {
                let reservation_uid = new.labels[RESERVATION_UID].clone();
                let mark = PlaceholderMark { reservation_uid, ..PlaceholderMark::default() };
                let (key, placeholder) = (new.key.clone(), Some(mark));
                self.create(AllocatedClaim { key, placeholder, ..AllocatedClaim::default() })
            }
            ClaimWrite::Consumers(..) => unreachable!("nobody is a consumer of such a claim"),
            ClaimWrite::Finalizers(it, finalizers) => {
                let change = |claim: &mut AllocatedClaim| mark(claim).finalizers.clone_from(finalizers);
                self.update(&it.key, Some(&version(it)), Part::Metadata, change)
            }
            ClaimWrite::Status(it, status) => {
                let change = |claim: &mut AllocatedClaim| *claim = with_status(claim.clone(), status);
                self.update(&it.key, Some(&version(it)), Part::Status, change)
            }
            ClaimWrite::Delete(it) => self.delete(&it.key, Some(&version(it))),
        };
        let is_there = written.as_ref().is_ok_and(|claim| self.claims.contains_key(&claim.key));
        written.map(|claim| is_there.then(|| HoldEvent::Claim(Box::new(claim))))
    }

    /// Everything that there is, as somebody is told who begins.
    pub(super) fn everything(&self) -> Vec<HoldEvent> {
        let mut all: Vec<HoldEvent> = self.nodes.iter().cloned().map(HoldEvent::Node).collect();
        all.extend(self.claims.values().cloned().map(Box::new).map(HoldEvent::Claim));
        all.extend(self.slices.values().cloned().map(Box::new).map(HoldEvent::Slice));
        all.extend(self.node_fences.values().cloned().map(Box::new).map(HoldEvent::NodeFences));
        all.extend(self.rules.values().cloned().map(HoldEvent::Rule));
        all.extend(self.reservations.values().cloned().map(Box::new).map(HoldEvent::Reservation));
        all
    }
}

/// The claim with what was written.
fn with_status(claim: AllocatedClaim, status: &WrittenClaimStatus) -> AllocatedClaim {
    let results = status.allocation.iter().flat_map(|it| &it.devices.results);
    let parts: Vec<ClaimPart> = results
        .map(|it| ClaimPart {
            device: DeviceKey::new(&it.driver, &it.pool, &it.device),
            share_id: it.share_id.clone().unwrap(),
            amounts: read(json!(it.consumed_capacity)),
        })
        .collect();
    assert!(parts.is_empty() || claim.parts.is_empty(), "what a claim has is never changed");
    assert!(status.allocation.iter().all(|it| it.allocation_timestamp.is_some() && it.node_selector.is_some()));
    AllocatedClaim { devices: parts.iter().map(|part| part.device.clone()).collect(), parts, ..claim }
}

pub(super) fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn status_of(claim: &AllocatedClaim) -> Value {
    let result = |it: &super::super::DeviceKey| {
        let mut result = json!({"request": "r", "driver": it.driver, "pool": it.pool, "device": it.device});
        if let Some(part) = claim.parts.iter().find(|part| part.device == *it) {
            result["shareID"] = json!(part.share_id);
            result["consumedCapacity"] = json!(part.amounts);
        }
        result
    };
    let pods: Vec<Value> =
        claim.pods.iter().map(|PodRef { name, uid }| json!({"resource": "pods", "name": name, "uid": uid})).collect();
    if claim.devices.is_empty() {
        return json!({});
    }
    let results: Vec<Value> = claim.devices.iter().map(result).collect();
    json!({"allocation": {"devices": {"results": results}}, "reservedFor": pods})
}

fn resource_slice(slice: &PublishedSlice) -> ResourceSlice {
    let device = |device: &super::super::PublishedDevice| {
        let mut taints = Vec::new();
        taints.extend(
            device
                .held_for
                .iter()
                .map(|value| json!({"key": "hostler.dev/held", "value": value, "effect": "NoSchedule"})),
        );
        if !device.is_usable {
            taints.push(json!({"key": "hostler.dev/unhealthy", "value": "failed", "effect": "NoSchedule"}));
        }
        let mut json = json!({"name": device.name, "taints": taints, "attributes": {"on": {"string": slice.node}}});
        if device.is_held {
            json["attributes"][HELD_ATTRIBUTE] = json!({"bool": true});
        }
        if device.is_shareable {
            json["allowMultipleAllocations"] = json!(true);
            let amounts = device.capacity.iter().map(|(name, all)| (name.clone(), json!({"value": all})));
            json["capacity"] = amounts.collect::<serde_json::Map<_, _>>().into();
        }
        json
    };
    let devices: Vec<Value> = slice.devices.iter().map(device).collect();
    read(json!({"metadata": {"name": slice.name}, "spec": {
        "driver": slice.driver, "nodeName": slice.node,
        "pool": {"name": slice.pool, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
    }}))
}

fn taint_rule(rule: &FenceRule) -> hostler_api::resource::DeviceTaintRule {
    let key = &rule.device;
    read(json!({"metadata": {"name": rule.name}, "spec": {
        "deviceSelector": {"driver": key.driver, "pool": key.pool, "device": key.device},
        "taint": {"key": "hostler.dev/held", "value": rule.value, "effect": "NoSchedule"},
    }}))
}
