//! Devices of a request are kept by Reservations: before it is told yes, until its pods have come or its time is over, and whoever
//! deletes it.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::{provisioning::ProvisioningConditionType as Type, reservation::ReservationPhase};
use hostler_cluster::rfc3339;
use serde_json::json;

use super::world::{CLASS, ModelServer, World};
use crate::{provision::context::Keeping, testkit::Fate};

const MINUTE: Duration = Duration::from_secs(60);
const FOUND: &str = "True CapacityIsFound";
const NOT_FOUND: &str = "False CapacityIsNotFound";

/// A cluster that is asked for two sets of pods, and keeps nothing yet.
fn two_sets_asked_for(devices: &[usize]) -> World {
    let mut world = World::of(devices);
    world.is_kept = false;
    world.server.template("small", &ModelServer::pod_spec("one"));
    world.server.template("wide", &ModelServer::pod_spec("two"));
    world.ask_for("r", CLASS, &[("small", 2), ("wide", 1)], &[]);
    world.settle();
    world
}

#[test]
fn a_yes_is_said_when_all_devices_are_kept_and_not_before() {
    let mut world = two_sets_asked_for(&[2, 2]);
    assert_eq!(world.provisioned("r"), "False BookingCapacity");
    assert_eq!(world.says("r", Type::CapacityAvailable), FOUND);
    let uid = world.server.request("r").uid().to_owned();
    let names = format!("provreq-{uid}-0-0,provreq-{uid}-1-0");
    assert_eq!(world.details("r")["reservation"], names);
    assert_eq!(world.server.reservations.len(), 2);
    let small = &world.server.reservations[&format!("provreq-{uid}-0-0")].spec;
    assert_eq!((small.replicas(), small.ttl.as_deref(), small.is_once()), (2, Some("1740s"), true));
    assert_eq!(small.owners[0].provisioning_request.as_ref().unwrap().name, "r");
    small.pod_template().unwrap();
    world.check_rest();
    world.is_kept = true;
    world.settle();
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 4));
    let message = world.message("r", Type::Provisioned);
    assert_eq!(message, "devices for all pods of small, wide are kept for 10 min, for claims that tolerate them");
    assert_eq!(world.details("r")["nodes"], "n0=2,n1=1");
    let values: Vec<_> =
        world.server.reservations.values().map(|it| it.status.toleration_value.clone().unwrap()).collect();
    assert_eq!(world.details("r")["tolerationValue"], values.join(","));
    assert_eq!(world.told, [("r".to_owned(), "BookingCapacity"), ("r".to_owned(), "CapacityIsFound")]);
    world.check_rest();
}

/// Planned anew one by one, the first Reservation could take the room of the next.
#[test]
fn reservations_are_handed_the_devices_of_the_plan_and_each_device_once() {
    let world = two_sets_asked_for(&[2, 2]);
    let uid = world.server.request("r").uid().to_owned();
    let planned = |set: usize| {
        let spec = &world.server.reservations[&format!("provreq-{uid}-{set}-0")].spec;
        spec.planned_devices.iter().map(|it| (it.node_name.clone(), it.device.clone())).collect::<BTreeSet<_>>()
    };
    let (small, wide) = (planned(0), planned(1));
    assert_eq!((small.len(), wide.len()), (2, 2), "{small:?} {wide:?}");
    assert!(small.is_disjoint(&wide), "{small:?} {wide:?}");
    assert_eq!(wide.iter().map(|(node, _)| node).collect::<BTreeSet<_>>().len(), 1, "both are one pod's: {wide:?}");
}

/// A controller that begins between the plan and the Reservations does not know the plan; the request has its devices all the same.
#[test]
fn after_a_crash_reservations_have_no_plan_and_are_kept_all_the_same() {
    let mut world = World::of(&[2]);
    world.is_kept = false;
    world.ask("r", 2);
    world.settle();
    world.server.reservations.clear();
    world.restart();
    world.settle();
    assert_eq!(world.server.reservations.len(), 1);
    assert!(world.server.reservations.values().all(|it| it.spec.planned_devices.is_empty()));
    world.is_kept = true;
    world.settle();
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 2));
    world.check_rest();
}

