//! A cluster in miniature: one namespace, a scheduler, a controller of claims, and a Reservation of the mode.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    ObjectKey,
    hardware::Condition,
    reservation::{ReservationConditionType, ReservationStatus},
    resource::{AllocationResult, ResourceClaimConsumerReference, ResourceClaimSpec},
};
use serde_json::{Value, json};

use super::super::{
    context::{ObservedClaim, ObservedMeta, SharedContext, SharedStep, SharedWrite},
    decide::decide,
    objects::wanted,
};
use crate::{
    claim_write::{ClaimWrite, DELETE_PROTECTION},
    hold::{HoldWrite, OwnerPod},
    reservation_object::ReservationObject,
    testkit::{Fate, Fated, Fates, ModelCluster, ModelServer, Part, model_kind, over, serves},
};

/// A pod.
#[derive(Clone, Debug, Default)]
struct ModelPod {
    metadata: ObservedMeta,
    app: String,
    claims: Vec<String>,
    node: Option<String>,
    refusal: Option<String>,
}

/// What the scheduler has decided and not written yet.
#[derive(Clone, Debug)]
struct Decision {
    pod: ObjectKey,
    uid: String,
    node: String,
    devices: BTreeMap<ObjectKey, String>,
}

/// Objects of the server.
#[derive(Debug, Default)]
struct SharedCluster {
    reservations: BTreeMap<String, ReservationObject>,
    claims: BTreeMap<ObjectKey, ObservedClaim>,
    pods: BTreeMap<ObjectKey, ModelPod>,
}

impl ModelCluster for SharedCluster {
    type Event = ();
}

model_kind!(ObservedClaim: metadata, |_claim| false);
// One that is on a node takes a while to end.
model_kind!(ModelPod: metadata, |pod| pod.node.is_some());

serves!(SharedCluster, reservations: ReservationObject);
serves!(SharedCluster, claims: ObservedClaim);
serves!(SharedCluster, pods: ModelPod);

/// The cluster.
#[derive(Debug)]
pub(super) struct SharedWorld {
    /// Devices, and the node of each.
    devices: Vec<(String, String)>,
    /// Devices that somebody else has.
    taken: Vec<String>,
    server: ModelServer<SharedCluster>,
    decisions: Vec<Decision>,
    now: Duration,
    pub(super) is_served: bool,
    pub(super) refuses_pods: bool,
    pub(super) lost_node: Option<String>,
    trouble: Option<String>,
    /// Somebody took devices from a claim who may do so.
    is_robbed: bool,
    pub(super) writes: Vec<SharedWrite>,
    pub(super) fates: Fates,
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ml", name)
}

fn allocation(devices: &str, node: &str) -> AllocationResult {
    serde_json::from_value(json!({
        "devices": {"results": [{"request": "gpu", "driver": "d", "pool": node, "device": devices}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]},
        ]}]},
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }))
    .unwrap()
}

fn template() -> ResourceClaimSpec {
    serde_json::from_value(json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}))
        .unwrap()
}

impl SharedWorld {
    /// With a device for each of these nodes.
    pub(super) fn new(nodes: &[&str]) -> Self {
        let devices = nodes.iter().enumerate().map(|(at, node)| (format!("gpu-{at}"), (*node).to_owned())).collect();
        Self {
            devices,
            taken: Vec::new(),
            server: ModelServer::default(),
            decisions: Vec::new(),
            now: Duration::from_secs(1_800_000_000),
            is_served: true,
            refuses_pods: false,
            lost_node: None,
            trouble: None,
            is_robbed: false,
            writes: Vec::new(),
            fates: Fates::default(),
        }
    }

    /// The Reservation, if there is one.
    pub(super) fn reservation(&self) -> Option<&ReservationObject> {
        self.server.reservations.get("r")
    }

    pub(super) fn reserve(&mut self, more: Value) {
        let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        self.reserve_claims(&claims, more);
    }

    pub(super) fn reserve_two(&mut self) {
        let claim = |name: &str| json!({"name": name, "resourceClaimTemplateName": "t"});
        self.reserve_claims(&json!([claim("gpu"), claim("nic")]), json!({}));
    }

