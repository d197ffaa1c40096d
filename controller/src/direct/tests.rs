//! Direct mode against one who keeps devices, a scheduler that changes its mind, users, and deaths of the controller.
//! docs/reservations.md says which test is which scenario.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::ObjectKey;
use hostler_api::{
    core::PodResourceClaim,
    reservation::{ReservationConditionType, ReservationPhase, ReservedDevice, ReservedDeviceState as State},
};
use serde_json::{Value, json};

use super::{
    decide::decide,
    sight::{DirectClaim, DirectPod, DirectSight, DirectStep, DirectWrite},
};
use crate::{
    claim_write::{ClaimWrite, DELETE_PROTECTION},
    hold::ReservationObject,
};

/// What becomes of a write of the controller.
#[derive(Clone, Copy, Debug)]
enum Fate {
    DieBefore,
    DieAfter,
}

/// One gated pod with one claim, and two devices on a node.
#[derive(Debug, Default)]
struct DirectWorld {
    pod: Option<DirectPod>,
    claim: Option<DirectClaim>,
    reservation: Option<ReservationObject>,
    /// Devices that are closed to others.
    fenced: BTreeSet<String>,
    /// Devices that others have.
    strangers: BTreeSet<String>,
    last: u64,
    /// What the server refuses, in one word.
    refused: Option<&'static str>,
    trouble: Option<String>,
    writes: Vec<&'static str>,
    fates: BTreeMap<usize, Fate>,
}

