//! What a pod waits for, and what becomes of its gate, case by case.

use std::time::Duration;

use hostler_api::{
    ObjectKey,
    core::{NodeAffinity, NodeSelector},
    reservation::ReservationPhase,
};
use serde_json::{Value, json};

use super::{
    super::{
        context::{GateContext, GateStep, GrantedPlace},
        decide::decide,
        waits::{PodWait, WaitRules, wait_of_newcomer},
    },
    world::{GatesWorld, request, request_of, rules},
};
use crate::{
    places::{PlacePod, tests::world::key},
    requests::SeenRequest,
    unscheduled_pods::{PodGates, UnscheduledPod},
};

/// A world in which a place of three CPUs is kept for pods with the label `owner: r`.
fn kept() -> GatesWorld {
    let mut world = GatesWorld::new(&[4000]);
    world.places.reserve("r", "3", &json!({}));
    world.until("it is kept", |world| world.places.phase("r") == Some(ReservationPhase::Available));
    world
}

/// A pod that is being made: an owner of two CPUs, with these changes.
fn newcomer(more: &[(&str, Value)]) -> (ObjectKey, UnscheduledPod) {
    let mut pod = json!({
        "metadata": { "name": "", "namespace": "default", "labels": { "owner": "r" }, "annotations": {}, "ownerReferences": [] },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }], "schedulingGates": [] },
    });
    for (path, value) in more {
        *pod.pointer_mut(path).unwrap() = value.clone();
    }
    let key = ObjectKey::new(pod["metadata"]["namespace"].as_str().unwrap(), "");
    (key, UnscheduledPod::in_the_making(&serde_json::from_value(pod).unwrap()))
}

fn wait(world: &GatesWorld, more: &[(&str, Value)]) -> PodWait {
    let (key, pod) = newcomer(more);
    wait_of_newcomer(&world.view(), &world.rules, &key, &pod)
}

#[test]
fn an_owner_that_is_made_waits_for_its_place_and_no_other_pod_does() {
    let mut world = kept();
    let place = PodWait::Place("r".to_owned());
    let cpus = |cpus: &str| json!({ "cpu": cpus });
    let (requests, gates, namespace) =
        ("/spec/containers/0/resources/requests", "/spec/schedulingGates", "/metadata/namespace");
    for (what, more, expected) in [
        ("an owner", vec![], &place),
        ("a stranger", vec![("/metadata/labels", json!({ "owner": "q" }))], &PodWait::Nothing),
        ("too large", vec![(requests, cpus("4"))], &PodWait::Nothing),
        ("another namespace", vec![(namespace, json!("other"))], &PodWait::Nothing),
        ("the cluster's own", vec![(namespace, json!("kube-system"))], &PodWait::Nothing),
        ("our own", vec![(namespace, json!("hostler-controller"))], &PodWait::Nothing),
        ("gated by others", vec![(gates, json!([{ "name": "other" }]))], &place),
        ("of direct mode", vec![(gates, json!([{ "name": "hostler.dev/placement" }]))], &PodWait::Nothing),
        (
            "wants none",
            vec![("/metadata/labels", json!({ "owner": "r", "hostler.dev/reservation-ignored": "true" }))],
            &PodWait::Nothing,
        ),
        (
            "wants another",
            vec![("/metadata/annotations", json!({ "hostler.dev/reservation-affinity": "{\"name\": \"q\"}" }))],
            &PodWait::Nothing,
        ),
    ] {
        assert_eq!(wait(&world, &more), *expected, "{what}");
    }
    world.rules.places = false;
    assert_eq!(wait(&world, &[]), PodWait::Nothing, "no places are kept");
    world.rules = rules();
    world.pod("p", "r", "3");
    assert_eq!(wait(&world, &[]), PodWait::Nothing, "an older owner waits for the only place");
}

