//! What happens while the planner thinks.

use hostler_allocator::plan::BoxSize;
use hostler_api::ObjectKey;
use hostler_api::reservation::{PLACED_POD_LABEL, ReservationPhase as Phase, ReservedDeviceState};
use hostler_reconcile::WriteOutcome;
use serde_json::json;

use super::{
    cluster::key,
    world::{DRIVER, World, asks, preempts, settings, wants, wants_and},
};
use crate::{
    hold::{DeviceKey, HoldEvent, HoldSettings, HoldTarget, HoldTime, topics::DecisionTopic},
    reservation_object::ReservationObject,
};

/// Lets everything happen but that the planner answers; it has found something then.
fn until_planned(world: &mut World) {
    for _ in 0..1000 {
        if !world.controller.answers.is_empty() {
            return;
        }
        if !world.deliver() && !world.execute_next(0) && !world.publish() {
            let at = world.now + std::time::Duration::from_millis(50);
            world.tick(at);
        }
    }
    panic!("the planner is not asked");
}

#[test]
fn a_device_that_somebody_got_while_it_was_planned_is_not_closed() {
    let mut world = World::new(&[1, 1]);
    world.reserve("r", wants(1, "web"));
    until_planned(&mut world);
    world.pod("quick", "db", 1, "");
    assert!(world.schedule("quick"));
    assert_eq!(world.has("quick"), ["a/gpu-0"]);
    while world.deliver() {}
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["b/gpu-0".into()]));
    assert!(world.writes.iter().all(|write| !format!("{write:?}").contains("NodeFences { node: \"a\"")));
    world.check_rest();
}

#[test]
fn what_was_asked_for_a_reservation_that_is_another_one_now_is_asked_again() {
    let mut world = World::new(&[2]);
    world.reserve("r", wants_and(1, "web", json!({"replicas": 1})));
    until_planned(&mut world);
    world.change("r", |object| object.spec.replicas = Some(2));
    while world.deliver() {}
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 2));
    world.check_rest();
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    until_planned(&mut world);
    world.server.delete_reservation("r");
    world.settle();
    assert!(!world.server.reservations.contains_key("r"));
    assert!(world.server.node_fences["a"].fences.is_empty());
    world.check_rest();
}

#[test]
fn an_answer_that_nobody_hears_is_asked_for_again() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    until_planned(&mut world);
    world.restart();
    assert!(world.controller.answers.is_empty());
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
    world.check_rest();
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    until_planned(&mut world);
    let number = world.controller.answers.pop_front().unwrap().number;
    world.feed(crate::hold::HoldEvent::Planned(crate::hold::HoldQuestion::unanswered(number)));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available, "a planner that failed is asked once more");
}

#[test]
fn who_comes_while_the_planner_thinks_is_answered_next() {
    let mut world = World::new(&[1, 1]);
    world.reserve("first", wants(1, "web"));
    until_planned(&mut world);
    world.reserve("second", wants(1, "web"));
    while world.deliver() || world.execute_next(0) {}
    let at = world.now + std::time::Duration::from_secs(1);
    world.tick(at);
    assert_eq!(world.controller.answers.len(), 1);
    world.settle();
    assert_eq!((world.phase("first"), world.phase("second")), (Phase::Available, Phase::Available));
    world.check_rest();
}

#[test]
fn a_device_that_the_planner_takes_for_free_and_a_claim_has_is_not_asked_for_again_and_again() {
    let mut world = World::new(&[1]);
    world.share("a", "gpu-0", 4);
    world.pod_of_part("part", "db", 2, "");
    assert!(world.schedule("part"));
    // It is published as one that nobody shares: its part does not count any more, for any scheduler.
    world.node("a", DRIVER, 1);
    world.reserve("r", wants(1, "web"));
    let before = world.questions;
    world.settle_for(600);
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Pending, 0));
    assert!(world.questions - before < 60, "{}", world.questions - before);
    world.end_pod("part");
    world.settle_for(120);
    assert_eq!(world.phase("r"), Phase::Available);
    world.check_rest();
}

