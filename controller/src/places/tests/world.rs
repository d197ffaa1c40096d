//! Places in a cluster: those who keep devices are the real ones, everybody else is here. The scheduler places pods by
//! priority and age, and counts pods that are nominated as the real one does.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    ExactQuantity, ObjectKey,
    reservation::{PLACES_NAMESPACE, PlaceOwner, ReservationPhase, ReservedPlaceState},
};
use serde_json::{Value, json};

use super::super::{
    assign::assign,
    context::{PlacePod, PlacesContext, PlacesStep, PlacesWrite},
    decide::decide,
    gate::{HandOverGate, waiting},
};
use crate::{
    hold::tests::kept::KeptWorld,
    reservation_object::ReservationObject,
    testkit::{Fate, Fated, Fates, ModelCluster, ModelServer, Part, model_kind, serves},
    unscheduled_pods::{PodGates, UnscheduledPod},
    view::ClusterView,
};

/// Objects of the server.
#[derive(Default)]
pub(crate) struct PlacesCluster {
    pub(crate) pods: BTreeMap<ObjectKey, PlacePod>,
}

impl ModelCluster for PlacesCluster {
    type Event = ();
}

model_kind!(PlacePod: metadata, |_pod| false);
serves!(PlacesCluster, pods: PlacePod);

/// Nodes with CPUs, and pods that want them.
pub(crate) struct PlacesWorld {
    pub(crate) kept: KeptWorld,
    pub(crate) server: ModelServer<PlacesCluster>,
    /// CPUs of each node, in thousandths.
    nodes: BTreeMap<String, i64>,
    /// Number of pods that were made.
    pub(crate) made: usize,
    gate: HandOverGate,
    /// CPUs of owners that ended, by Reservation and replica: they are free until the place is held again.
    freed: BTreeMap<(String, u32), i64>,
    pub(crate) writes: Vec<&'static str>,
    pub(crate) fates: Fates,
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn milli(amount: Option<&ExactQuantity>) -> i64 {
    amount.map_or(0, |amount| amount.rounded_milli())
}

/// CPUs that a pod sets aside, in thousandths.
fn cpu(pod: &PlacePod) -> i64 {
    milli(pod.spec.requests().get("cpu"))
}

/// A pod as views have it.
pub(crate) fn unscheduled(pod: &PlacePod) -> UnscheduledPod {
    UnscheduledPod {
        stamp: hostler_reconcile::ObjectStamp::from(&crate::testkit::over("u", "1")),
        owner: pod.owner(),
        requests: pod.spec.requests(),
        ports: pod.spec.host_ports(),
        created: pod.metadata.uid.clone(),
        gates: PodGates::of(&pod.spec.scheduling_gates),
    }
}

fn is_holder(key: &ObjectKey) -> bool {
    key.namespace == PLACES_NAMESPACE
}

impl PlacesWorld {
    /// Nodes `a`, `b`, … with so many CPUs each, in thousandths, and so many devices.
    pub(crate) fn new(cpus: &[i64], devices: usize) -> Self {
        let names = (b'a'..).map(|name| char::from(name).to_string());
        Self {
            kept: KeptWorld::with_places(&vec![devices; cpus.len()]),
            server: ModelServer::default(),
            nodes: names.zip(cpus.iter().copied()).collect(),
            made: 0,
            gate: HandOverGate::default(),
            freed: BTreeMap::new(),
            writes: Vec::new(),
            fates: Fates::default(),
        }
    }

    /// Makes a Reservation whose pods have the label `owner: NAME`.
    pub(crate) fn reserve(&mut self, name: &str, cpu: &str, more: &Value) {
        let mut spec = json!({
            "owners": [{"labelSelector": {"matchLabels": {"owner": name}}}],
            "template": {
                "metadata": {"namespace": "default"},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            },
            "ttl": "0",
        });
        let more = more.as_object().cloned().unwrap_or_default();
        spec.as_object_mut().unwrap().extend(more);
        let object = json!({"name": name, "metadata": {"name": name}, "spec": spec});
        assert!(self.kept.create(object));
    }