#[test]
fn owners_by_controller_and_by_name_are_known_before_they_have_a_uid() {
    let mut world = GatesWorld::new(&[4000]);
    let controller =
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true });
    world.places.reserve(
        "r",
        "3",
        &json!({ "owners": [{ "controller": { "kind": "ReplicaSet", "name": "web", "uid": "u" } }] }),
    );
    world.until("it is kept", |world| world.places.phase("r") == Some(ReservationPhase::Available));
    let owned = [("/metadata/ownerReferences", json!([controller]))];
    assert_eq!(wait(&world, &owned), PodWait::Place("r".to_owned()));
    assert_eq!(wait(&world, &[]), PodWait::Nothing);
    let mut world = GatesWorld::new(&[4000]);
    world.places.reserve("r", "3", &json!({ "owners": [{ "object": { "namespace": "default", "name": "p" } }] }));
    world.until("it is kept", |world| world.places.phase("r") == Some(ReservationPhase::Available));
    let (_, pod) = newcomer(&[]);
    assert_eq!(wait_of_newcomer(&world.view(), &rules(), &key("p"), &pod), PodWait::Place("r".to_owned()));
    assert_eq!(wait(&world, &[]), PodWait::Nothing, "its name is made up later");
}

#[test]
fn a_pod_waits_for_a_request_of_ours_until_it_is_decided() {
    let mut world = kept();
    let consumer = json!({ "autoscaling.x-k8s.io/consume-provisioning-request": "n" });
    let stranger = [("/metadata/labels", json!({})), ("/metadata/annotations", consumer.clone())];
    let mut of = |request: Option<SeenRequest>| {
        world.requests.clear();
        world.requests.extend(request.map(|request| (key("n"), request)));
        wait(&world, &stranger)
    };
    let undecided = PodWait::Decision(key("n"));
    assert_eq!(of(None), PodWait::Request(key("n")));
    assert_eq!(of(Some(request("n", &[]))), undecided);
    assert_eq!(of(Some(request("n", &[("Accepted", "True"), ("Provisioned", "False")]))), undecided);
    for decided in ["Provisioned", "Failed", "BookingExpired", "CapacityRevoked"] {
        assert_eq!(of(Some(request("n", &[(decided, "True")]))), PodWait::Nothing, "{decided}");
    }
    assert_eq!(of(Some(SeenRequest { is_going: true, ..request("n", &[]) })), PodWait::Nothing);
    assert_eq!(of(Some(request_of("n", "queued-provisioning.gke.io", &[]))), PodWait::Nothing, "of others");
    world.requests.insert(key("n"), request("n", &[("Provisioned", "True")]));
    assert_eq!(
        wait(&world, &[("/metadata/annotations", consumer)]),
        PodWait::Place("r".to_owned()),
        "and then for its place"
    );
    world.rules = WaitRules { requests: None, ..rules() };
    world.requests.clear();
    assert_eq!(wait(&world, &stranger), PodWait::Nothing, "requests are not answered here");
}

