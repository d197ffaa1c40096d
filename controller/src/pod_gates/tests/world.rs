//! Gated pods in a cluster: places are kept by those who really keep them; pods are made through the webhook's decision.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    ObjectKey,
    core::{NodeAffinity, PodSchedulingGate},
    reservation::{RESERVATION_GATE, ReservationAllocatePolicy},
};
use hostler_cluster::rfc3339;
use serde_json::{Value, json};

use super::super::{
    context::{GateContext, GateStep, GateWrite, GrantedPlace},
    decide::decide,
    waits::{PodWait, WaitRules, wait_of, wait_of_newcomer},
};
use crate::{
    observed::{KindStatus, ObservedKind},
    places::{
        PlacePod, expected_places, former_holder,
        tests::world::{PlacesWorld, key, unscheduled},
    },
    requests::{ProvisionClasses, ProvisionObjects, SeenRequest},
    testkit::{Fate, Fated, Part},
    view::ClusterView,
};

/// The classes' own name that is answered without more.
const CLASS: &str = "check-capacity.hostler.dev";

/// Nodes, places, and pods of which some are gated.
pub(super) struct GatesWorld {
    pub(super) places: PlacesWorld,
    pub(super) requests: BTreeMap<ObjectKey, SeenRequest>,
    /// What pods can wait for; nothing while the role is away.
    pub(super) rules: WaitRules,
    /// False while nobody answers the API server.
    pub(super) has_webhook: bool,
    /// Gates that were set and removed.
    pub(super) gated: usize,
    pub(super) released: usize,
    /// Pods that were led to a node.
    pub(super) led: usize,
}

pub(super) fn rules() -> WaitRules {
    let requests = Some(ProvisionClasses::default());
    WaitRules { places: true, requests, own_namespace: "hostler-controller".to_owned() }
}

/// A request of this name with these conditions.
pub(super) fn request(name: &str, conditions: &[(&str, &str)]) -> SeenRequest {
    request_of(name, CLASS, conditions)
}

pub(super) fn request_of(name: &str, class: &str, conditions: &[(&str, &str)]) -> SeenRequest {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status)| json!({ "type": kind, "status": status, "reason": "r", "lastTransitionTime": "" }))
        .collect();
    let object = json!({
        "metadata": { "name": name, "namespace": "default" }, "spec": { "provisioningClassName": class },
        "status": { "conditions": conditions },
    });
    SeenRequest::new(crate::testkit::over("u", "1"), serde_json::from_value(object).unwrap())
}

impl GatesWorld {
    pub(super) fn new(cpus: &[i64]) -> Self {
        Self {
            places: PlacesWorld::new(cpus, 0),
            requests: BTreeMap::new(),
            rules: rules(),
            has_webhook: true,
            gated: 0,
            released: 0,
            led: 0,
        }
    }

    pub(super) fn view(&self) -> ClusterView {
        let requests = self.requests.iter().map(|(key, request)| (key.clone(), request.clone().into())).collect();
        let kind = KindStatus { is_synced: true, ..KindStatus::default() };
        ClusterView {
            provisioning: ProvisionObjects { requests, ..ProvisionObjects::default() }.into(),
            kinds: BTreeMap::from([(ObservedKind::ProvisioningRequest, kind)]),
            ..self.places.view()
        }
    }

    /// Makes a pod, as the webhook has it.
    pub(super) fn pod(&mut self, name: &str, owner: &str, cpu: &str) {
        self.pod_with(name, owner, cpu, |_| {});
    }

    pub(super) fn pod_with(&mut self, name: &str, owner: &str, cpu: &str, change: impl FnOnce(&mut PlacePod)) {
        let view = self.view();
        self.places.pod(name, owner, cpu);
        let mut pod = self.places.server.pods[&key(name)].clone();
        pod.set_created(rfc3339(std::time::UNIX_EPOCH + self.now()));
        change(&mut pod);
        let mut asked = pod.clone();
        asked.spec.scheduling_gates.push(PodSchedulingGate { name: RESERVATION_GATE.to_owned() });
        if self.has_webhook
            && wait_of_newcomer(&view, &self.rules, &key(name), &unscheduled(&asked)) != PodWait::Nothing
        {
            self.gated += 1;
            pod = asked;
        }
        self.places.server.put(pod);
    }