    /// Makes a pod; one with an owner's label, if there is a name of a Reservation.
    pub(crate) fn pod(&mut self, name: &str, owner: &str, cpu: &str) {
        self.pod_that_says(name, owner, cpu, &json!({}));
    }

    /// Makes such a pod with annotations.
    pub(super) fn pod_that_says(&mut self, name: &str, owner: &str, cpu: &str, annotations: &Value) {
        self.note_end(&key(name));
        self.made += 1;
        let labels = if owner.is_empty() { json!({}) } else { json!({"owner": owner}) };
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("{name}-{}", self.made), "labels": labels,
                "annotations": annotations,
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Pending"},
        });
        self.server.put::<PlacePod>(serde_json::from_value(pod).unwrap());
    }

    pub(crate) fn delete(&mut self, key: &ObjectKey) {
        self.note_end(key);
        self.server.remove::<PlacePod>(key);
    }

    /// Notes the parts of shared places that a pod leaves.
    fn note_end(&mut self, key: &ObjectKey) {
        let ended = self.server.pods.get(key).map(|pod| pod.uid().to_owned());
        for reservation in self.kept.reservations().filter(|it| !it.spec.is_once()) {
            for place in &reservation.status.places {
                let of_pod = place.owners.iter().filter(|owner| Some(&owner.uid) == ended.as_ref());
                let part: i64 = of_pod.map(|owner| milli(owner.requests.get("cpu"))).sum();
                *self.freed.entry((reservation.uid.clone(), place.replica)).or_default() += part;
            }
        }
    }

    pub(crate) fn reservation(&self, name: &str) -> Option<&ReservationObject> {
        self.kept.reservations().find(|it| it.name == name)
    }

    pub(crate) fn phase(&self, name: &str) -> Option<ReservationPhase> {
        self.reservation(name).map(|it| it.status.phase)
    }

    pub(crate) fn state(&self, name: &str) -> Option<ReservedPlaceState> {
        self.reservation(name)?.status.places.first().map(|place| place.state)
    }

    pub(crate) fn node(&self, pod: &str) -> Option<String> {
        self.server.pods.get(&key(pod))?.node().map(str::to_owned)
    }

    pub(crate) fn holders(&self) -> usize {
        self.server.pods.keys().filter(|key| is_holder(key)).count()
    }

    /// The view by which pods are assigned.
    pub(crate) fn view(&self) -> ClusterView {
        let pods = self.server.pods.iter().filter(|(key, _)| !is_holder(key));
        let waiting = pods.filter_map(|(key, pod)| {
            let waiting = unscheduled(pod);
            let is_waiting = pod.node().is_none() && !pod.is_ending() && waiting.gates != PodGates::Others;
            is_waiting.then(|| (key.clone(), waiting.into()))
        });
        ClusterView {
            reservations: self
                .kept
                .reservations()
                .map(|it| (it.name.clone(), it.clone().into()))
                .collect::<BTreeMap<_, _>>()
                .into(),
            unscheduled_pods: waiting.collect::<BTreeMap<_, _>>().into(),
            ..ClusterView::default()
        }
    }

    fn cx(&self, name: &str) -> PlacesContext {
        let candidates = assign(&self.view()).remove(name).unwrap_or_default();
        let reservation = self.reservation(name).cloned();
        let holders = self.server.pods.iter().filter(|(key, pod)| {
            is_holder(key) && pod.metadata.annotations.get("hostler.dev/reservation").is_some_and(|it| it == name)
        });
        let owners = reservation.iter().flat_map(|it| &it.status.places).flat_map(|place| &place.owners);
        let owners =
            owners.map(|owner| ObjectKey::new(&owner.namespace, &owner.name)).chain(candidates.values().cloned());
        let owners: BTreeSet<ObjectKey> = owners.collect();
        PlacesContext {
            holders: holders.map(|(key, pod)| (key.name.clone(), pod.clone())).collect(),
            owners: owners
                .into_iter()
                .filter_map(|key| Some((key.clone(), self.server.pods.get(&key)?.clone())))
                .collect(),
            candidates,
            reservation,
            handing_over: self.gate.clone().handing_over(self.kept.now()),
            image: "pause".to_owned(),
            now: self.kept.now(),
        }
    }

    /// Returns the step by which a Reservation's first place holder is made.
    pub(super) fn first_holder(&self, name: &str) -> PlacesStep {
        let cx = self.cx(name);
        decide(&PlacesContext { holders: BTreeMap::new(), ..cx })
    }

    /// Each Reservation is reconciled once, also those that are gone. Says whether anything was written.
    pub(crate) fn control(&mut self) -> bool {
        let made = self.server.pods.values().filter_map(|pod| pod.metadata.annotations.get("hostler.dev/reservation"));
        let names: BTreeSet<String> = self.kept.reservations().map(|it| it.name.clone()).chain(made.cloned()).collect();
        names.iter().filter(|name| self.control_one(name)).count() > 0
    }

    fn control_one(&mut self, name: &str) -> bool {
        self.note_arrivals(name);
        let mut cx = self.cx(name);
        let mut step = decide(&cx);
        if let PlacesStep::Status(status) = step {
            match self.write("status", |world| world.kept.set_status(&status.name, &status.version, status.status)) {
                Fated::Answered(Some(written)) => cx.reservation = Some(written),
                _ => return true,
            }
            self.note_arrivals(name);
            cx.handing_over = self.gate.handing_over(self.kept.now());
            step = decide(&cx);
            if !matches!(step, PlacesStep::Write(_)) {
                return true;
            }
        }
        let PlacesStep::Write(chains) = step else { return false };
        for chain in chains {
            for write in chain {
                match self.write(write.what(), |world| world.apply(name, &write)) {
                    Fated::Answered(true) => {}
                    Fated::Dead => return true,
                    _ => break,
                }
            }
        }
        true
    }

    /// Makes a write, if its fate allows.
    fn write<A>(&mut self, what: &'static str, write: impl FnOnce(&mut Self) -> A) -> Fated<A> {
        let fate = self.fates.next();
        self.writes.push(what);
        let fated = Fate::carry_out(fate, self, |_| {}, write);
        self.check();
        if let Fated::Dead = fated {
            self.die();
        }
        fated
    }

    /// Another controller takes over.
    pub(crate) fn die(&mut self) {
        // Whoever keeps devices is the same process.
        self.kept.restart();
        self.begin_gate();
    }

    /// A new leader knows of places that are being handed over what their Reservations say.
    fn begin_gate(&mut self) {
        self.gate = HandOverGate::of(self.kept.reservations(), self.kept.now());
    }

    fn note_arrivals(&mut self, name: &str) {
        let waiting = waiting(self.reservation(name));
        self.gate.keep(name, &waiting);
    }

    /// As the server takes it; says if it did.
    fn apply(&mut self, of: &str, write: &PlacesWrite) -> bool {
        let now = self.kept.now();
        match write {
            PlacesWrite::Create { replica, name, pod, left_out } => {
                let made: PlacePod = serde_json::from_value((**pod).clone()).unwrap();
                if self
                    .gate
                    .nodes(Some(&(of.to_owned(), *replica)), now)
                    .iter()
                    .any(|busy| !left_out.contains(busy) && made.may_come_to(busy))
                {
                    return false;
                }
                assert_eq!(pod["metadata"]["name"], **name);
                let mut pod: PlacePod = serde_json::from_value((**pod).clone()).unwrap();
                pod.spec.priority = Some(1_000_000_000);
                pod.status.phase = "Pending".to_owned();
                self.made += 1;
                pod.metadata.uid = format!("holder-{}", self.made);
                let is_new = !self.server.pods.contains_key(&pod.key());
                if is_new {
                    self.server.put(pod);
                }
                is_new
            }
            PlacesWrite::Delete(name, of) => {
                let key = ObjectKey::new(PLACES_NAMESPACE, name);
                self.server.delete::<PlacePod>(&key, Some(of)).is_ok()
            }
            PlacesWrite::HandOver { replica, node, holder, version, next } => {
                self.gate.begin((of.to_owned(), *replica), node, next.clone(), now);
                let waiting = self.server.pods.iter().filter(|(key, _)| is_holder(key));
                let others = self.gate.in_the_way(waiting.map(|(_, pod)| pod), node).map(PlacePod::key);
                let others: Vec<ObjectKey> = others.collect();
                others.iter().for_each(|other| self.delete(other));
                let key = ObjectKey::new(PLACES_NAMESPACE, holder);
                self.server.delete::<PlacePod>(&key, Some(version)).is_ok()
            }
            PlacesWrite::Nominate(key, of, node) => {
                let nominate = |pod: &mut PlacePod| pod.status.nominated_node_name.clone_from(node);
                self.server.update(key, Some(of), Part::Status, nominate).is_ok()
            }
        }
    }

    /// CPUs of a node that pods on it leave, and pods that are nominated for it and of at least this priority.
    fn free(&self, node: &str, priority: i32, but: &ObjectKey) -> i64 {
        let counts = |(key, pod): &(&ObjectKey, &PlacePod)| {
            let is_nominated = pod.node().is_none()
                && pod.status.nominated_node_name == node
                && pod.spec.priority.unwrap_or_default() >= priority;
            *key != but && !pod.is_over() && (pod.node() == Some(node) || is_nominated)
        };
        self.nodes[node] - self.server.pods.iter().filter(counts).map(|(_, pod)| cpu(pod)).sum::<i64>()
    }

    /// The scheduler looks at every pod that waits.
    pub(crate) fn schedule(&mut self) {
        let is_waiting =
            |pod: &PlacePod| pod.node().is_none() && !pod.is_ending() && pod.spec.scheduling_gates.is_empty();
        let waiting = self.server.pods.iter().filter(|(_, pod)| is_waiting(pod));
        let mut waiting: Vec<(i32, String, ObjectKey)> = waiting
            .map(|(key, pod)| (-pod.spec.priority.unwrap_or_default(), pod.metadata.uid.clone(), key.clone()))
            .collect();
        waiting.sort();
        for (_, _, key) in waiting {
            self.schedule_pod(&key);
        }
        self.check();
    }

    pub(crate) fn schedule_pod(&mut self, key: &ObjectKey) {
        let Some(pod) = self.server.pods.get(key).cloned() else { return };
        let priority = pod.spec.priority.unwrap_or_default();
        let mut nodes: Vec<String> = self.nodes.keys().cloned().collect();
        nodes.sort_by_key(|node| *node != pod.status.nominated_node_name);
        let fits =
            |node: &String| pod.spec.wants_node(node, &BTreeMap::new()) && self.free(node, priority, key) >= cpu(&pod);
        let found = nodes.iter().find(|node| fits(node)).cloned();
        let refusal = json!([{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node has the CPUs",
            "lastTransitionTime": hostler_cluster::rfc3339(std::time::UNIX_EPOCH + self.kept.now()),
        }]);
        let is_told = !pod.status.conditions.is_empty();
        drop(self.server.update(key, None, Part::Status, |pod: &mut PlacePod| match found {
            Some(node) => {
                pod.spec.node_name = Some(node);
                pod.status.conditions.clear();
            }
            None if is_told => {}
            None => pod.status.conditions = serde_json::from_value(refusal).unwrap(),
        }));
    }

    /// The place holder that was made first ends.
    pub(super) fn end_oldest_holder(&mut self) {
        let oldest = self.server.pods.iter().filter(|(key, _)| is_holder(key)).min_by_key(|(_, pod)| pod.uid());
        let key = oldest.map(|(key, _)| key.clone()).unwrap();
        self.delete(&key);
    }

    /// Every place holder without a node is refused in these words.
    pub(super) fn refuse_all(&mut self, message: &str) {
        let holders: Vec<ObjectKey> = self.server.pods.keys().filter(|key| is_holder(key)).cloned().collect();
        for holder in holders {
            let refuse = |pod: &mut PlacePod| {
                pod.status.conditions.iter_mut().for_each(|it| message.clone_into(&mut it.message));
            };
            drop(self.server.update(&holder, None, Part::Status, refuse));
        }
    }

    /// What must be true at every moment: nobody is in a place but its owners.
    pub(crate) fn check(&mut self) {
        self.kept.check();
        let open = self.kept.reservations().filter(|it| !it.is_deleting && !it.status.phase.is_over());
        let of = |it: &'_ ReservationObject| {
            let is_once = it.spec.is_once();
            it.status
                .places
                .iter()
                .filter(|place| place.is_kept())
                .cloned()
                .map(move |place| (is_once, it.uid.clone(), place))
                .collect::<Vec<_>>()
        };
        let places: Vec<_> = open.flat_map(of).collect();
        let owners: BTreeSet<&str> = places.iter().flat_map(|(_, _, it)| &it.owners).map(|owner| &*owner.uid).collect();
        for (_, uid, place) in places.iter().filter(|(.., place)| place.state == ReservedPlaceState::Held) {
            let is_here = |owner: &PlaceOwner| {
                let pod = self.server.pods.get(&ObjectKey::new(&owner.namespace, &owner.name));
                pod.is_some_and(|pod| pod.uid() == owner.uid)
            };
            if place.owners.iter().all(is_here) {
                self.freed.remove(&(uid.clone(), place.replica));
            }
        }
        for (node, all) in &self.nodes {
            let kept: i64 = places
                .iter()
                .filter(|(_, _, it)| it.node_name == *node && it.state != ReservedPlaceState::HandedOver)
                .map(|(is_once, uid, it)| {
                    let of = |owner: &PlaceOwner| milli(owner.requests.get("cpu"));
                    let is_here = |owner: &&PlaceOwner| {
                        let pod = self.server.pods.get(&ObjectKey::new(&owner.namespace, &owner.name));
                        pod.is_some_and(|pod| pod.metadata.uid == owner.uid)
                    };
                    // A place that goes to one owner goes as far as the owner needs it.
                    if *is_once && it.state == ReservedPlaceState::HandingOver {
                        return it.owners.iter().filter(is_here).map(of).sum();
                    }
                    // The part of an owner that has ended is free until it is kept again.
                    let freed = self.freed.get(&(uid.clone(), it.replica)).copied().unwrap_or_default();
                    (milli(it.requests.get("cpu")) - freed).max(0)
                })
                .sum();
            let strangers = self.server.pods.iter().filter(|(key, pod)| {
                !is_holder(key) && pod.node() == Some(node) && !owners.contains(&*pod.metadata.uid)
            });
            let strangers: i64 = strangers.map(|(_, pod)| cpu(pod)).sum();
            assert!(kept + strangers <= *all, "{kept} kept and {strangers} taken of {all} on {node}\n{}", self.told());
        }
        let marked = self.server.pods.keys().filter(|key| is_holder(key)).count();
        let places: usize = self.kept.reservations().map(|it| it.spec.replicas() as usize).sum();
        assert!(marked <= 3 * (places + 1), "{}", self.told());
    }

    /// One round of everybody.
    pub(crate) fn round(&mut self) {
        self.control();
        self.kept.pass(1);
        self.schedule();
    }

    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..400 {
            if is_so(self) {
                return;
            }
            self.round();
        }
        panic!("{what} never comes about: {}", self.told());
    }

    pub(crate) fn told(&self) -> String {
        let of = self.kept.reservations().map(|it| {
            let places: Vec<String> = it
                .status
                .places
                .iter()
                .map(|place| format!("{} on {:?} {:?} {:?}", place.number, place.node_name, place.state, place.owners))
                .collect();
            format!("{} {:?} {places:?} {:?}", it.name, it.status.phase, it.status.conditions)
        });
        let pods = self.server.pods.iter().map(|(key, pod)| {
            format!("{key} {} on {:?} for {:?}", cpu(pod), pod.node(), pod.status.nominated_node_name)
        });
        let all: Vec<String> = of.chain(pods).collect();
        format!("{}\n{:?}", all.join("\n"), self.writes)
    }
}