fn pod(gates: &[&str], more: &[(&str, Value)]) -> PlacePod {
    let gates: Vec<Value> = gates.iter().map(|gate| json!({ "name": gate })).collect();
    let mut pod = json!({
        "metadata": {
            "name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1",
            "creationTimestamp": "1970-01-01T00:01:00Z", "deletionTimestamp": null,
        },
        "spec": { "schedulingGates": gates, "nodeName": null, "affinity": null },
        "status": { "phase": "Pending", "nominatedNodeName": "n1" },
    });
    for (path, value) in more {
        *pod.pointer_mut(path).unwrap() = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn place(is_free: bool, is_only: bool) -> GrantedPlace {
    GrantedPlace { reservation: "r".to_owned(), node: "n1".to_owned(), is_free, is_only }
}

const OWN: &str = "hostler.dev/reservation";

fn step(pod: PlacePod, wait: PodWait, place: Option<GrantedPlace>) -> GateStep {
    decide(&GateContext { pod: Some(pod), wait, place, now: Duration::from_secs(70) })
}

#[test]
fn the_gate_goes_when_the_place_is_free_and_the_pod_nominated_or_when_it_waits_for_nothing() {
    let gated = || pod(&[OWN, "other"], &[]);
    let gates = |step: GateStep| match step {
        GateStep::Write(write) => (write.gates, write.affinity.is_some()),
        other => panic!("{other:?}"),
    };
    let others = vec!["other".to_owned()];
    let of_place = PodWait::Place("r".to_owned());
    assert_eq!(gates(step(gated(), of_place.clone(), Some(place(true, false)))), (others.clone(), true));
    assert_eq!(gates(step(gated(), PodWait::Nothing, None)), (others, false));
    let held = GateStep::Hold(of_place.clone(), None);
    assert_eq!(step(gated(), of_place.clone(), Some(place(false, false))), held, "the place holder stands there");
    let elsewhere = pod(&[OWN], &[("/status/nominatedNodeName", json!("n2"))]);
    assert_eq!(step(elsewhere, PodWait::Nothing, Some(place(true, false))), held, "no scheduler counts it there");
    assert_eq!(step(gated(), of_place.clone(), None), held);
    assert_eq!(step(pod(&["other"], &[]), PodWait::Nothing, None), GateStep::Rest);
    for (path, value) in [
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/spec/nodeName", json!("n1")),
        ("/status/phase", json!("Failed")),
    ] {
        assert_eq!(step(pod(&[OWN], &[(path, value)]), PodWait::Nothing, None), GateStep::Rest, "{path}");
    }
}

#[test]
fn a_request_that_is_not_there_is_waited_for_a_minute() {
    let wait = PodWait::Request(key("n"));
    let at = |seconds: u64| {
        let now = Duration::from_secs(seconds);
        decide(&GateContext { pod: Some(pod(&[OWN], &[])), wait: wait.clone(), place: None, now })
    };
    assert_eq!(at(60), GateStep::Hold(wait.clone(), Some(Duration::from_secs(60))));
    assert_eq!(at(119), GateStep::Hold(wait.clone(), Some(Duration::from_secs(1))));
    assert!(matches!(at(120), GateStep::Write(_)));
}

/// The API server lets preferences of a gated pod change, and lets each required term get further requirements.
#[test]
fn the_affinity_of_a_pod_is_narrowed_and_nothing_of_it_is_lost() {
    let term = |fields: Value, expressions: Value| json!({ "matchFields": fields, "matchExpressions": expressions });
    let zone = json!([{ "key": "zone", "operator": "In", "values": ["a"] }]);
    let by_name = json!([{ "key": "metadata.name", "operator": "In", "values": ["n1"] }]);
    let before = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [term(json!([]), zone.clone()), term(json!([]), json!([])), term(by_name.clone(), json!([]))],
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": term(json!([]), zone) }],
    } });
    let written = |is_only: bool, affinity: Value| {
        let pod = pod(&[OWN], &[("/spec/affinity", affinity)]);
        match step(pod, PodWait::Nothing, Some(place(true, is_only))) {
            GateStep::Write(write) => write.affinity.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let of = |affinity: &NodeAffinity| serde_json::to_value(affinity).unwrap();
    let only = of(&written(true, before.clone()));
    let terms = &only["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!((&terms[0]["matchFields"], terms.as_array().unwrap().len()), (&by_name, 3));
    assert_eq!(terms[0]["matchExpressions"][0]["key"], "zone");
    assert!(terms[1]["matchFields"].as_array().is_none_or(Vec::is_empty), "a term that matches no node stays so");
    assert_eq!(terms[2]["matchFields"], by_name);
    let preferred = written(false, before);
    assert_eq!((preferred.required.unwrap().node_selector_terms.len(), preferred.preferred.len()), (3, 2));
    assert_eq!(
        (preferred.preferred[1].weight, &preferred.preferred[1].preference.match_fields[0].values[0][..]),
        (100, "n1")
    );
    assert_eq!(written(true, Value::Null).required, Some(NodeSelector::of_node("n1")));
}

#[test]
fn gates_are_told_apart() {
    let of = |names: &[&str]| PodGates::of(&pod(names, &[]).spec.scheduling_gates);
    assert_eq!(of(&[]), PodGates::Open);
    assert_eq!(of(&[OWN]), PodGates::Own);
    assert_eq!(of(&[OWN, "x"]), PodGates::OwnAndOthers);
    assert_eq!(of(&["x"]), PodGates::Others);
    assert_eq!(of(&["hostler.dev/placement"]), PodGates::Others);
    assert_eq!(of(&["hostler.dev/placement", OWN]), PodGates::OwnAndPlacement);
}