#[test]
fn until_when_there_is_an_answer_is_said_once_and_goes_with_it() {
    for is_kept in [true, false] {
        let mut world = World::of(&[1]);
        world.is_kept = false;
        let until = rfc3339(world.now().wall + 2 * MINUTE);
        world.ask("r", 1);
        world.settle();
        assert_eq!(world.details("r")["eta"], until);
        world.pass(MINUTE);
        world.restart();
        world.settle();
        assert_eq!((&world.details("r")["eta"], world.details("r").get("plan-hash")), (&until, None));
        world.check_rest();
        world.is_kept = is_kept;
        world.pass(MINUTE - Duration::from_secs(1));
        world.settle();
        assert_eq!(world.details("r").contains_key("eta"), !is_kept);
        world.pass(Duration::from_secs(1));
        assert_eq!(world.provisioned("r"), if is_kept { FOUND } else { NOT_FOUND });
        assert_eq!(world.details("r").get("eta"), None);
        world.check_rest();
    }
}

#[test]
fn a_request_that_fails_while_its_devices_are_closed_has_no_time_of_an_answer() {
    let mut world = World::of(&[1]);
    world.is_kept = false;
    world.ask("r", 1);
    world.settle();
    assert!(world.details("r").contains_key("eta"));
    world.pass(MINUTE);
    world.server.objects.templates.clear();
    world.settle();
    assert_eq!(world.says("r", Type::Failed), "True FailedToBookCapacity");
    assert_eq!(world.details("r").get("eta"), None);
}

/// The same plan has the same hash, whoever asks, and another one has another.
#[test]
fn which_plan_it_is_can_be_told_from_its_hash() {
    let hash = |devices: &[usize], keeping: Keeping, pods: i64| {
        let mut world = World::of(devices);
        world.keeping = keeping;
        world.ask("r", pods);
        world.settle();
        assert_eq!(world.provisioned("r"), FOUND);
        let hash = world.details("r")["plan-hash"].clone();
        assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash} is no value of a label");
        world.pass(MINUTE);
        assert_eq!(world.details("r")["plan-hash"], hash);
        world.check_rest();
        hash
    };
    let unkept = || Keeping::NotKept("nobody does".to_owned());
    assert_eq!(hash(&[2], Keeping::Kept, 2), hash(&[2], Keeping::Kept, 2));
    assert_eq!(hash(&[2], unkept(), 2), hash(&[2], unkept(), 2));
    assert_ne!(hash(&[2], unkept(), 2), hash(&[1, 1], unkept(), 2), "the pods are on other nodes");
    assert_ne!(hash(&[2], Keeping::Kept, 2), hash(&[1, 1], Keeping::Kept, 2), "the devices are others");
    assert_ne!(hash(&[2], Keeping::Kept, 1), hash(&[2], Keeping::Kept, 2), "there are more of them");
}

#[test]
fn where_one_set_cannot_be_kept_all_is_given_back_and_the_set_is_named() {
    let mut world = two_sets_asked_for(&[4]);
    // Somebody is faster with one of the devices.
    world.server.pod("other", &json!({}), Some(("n0", 0)));
    world.is_kept = true;
    world.settle();
    assert_eq!(world.provisioned("r"), NOT_FOUND);
    let message = world.message("r", Type::Provisioned);
    assert!(
        message.contains("devices for set wide could not be kept: no device is left (Reservation provreq-"),
        "{message}"
    );
    assert_eq!((world.kept(), world.server.reservations.len()), (0, 0));
    assert_eq!(world.details("r").get("reservation"), None);
    world.server.node("n1", 2);
    world.pass(MINUTE);
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 4));
    world.check_rest();
}

