//! An API server in miniature: objects with versions, and a watch.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::ClusterFacts;
use hostler_api::{
    ObjectKey,
    reservation::{LabelSelector, RESERVATION_ALLOCATED, RESERVATION_UID},
    resource::ResourceSlice,
    well_known::HELD_ATTRIBUTE,
};
use hostler_reconcile::WriteOutcome;
use serde_json::{Value, json};

use super::super::{
    AllocatedClaim, ClaimPart, DeviceKey, FenceRule, HoldEvent, HoldWrite, NodeFences, OwnerPod, PlaceholderMark,
    PodBudget, PodRef, PodWrite, PriorityClasses, PublishedSlice, ReservationObject, WrittenReservation,
};
use crate::claim_write::{ClaimWrite, WrittenClaimStatus};

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

/// The server.
#[derive(Debug)]
pub(super) struct Server {
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
    pub(super) log: Vec<HoldEvent>,
    pub(super) last: u64,
}

impl Default for Server {
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
            log: Vec::new(),
            last: 0,
        }
    }
}

impl Server {
    pub(super) fn next(&mut self) -> String {
        self.last += 1;
        self.last.to_string()
    }

    pub(super) fn put_reservation(&mut self, mut object: ReservationObject) -> ReservationObject {
        object.version = self.next();
        if object.is_deleting && object.finalizers.is_empty() {
            self.reservations.remove(&object.name);
            self.log.push(HoldEvent::ReservationGone(object.name.clone(), object.uid.clone()));
            return object;
        }
        self.reservations.insert(object.name.clone(), object.clone());
        self.log.push(HoldEvent::Reservation(Box::new(object.clone())));
        object
    }

    pub(super) fn delete_reservation(&mut self, name: &str) {
        if let Some(object) = self.reservations.get(name).cloned().filter(|object| !object.is_deleting) {
            self.put_reservation(ReservationObject { is_deleting: true, ..object });
        }
    }

    pub(super) fn put_slice(&mut self, mut slice: PublishedSlice) {
        slice.version = self.next();
        self.facts.add_slice(resource_slice(&slice));
        self.slices.insert(slice.name.clone(), slice.clone());
        self.log.push(HoldEvent::Slice(Box::new(slice)));
        self.log.push(HoldEvent::FactsChanged(self.facts.gains()));
    }

    pub(super) fn remove_slice(&mut self, name: &str) {
        if self.slices.remove(name).is_some() {
            self.facts.remove_slice(name);
            self.log.push(HoldEvent::SliceGone(name.to_owned()));
        }
    }

