//! Direct mode against those who keep devices, a scheduler that changes its mind, users, and deaths of the controller.
//! docs/reservations.md says which test is which scenario.

mod again;
mod pinned;
mod random;
mod world;

use hostler_api::{
    ObjectKey,
    core::PodResourceClaim,
    reservation::{ReservationConditionType, ReservationPhase, ReservedDeviceState as State},
};
use serde_json::{Value, json};

use self::world::{DirectWorld, config, key, states};
use super::{
    context::{DirectContext, DirectStep, DirectWrite, Gate},
    decide::decide,
};
use crate::{hold::OwnerPod, reservation_object::ReservationObject, testkit::Fate};

/// The writes of a pod that is placed at the first try.
const WORDS: [&str; 5] = ["reservation", "claim_finalizers", "claim_status", "gates", "reservation_deletion"];

#[test]
fn a_gated_pod_is_kept_devices_given_them_let_go_and_forgotten() {
    let mut world = DirectWorld::new(&[2]);
    world.settle();
    assert_eq!(world.node("p").as_deref(), Some("a"));
    assert_eq!(world.writes, WORDS);
    world.check_nothing_is_kept();
}

fn gates(world: &DirectWorld) -> Vec<&str> {
    world.server.pods[&key("p")].spec.scheduling_gates.iter().map(|gate| gate.name.as_str()).collect()
}

#[test]
fn nothing_is_taken_for_a_pod_that_another_gate_holds_back() {
    let mut world = DirectWorld::new(&[2]);
    world.server.pods.get_mut(&key("p")).unwrap().spec.scheduling_gates.push(Gate { name: "other".to_owned() });
    (0..20).for_each(|_| world.round());
    assert!(world.writes.is_empty(), "{:?}", world.writes);
    let DirectStep::Refuse(why) = world.look("p") else { panic!("{:?}", world.look("p")) };
    assert!(why.starts_with("other hold") && why.contains("hostler.dev/placement"), "{why}");
    world.server.pods.get_mut(&key("p")).unwrap().spec.scheduling_gates.pop();
    world.settle();
    assert_eq!(world.writes, WORDS);
    world.check_nothing_is_kept();
}

#[test]
fn a_pod_that_has_its_reservation_keeps_what_it_has_beside_another_gate() {
    let mut world = DirectWorld::new(&[2]);
    world.control();
    world.is_idle = true;
    // A controller of before took devices for it.
    world.server.pods.get_mut(&key("p")).unwrap().spec.scheduling_gates.push(Gate { name: "other".to_owned() });
    world.until("its own gate is gone", |world| !world.server.pods[&key("p")].is_gated());
    assert_eq!((gates(&world), world.given("p")), (vec!["other"], vec!["a/gpu-0".to_owned()]), "others' gates stay");
    (0..20).for_each(|_| world.round());
    assert_eq!(world.kept.closed().len(), 1, "closed until it is bound");
}

#[test]
fn an_allocation_has_its_time_its_consumer_its_node_and_what_classes_bring_before_what_the_claim_says() {
    let mut world = DirectWorld::new(&[2]);
    world.until("the pod has its device", |world| !world.given("p").is_empty());
    let status = serde_json::to_value(&world.server.claims[&key("p-gpu")].status).unwrap();
    let result = json!({
        "request": "gpu", "driver": "hostler.dev", "pool": "a", "device": "gpu-0",
        "tolerations": [{"key": "k", "operator": "Exists"}],
    });
    assert_eq!(status["allocation"]["devices"]["results"], json!([result]));
    assert_eq!(
        status["allocation"]["devices"]["config"],
        json!([config("FromClass", "class", json!(["gpu"])), config("FromClaim", "claim", Value::Null)])
    );
    assert!(status["allocation"]["allocationTimestamp"].as_str().unwrap().starts_with("2027-01-15T"));
    assert_eq!(status["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"], json!(["a"]));
    assert_eq!(status["reservedFor"], json!([{"resource": "pods", "name": "p", "uid": "pu"}]));
}