#[test]
fn who_wants_no_retry_fails_where_devices_cannot_be_kept() {
    let mut world = World::of(&[1]);
    world.is_kept = false;
    world.ask_with("r", 1, &[("noRetry", "true")]);
    world.settle();
    world.server.pod("other", &json!({}), Some(("n0", 0)));
    world.is_kept = true;
    world.settle();
    assert_eq!(world.says("r", Type::Failed), "True CapacityIsNotFound");
    assert!(world.server.reservations.is_empty(), "its name is nobody's");
    world.check_rest();
}

#[test]
fn devices_that_nobody_closes_within_two_minutes_are_no_capacity() {
    let mut world = World::of(&[1]);
    world.is_kept = false;
    world.ask("r", 1);
    world.pass(Duration::from_secs(119));
    assert_eq!(world.provisioned("r"), "False BookingCapacity");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.provisioned("r"), NOT_FOUND);
    assert!(world.message("r", Type::Provisioned).contains("could not be closed to others within 2 min"));
}

#[test]
fn a_reservation_that_cannot_be_made_is_tried_again() {
    let mut world = World::of(&[1]);
    (0..3).for_each(|at| world.keep_fates.plan(at, Fate::FailBefore));
    world.ask("r", 1);
    world.settle();
    assert_eq!(world.provisioned("r"), "False BookingCapacity");
    world.pass(Duration::from_secs(2));
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 1));
}

/// 31
#[test]
fn pods_that_take_what_is_kept_use_it_up() {
    let mut world = World::of(&[4]);
    world.ask("r", 3);
    world.settle();
    let devices: Vec<_> = world.server.held().into_keys().collect();
    for (at, (node, device)) in devices.iter().enumerate() {
        assert_eq!(world.kept(), 3 - at);
        world.bind(&format!("p{at}"), "r", node, *device);
    }
    assert_eq!(world.says("r", Type::BookingExpired), "True CapacityBookingConsumed");
    assert_eq!(world.kept(), 0);
    let known: Vec<_> = world.server.reservations.values().map(|it| it.status.phase).collect();
    assert_eq!(known, [ReservationPhase::Succeeded], "it ends as one that is used up, and goes later");
    world.check_rest();
}

/// 31
#[test]
fn pods_that_are_given_something_else_free_what_is_kept_for_them() {
    let mut world = World::of(&[6]);
    world.ask("r", 3);
    world.settle();
    let others = world.server.free();
    world.bind("p0", "r", &others[0].0, others[0].1);
    assert_eq!(world.kept(), 2);
    let kept = world.server.held().into_keys().next().unwrap();
    world.bind("p1", "r", &kept.0, kept.1);
    assert_eq!(world.kept(), 1);
    world.bind("p2", "r", &others[1].0, others[1].1);
    assert_eq!((world.kept(), world.says("r", Type::BookingExpired)), (0, "True CapacityBookingConsumed".to_owned()));
    world.check_rest();
}

#[test]
fn a_pod_that_cannot_have_what_is_kept_has_it_opened_and_one_that_can_has_not() {
    let mut world = World::of(&[2]);
    world.ask("r", 2);
    world.settle();
    let value = world.details("r")["tolerationValue"].clone();
    world.server.waiting_pod("led", "r", Some(&value));
    world.settle();
    assert_eq!(world.kept(), 2);
    world.server.waiting_pod("plain", "r", None);
    world.settle();
    assert_eq!(world.kept(), 1, "what is opened for the plain one is not kept from it");
    world.check_rest();
}

/// Kueue holds plain pods back by a gate: their claims are made before it asks, and the webhook could change none of them.
#[test]
fn a_pod_whose_claim_the_webhook_will_replace_still_waits_for_what_is_kept() {
    let mut world = World::of(&[3]);
    world.server.leads_pods = true;
    world.ask("r", 3);
    world.settle();
    for pod in ["early", "other"] {
        world.server.waiting_pod(pod, "r", None);
    }
    world.settle();
    assert_eq!(world.kept(), 3, "a pod that came without a request would be given what is opened");
    world.check_rest();
    let kept = world.server.held().into_keys().next().unwrap();
    world.bind("early", "r", &kept.0, kept.1);
    assert_eq!(world.kept(), 2);
    // A claim that names another Reservation is left alone.
    world.server.waiting_pod("strange", "r", Some("0123456789abcdef"));
    world.settle();
    assert_eq!(world.kept(), 1);
    // Without the webhook no claim is replaced.
    world.server.leads_pods = false;
    world.settle();
    assert_eq!(world.kept(), 0);
    world.check_rest();
}

