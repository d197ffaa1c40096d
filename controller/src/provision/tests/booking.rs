//! What is booked, for how long, and what clocks have to do with it.

use std::time::Duration;

use hostler_api::provisioning::ProvisioningConditionType as Type;
use serde_json::json;

use super::world::{CLASS, ModelServer, World};
use crate::provision::context::Keeping;

const MINUTE: Duration = Duration::from_secs(60);
const FOUND: &str = "True CapacityIsFound";
const NOT_FOUND: &str = "False CapacityIsNotFound";
const EXPIRED: &str = "True CapacityReservationTimeExpired";
const CONSUMED: &str = "True CapacityBookingConsumed";

/// 31
#[test]
fn a_booking_ends_after_ten_minutes_or_as_long_as_the_request_says() {
    let mut world = World::of(&[1, 1]);
    world.ask("usual", 1);
    world.ask_with("short", 1, &[("bookingSeconds", "90")]);
    world.settle();
    assert_eq!((world.provisioned("usual"), world.provisioned("short")), (FOUND.to_owned(), FOUND.to_owned()));
    world.pass(Duration::from_secs(89));
    assert_eq!(world.says("short", Type::BookingExpired), "");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.says("short", Type::BookingExpired), EXPIRED);
    world.ask("next", 2);
    world.settle();
    assert_eq!(world.provisioned("next"), NOT_FOUND, "one device is still booked");
    world.pass(10 * MINUTE);
    assert_eq!(world.says("usual", Type::BookingExpired), EXPIRED);
    let message = world.message("usual", Type::BookingExpired);
    assert_eq!(message, "after 10 min 0 of 1 pods have a node; for the others nothing is booked now");
    assert_eq!(world.provisioned("usual"), FOUND, "what was said stays said");
    world.pass(4 * MINUTE);
    assert_eq!(world.provisioned("next"), FOUND);
    world.check_rest();
}

/// 31
#[test]
fn of_a_booking_that_is_half_used_only_the_rest_is_booked() {
    let mut world = World::of(&[6]);
    world.ask("r", 4);
    world.settle();
    world.bind("p0", "r", "n0", 0);
    world.bind("p1", "r", "n0", 1);
    assert_eq!(world.says("r", Type::BookingExpired), "");
    // Six devices, two taken, two more booked.
    world.ask("three", 3);
    world.ask("two", 2);
    world.settle();
    assert_eq!((world.provisioned("three"), world.provisioned("two")), (NOT_FOUND.to_owned(), FOUND.to_owned()));
    world.bind("p2", "r", "n0", 2);
    world.bind("p3", "r", "n0", 3);
    assert_eq!(world.says("r", Type::BookingExpired), CONSUMED);
    assert_eq!(world.message("r", Type::BookingExpired), "all 4 pods have their node");
    world.check_rest();
}

#[test]
fn both_keys_of_the_annotation_count_and_pods_that_wait_do_not() {
    let mut world = World::of(&[4]);
    world.ask("r", 2);
    world.settle();
    world.server.pod("waits", &json!({"autoscaling.x-k8s.io/consume-provisioning-request": "r"}), None);
    world.bind("new", "r", "n0", 0);
    assert_eq!(world.says("r", Type::BookingExpired), "");
    let old = json!({"cluster-autoscaler.kubernetes.io/consume-provisioning-request": "r"});
    world.server.pod("old", &old, Some(("n0", 1)));
    world.settle();
    assert_eq!(world.says("r", Type::BookingExpired), CONSUMED);
}

#[test]
fn a_pod_is_taken_out_of_the_set_that_looks_like_it() {
    let mut world = World::of(&[3]);
    world.server.template("wide", &ModelServer::pod_spec("two"));
    world.server.template("small", &ModelServer::pod_spec("one"));
    world.ask_for("r", CLASS, &[("wide", 1), ("small", 1)], &[]);
    world.settle();
    assert_eq!(world.provisioned("r"), FOUND);
    world.bind("p", "r", "n0", 0);
    // The wide one is still to come: nothing is left for others.
    world.ask("other", 1);
    world.settle();
    assert_eq!(world.provisioned("other"), NOT_FOUND);
}