    fn reserve_claims(&mut self, claims: &Value, more: Value) {
        let mut spec = json!({
            "mode": "SharedClaim", "allocateOnce": false, "owners": [{"labelSelector": {"matchLabels": {"app": "owner"}}}],
            "template": {"metadata": {"namespace": "ml"}, "spec": {"containers": [], "resourceClaims": claims}},
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let created = hostler_cluster::rfc3339(std::time::UNIX_EPOCH + self.now);
        let metadata = json!({"name": "r", "creationTimestamp": created});
        let object: ReservationObject = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        self.server.create(object).unwrap();
    }

    pub(super) fn delete_reservation(&mut self) {
        drop(self.server.delete::<ReservationObject>(&"r".to_owned(), None));
    }

    /// A pod that names the claim comes.
    pub(super) fn come(&mut self, name: &str, app: &str) {
        let metadata = ObservedMeta { name: name.to_owned(), namespace: "ml".to_owned(), ..ObservedMeta::default() };
        let pod = ModelPod { metadata, app: app.to_owned(), claims: vec!["r-gpu".to_owned()], ..ModelPod::default() };
        drop(self.server.create(pod));
    }

    /// A pod is deleted.
    pub(super) fn go(&mut self, name: &str) {
        drop(self.server.delete::<ModelPod>(&key(name), None));
    }

    pub(super) fn go_any(&mut self, at: usize) {
        let users = self.server.pods.iter().filter(|(_, pod)| !pod.app.is_empty()).map(|(key, _)| key.name.clone());
        if let Some(name) = users.collect::<Vec<_>>().get(at) {
            self.go(name);
        }
    }

    pub(super) fn everybody_goes(&mut self) {
        let names: Vec<String> = self.server.pods.keys().map(|key| key.name.clone()).collect();
        names.iter().for_each(|name| self.go(name));
    }

    /// Somebody else is given a free device of the node.
    pub(super) fn take(&mut self, node: &str) {
        let free = self.free_devices().into_iter().find(|(_, on)| on == node);
        self.taken.extend(free.map(|(device, _)| device));
    }

    pub(super) fn free(&mut self, node: &str) {
        let devices = self.devices.clone();
        self.taken.retain(|taken| !devices.iter().any(|(device, on)| device == taken && on == node));
    }

    pub(super) fn foreign_claim(&mut self, name: &str) {
        let claim = json!({"metadata": {"name": name, "namespace": "ml"}, "spec": template()});
        let claim: ObservedClaim = serde_json::from_value(claim).unwrap();
        self.server.create(claim).unwrap();
    }

    /// A claim has nothing any more, and nobody of ours did it.
    pub(super) fn rob(&mut self, name: &str) {
        let rob = |claim: &mut ObservedClaim| claim.status = serde_json::from_value(json!({})).unwrap();
        self.server.update(&key(name), None, Part::Status, rob).unwrap();
        self.is_robbed = true;
    }

    pub(super) fn pass_quietly(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.pass_quietly(time);
        self.settle();
    }

    // What the controller does.

    pub(super) fn look(&self) -> SharedStep {
        let asked = |it: &ReservationObject| wanted(it, |_| Some(template()));
        let owner = |pod: &ModelPod| OwnerPod {
            uid: pod.metadata.uid.clone(),
            labels: BTreeMap::from([("app".to_owned(), pod.app.clone())]),
            ..OwnerPod::default()
        };
        let reserve = |pod: &ModelPod| {
            let refusal =
                pod.refusal.iter().map(|why| json!({"type": "PodScheduled", "status": "False", "message": why}));
            let status = json!({"phase": "Pending", "conditions": refusal.collect::<Vec<_>>()});
            super::super::context::ReservePod {
                metadata: pod.metadata.clone(),
                status: serde_json::from_value(status).unwrap(),
            }
        };
        let asking = |key: &ObjectKey, pod: &ModelPod| key.name == "r-reserve" || pod.metadata.is_made_for("r");
        let pods = self.server.pods.iter();
        decide(&SharedContext {
            name: "r".to_owned(),
            wanted: self.reservation().map_or_else(|| Ok(Vec::new()), asked),
            reservation: self.reservation().cloned(),
            claims: self.server.claims.clone(),
            pods: pods
                .clone()
                .filter(|(key, pod)| asking(key, pod))
                .map(|(key, pod)| (key.clone(), reserve(pod)))
                .collect(),
            consumers: pods
                .filter(|(key, pod)| !asking(key, pod))
                .map(|(key, pod)| (pod.metadata.uid.clone(), (key.clone(), owner(pod))))
                .collect(),
            lost_node: self.lost_node.clone(),
            is_served: self.is_served,
            trouble: self.trouble.clone(),
            now: self.now,
            keep: Duration::from_secs(24 * 3600),
            image: "pause".to_owned(),
        })
    }

    /// One look, with whatever becomes of its write.
    pub(super) fn control(&mut self) {
        let SharedStep::Write(write) = self.look() else { return };
        let fate = self.fates.next();
        self.writes.push(write.clone());
        match Fate::carry_out(fate, self, |_| {}, |world| world.apply(&write)) {
            Fated::Answered(_) if matches!(write, SharedWrite::Reservation(_)) => {}
            Fated::Answered(refusal) => self.trouble = refusal,
            // The next controller begins with what the server says.
            _ => self.trouble = None,
        }
    }

    /// As the server takes it; what it says if it refuses.
    pub(super) fn apply(&mut self, write: &SharedWrite) -> Option<String> {
        match write {
            SharedWrite::Reservation(write) => self.apply_to_reservation(write),
            SharedWrite::Claim(write) => self.apply_to_claim(write),
            SharedWrite::CreatePod(..) if self.refuses_pods => return Some("pods is forbidden".to_owned()),
            SharedWrite::CreatePod(_, pod) => {
                let metadata: ObservedMeta = serde_json::from_value(pod["metadata"].clone()).unwrap();
                let claims = pod["spec"]["resourceClaims"].as_array().unwrap().iter();
                let claims = claims.map(|it| it["resourceClaimName"].as_str().unwrap().to_owned()).collect();
                drop(self.server.create(ModelPod { metadata, claims, ..ModelPod::default() }));
            }
            SharedWrite::DeletePod(key, version) => {
                if let Ok(pod) = self.server.delete::<ModelPod>(key, Some(version)) {
                    assert!(pod.metadata.is_made_for("r"), "somebody else's pod is deleted");
                }
            }
        }
        None
    }

    fn apply_to_reservation(&mut self, write: &HoldWrite) {
        let (HoldWrite::Finalizers(of, _) | HoldWrite::Status(of, _) | HoldWrite::Delete(of)) = write else {
            panic!("{write:?} is no write of this mode")
        };
        let version = over(&of.uid, &of.version);
        drop(match write {
            HoldWrite::Finalizers(_, finalizers) => {
                let change = |it: &mut ReservationObject| it.finalizers.clone_from(finalizers);
                self.server.update(&of.name, Some(&version), Part::Metadata, change)
            }
            HoldWrite::Status(_, status) => {
                let change = |it: &mut ReservationObject| it.status.clone_from(status);
                self.server.update(&of.name, Some(&version), Part::Status, change)
            }
            _ => self.server.delete(&of.name, Some(&version)),
        });
    }

    fn apply_to_claim(&mut self, write: &ClaimWrite) {
        let (of, part) = match write {
            ClaimWrite::Create(new) => {
                let ObjectKey { namespace, name } = &new.key;
                let metadata = json!({"name": name, "namespace": namespace, "annotations": new.annotations});
                let claim = json!({"metadata": metadata, "spec": new.spec});
                let claim: ObservedClaim = serde_json::from_value(claim).unwrap();
                return drop(self.server.create(claim));
            }
            ClaimWrite::Finalizers(of, _) => (of, Part::Metadata),
            ClaimWrite::Status(of, _) | ClaimWrite::Consumers(of, _) => (of, Part::Status),
            ClaimWrite::Delete(of) => {
                if let Ok(claim) = self.server.delete::<ObservedClaim>(&of.key, Some(&over(&of.uid, &of.version))) {
                    assert!(claim.metadata.is_made_for("r"), "somebody else's claim is deleted");
                }
                return;
            }
        };
        drop(self.server.update(&of.key, Some(&over(&of.uid, &of.version)), part, |claim: &mut ObservedClaim| {
            assert!(claim.metadata.is_made_for("r"), "somebody else's claim is written");
            match write {
                ClaimWrite::Finalizers(_, finalizers) => claim.metadata.finalizers.clone_from(finalizers),
                ClaimWrite::Status(_, status) => {
                    assert!(status.allocation.is_none(), "only the scheduler gives devices");
                    claim.status.allocation = None;
                    claim.status.reserved_for.clone_from(&status.reserved_for);
                }
                ClaimWrite::Consumers(_, consumers) => {
                    assert!(claim.is_allocated(), "consumers of a claim without devices");
                    claim.status.reserved_for.clone_from(consumers);
                }
                ClaimWrite::Create(_) | ClaimWrite::Delete(_) => {}
            }
        }));
    }

    // What others do.

    fn free_devices(&self) -> Vec<(String, String)> {
        let given: Vec<String> = self.server.claims.values().flat_map(device_names).collect();
        let decided: Vec<&String> = self.decisions.iter().flat_map(|it| it.devices.values()).collect();
        let is_free = |(device, _): &&(String, String)| {
            !given.contains(device) && !self.taken.contains(device) && !decided.contains(&device)
        };
        self.devices.iter().filter(is_free).cloned().collect()
    }

    /// The scheduler carries out what it has decided, or decides.
    pub(super) fn schedule(&mut self, decides: bool) {
        if decides || self.decisions.is_empty() {
            self.decide_for_pods();
        } else {
            let decision = self.decisions.remove(0);
            self.bind(&decision);
        }
    }

    fn decide_for_pods(&mut self) {
        let keys: Vec<ObjectKey> = self.server.pods.keys().cloned().collect();
        for key in keys {
            let pod = &self.server.pods[&key];
            let is_decided = self.decisions.iter().any(|it| it.uid == pod.metadata.uid);
            if pod.node.is_some() || pod.metadata.is_going() || is_decided {
                continue;
            }
            match self.place(&key) {
                Some(Ok(decision)) => self.decisions.push(decision),
                Some(Err(why)) if self.server.pods[&key].refusal.as_ref() != Some(&why) => {
                    let refuse = |pod: &mut ModelPod| pod.refusal = Some(why);
                    self.server.update(&key, None, Part::Status, refuse).unwrap();
                }
                _ => {}
            }
        }
    }

    /// A node for a pod; `None` where a claim is not there, or goes.
    fn place(&self, key: &ObjectKey) -> Option<Result<Decision, String>> {
        let pod = &self.server.pods[key];
        let claims = pod.claims.iter().map(|name| self.server.claims.get_key_value(&ObjectKey::new("ml", name)));
        let claims: Vec<(&ObjectKey, &ObservedClaim)> = claims.collect::<Option<_>>()?;
        if claims.iter().any(|(_, claim)| claim.metadata.is_going()) {
            return None;
        }
        let mut nodes: Vec<&String> = self.devices.iter().map(|(_, node)| node).collect();
        nodes.dedup();
        for node in &nodes {
            let on_node = |device: &String| self.devices.iter().any(|(name, on)| name == device && on == *node);
            let fits = |claim: &&ObservedClaim| device_names(claim).iter().all(on_node);
            let lacking: Vec<&ObjectKey> =
                claims.iter().filter(|(_, claim)| !claim.is_allocated()).map(|(key, _)| *key).collect();
            let free = self.free_devices().into_iter().filter(|(_, on)| on == *node).map(|(device, _)| device);
            let free: Vec<String> = free.collect();
            if claims.iter().all(|(_, claim)| fits(claim)) && free.len() >= lacking.len() {
                let devices = lacking.into_iter().cloned().zip(free).collect();
                let (pod, uid, node) = (key.clone(), pod.metadata.uid.clone(), (*node).clone());
                return Some(Ok(Decision { pod, uid, node, devices }));
            }
        }
        Some(Err(format!("0/{} nodes are available: cannot allocate all claims", nodes.len())))
    }

    /// Claim by claim, and then the pod; somebody who was faster ends it.
    fn bind(&mut self, decision: &Decision) {
        let Some(pod) = self.server.pods.get(&decision.pod).filter(|pod| pod.metadata.uid == decision.uid) else {
            return;
        };
        let (name, claims) = (pod.metadata.name.clone(), pod.claims.clone());
        for claim in claims {
            let key = key(&claim);
            let found = self.server.claims.get(&key).filter(|claim| !claim.metadata.is_going());
            let Some(mut claim) = found.cloned() else { return };
            match decision.devices.get(&key) {
                Some(_) if claim.is_allocated() => return,
                None if !claim.is_allocated() => return,
                Some(device) => {
                    if !claim.is_protected() {
                        claim.metadata.finalizers.push(DELETE_PROTECTION.to_owned());
                    }
                    claim.status.allocation = Some(allocation(device, &decision.node));
                }
                None => {}
            }
            if claim.status.reserved_for.iter().all(|it| it.uid != decision.uid) {
                let (resource, uid) = ("pods".to_owned(), decision.uid.clone());
                let user = ResourceClaimConsumerReference { resource, name: name.clone(), uid, ..Default::default() };
                claim.status.reserved_for.push(user);
            }
            self.server.put(claim);
        }
        if let Some(pod) = self.server.pods.get(&decision.pod).filter(|pod| !pod.metadata.is_going()) {
            self.server.put(ModelPod { node: Some(decision.node.clone()), ..pod.clone() });
        }
    }

    /// The controller of claims takes out who is gone, and frees what nobody uses.
    pub(super) fn collect(&mut self) {
        let living: Vec<String> = self.server.pods.values().map(|pod| pod.metadata.uid.clone()).collect();
        let claims: Vec<ObservedClaim> = self.server.claims.values().cloned().collect();
        for mut claim in claims {
            let before = claim.status.reserved_for.len();
            claim.status.reserved_for.retain(|it| !it.is_pod() || living.contains(&it.uid));
            let is_empty = claim.status.reserved_for.is_empty();
            let has_shrunk = claim.status.reserved_for.len() < before;
            let is_freed = is_empty && claim.is_protected() && (has_shrunk || claim.metadata.is_going());
            if is_freed {
                claim.status.allocation = None;
                claim.metadata.finalizers.retain(|it| it != DELETE_PROTECTION);
            }
            if is_freed || has_shrunk {
                self.server.put(claim);
            }
        }
    }

    /// Pods that are to go have ended.
    pub(super) fn run_kubelet(&mut self) {
        let going = self.server.pods.iter().filter(|(_, pod)| pod.metadata.is_going()).map(|(key, _)| key.clone());
        going.collect::<Vec<_>>().iter().for_each(|key| drop(self.server.remove::<ModelPod>(key)));
    }

    /// Until nobody has anything to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..1000 {
            let before = self.shot();
            self.control();
            self.check();
            self.schedule(true);
            self.schedule(false);
            self.collect();
            self.run_kubelet();
            self.check();
            if self.shot() == before && self.decisions.is_empty() {
                return;
            }
        }
        panic!("it does not come to rest: {:#?}", self.writes.iter().rev().take(4).collect::<Vec<_>>());
    }