    pub(super) fn put_node(&mut self, name: &str) {
        self.nodes.insert(name.to_owned());
        self.facts.add_node(read(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
        })));
        self.log.push(HoldEvent::Node(name.to_owned()));
        self.log.push(HoldEvent::FactsChanged(self.facts.gains()));
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
        self.facts.remove_node(name);
        self.log.push(HoldEvent::NodeGone(name.to_owned()));
        if self.node_fences.remove(name).is_some() {
            self.log.push(HoldEvent::NodeFencesGone(name.to_owned()));
        }
    }

    pub(super) fn put_fences(&mut self, mut fences: NodeFences) -> NodeFences {
        fences.version = self.next();
        self.node_fences.insert(fences.node.clone(), fences.clone());
        self.log.push(HoldEvent::NodeFences(Box::new(fences.clone())));
        fences
    }

    pub(super) fn put_rule(&mut self, rule: FenceRule) {
        self.last += 1;
        self.rules.insert(rule.name.clone(), rule.clone());
        self.facts.add_rule(taint_rule(&rule));
        self.log.push(HoldEvent::Rule(rule));
    }

    pub(super) fn remove_rule(&mut self, name: &str) {
        self.last += 1;
        self.rules.remove(name);
        self.facts.remove_rule(name);
        self.log.push(HoldEvent::RuleGone(name.to_owned()));
    }

    pub(super) fn put_claim(&mut self, mut claim: AllocatedClaim) {
        claim.version = self.next();
        self.facts.add_claim(&read(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": claim.key.name, "namespace": claim.key.namespace, "uid": claim.uid},
            "spec": {"devices": {"requests": [
                {"name": "r0", "exactly": {"deviceClassName": "gpu", "count": claim.devices.len().max(1)}},
            ]}},
            "status": status_of(&claim),
        })));
        self.claims.insert(claim.key.clone(), claim.clone());
        self.log.push(HoldEvent::Claim(Box::new(claim)));
        self.log.push(HoldEvent::FactsChanged(self.facts.gains()));
    }

    pub(super) fn remove_claim(&mut self, key: &ObjectKey) {
        if let Some(claim) = self.claims.remove(key) {
            self.last += 1;
            self.facts.remove_claim(key);
            self.log.push(HoldEvent::ClaimGone(key.clone(), claim.uid));
            self.log.push(HoldEvent::FactsChanged(self.facts.gains()));
        }
    }

    /// What came of a write, and what the object is now.
    pub(super) fn write(&mut self, write: &HoldWrite) -> (WriteOutcome, Option<HoldEvent>) {
        match write {
            HoldWrite::Finalizers(it, finalizers) => self.change(it, |object| object.finalizers.clone_from(finalizers)),
            HoldWrite::Status(it, status) => self.change(it, |object| object.status = (**status).clone()),
            HoldWrite::Delete(it) => self.change(it, |object| object.is_deleting = true),
            HoldWrite::NodeFences { node, version, fences } => match self.node_fences.get(node).cloned() {
                None => (WriteOutcome::Gone, None),
                Some(known) if known.version != *version => (WriteOutcome::Conflict, None),
                Some(known) => {
                    let fences = self.put_fences(NodeFences { fences: fences.clone(), ..known });
                    (WriteOutcome::Done, Some(HoldEvent::NodeFences(Box::new(fences))))
                }
            },
            HoldWrite::Pod(write) => (self.write_pod(write), None),
            HoldWrite::CreateRule(FenceRule { name, .. })
                if self.rules.contains_key(name) || self.rules_of_others.contains(name) =>
            {
                (WriteOutcome::Conflict, None)
            }
            HoldWrite::CreateRule(rule) => {
                self.put_rule(rule.clone());
                (WriteOutcome::Done, Some(HoldEvent::Rule(rule.clone())))
            }
            HoldWrite::Claim(write) => self.write_claim(write),
            HoldWrite::DeleteRule(rule) => {
                if self.rules.get(&rule.name) != Some(rule) {
                    return (WriteOutcome::Gone, None);
                }
                self.remove_rule(&rule.name);
                (WriteOutcome::Done, None)
            }
        }
    }

    fn change(
        &mut self,
        written: &WrittenReservation,
        change: impl FnOnce(&mut ReservationObject),
    ) -> (WriteOutcome, Option<HoldEvent>) {
        match self.reservations.get(&written.name).cloned() {
            Some(known) if known.uid == written.uid && known.version == written.version => {
                let mut object = known;
                change(&mut object);
                let object = self.put_reservation(object);
                (WriteOutcome::Done, Some(HoldEvent::Reservation(Box::new(object))))
            }
            Some(known) if known.uid == written.uid => (WriteOutcome::Conflict, None),
            _ => (WriteOutcome::Gone, None),
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

    fn write_pod(&mut self, write: &PodWrite) -> WriteOutcome {
        let (PodWrite::Evict { pod, uid } | PodWrite::Annotate { pod, uid, .. }) = write;
        let app = |pod: &ModelPod| pod.is.labels.get("app").cloned().unwrap_or_default();
        let Some(found) = self.pods.get(pod).filter(|_| !uid.is_empty()) else { return WriteOutcome::Gone };
        if found.is.uid != *uid {
            return WriteOutcome::Conflict;
        }
        let (of, is_going) = (app(found), found.is.is_deleting);
        let healthy = self.pods.values().filter(|it| app(it) == of && !it.is.is_deleting).count();
        let is_blocked = !is_going && self.budgets.get(&of).is_some_and(|least| healthy <= *least);
        let Some(found) = self.pods.get_mut(pod) else { return WriteOutcome::Gone };
        match write {
            PodWrite::Annotate { .. } if self.forbids_annotations => {
                return WriteOutcome::Refused("pods is forbidden".to_owned());
            }
            PodWrite::Annotate { value, .. } => {
                found.is.annotations.insert(RESERVATION_ALLOCATED.to_owned(), value.clone());
            }
            // One that goes already goes on.
            PodWrite::Evict { .. } if is_going => {}
            PodWrite::Evict { .. } => {
                found.is.is_deleting = !is_blocked;
                let (pod, uid) = (pod.name.clone(), uid.clone());
                self.evictions.push(Eviction { pod, uid, is_done: !is_blocked });
            }
        }
        if is_blocked && matches!(write, PodWrite::Evict { .. }) {
            return WriteOutcome::Refused(format!("budget {of} is against it"));
        }
        WriteOutcome::Done
    }

    /// A write of a claim that stands for a part.
    fn write_claim(&mut self, write: &ClaimWrite) -> (WriteOutcome, Option<HoldEvent>) {
        let written = match write {
            ClaimWrite::Create(new) if self.claims.contains_key(&new.key) => return (WriteOutcome::Conflict, None),
            ClaimWrite::Create(new) => {
                let uid = format!("uid-{}", self.next());
                let mark = PlaceholderMark {
                    reservation_uid: new.labels[RESERVATION_UID].clone(),
                    ..PlaceholderMark::default()
                };
                let claim =
                    AllocatedClaim { key: new.key.clone(), uid, placeholder: Some(mark), ..AllocatedClaim::default() };
                return self.claim_written(claim);
            }
            ClaimWrite::Consumers(..) => unreachable!("nobody is a consumer of such a claim"),
            ClaimWrite::Finalizers(written, _) | ClaimWrite::Status(written, _) | ClaimWrite::Delete(written) => {
                written
            }
        };
        let claim = match self.claims.get(&written.key).cloned() {
            Some(known) if known.uid == written.uid && known.version == written.version => known,
            Some(known) if known.uid == written.uid => return (WriteOutcome::Conflict, None),
            _ => return (WriteOutcome::Gone, None),
        };
        let mut mark = claim.placeholder.clone().expect("only claims that stand for parts are written");
        match write {
            ClaimWrite::Create(_) | ClaimWrite::Consumers(..) => unreachable!("see above"),
            ClaimWrite::Finalizers(_, finalizers) => mark.finalizers.clone_from(finalizers),
            ClaimWrite::Delete(_) => mark.is_deleting = true,
            ClaimWrite::Status(_, status) => return self.claim_written(with_status(claim, status)),
        }
        self.claim_written(AllocatedClaim { placeholder: Some(mark), ..claim })
    }

    fn claim_written(&mut self, claim: AllocatedClaim) -> (WriteOutcome, Option<HoldEvent>) {
        let mark = claim.placeholder.clone().unwrap_or_default();
        if mark.is_deleting && mark.finalizers.is_empty() {
            self.remove_claim(&claim.key);
            return (WriteOutcome::Done, None);
        }
        let key = claim.key.clone();
        self.put_claim(claim);
        (WriteOutcome::Done, Some(HoldEvent::Claim(Box::new(self.claims[&key].clone()))))
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