#[test]
fn who_is_told_yes_is_booked_before_it_stands_there() {
    let mut world = World::of(&[1]);
    world.ask_together(&["a"]);
    // The yes for a is not written for a while; b comes meanwhile.
    world.fates.insert("a".to_owned(), crate::testkit::Fate::FailBefore);
    world.ask("b", 1);
    world.settle();
    assert_eq!((world.provisioned("a"), world.provisioned("b")), (String::new(), NOT_FOUND.to_owned()));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.provisioned("a"), FOUND);
}

#[test]
fn what_was_booked_before_a_restart_is_booked_after_it() {
    let mut world = World::of(&[1]);
    world.ask("a", 1);
    world.pass(5 * MINUTE);
    world.restart();
    world.ask("b", 1);
    world.settle();
    assert_eq!((world.provisioned("a"), world.provisioned("b")), (FOUND.to_owned(), NOT_FOUND.to_owned()));
    world.pass(4 * MINUTE);
    assert_eq!(world.says("a", Type::BookingExpired), "");
    world.pass(MINUTE);
    assert_eq!(world.says("a", Type::BookingExpired), EXPIRED);
}

/// 43
#[test]
fn a_clock_that_jumps_makes_nothing_older() {
    for seconds in [-86_400, -600, 600, 86_400 * 30] {
        let mut world = World::of(&[1]);
        world.ask("booked", 1);
        world.ask_with("open", 1, &[("ValidUntilSeconds", "3600")]);
        world.pass(5 * MINUTE);
        world.jump(seconds);
        world.settle();
        assert_eq!(world.says("booked", Type::BookingExpired), "", "{seconds} s");
        assert_eq!(world.says("open", Type::Failed), "", "{seconds} s");
        world.pass(5 * MINUTE);
        assert_eq!(world.says("booked", Type::BookingExpired), EXPIRED, "{seconds} s");
        world.pass(55 * MINUTE);
        assert!(
            world.provisioned("open") == FOUND || world.says("open", Type::Failed) == "True Expired",
            "{seconds} s"
        );
    }
}

/// 43
#[test]
fn who_begins_with_a_clock_that_was_set_back_takes_nothing_for_old() {
    let mut world = World::of(&[1]);
    world.keeping = Keeping::NotKept("nobody does".to_owned());
    world.ask("booked", 1);
    world.pass(5 * MINUTE);
    world.jump(-86_400);
    world.restart();
    world.settle();
    assert_eq!(world.says("booked", Type::BookingExpired), "");
    world.pass(9 * MINUTE);
    assert_eq!(world.says("booked", Type::BookingExpired), "");
    world.pass(MINUTE);
    assert_eq!(world.says("booked", Type::BookingExpired), EXPIRED);
}

/// 41, where nothing is kept beside the request: what is booked goes with it.
#[test]
fn what_is_booked_is_free_for_others_when_the_request_is_gone() {
    let mut world = World::of(&[1]);
    world.keeping = Keeping::NotKept("nobody does".to_owned());
    world.ask("a", 1);
    world.settle();
    world.delete("a");
    world.ask("b", 1);
    world.settle();
    assert_eq!(world.provisioned("b"), FOUND);
}

#[test]
fn a_template_that_goes_takes_the_booking_with_it() {
    let mut world = World::of(&[1]);
    world.ask("a", 1);
    world.pass(2 * MINUTE);
    world.server.objects.templates.clear();
    world.settle();
    assert_eq!(world.says("a", Type::Failed), "True FailedToBookCapacity");
    assert!(world.message("a", Type::Failed).contains("there is no PodTemplate default/a"));
}