/// Nothing in a pod says of which set it is: what it has does, and what it can have.
#[test]
fn of_two_sets_that_look_the_same_a_pod_is_of_the_one_whose_devices_it_takes() {
    let mut world = World::of(&[3]);
    for set in ["a", "b"] {
        world.server.template(set, &ModelServer::pod_spec("one"));
    }
    world.ask_for("r", CLASS, &[("a", 1), ("b", 2)], &[]);
    world.settle();
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 3));
    let of = |world: &World, set: &str| -> Vec<(String, usize)> {
        let is_of = |name: &String| name.ends_with(set);
        world.server.held().into_iter().filter(|(_, name)| is_of(name)).map(|(device, _)| device).collect()
    };
    let second = of(&world, "-1-0");
    world.bind("b0", "r", &second[0].0, second[0].1);
    assert_eq!((of(&world, "-0-0").len(), of(&world, "-1-0").len()), (1, 1), "the pod of a is still to come");
    let values = world.details("r")["tolerationValue"].clone();
    world.server.waiting_pod("b1", "r", values.split(',').nth(1));
    world.settle();
    assert_eq!(world.kept(), 2, "it waits for what is kept for b");
    let second = of(&world, "-1-0");
    world.bind("b1", "r", &second[0].0, second[0].1);
    assert_eq!((world.kept(), world.says("r", Type::BookingExpired)), (1, String::new()));
    // What b's have been given is forgotten, and whose they are is not.
    world.restart();
    world.settle();
    let first = of(&world, "-0-0");
    world.bind("a0", "r", &first[0].0, first[0].1);
    assert_eq!((world.kept(), world.says("r", Type::BookingExpired)), (0, "True CapacityBookingConsumed".to_owned()));
    world.check_rest();
}

#[test]
fn when_the_time_is_over_everything_is_open_but_what_pods_have() {
    let mut world = World::of(&[4]);
    world.ask("r", 3);
    world.settle();
    let kept = world.server.held().into_keys().next().unwrap();
    world.bind("p0", "r", &kept.0, kept.1);
    world.pass(10 * MINUTE);
    assert_eq!(world.says("r", Type::BookingExpired), "True CapacityReservationTimeExpired");
    assert_eq!(world.kept(), 0);
    let phases: Vec<_> = world.server.reservations.values().map(|it| it.status.phase).collect();
    assert_eq!(phases, [ReservationPhase::Succeeded]);
    world.check_rest();
}

/// 41
#[test]
fn what_no_pod_has_used_is_free_once_the_request_is_deleted_whoever_leads_then() {
    let mut world = World::of(&[2]);
    world.ask("a", 2);
    world.settle();
    world.delete("a");
    world.restart();
    // A request made anew under the same name is not refused by its own booking.
    world.ask("a", 2);
    world.settle();
    assert_eq!((world.kept(), world.provisioned("a")), (2, String::new()), "it may be there, and not be seen yet");
    world.pass(Duration::from_secs(11));
    assert_eq!((world.provisioned("a"), world.kept()), (FOUND.to_owned(), 2));
}

#[test]
fn nobody_books_for_longer_than_the_configuration_allows() {
    let mut world = World::of(&[2]);
    world.ask_with("long", 1, &[("bookingSeconds", "3601")]);
    world.ask_with("short", 1, &[("bookingSeconds", "3600")]);
    world.settle();
    assert_eq!(world.provisioned("short"), FOUND);
    assert!(world.says("long", Type::Failed).starts_with("True"));
    let words = world.message("long", Type::Failed);
    assert!(words.contains("write at most 3600") && words.contains("provisioning.longest_booking_seconds"), "{words}");
}