    fn shot(&self) -> String {
        // A write that never came is one that is made anew.
        format!("{} {:?} {}", self.server.versions(), self.trouble, self.fates.left())
    }

    // What must be so.

    pub(super) fn check(&self) {
        let mut given: Vec<String> =
            self.server.claims.values().flat_map(device_names).chain(self.taken.iter().cloned()).collect();
        let all = given.len();
        given.sort();
        given.dedup();
        assert_eq!(given.len(), all, "a device is given twice");
        let Some(reservation) = self.reservation().filter(|it| it.status.phase.as_str() == "Available") else {
            return;
        };
        for claim in reservation.status.claims.iter().filter(|_| !self.is_robbed && !reservation.is_deleting) {
            let kept = &self.server.claims[&key(&claim.resource_claim_name)];
            assert!(
                kept.is_allocated() && kept.is_pinned_by(&reservation.uid),
                "{} is promised and not kept",
                claim.name
            );
        }
    }

    pub(super) fn check_nothing_is_left(&self) {
        assert!(self.reservation().is_none(), "{:?}", self.reservation());
        assert!(self.server.claims.is_empty(), "{:?}", self.server.claims);
        assert!(!self.server.pods.values().any(|pod| pod.metadata.is_made_for("r")), "{:?}", self.server.pods);
        assert_eq!(self.look(), SharedStep::Rest(None));
    }

    pub(super) fn status(&self) -> &ReservationStatus {
        &self.reservation().unwrap().status
    }

    pub(super) fn phase(&self) -> &'static str {
        self.status().phase.as_str()
    }

    pub(super) fn condition(&self, kind: &str) -> &Condition {
        self.status().conditions.iter().find(|it| it.kind == kind).unwrap()
    }

    pub(super) fn ready(&self) -> &Condition {
        self.condition(ReservationConditionType::Ready.as_str())
    }

    pub(super) fn allocation(&self) -> Option<AllocationResult> {
        self.server.claims[&key("r-gpu")].status.allocation.clone()
    }

    pub(super) fn is_bound(&self, pod: &str) -> bool {
        self.server.pods[&key(pod)].node.is_some()
    }

    pub(super) fn has_pod(&self, name: &str) -> bool {
        self.server.pods.contains_key(&key(name))
    }

    pub(super) fn claim_count(&self) -> usize {
        self.server.claims.len()
    }
}

fn device_names(claim: &ObservedClaim) -> Vec<String> {
    let results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
    results.map(|it| it.device.clone()).collect()
}