#[test]
fn its_reservation_asks_for_what_the_pod_asks_for() {
    let mut world = DirectWorld::new(&[2]);
    let pod = world.server.pods.get_mut(&key("p")).unwrap();
    pod.spec.more.insert("nodeSelector".to_owned(), json!({"zone": "a"}));
    let DirectStep::Write(DirectWrite::Reserve(name, object)) = world.look("p") else { panic!("it is kept first") };
    let made: ReservationObject = serde_json::from_value(*object).unwrap();
    assert_eq!(name, "pod-pu");
    let template = made.spec.pod_template().unwrap();
    assert_eq!((template.metadata.namespace.as_str(), template.spec.node_selector["zone"].as_str()), ("default", "a"));
    assert_eq!(template.spec.requests()["cpu"].to_string(), "1");
    assert!(made.spec.device_claims[0].name == "gpu" && !made.spec.is_once());
    let owner = OwnerPod { uid: "pu".to_owned(), ..OwnerPod::default() };
    assert!(made.spec.is_owned_by(&owner.candidate(&ObjectKey::new("default", "p"))));
}

#[test]
fn a_pod_whose_reservation_failed_is_kept_something_else() {
    let mut world = DirectWorld::new(&[2]);
    world.control();
    let mut own = world.own("p");
    own.status.phase = ReservationPhase::Failed;
    world.apply(&DirectWrite::Status(own.name.clone(), super::context::version_of(&own), Box::new(own.status)));
    world.settle();
    assert_eq!(world.writes[..3], ["reservation", "reservation_deletion", "reservation"]);
    world.check_nothing_is_kept();
}

#[test]
fn what_is_refused_stands_in_its_reservation_until_it_is_not_refused_any_more() {
    for refused in ["claim_finalizers", "claim_status", "gates"] {
        let mut world = DirectWorld::new(&[2]);
        world.refused = Some(refused);
        world.until("it is refused often", |world| world.writes.iter().filter(|what| **what == refused).count() > 5);
        let own = world.own("p");
        let placed = own.status.condition(ReservationConditionType::Placed).unwrap();
        assert_eq!((&*placed.reason, &*placed.message), ("Refused", &*format!("{refused} is refused")));
        let said = world.writes.iter().filter(|what| **what == "reservation_status").count();
        assert_eq!(said, 1, "{:?}", world.writes);
        (world.refused, world.is_idle) = (None, true);
        world.until("it is said no more", |world| {
            world.own("p").status.condition(ReservationConditionType::Placed).is_none()
        });
        world.is_idle = false;
        world.settle();
        world.check_nothing_is_kept();
    }
}

#[test]
fn of_more_claims_than_a_reservation_can_have_it_is_said_how_many_there_may_be() {
    let step = |count: usize| {
        let mut world = DirectWorld::new(&[2]);
        let names: Vec<String> = (0..count).map(|at| format!("c{at}")).collect();
        let claim = world.server.claims[&key("p-gpu")].clone();
        let named = |known: &[PodResourceClaim]| {
            names.iter().map(|name| PodResourceClaim { name: name.clone(), ..known[0].clone() }).collect()
        };
        let pod = world.server.pods.get_mut(&key("p")).unwrap();
        pod.spec.resource_claims = named(&pod.spec.resource_claims);
        pod.status.resource_claim_statuses = named(&pod.status.resource_claim_statuses);
        let claims = names.iter().map(|name| (name.clone(), claim.clone())).collect();
        decide(&DirectContext { claims, ..world.cx("p") })
    };
    let DirectStep::Refuse(why) = step(9) else { panic!("{:?}", step(9)) };
    assert!(why.contains("9 claims") && why.contains("8 at most") && why.contains("hostler.dev/placement"), "{why}");
    assert!(matches!(step(8), DirectStep::Write(DirectWrite::Reserve(..))));
}

#[test]
fn of_a_field_that_is_not_judged_it_is_said_that_the_pod_goes_without_the_gate_or_without_the_field() {
    let step = |field: &str, value: Value| {
        let mut world = DirectWorld::new(&[2]);
        world.server.pods.get_mut(&key("p")).unwrap().spec.more.insert(field.to_owned(), value);
        world.look("p")
    };
    let host = "kubernetes.io/hostname";
    let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": host}]});
    let spread = |when: &str| json!([{"maxSkew": 1, "topologyKey": host, "whenUnsatisfiable": when}]);
    for (field, value, named) in [
        ("affinity", json!({"podAffinity": terms}), "affinity.podAffinity.required"),
        ("affinity", json!({"podAntiAffinity": terms}), "affinity.podAntiAffinity.required"),
        ("topologySpreadConstraints", spread("DoNotSchedule"), "topologySpreadConstraints[0]"),
    ] {
        let DirectStep::Refuse(why) = step(field, value) else { panic!("{named}") };
        assert!(why.starts_with(&format!("spec.{named}")) && why.contains("gate hostler.dev/placement out"), "{why}");
        assert!(!why.contains("Reservation") && !why.contains("template"), "{why}");
    }
    let wish = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}});
    for (field, value) in [("affinity", wish), ("topologySpreadConstraints", spread("ScheduleAnyway"))] {
        assert!(matches!(step(field, value), DirectStep::Write(DirectWrite::Reserve(..))), "{field} is a wish");
    }
}