#[test]
fn a_reservation_that_somebody_deletes_ends_the_booking() {
    let mut world = World::of(&[1]);
    world.ask("r", 1);
    world.settle();
    world.server.reservations.clear();
    world.settle();
    assert_eq!(world.says("r", Type::BookingExpired), "True CapacityReservationTimeExpired");
    assert!(world.message("r", Type::BookingExpired).ends_with("keeps nothing any more: it was deleted"));
    assert_eq!(world.says("r", Type::CapacityRevoked), "True CapacityLost");
    world.check_rest();
}

#[test]
fn what_cannot_be_seen_for_a_while_is_not_taken_for_deleted() {
    let mut world = World::of(&[1]);
    world.ask("r", 1);
    world.settle();
    let kept = std::mem::take(&mut world.server.reservations);
    world.keeping = Keeping::Unknown;
    world.settle();
    assert_eq!(world.says("r", Type::BookingExpired), "");
    (world.server.reservations, world.keeping) = (kept, Keeping::Kept);
    world.settle();
    assert_eq!((world.says("r", Type::BookingExpired), world.kept()), (String::new(), 1));
    world.check_rest();
}

#[test]
fn names_that_somebody_else_wrote_promise_nothing() {
    let mut world = World::of(&[1]);
    world.ask("r", 1);
    world.with_status("r", |request| {
        let details = &mut request.status.provisioning_class_details;
        details.insert("reservation".to_owned(), "mine".to_owned());
    });
    world.settle();
    assert!(world.provisioned("r") != FOUND || world.kept() == 1, "nothing is kept for who was told yes");
    world.pass(10 * MINUTE);
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 1));
}

#[test]
fn without_anybody_who_keeps_devices_a_request_is_told_so() {
    let mut world = World::of(&[1]);
    world.keeping = Keeping::NotKept("capabilities.reservations is \"off\"".to_owned());
    world.ask("r", 1);
    world.settle();
    assert_eq!(world.provisioned("r"), FOUND);
    let message = world.message("r", Type::Provisioned);
    let told = "nothing keeps away pods that come without one (capabilities.reservations is \"off\")";
    assert!(message.ends_with(told), "{message}");
    assert!(world.server.reservations.is_empty());
    // As long as nobody knows, nothing is promised.
    world.keeping = Keeping::Unknown;
    world.server.node("n1", 1);
    world.ask("next", 1);
    world.settle();
    assert_eq!(world.provisioned("next"), "");
    world.keeping = Keeping::Kept;
    world.settle();
    assert_eq!((world.provisioned("next"), world.kept()), (FOUND.to_owned(), 1));
}

#[test]
fn who_stops_keeping_devices_in_between_has_the_request_looked_at_again() {
    let mut world = World::of(&[1]);
    world.is_kept = false;
    world.ask("r", 1);
    world.settle();
    world.keeping = Keeping::NotKept("switched off".to_owned());
    world.settle();
    assert_eq!(world.provisioned("r"), NOT_FOUND);
    world.is_kept = true;
    world.pass(MINUTE);
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 0));
}

/// A Reservation keeps devices for so many pods at most.
#[test]
fn a_large_set_is_kept_by_several_reservations() {
    let mut world = World::of(&[600, 600]);
    for node in ["n0", "n1"] {
        world.server.facts.add_node(super::world::read(json!({
            "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}},
            "status": {"allocatable": {"cpu": "1k", "memory": "4Ti", "pods": "1k"}},
        })));
    }
    world.ask("r", 1100);
    world.settle();
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 1100));
    let replicas: Vec<_> = world.server.reservations.values().map(|it| it.spec.replicas()).collect();
    assert_eq!(replicas, [1024, 76]);
}