#[test]
fn what_only_schedulers_can_give_is_not_kept_for_a_gated_pod_and_it_is_said_why() {
    for is_shared in [true, false] {
        let mut world = World::new(&[1]);
        world.edit_device("a", "gpu-0", |device| {
            (device.is_shareable, device.has_binding_conditions) = (is_shared, !is_shared);
        });
        world.reserve("pod-u", wants(1, "web"));
        world.change("pod-u", |object| drop(object.labels.insert(PLACED_POD_LABEL.to_owned(), "u".to_owned())));
        world.settle();
        assert_eq!((world.phase("pod-u"), world.held("pod-u").len()), (Phase::Pending, 0));
        let message = &world.get("pod-u").status.conditions[0].message;
        assert!(message.contains("leave the scheduling gate hostler.dev/placement out"), "{message}");
        world.edit_device("a", "gpu-0", |device| {
            (device.is_shareable, device.has_binding_conditions) = (false, false);
        });
        world.settle();
        assert_eq!(world.phase("pod-u"), Phase::Available);
        world.check_rest();
    }
}

#[test]
fn a_list_of_claims_that_says_nothing_new_has_no_pod_asked_for_again() {
    let mut world = World::new(&[1]);
    world.pod("old", "web", 1, "");
    assert!(world.schedule("old"));
    world.reserve("r", wants_and(1, "web", json!({"preAllocation": true})));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Waiting);
    let claims: Vec<_> = world.server.claims.values().cloned().collect();
    claims.into_iter().for_each(|claim| world.feed(HoldEvent::Claim(Box::new(claim))));
    assert!(world.controller.commands.is_empty(), "{:?}", world.controller.commands);
}

#[test]
fn who_a_pod_is_matters_to_those_alone_who_keep_something_of_its_pools() {
    let mut world = World::new(&[2, 1]);
    world.running("old", "db", 1, 0);
    world.reserve("near", wants(1, "web"));
    world.settle();
    world.reserve("far", wants(1, "web"));
    world.settle();
    assert_eq!((world.held("near"), world.held("far")), (vec!["a/gpu-1".to_owned()], vec!["b/gpu-0".to_owned()]));
    let core = &mut world.controller.core;
    core.pod_read(key("old"), Ok(None));
    let topics: Vec<DecisionTopic> = std::iter::from_fn(|| core.queue.pop()).collect();
    assert_eq!(topics, [DecisionTopic::Reservation("near".to_owned())]);
}

#[test]
fn one_that_was_made_anew_is_not_forgotten_for_a_late_word_that_the_last_one_is_gone() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    while world.deliver() {}
    let core = &mut world.controller.core;
    let first = core.reservations.get("r").unwrap().object.clone();
    assert!(core.writes.of(&HoldTarget::Reservation("r".to_owned())).is_some(), "its finalizer is being written");
    let now = HoldTime { elapsed: world.now, wall: world.true_time() };
    let core = &mut world.controller.core;
    let again = ReservationObject { uid: "other".to_owned(), version: "9999".to_owned(), ..first };
    core.step(now, HoldEvent::Reservation(Box::new(again)));
    core.step(now, HoldEvent::Written(HoldTarget::Reservation("r".to_owned()), WriteOutcome::Gone));
    assert_eq!(core.reservations.get("r").unwrap().object.uid, "other");
}

#[test]
fn what_is_said_of_one_does_not_change_with_what_another_cannot_have() {
    let mut world = World::new(&[1]);
    world.reserve("x", wants(2, "job"));
    world.settle();
    world.reserve("r", wants(1, "web"));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
    // It is shared for a while, and for the planner nobody has it afterwards.
    world.share("a", "gpu-0", 4);
    world.pod_of_part("part", "db", 2, "*");
    world.in_flight.insert(key("part"), vec![DeviceKey::new(DRIVER, "a", "gpu-0")]);
    assert!(world.bind("part"));
    world.node("a", DRIVER, 1);
    world.settle_for(300);
    assert_eq!(world.phase("r"), Phase::Pending);
    world.check_rest();
}

#[test]
fn what_is_said_of_one_does_not_change_with_who_else_is_asked_about() {
    let mut world = World::new(&[2]);
    world.reserve("x", wants(4, "job"));
    world.settle();
    let mut spec = preempts(1, "web");
    (spec["replicas"], spec["allocateOnce"]) = (json!(2), json!(false));
    world.reserve("r", spec);
    world.settle();
    assert_eq!(world.held("r").len(), 2);
    world.edit_device("a", "gpu-1", |device| device.is_usable = false);
    world.settle_for(300);
    assert_eq!(world.devices("r", ReservedDeviceState::Lost), ["a/gpu-1"]);
    world.check_rest();
}