    pub(super) fn now(&self) -> Duration {
        self.places.kept.now()
    }

    pub(super) fn is_gated(&self, name: &str) -> bool {
        self.places.server.pods.get(&key(name)).is_some_and(is_gated)
    }

    pub(super) fn affinity(&self, name: &str) -> Option<NodeAffinity> {
        self.places.server.pods[&key(name)].spec.affinity.clone()?.node_affinity
    }

    /// Each gated pod is reconciled once.
    pub(super) fn release(&mut self) {
        let gated = self.places.server.pods.iter().filter(|(_, pod)| is_gated(pod));
        let gated: Vec<ObjectKey> = gated.map(|(key, _)| key.clone()).collect();
        for key in gated {
            let GateStep::Write(write) = self.step(&key) else { continue };
            let fate = self.places.fates.next();
            self.places.writes.push("gate");
            if let Fated::Dead = Fate::carry_out(fate, self, |_| {}, |world| world.apply(&write)) {
                self.places.die();
            }
        }
    }

    pub(super) fn step(&self, key: &ObjectKey) -> GateStep {
        let view = self.view();
        let Some(seen) = view.unscheduled_pods.get(key) else { return GateStep::Rest };
        let expected = expected_places(&view, None);
        let wait = wait_of(&view, &self.rules, &expected, key, seen);
        let pod = self.places.server.pods.get(key).cloned();
        let place = pod.as_ref().and_then(|pod| self.granted(pod));
        decide(&GateContext { pod, wait, place, now: self.now() })
    }

    fn granted(&self, pod: &PlacePod) -> Option<GrantedPlace> {
        let open = self.places.kept.reservations().filter(|it| !it.is_deleting && !it.status.phase.is_over());
        let all = open.flat_map(|it| it.status.places.iter().map(move |place| (it, place)));
        let (reservation, place) = all.into_iter().find(|(_, place)| place.is_given_to(pod.uid()))?;
        let holder = former_holder(reservation, place).map(|name| ObjectKey::new("hostler-places", &name));
        Some(GrantedPlace {
            reservation: reservation.name.clone(),
            node: place.node_name.clone(),
            is_free: holder.is_none_or(|holder| !self.places.server.pods.contains_key(&holder)),
            is_only: reservation.spec.allocate_policy == Some(ReservationAllocatePolicy::Restricted),
        })
    }

    /// As the server takes it: a gated pod's affinity is narrowed only.
    fn apply(&mut self, write: &GateWrite) {
        let change = |pod: &mut PlacePod| {
            pod.spec.scheduling_gates.retain(|gate| write.gates.contains(&gate.name));
            if let Some(affinity) = &write.affinity {
                pod.spec.affinity.get_or_insert_default().node_affinity = Some(affinity.clone());
            }
        };
        if self.places.server.update(&write.pod, Some(&write.version), Part::Spec, change).is_ok() {
            self.released += 1;
            self.led += usize::from(write.affinity.is_some());
        }
    }

    pub(super) fn check(&mut self) {
        self.places.check();
        for (key, pod) in &self.places.server.pods {
            assert!(!is_gated(pod) || pod.node().is_none(), "{key} was placed with its gate\n{}", self.places.told());
        }
    }

    /// One round of everybody.
    pub(super) fn round(&mut self) {
        self.release();
        self.places.round();
        self.check();
    }

    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..400 {
            if is_so(self) {
                return;
            }
            self.round();
        }
        panic!("{what} never comes about: {}", self.places.told());
    }
}

pub(super) fn is_gated(pod: &PlacePod) -> bool {
    pod.spec.scheduling_gates.iter().any(|gate| gate.name == RESERVATION_GATE)
}
