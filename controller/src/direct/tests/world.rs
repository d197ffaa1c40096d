//! Direct mode in a cluster: those who keep devices are the real ones, everybody else is here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use hostler_api::{
    ObjectKey,
    reservation::{PLACED_POD_LABEL, ReservedDeviceState as State},
    resource::{ResourceClaimConsumerReference, ResourceClaimStatus},
};
use serde_json::{Value, json};

use super::super::{
    context::{DirectClaim, DirectContext, DirectPod, DirectStep, DirectWrite, LET_GO},
    decide::decide,
    reconciler::pod_of,
};
use crate::{
    claim_write::{ClaimWrite, DELETE_PROTECTION},
    hold::tests::kept::KeptWorld,
    reservation_object::ReservationObject,
    testkit::{Fate, Fated, Fates, ModelCluster, ModelServer, Part, model_kind, over, serves},
};

/// Objects of the server.
#[derive(Default)]
pub(super) struct DirectCluster {
    pub(super) pods: BTreeMap<ObjectKey, DirectPod>,
    pub(super) claims: BTreeMap<ObjectKey, DirectClaim>,
}

impl ModelCluster for DirectCluster {
    type Event = ();
}

model_kind!(DirectPod: metadata, |_pod| false);
model_kind!(DirectClaim: metadata, |_claim| false);

serves!(DirectCluster, pods: DirectPod);
serves!(DirectCluster, claims: DirectClaim);

/// Pods with claims of one device each.
pub(super) struct DirectWorld {
    pub(super) kept: KeptWorld,
    pub(super) server: ModelServer<DirectCluster>,
    /// Nodes to which the scheduler does not bind pods, though the planner knows of nothing that is against it.
    pub(super) full: BTreeSet<&'static str>,
    /// Somebody has a device that was given to a gated pod.
    pub(super) has_stranger: bool,
    /// The scheduler does nothing.
    pub(super) is_idle: bool,
    /// What the server refuses, in one word.
    pub(super) refused: Option<&'static str>,
    pub(super) trouble: Option<String>,
    pub(super) writes: Vec<&'static str>,
    pub(super) fates: Fates,
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

impl DirectWorld {
    /// Nodes `a`, `b`, … with so many devices each, and no pod.
    pub(super) fn without_pods(devices: &[usize]) -> Self {
        Self {
            kept: KeptWorld::new(devices),
            server: ModelServer::default(),
            full: BTreeSet::new(),
            has_stranger: false,
            is_idle: false,
            refused: None,
            trouble: None,
            writes: Vec::new(),
            fates: Fates::default(),
        }
    }

    /// The same, and a gated pod `p` with one claim.
    pub(super) fn new(devices: &[usize]) -> Self {
        let mut world = Self::without_pods(devices);
        world.pod("p", &["gpu"]);
        world
    }