impl DirectWorld {
    fn new() -> Self {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ml", "uid": "pu", "resourceVersion": "1"},
            "spec": {
                "schedulingGates": [{"name": "hostler.dev/placement"}, {"name": "other"}],
                "nodeSelector": {"zone": "a"}, "containers": [{
                    "name": "c", "image": "i", "command": ["x"],
                    "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
                }],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            },
            "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]},
        });
        let tolerations = json!([{"key": "k", "operator": "Exists"}]);
        let claim = json!({
            "metadata": {"name": "p-gpu-x", "namespace": "ml", "uid": "cu", "resourceVersion": "2"},
            "spec": {"devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "tolerations": tolerations}}],
                "config": [{"opaque": {"driver": "d", "parameters": {"of": "claim"}}}],
            }},
        });
        let (pod, claim) = (serde_json::from_value(pod).unwrap(), serde_json::from_value(claim).unwrap());
        Self { pod: Some(pod), claim: Some(claim), last: 2, ..Self::default() }
    }

    fn next(&mut self) -> String {
        self.last += 1;
        self.last.to_string()
    }

    fn look(&self) -> DirectStep {
        decide(&self.sight())
    }

    fn sight(&self) -> DirectSight {
        let config = json!([{"opaque": {"driver": "d", "parameters": {"of": "class"}}}]);
        DirectSight {
            pod: self.pod.clone(),
            claims: self.claim.iter().filter(|_| self.pod.is_some()).map(|it| ("gpu".to_owned(), it.clone())).collect(),
            reservations: self.reservation.iter().cloned().collect(),
            classes: BTreeMap::from([("gpu".to_owned(), serde_json::from_value(config).unwrap())]),
            trouble: self.trouble.clone(),
            now: "2026-01-01T00:00:00Z".to_owned(),
        }
    }

    fn control(&mut self) {
        let DirectStep::Write(write) = self.look() else { return };
        let fate = self.fates.remove(&self.writes.len());
        self.writes.push(write.what());
        if self.refused == Some(write.what()) {
            self.trouble = Some(format!("{} is refused", write.what()));
            return;
        }
        if !matches!(write, DirectWrite::Status(..)) {
            self.trouble = None;
        }
        if !matches!(fate, Some(Fate::DieBefore)) {
            self.apply(&write);
        }
    }

    /// As the server takes it.
    fn apply(&mut self, write: &DirectWrite) {
        let version = self.next();
        match write {
            DirectWrite::Reserve(name, object) => {
                let mut object = (**object).clone();
                object["metadata"]["uid"] = json!(format!("r-{version}"));
                object["metadata"]["resourceVersion"] = json!(version);
                let made: ReservationObject = serde_json::from_value(object).unwrap();
                assert_eq!(made.name, *name);
                self.reservation.get_or_insert(made);
            }
            DirectWrite::Release(_, of) => {
                let known = self.reservation.as_mut();
                if let Some(known) = known.filter(|it| it.uid == of.uid && it.version == of.resource_version) {
                    (known.is_deleting, known.version) = (true, version);
                }
            }
            DirectWrite::Status(_, of, status) => {
                let known = self.reservation.as_mut();
                if let Some(known) = known.filter(|it| it.uid == of.uid && it.version == of.resource_version) {
                    (known.status, known.version) = ((**status).clone(), version);
                }
            }
            DirectWrite::Claim(write) => {
                let Some(claim) = &mut self.claim else { return };
                let (ClaimWrite::Finalizers(of, _) | ClaimWrite::Status(of, _)) = write else {
                    panic!("{write:?} is no write of this mode")
                };
                if claim.written() != *of {
                    return;
                }
                claim.metadata.resource_version = version;
                match write {
                    ClaimWrite::Finalizers(_, finalizers) => claim.metadata.finalizers.clone_from(finalizers),
                    ClaimWrite::Status(_, status) => {
                        assert!(claim.status.allocation.is_none() || status.allocation.is_none(), "it never changes");
                        let is_protected = claim.metadata.finalizers.iter().any(|it| it == DELETE_PROTECTION);
                        assert!(is_protected, "nobody would ever free it");
                        claim.status.allocation.clone_from(&status.allocation);
                        claim.status.reserved_for.clone_from(&status.reserved_for);
                        self.check();
                    }
                    _ => {}
                }
            }
            DirectWrite::Gates(_, of, gates) => {
                let Some(pod) = self.pod.as_mut().filter(|pod| pod.metadata.version() == *of) else { return };
                pod.metadata.resource_version = version;
                pod.spec.scheduling_gates.retain(|gate| gates.contains(&gate.name));
                assert!(!pod.is_gated());
            }
        }
    }

    /// No device is given that is not closed to all others, until the scheduler has seen it.
    fn check(&self) {
        for device in self.given().into_iter().filter(|_| !self.is_bound()) {
            assert!(self.fenced.contains(&device), "{device} is given and was not kept");
        }
    }

    fn given(&self) -> Vec<String> {
        let allocation = self.claim.iter().filter_map(|it| it.status.allocation.as_ref());
        allocation.flat_map(|it| &it.devices.results).map(|it| it.device.clone()).collect()
    }

    /// Whoever keeps devices closes one, looks, promises it, and opens it in the end.
    fn keep(&mut self) {
        let (version, given) = (self.next(), self.given());
        let Some(kept) = &mut self.reservation else { return };
        if kept.is_deleting {
            self.fenced.clear();
            self.reservation = None;
            return;
        }
        let before = kept.status.clone();
        if kept.status.devices.is_empty() {
            let mut free = ["gpu-0", "gpu-1"].iter().filter(|it| !self.strangers.contains(**it));
            let Some(device) = free.next() else { return };
            self.fenced.insert((*device).to_owned());
            kept.status.devices.push(ReservedDevice {
                claim: "gpu".to_owned(),
                request: "gpu".to_owned(),
                device_class_name: "gpu".to_owned(),
                driver: "d".to_owned(),
                pool: "n1".to_owned(),
                device: (*device).to_owned(),
                node_name: "n1".to_owned(),
                ..ReservedDevice::default()
            });
        } else {
            let device = &mut kept.status.devices[0];
            let (is_others, is_given) = (self.strangers.contains(&device.device), given.contains(&device.device));
            device.state = match (is_others, is_given) {
                // Whoever keeps it goes on taking it for its owner's.
                (_, true) => State::HandedOver,
                (true, false) => State::Lost,
                (false, false) => State::Held,
            };
            device.conflict = is_others && (is_given || device.conflict);
            let is_kept = device.state != State::Lost;
            kept.status.phase = if is_kept { ReservationPhase::Available } else { ReservationPhase::Pending };
        }
        if kept.status != before {
            kept.version = version;
        }
    }

    /// The scheduler binds the pod, or finds that its node does not take it and frees its claim.
    fn schedule(&mut self, takes_back: bool) {
        let version = self.next();
        let (Some(pod), Some(claim)) = (&mut self.pod, &mut self.claim) else { return };
        if !pod.is_gated() && !pod.is_bound() && claim.is_allocated() {
            if takes_back {
                claim.status = serde_json::from_value(json!({})).unwrap();
                claim.metadata.resource_version = version;
            } else {
                pod.spec.node_name = Some("n1".to_owned());
                pod.metadata.resource_version = version;
            }
        }
    }

    fn delete_pod(&mut self) {
        // The controller of claims frees what the pod had, and the collector takes its claim.
        (self.pod, self.claim) = (None, None);
    }

    fn settle(&mut self) {
        for _ in 0..40 {
            self.control();
            self.keep();
            self.schedule(false);
        }
        assert!(!matches!(self.look(), DirectStep::Write(_)), "a write at rest");
    }

    fn is_bound(&self) -> bool {
        self.pod.as_ref().is_some_and(DirectPod::is_bound)
    }

    fn check_nothing_is_kept(&self) {
        assert!(self.reservation.is_none() && self.fenced.is_empty(), "{self:?}");
    }
}