#[test]
fn a_pod_that_goes_at_any_write_leaves_nothing() {
    for at in 0..WORDS.len() {
        let mut world = DirectWorld::new(&[2]);
        world.until("so many writes", |world| world.writes.len() >= at);
        world.delete_pod("p");
        world.settle();
        world.check_nothing_is_kept();
    }
}

#[test]
fn two_deaths_at_any_two_writes_do_no_harm() {
    for first in 0..WORDS.len() {
        for second in first + 1..=WORDS.len() {
            for fates in Fate::TWO_DEATHS {
                let mut world = DirectWorld::new(&[2]);
                world.fates.extend([(first, fates[0]), (second, fates[1])]);
                world.settle();
                world.check_nothing_is_kept();
            }
        }
    }
}

#[test]
fn two_controllers_in_any_order_give_one_device_once() {
    for late in 0..12 {
        let mut world = DirectWorld::new(&[2]);
        let mut pending = None;
        for round in 0..24 {
            if round == late {
                pending = Some(world.look("p"));
            }
            world.round();
            if round == late + 3
                && let Some(DirectStep::Write(write)) = pending.take()
            {
                world.apply(&write);
            }
            assert!(world.given("p").len() <= 1);
        }
        world.settle();
        world.check_nothing_is_kept();
    }
}

#[test]
fn two_pods_that_come_at_the_same_moment_are_planned_together_and_given_different_devices() {
    let mut world = DirectWorld::without_pods(&[2, 2]);
    ["p", "q"].iter().for_each(|pod| world.pod(pod, &["one", "two"]));
    world.is_idle = true;
    world.until("both have their devices", |world| world.given("p").len() + world.given("q").len() == 4);
    let mut all = [world.given("p"), world.given("q")].concat();
    all.sort();
    assert_eq!(all, ["a/gpu-0", "a/gpu-1", "b/gpu-0", "b/gpu-1"]);
    world.is_idle = false;
    world.settle();
    assert_ne!(world.node("p"), world.node("q"), "each is whole on its node");
}

#[test]
fn of_two_pods_the_second_waits_for_what_the_first_has_and_neither_gets_a_part_of_it() {
    let mut world = DirectWorld::without_pods(&[2]);
    ["p", "q"].iter().for_each(|pod| world.pod(pod, &["one", "two"]));
    world.until("the first is bound", |world| world.is_bound("p"));
    (0..20).for_each(|_| world.round());
    assert!(world.given("q").is_empty() && states(&world.own("q")).is_empty());
    world.delete_pod("p");
    world.settle();
    assert_eq!(world.given("q"), ["a/gpu-0", "a/gpu-1"]);
}

#[test]
fn what_a_claim_has_is_handed_over_as_its_reservation_says_before_the_gate_goes() {
    let mut world = DirectWorld::new(&[2]);
    world.is_idle = true;
    world.until("the gate is gone", |world| !world.server.pods[&key("p")].is_gated());
    assert_eq!(states(&world.own("p")), [State::HandedOver]);
    assert_eq!(world.kept.closed().len(), 1, "closed until it is bound");
}

#[test]
fn a_device_that_somebody_has_all_the_same_is_given_back_and_stays_closed_until_nobody_has_it() {
    let lost = ("a".to_owned(), "gpu-0".to_owned());
    for seen in 0..4 {
        let mut world = DirectWorld::new(&[2]);
        world.refused = Some("gates");
        world.until("it has its device", |world| world.given("p") == ["a/gpu-0"]);
        // Also after whoever keeps it has said that it is handed over.
        (0..seen).for_each(|_| world.round());
        world.kept.give_twice(&key("stranger"), &lost);
        world.until("it has another one", |world| world.given("p") == ["a/gpu-1"]);
        assert!(world.server.pods[&key("p")].is_gated() && world.kept.closed().contains(&lost), "{seen}");
        world.refused = None;
        world.until("it is bound", |world| world.is_bound("p"));
        (0..20).for_each(|_| world.round());
        assert_eq!(world.kept.closed(), std::slice::from_ref(&lost), "{seen}: closed until nobody has it");
        world.kept.remove_pod(&key("stranger"));
        world.kept.remove_claim(&key("stranger"));
        world.settle();
        world.check_nothing_is_kept();
    }
}