    /// A gated pod with a claim for each of these names, of one device each.
    pub(super) fn pod(&mut self, name: &str, claims: &[&str]) {
        let of = |field: &'static str, suffix: &'static str| {
            claims.iter().map(move |claim| json!({"name": claim, field: format!("{name}-{claim}{suffix}")}))
        };
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("{name}u")},
            "spec": {
                "schedulingGates": [{"name": "hostler.dev/placement"}],
                "containers": [{
                    "name": "c", "image": "i", "command": ["x"],
                    "resources": {"requests": {"cpu": "1"}, "claims": [{"name": claims[0]}]},
                }],
                "resourceClaims": of("resourceClaimTemplateName", "").collect::<Vec<_>>(),
            },
            "status": {"phase": "Pending", "resourceClaimStatuses": of("resourceClaimName", "").collect::<Vec<_>>()},
        });
        self.server.put::<DirectPod>(serde_json::from_value(pod).unwrap());
        self.kept.put_pod(&key(name), &format!("{name}u"));
        claims.iter().for_each(|claim| self.claim(name, &format!("{name}-{claim}")));
    }

    pub(super) fn claim(&mut self, pod: &str, name: &str) {
        let tolerations = json!([{"key": "k", "operator": "Exists"}]);
        let uid = format!("{name}u");
        self.kept.put_claim(&key(name), &uid, (pod, &format!("{pod}u")), &[]);
        let claim = json!({
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": {"devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "tolerations": tolerations}}],
                "config": [{"opaque": {"driver": "d", "parameters": {"of": "claim"}}}],
            }},
        });
        self.server.put::<DirectClaim>(serde_json::from_value(claim).unwrap());
    }

    pub(super) fn look(&self, pod: &str) -> DirectStep {
        decide(&self.cx(pod))
    }

    pub(super) fn cx(&self, name: &str) -> DirectContext {
        let config = json!([{"opaque": {"driver": "d", "parameters": {"of": "class"}}}]);
        let pod = self.server.pods.get(&key(name)).cloned();
        let names = pod.iter().filter_map(DirectPod::claim_names).flatten();
        let claims = names.filter_map(|(of_pod, claim)| Some((of_pod, self.server.claims.get(&key(&claim))?.clone())));
        let claims = claims.collect();
        DirectContext {
            pod,
            claims,
            reservations: self.kept.reservations().filter(|it| pod_of(it) == Some(key(name))).cloned().collect(),
            classes: BTreeMap::from([("gpu".to_owned(), serde_json::from_value(config).unwrap())]),
            trouble: self.trouble.clone(),
            now: self.kept.now(),
        }
    }

    /// Every pod is looked at once, also those that are gone. Says whether anything was written.
    pub(super) fn control(&mut self) -> bool {
        let made = self.kept.reservations().filter_map(pod_of);
        let all: BTreeSet<ObjectKey> = self.server.pods.keys().cloned().chain(made).collect();
        all.iter().filter(|pod| self.control_pod(&pod.name)).count() > 0
    }

    fn control_pod(&mut self, pod: &str) -> bool {
        let DirectStep::Write(write) = self.look(pod) else { return false };
        let fate = self.fates.next();
        self.writes.push(write.what());
        if self.refused == Some(write.what()) {
            self.trouble = Some(format!("{} is refused", write.what()));
            return true;
        }
        if !matches!(write, DirectWrite::Status(..)) {
            self.trouble = None;
        }
        if let Fated::Dead = Fate::carry_out(fate, self, |_| {}, |world| world.apply(&write)) {
            // Both are one process.
            self.kept.restart();
        }
        true
    }

    /// As the server takes it.
    pub(super) fn apply(&mut self, write: &DirectWrite) {
        match write {
            DirectWrite::Reserve(name, object) => {
                assert!(object["metadata"]["labels"][PLACED_POD_LABEL].is_string());
                assert_eq!(object["metadata"]["name"], **name);
                self.kept.create((**object).clone());
            }
            DirectWrite::Release(name, of) => self.kept.delete(name, of),
            DirectWrite::Status(name, of, status) => drop(self.kept.set_status(name, of, (**status).clone())),
            DirectWrite::Claim(write) => self.apply_to_claim(write),
            DirectWrite::Gates(pod, of, gates) => {
                drop(self.server.update(pod, Some(of), Part::Spec, |pod: &mut DirectPod| {
                    pod.metadata.annotations.insert(LET_GO.to_owned(), "true".to_owned());
                    pod.spec.scheduling_gates.retain(|gate| gates.contains(&gate.name));
                    assert!(!pod.is_gated());
                }));
            }
        }
        self.check();
    }

    fn apply_to_claim(&mut self, write: &ClaimWrite) {
        let (of, part) = match write {
            ClaimWrite::Finalizers(of, _) => (of, Part::Metadata),
            ClaimWrite::Status(of, _) => (of, Part::Status),
            _ => panic!("{write:?} is no write of this mode"),
        };
        let written = self.server.update(
            &of.key,
            Some(&over(&of.uid, &of.version)),
            part,
            |claim: &mut DirectClaim| match write {
                ClaimWrite::Finalizers(_, finalizers) => claim.metadata.finalizers.clone_from(finalizers),
                ClaimWrite::Status(_, status) => {
                    assert!(claim.status.allocation.is_none() || status.allocation.is_none(), "it never changes");
                    let is_protected = claim.metadata.finalizers.iter().any(|it| it == DELETE_PROTECTION);
                    assert!(is_protected, "nobody would ever free it");
                    claim.status.allocation.clone_from(&status.allocation);
                    claim.status.reserved_for.clone_from(&status.reserved_for);
                }
                _ => {}
            },
        );
        let Ok(claim) = written else { return };
        if part == Part::Status {
            for device in devices_of(&claim) {
                assert!(self.kept.closed().contains(&device), "{device:?} is given and was not kept");
            }
        }
        self.tell_of(&claim);
    }

    /// A claim is this now.
    pub(super) fn put(&mut self, claim: DirectClaim) {
        let claim = self.server.put(claim);
        self.tell_of(&claim);
    }

    /// Those who keep devices hear of a claim.
    fn tell_of(&mut self, claim: &DirectClaim) {
        let consumer = claim.status.reserved_for.first();
        let pod = consumer.map_or(("", ""), |it| (&*it.name, &*it.uid));
        self.kept.put_claim(&key(&claim.metadata.name), &claim.metadata.uid, pod, &devices_of(claim));
    }

    pub(super) fn check(&mut self) {
        self.kept.check();
    }

    /// The devices of a pod, as `node/device`.
    pub(super) fn given(&self, pod: &str) -> Vec<String> {
        let cx = self.cx(pod);
        let all = cx.claims.values().flat_map(devices_of);
        all.map(|(pool, device)| format!("{pool}/{device}")).collect()
    }

    /// The devices of pods that no scheduler has seen yet.
    pub(super) fn given_to_gated(&self) -> Vec<(String, String)> {
        let gated = self.server.pods.values().filter(|pod| pod.is_gated());
        gated.flat_map(|pod| self.cx(&pod.metadata.name).claims.into_values()).flat_map(|it| devices_of(&it)).collect()
    }

    /// The stranger goes, and what it has gets free.
    pub(super) fn end_stranger(&mut self) {
        self.has_stranger = false;
        self.kept.remove_pod(&key("stranger"));
        self.kept.remove_claim(&key("stranger"));
        self.check();
    }

    /// The scheduler has a look at each pod: binds it, gives it devices, or frees a claim of it, one at a time.
    pub(super) fn schedule(&mut self) {
        let names: Vec<ObjectKey> = self.server.pods.keys().filter(|_| !self.is_idle).cloned().collect();
        names.iter().for_each(|pod| self.schedule_pod(&pod.name));
        self.check();
    }

    fn schedule_pod(&mut self, name: &str) {
        let cx = self.cx(name);
        let Some(pod) = cx.pod.filter(|pod| !pod.is_gated() && !pod.is_bound()) else { return };
        let (given, lacking): (Vec<DirectClaim>, Vec<DirectClaim>) =
            cx.claims.into_values().partition(DirectClaim::is_allocated);
        let nodes: BTreeSet<String> = given.iter().flat_map(devices_of).map(|(node, _)| node).collect();
        let is_fit = |node: &str| !self.full.contains(node) && nodes.iter().all(|it| it == node);
        let open = self.kept.open();
        let enough = |node: &str| open.iter().filter(|it| it.0 == node).count() >= lacking.len();
        let all: BTreeSet<&str> = open.iter().map(|it| &*it.0).chain(nodes.iter().map(|it| &**it)).collect();
        let Some(node) = all.into_iter().find(|node| is_fit(node) && enough(node)).map(str::to_owned) else {
            // What it has is of no use anywhere but there.
            if let Some(mut claim) =
                given.into_iter().next().filter(|_| nodes.iter().any(|it| self.full.contains(&**it)))
            {
                claim.status = ResourceClaimStatus::default();
                self.put(claim);
            }
            return;
        };
        for (claim, device) in lacking.into_iter().zip(open.iter().filter(|it| it.0 == node)) {
            self.give(claim, device, &pod);
        }
        let bind = |pod: &mut DirectPod| pod.spec.node_name = Some(node);
        drop(self.server.update(&key(name), None, Part::Spec, bind));
    }

    /// Somebody else gives a claim a device.
    pub(super) fn give(&mut self, mut claim: DirectClaim, (pool, device): &(String, String), pod: &DirectPod) {
        let result = json!({"request": "gpu", "driver": "hostler.dev", "pool": pool, "device": device});
        let only = json!({"key": "metadata.name", "operator": "In", "values": [pool]});
        let allocation = json!({
            "devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
        });
        if !claim.metadata.finalizers.iter().any(|it| it == DELETE_PROTECTION) {
            claim.metadata.finalizers.push(DELETE_PROTECTION.to_owned());
        }
        claim.status.allocation = Some(serde_json::from_value(allocation).unwrap());
        claim.status.reserved_for = vec![ResourceClaimConsumerReference {
            resource: "pods".to_owned(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ResourceClaimConsumerReference::default()
        }];
        self.put(claim);
    }

    /// The pod goes; the controller of claims frees what it had, and the collector takes its claims.
    pub(super) fn delete_pod(&mut self, name: &str) {
        self.server.remove::<DirectPod>(&key(name));
        self.kept.remove_pod(&key(name));
        let prefix = format!("{name}-");
        let gone: Vec<ObjectKey> =
            self.server.claims.keys().filter(|it| it.name.starts_with(&prefix)).cloned().collect();
        for claim in gone {
            self.server.remove::<DirectClaim>(&claim);
            self.kept.remove_claim(&claim);
        }
    }

    /// One round of everybody.
    pub(super) fn round(&mut self) {
        self.control();
        self.kept.pass(1);
        self.schedule();
        self.check();
    }

    /// Rounds until something is so.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..800 {
            if is_so(self) {
                return;
            }
            self.round();
        }
        panic!("{what} never comes about: {}", self.told());
    }

    /// Rounds until all pods are bound, and nothing is left to do.
    pub(super) fn settle(&mut self) {
        self.until("rest", |world| {
            world.server.pods.values().all(DirectPod::is_bound) && world.kept.reservations().next().is_none()
        });
        self.kept.pass(20);
        assert!(!self.control(), "a write at rest: {:?}", self.writes);
    }

    pub(super) fn is_bound(&self, pod: &str) -> bool {
        self.node(pod).is_some()
    }

    pub(super) fn node(&self, pod: &str) -> Option<String> {
        self.server.pods.get(&key(pod))?.spec.node_name.clone()
    }

    /// The Reservation of the pod that counts.
    pub(super) fn own(&self, pod: &str) -> ReservationObject {
        self.cx(pod).reservations.into_iter().next_back().expect("there is one")
    }

    pub(super) fn check_nothing_is_kept(&self) {
        assert!(self.kept.reservations().next().is_none() && self.kept.closed().is_empty(), "{}", self.told());
    }

    /// How everything is, for people.
    fn told(&self) -> String {
        let mut told = format!("{:?}\n", self.writes);
        for kept in self.kept.reservations() {
            let devices = kept
                .status
                .devices
                .iter()
                .map(|it| format!("{}/{} {:?} {}", it.node_name, it.device, it.state, it.conflict));
            let _ = writeln!(
                told,
                "{} {:?} {:?} {:?}",
                kept.name,
                kept.status.phase,
                devices.collect::<Vec<_>>(),
                kept.status.conditions
            );
        }
        let _ = writeln!(told, "closed {:?}", self.kept.closed());
        for pod in self.server.pods.values() {
            let name = &pod.metadata.name;
            let _ = writeln!(told, "{name} {} {:?} {:?}", pod.is_gated(), pod.spec.node_name, self.given(name));
        }
        told
    }
}

/// The devices of a claim, as `(pool, device)`.
pub(super) fn devices_of(claim: &DirectClaim) -> Vec<(String, String)> {
    let results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
    results.map(|it| (it.pool.clone(), it.device.clone())).collect()
}

/// The states of the devices of a Reservation.
pub(super) fn states(kept: &ReservationObject) -> Vec<State> {
    kept.status.devices.iter().map(|device| device.state).collect()
}

pub(super) fn config(source: &str, of: &str, requests: Value) -> Value {
    let mut config = json!({"source": source, "opaque": {"driver": "d", "parameters": {"of": of}}});
    if requests.is_array() {
        config["requests"] = requests;
    }
    config
}