#[test]
fn more_devices_than_an_object_has_room_for_are_refused_in_so_many_words() {
    let mut world = World::new(&[64; 20]);
    let claims: Vec<_> = (0..5)
        .map(|at| {
            let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu"}});
            json!({"name": format!("c{at}"), "spec": {"devices": {"requests": [request]}}})
        })
        .collect();
    world.reserve("r", wants_and(4, "web", json!({"replicas": 128, "deviceClaims": claims})));
    world.settle();
    let (reason, message) = world.condition("r", "Scheduled");
    assert_eq!(reason, "Unsupported");
    assert!(message.contains("that would be 1152 devices, and a Reservation keeps 1024 at most"), "{message}");
    assert!(world.server.node_fences.values().all(|node| node.fences.is_empty()));
}

#[test]
fn what_only_looks_at_devices_keeps_none() {
    let mut world = World::new(&[2]);
    let request = json!({"name": "look", "exactly": {"deviceClassName": "gpu", "adminAccess": true}});
    let claims = json!([{"name": "monitor", "spec": {"devices": {"requests": [request]}}}]);
    world.reserve("r", wants_and(1, "web", json!({"deviceClaims": claims})));
    world.settle();
    let (reason, message) = world.condition("r", "Scheduled");
    assert_eq!(reason, "Unsupported");
    assert!(message.contains("request look of claim monitor has adminAccess"), "{message}");
    assert!(world.server.node_fences.values().all(|node| node.fences.is_empty()));
    world.check_rest();
}

/// What a Reservation says that keeps one device each for so many pods of a namespace.
fn wants_in(namespace: &str, replicas: u32) -> serde_json::Value {
    let mut spec = wants_and(1, "web", json!({"replicas": replicas}));
    spec["template"]["metadata"]["namespace"] = json!(namespace);
    spec
}

/// A cluster in which the questions of a namespace may take so much work.
fn with_box(work: u64) -> World {
    let asker_box = BoxSize { work, time: std::time::Duration::from_secs(600) };
    let mut world = World::with(HoldSettings { asker_box, ..settings() }, DRIVER, &[64, 64]);
    for namespace in ["hard", "honest"] {
        let key = ObjectKey::new(namespace, "gpus-1");
        world.server.facts.add_template(key, serde_json::from_value(asks(1)).unwrap());
    }
    world
}

#[test]
fn a_reservation_that_takes_too_much_work_is_cut_short_says_so_and_keeps_no_other_namespace_waiting() {
    let is_enough = |work: &u64| {
        let mut world = with_box(*work);
        world.reserve("alone", wants_in("honest", 1));
        world.settle_for(10);
        world.phase("alone") == Phase::Available
    };
    let enough = (4..30).map(|shift| 1 << shift).find(is_enough).unwrap();
    let mut world = with_box(2 * enough);
    for at in 0..10 {
        world.reserve(&format!("hard-{at}"), wants_in("hard", 60));
    }
    world.reserve("honest", wants_in("honest", 1));
    world.settle_for(10);
    assert_eq!(world.phase("honest"), Phase::Available);
    let said = world.condition("hard-0", "Scheduled").1;
    assert!(said.contains("takes more work than there is for one asker"), "{said}");
    // A new one has its turn while those go on being looked at, less and less often.
    world.settle_for(600);
    let before = world.questions;
    world.settle_for(3600);
    assert!(world.questions - before < 400, "{}", world.questions - before);
    world.reserve("late", wants_in("honest", 1));
    world.settle_for(10);
    assert_eq!(world.phase("late"), Phase::Available);
    world.check_rest();
}