#[test]
fn a_gated_pod_is_kept_devices_given_them_let_go_and_forgotten() {
    let mut world = DirectWorld::new();
    world.settle();
    assert!(world.is_bound());
    let words = ["reservation", "claim_finalizers", "claim_status", "gates", "reservation_deletion"];
    assert_eq!(world.writes, words);
    world.check_nothing_is_kept();
    let gates = &world.pod.as_ref().unwrap().spec.scheduling_gates;
    assert_eq!(gates.iter().map(|gate| gate.name.as_str()).collect::<Vec<_>>(), ["other"], "others' gates stay");
}

#[test]
fn an_allocation_has_its_time_its_consumer_its_node_and_what_classes_bring_before_what_the_claim_says() {
    let mut world = DirectWorld::new();
    world.settle();
    let status = serde_json::to_value(&world.claim.as_ref().unwrap().status).unwrap();
    let config = |source: &str, of: &str, requests: Value| {
        let mut config = json!({"source": source, "opaque": {"driver": "d", "parameters": {"of": of}}});
        if requests.is_array() {
            config["requests"] = requests;
        }
        config
    };
    let result = json!({
        "request": "gpu", "driver": "d", "pool": "n1", "device": "gpu-0", "tolerations": [{"key": "k", "operator": "Exists"}],
    });
    assert_eq!(status["allocation"]["devices"]["results"], json!([result]));
    assert_eq!(
        status["allocation"]["devices"]["config"],
        json!([config("FromClass", "class", json!(["gpu"])), config("FromClaim", "claim", Value::Null)])
    );
    assert_eq!(status["allocation"]["allocationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(status["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"], json!(["n1"]));
    assert_eq!(status["reservedFor"], json!([{"resource": "pods", "name": "p", "uid": "pu"}]));
}

#[test]
fn its_reservation_asks_for_what_the_pod_asks_for() {
    let world = DirectWorld::new();
    let DirectStep::Write(DirectWrite::Reserve(name, object)) = world.look() else { panic!("it is kept first") };
    let made: ReservationObject = serde_json::from_value(*object).unwrap();
    assert_eq!(name, "pod-pu");
    let template = made.spec.pod_template().unwrap();
    assert_eq!((template.metadata.namespace.as_str(), template.spec.node_selector["zone"].as_str()), ("ml", "a"));
    assert_eq!(template.spec.requests()["cpu"].to_string(), "1");
    assert!(made.spec.device_claims[0].name == "gpu" && !made.spec.is_once());
    let key = ObjectKey::new("ml", "p");
    let owner = crate::hold::OwnerPod { uid: "pu".to_owned(), ..crate::hold::OwnerPod::default() };
    assert!(made.spec.is_owned_by(&owner.candidate(&key)));
}

#[test]
fn what_the_scheduler_takes_back_is_held_and_given_again() {
    let mut world = DirectWorld::new();
    while world.writes.last() != Some(&"gates") {
        world.control();
        world.keep();
    }
    for _ in 0..3 {
        world.schedule(true);
        world.keep();
        assert_eq!(world.reservation.as_ref().unwrap().status.devices[0].state, State::Held);
        world.control();
        assert_eq!(world.given(), ["gpu-0"]);
        world.keep();
    }
    world.settle();
    assert!(world.is_bound());
    world.check_nothing_is_kept();
}

#[test]
fn a_device_that_somebody_has_all_the_same_is_given_back_and_stays_closed() {
    let mut world = DirectWorld::new();
    while world.writes.last() != Some(&"claim_status") {
        world.control();
        world.keep();
    }
    world.strangers.insert("gpu-0".to_owned());
    world.keep();
    world.control();
    assert_eq!((world.given(), world.writes.last()), (Vec::new(), Some(&"claim_status")));
    assert!(world.fenced.contains("gpu-0"), "closed until nobody has it");
    assert!(world.pod.as_ref().unwrap().is_gated());
    world.strangers.clear();
    world.settle();
    assert!(world.is_bound());
}

#[test]
fn a_pod_whose_reservation_failed_is_kept_something_else() {
    let mut world = DirectWorld::new();
    world.control();
    world.keep();
    world.reservation.as_mut().unwrap().status.phase = ReservationPhase::Failed;
    for _ in 0..20 {
        world.control();
        world.keep();
    }
    assert_eq!(world.given(), ["gpu-0"]);
    assert_eq!(world.writes[..3], ["reservation", "reservation_deletion", "reservation"]);
}

#[test]
fn what_is_refused_stands_in_its_reservation_until_it_is_not_refused_any_more() {
    for refused in ["claim_finalizers", "claim_status", "gates"] {
        let mut world = DirectWorld { refused: Some(refused), ..DirectWorld::new() };
        for _ in 0..20 {
            world.control();
            world.keep();
        }
        let kept = world.reservation.as_ref().unwrap();
        let placed = kept.status.condition(ReservationConditionType::Placed).unwrap();
        assert_eq!((&*placed.reason, &*placed.message), ("Refused", &*format!("{refused} is refused")));
        let said = world.writes.iter().filter(|what| **what == "reservation_status").count();
        assert_eq!(said, 1, "{:?}", world.writes);
        world.refused = None;
        while world.trouble.is_some() || world.look() == DirectStep::Wait {
            world.control();
            world.keep();
        }
        world.control();
        if let Some(kept) = &world.reservation {
            assert_eq!(kept.status.condition(ReservationConditionType::Placed), None);
        }
        world.settle();
        assert!(world.is_bound());
        world.check_nothing_is_kept();
    }
}

#[test]
fn of_more_claims_than_a_reservation_can_have_it_is_said_how_many_there_may_be() {
    let step = |count: usize| {
        let mut world = DirectWorld::new();
        let names: Vec<String> = (0..count).map(|at| format!("c{at}")).collect();
        let named = |known: &[PodResourceClaim]| {
            names.iter().map(|name| PodResourceClaim { name: name.clone(), ..known[0].clone() }).collect()
        };
        let pod = world.pod.as_mut().unwrap();
        pod.spec.resource_claims = named(&pod.spec.resource_claims);
        pod.status.resource_claim_statuses = named(&pod.status.resource_claim_statuses);
        let claims = names.iter().map(|name| (name.clone(), world.claim.clone().unwrap())).collect();
        decide(&DirectSight { claims, ..world.sight() })
    };
    let DirectStep::Refuse(why) = step(9) else { panic!("{:?}", step(9)) };
    assert!(why.contains("9 claims") && why.contains("8 at most") && why.contains("hostler.dev/placement"), "{why}");
    assert!(matches!(step(8), DirectStep::Write(DirectWrite::Reserve(..))));
}

#[test]
fn a_pod_that_goes_at_any_write_leaves_nothing() {
    for at in 0..6 {
        let mut world = DirectWorld::new();
        while world.writes.len() < at && !world.is_bound() {
            world.control();
            world.keep();
            world.schedule(false);
        }
        world.delete_pod();
        world.settle();
        world.check_nothing_is_kept();
    }
}

#[test]
fn two_deaths_at_any_two_writes_do_no_harm() {
    for first in 0..6 {
        for second in 0..7 {
            for fates in [[Fate::DieBefore, Fate::DieAfter], [Fate::DieAfter, Fate::DieBefore]] {
                let mut world = DirectWorld::new();
                world.fates.extend([(first, fates[0]), (second, fates[1])]);
                world.settle();
                assert!(world.is_bound(), "{first} {second} {fates:?}: {:?}", world.writes);
                world.check_nothing_is_kept();
            }
        }
    }
}

#[test]
fn two_controllers_in_any_order_give_one_device_once() {
    for late in 0..6 {
        let mut world = DirectWorld::new();
        let mut pending = None;
        for step in 0..60 {
            if step == late {
                pending = Some(world.look());
            }
            world.control();
            world.keep();
            if step == late + 3
                && let Some(DirectStep::Write(write)) = pending.take()
            {
                world.apply(&write);
            }
            world.schedule(step % 5 == 0);
            world.check();
            assert!(world.given().len() <= 1);
        }
        world.settle();
        assert!(world.is_bound());
        world.check_nothing_is_kept();
    }
}