#[test]
fn sets_without_devices_and_with_claims_that_exist_are_booked_among_requests() {
    let mut world = World::of(&[2]);
    world.server.template("cpus", &ModelServer::pod_spec(""));
    world.server.template("gpus", &ModelServer::pod_spec("one"));
    world.ask_for("both", CLASS, &[("cpus", 7), ("gpus", 1)], &[]);
    world.ask_for("plain", CLASS, &[("cpus", 1)], &[]);
    world.settle();
    assert_eq!((world.provisioned("both"), world.kept()), (FOUND.to_owned(), 1));
    assert!(
        world
            .message("both", Type::Provisioned)
            .ends_with("for cpus no other ProvisioningRequest is told the same meanwhile")
    );
    // Eight CPUs: what the pods of the first one will use is nobody else's, on the node of their devices.
    assert_eq!(world.provisioned("plain"), NOT_FOUND);
    world.delete("both");
    world.pass(MINUTE);
    assert_eq!(world.provisioned("plain"), FOUND);
}

/// 44, of Reservations.
#[test]
fn a_lost_answer_of_any_write_changes_nothing() {
    for fate in [Fate::FailBefore, Fate::FailAfter, Fate::Conflict] {
        let mut world = World::of(&[2]);
        world.ask_together(&["a", "b"]);
        world.fates.insert("a".to_owned(), fate);
        world.keep_fates.plan(0, Fate::FailBefore);
        world.settle();
        world.pass(Duration::from_secs(2));
        assert_eq!((world.provisioned("a"), world.provisioned("b")), (FOUND.to_owned(), FOUND.to_owned()), "{fate:?}");
        assert_eq!(world.kept(), 2);
    }
}

/// The first device that is kept fails.
fn fail_a_kept_one(world: &mut World) -> String {
    let (device, _) = world.server.held().into_iter().next().unwrap();
    let name = format!("gpu.example/{}/gpu-{} on node {}", device.0, device.1, device.0);
    world.server.broken.insert(device);
    world.settle();
    name
}

#[test]
fn a_promise_of_which_a_device_fails_is_taken_back_with_its_name_until_another_one_is_kept() {
    let mut world = World::of(&[2]);
    world.ask("r", 2);
    world.settle();
    assert_eq!((world.provisioned("r"), world.says("r", Type::CapacityRevoked)), (FOUND.to_owned(), String::new()));
    let hash = world.details("r")["plan-hash"].clone();
    let lost = fail_a_kept_one(&mut world);
    assert_eq!(world.says("r", Type::CapacityRevoked), "True CapacityLost");
    let message = world.message("r", Type::CapacityRevoked);
    assert!(message.starts_with(&format!("{lost} is lost, and nothing is free in its place: no device")), "{message}");
    assert_eq!(world.provisioned("r"), "True ReplacingCapacity", "nothing says any more that all are kept");
    assert_eq!(world.told.last(), Some(&("r".to_owned(), "CapacityLost")));
    world.check_rest();
    world.restart();
    world.settle();
    assert_eq!(world.says("r", Type::CapacityRevoked), "True CapacityLost");
    world.server.node("n1", 1);
    world.settle();
    assert_eq!(world.says("r", Type::CapacityRevoked), "False CapacityReplaced");
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 2));
    assert_eq!(world.details("r")["nodes"], "n0=1,n1=1");
    assert_ne!(world.details("r")["plan-hash"], hash, "it is another plan");
    world.check_rest();
}

#[test]
fn a_device_that_is_replaced_at_once_takes_no_promise_back() {
    let mut world = World::of(&[1, 1]);
    world.ask("r", 1);
    world.settle();
    fail_a_kept_one(&mut world);
    assert_eq!(world.says("r", Type::CapacityRevoked), "", "who reads that ends what runs, and does not begin again");
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 1));
    assert_eq!(world.details("r")["nodes"], "n1=1");
    let told: Vec<&str> = world.told.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(told, ["BookingCapacity", "CapacityIsFound", "ReplacingCapacity", "CapacityIsFound"]);
    world.check_rest();
}