#[test]
fn one_that_can_never_be_kept_takes_nothing_from_younger_ones() {
    let admin = json!({"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": true}},
        {"name": "s", "exactly": {"deviceClassName": "gpu", "count": 2}},
    ]}});
    let limited = |spec: serde_json::Value| {
        let mut wanted = wants(2, "web");
        spec.as_object().unwrap().iter().for_each(|(name, value)| wanted["template"]["spec"][name] = value.clone());
        wanted
    };
    let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]});
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    for (spec, said) in [
        (wants_and(1, "web", json!({"replicas": 1100})), "1100 devices"),
        (limited(json!({"affinity": {"podAntiAffinity": terms}})), "spec.template.spec.affinity.podAntiAffinity"),
        (limited(json!({"topologySpreadConstraints": spread})), "spec.template.spec.topologySpreadConstraints[0]"),
        (limited(json!({"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "admin"}]})), "adminAccess"),
    ] {
        let mut world = World::new(&[2]);
        world.server.facts.add_template(key("admin"), serde_json::from_value(admin.clone()).unwrap());
        world.reserve("older", spec);
        world.reserve("younger", wants(2, "db"));
        world.settle();
        assert_eq!((world.phase("older"), world.phase("younger")), (Phase::Pending, Phase::Available), "{said}");
        assert!(world.condition("older", "Scheduled").1.contains(said), "{:?}", world.condition("older", "Scheduled"));
        world.check_rest();
    }
}

#[test]
fn a_device_that_cannot_be_closed_is_not_planned_with_where_another_one_can() {
    let mut world = World::new(&[1, 1, 1]);
    world.edit_device("a", "gpu-0", |device| device.is_partition = true);
    for name in ["oldest", "younger", "youngest"] {
        world.reserve(name, wants(1, "web"));
    }
    world.settle();
    assert_eq!((world.held("oldest"), world.held("younger")), (vec!["b/gpu-0".into()], vec!["c/gpu-0".into()]));
    assert_eq!(world.phase("youngest"), Phase::Pending);
    let said = world.condition("youngest", "Scheduled").1;
    assert!(said.contains("a/gpu-0 cannot be closed to others"), "{said}");
    world.check_rest();
}

/// How long it takes until the planner has answered.
fn time_until_planned(world: &mut World) -> std::time::Duration {
    let (began, before) = (world.now, world.questions);
    while world.questions == before {
        if !world.deliver() && !world.execute_next(0) && !world.publish() {
            let at = world.now + std::time::Duration::from_millis(5);
            world.tick(at);
        }
    }
    world.now - began
}

#[test]
fn a_device_that_gets_free_is_noticed_at_once_however_much_others_were_given_before() {
    let mut world = World::new(&[1, 40]);
    world.pod("user", "db", 1, "");
    assert!(world.schedule("user"));
    assert_eq!(world.has("user"), ["a/gpu-0"]);
    let mut spec = wants(1, "web");
    spec["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "a"});
    world.reserve("r", spec);
    world.settle_for(5);
    assert_eq!(world.phase("r"), Phase::Pending);
    for at in 0..40 {
        let name = format!("other-{at}");
        world.pod(&name, "db", 1, "");
        assert!(world.schedule(&name));
        world.settle_for(1);
    }
    world.end_pod("user");
    let took = time_until_planned(&mut world);
    assert!(took < std::time::Duration::from_millis(200), "{took:?}");
    world.settle_for(20);
    assert_eq!(world.phase("r"), Phase::Available);
    // Also within a second after something else got free, and after a quiet time.
    for pause in [0, 1, 40] {
        let mut world = World::new(&[1]);
        world.pod("user", "db", 1, "");
        assert!(world.schedule("user"));
        world.reserve("r", wants(1, "web"));
        world.settle_for(5);
        world.node("far", "other.example", 1);
        world.settle_for(pause);
        world.end_pod("user");
        let took = time_until_planned(&mut world);
        assert!(took < std::time::Duration::from_millis(300), "{pause}: {took:?}");
    }
}

/// The planner reads slices of its own watch: it knows of a device before the Reservations do, or after them.
#[test]
fn a_device_that_the_planner_hears_of_first_is_kept_as_soon_as_its_slice_is_seen_here() {
    let mut world = World::new(&[0]);
    world.reserve("r", wants(1, "web"));
    world.settle_for(5);
    assert_eq!(world.phase("r"), Phase::Pending);
    let before = world.server.log.len();
    world.node("late", DRIVER, 1);
    let at = world.server.log[before..].iter().position(|event| matches!(event, HoldEvent::Slice(_))).unwrap();
    let slice = world.server.log.remove(before + at);
    world.settle_for(5);
    assert_eq!(world.phase("r"), Phase::Pending, "nothing is closed of which no slice was seen");
    world.server.log.push(slice);
    let took = time_until_planned(&mut world);
    assert!(took < std::time::Duration::from_millis(200), "{took:?}");
    world.settle_for(10);
    assert_eq!(world.phase("r"), Phase::Available);
}
