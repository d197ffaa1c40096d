//! Requests for which what lacks is attached to nodes: all of it and booked, or nothing. See docs/provisioning.md.

use std::time::Duration;

use hostler_api::provisioning::{PROVISIONING_FINALIZER, ProvisioningConditionType as Type};

use super::{
    fabric::Fabric,
    world::{ModelServer, World, key},
};
use crate::testkit::Fate;

const ATOMIC: &str = "atomic-scale-up.hostler.dev";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const FOUND: &str = "True CapacityIsFound";
const NOT_FOUND: &str = "False CapacityIsNotFound";
const ATTACHING: &str = "False AttachingCapacity";

impl World {
    fn ask_atomic(&mut self, name: &str, pods: i64, parameters: &[(&str, &str)]) {
        self.server.template(name, &ModelServer::pod_spec("one"));
        self.ask_for(name, ATOMIC, &[(name, pods)], parameters);
    }

    fn fabric(&self) -> &Fabric {
        self.server.fabric.as_ref().unwrap()
    }

    fn is_held(&self, name: &str) -> bool {
        self.server.request(name).finalizers.contains(&PROVISIONING_FINALIZER.to_owned())
    }

    fn attached(&self) -> Vec<String> {
        self.fabric().attached()
    }
}

/// One node with one device, and four that can be attached: three pods lack two.
fn world() -> World {
    World::with_fabric(&[1], 4)
}

#[test]
fn what_lacks_is_attached_and_then_booked() {
    let mut world = world();
    world.ask_atomic("r", 3, &[]);
    world.settle();
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 3));
    assert_eq!(world.fabric().done(), ["+fab-0", "+fab-1"], "no more than lacks");
    assert!(!world.is_held("r"), "who deletes it ends its booking");
    let told: Vec<&str> = world.told.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(told, ["AttachingCapacity", "BookingCapacity", "CapacityIsFound"]);
    world.check_rest();
}

#[test]
fn what_fits_is_booked_and_nothing_is_attached() {
    let mut world = world();
    world.ask_atomic("r", 1, &[]);
    world.settle();
    assert_eq!((world.provisioned("r"), world.fabric().done()), (FOUND.to_owned(), Vec::new()));
}

#[test]
fn nothing_is_attached_for_who_only_asks_what_is_there() {
    let mut world = world();
    world.ask("r", 3);
    world.settle();
    assert_eq!((world.provisioned("r"), world.fabric().done()), (NOT_FOUND.to_owned(), Vec::new()));
}

#[test]
fn nothing_is_attached_where_all_of_it_would_not_be_enough() {
    let mut world = world();
    world.ask_atomic("r", 6, &[]);
    world.settle();
    assert_eq!((world.provisioned("r"), world.fabric().done()), (NOT_FOUND.to_owned(), Vec::new()));
    let message = world.message("r", Type::Provisioned);
    assert!(message.contains("4 devices that could be attached to nodes are not enough"), "{message}");
    world.check_rest();
}

/// 40
#[test]
fn when_a_device_cannot_be_attached_all_are_detached_in_turn_and_it_is_tried_again() {
    let mut world = world();
    world.fabric().breaks("fab-2");
    world.ask_atomic("r", 4, &[]);
    world.settle();
    assert_eq!(world.provisioned("r"), NOT_FOUND);
    assert_eq!(world.fabric().done(), ["+fab-0", "+fab-1", "-fab-1", "-fab-0"]);
    let message = world.message("r", Type::Provisioned);
    assert!(message.starts_with("fab-2 to node n0 could not be attached: the link does not come up"), "{message}");
    assert!(!world.is_held("r"));
    world.check_rest();
    world.pass(59 * SECOND);
    assert_eq!(world.fabric().done(), Vec::<String>::new(), "it waits");
    world.pass(SECOND);
    assert_eq!(world.fabric().done(), ["+fab-0", "+fab-1", "-fab-1", "-fab-0"]);
    // What is there for it now needs one device less.
    world.server.node("n1", 1);
    world.pass(2 * MINUTE);
    assert_eq!((world.provisioned("r"), world.kept(), world.attached().len()), (FOUND.to_owned(), 4, 2));
}

#[test]
fn who_wants_no_retry_fails_when_all_is_detached() {
    let mut world = world();
    world.fabric().breaks("fab-1");
    world.ask_atomic("r", 3, &[("noRetry", "true")]);
    world.settle();
    assert_eq!(world.says("r", Type::Failed), "True CapacityIsNotFound");
    assert_eq!(world.fabric().done(), ["+fab-0", "-fab-0"]);
    assert!(!world.is_held("r"));
    world.check_rest();
}

/// 39
#[test]
fn a_request_that_goes_while_devices_are_attached_leaves_none() {
    let mut world = world();
    world.fabric().hides();
    world.ask_atomic("r", 3, &[]);
    world.settle();
    assert_eq!((world.provisioned("r"), world.is_held("r")), (ATTACHING.to_owned(), true));
    assert!(world.message("r", Type::Provisioned).starts_with("2 of 2 devices are attached"));
    world.fabric().done();
    world.delete("r");
    assert_eq!(world.fabric().done(), ["-fab-1", "-fab-0"]);
    assert!(world.server.objects.requests.is_empty(), "it is held no longer than that takes");
    world.check_rest();
}

/// 39, later: its devices are being closed to others.
#[test]
fn a_request_that_goes_before_it_was_promised_anything_leaves_nothing_either() {
    let mut world = world();
    world.is_kept = false;
    world.ask_atomic("r", 3, &[]);
    world.settle();
    assert_eq!((world.provisioned("r"), world.attached().len()), ("False BookingCapacity".to_owned(), 2));
    world.delete("r");
    world.is_kept = true;
    world.pass(MINUTE);
    assert_eq!((world.attached().len(), world.kept(), world.server.reservations.len()), (0, 0, 0));
    assert!(world.server.objects.requests.is_empty());
}

#[test]
fn what_is_attached_and_is_not_seen_within_two_minutes_is_detached() {
    let mut world = world();
    world.fabric().hides();
    world.ask_atomic("r", 3, &[]);
    world.pass(119 * SECOND);
    assert_eq!((world.provisioned("r"), world.attached().len()), (ATTACHING.to_owned(), 2));
    world.pass(3 * SECOND);
    assert_eq!((world.provisioned("r"), world.attached().len()), (NOT_FOUND.to_owned(), 0));
    let message = world.message("r", Type::Provisioned);
    assert!(message.starts_with("what was planned is attached, but there is not room for all pods"), "{message}");
}

#[test]
fn devices_that_cannot_be_kept_are_detached() {
    let mut world = world();
    world.is_kept = false;
    world.ask_atomic("r", 3, &[]);
    world.pass(2 * MINUTE);
    world.is_kept = true;
    world.settle();
    assert_eq!((world.provisioned("r"), world.attached().len(), world.kept()), (NOT_FOUND.to_owned(), 0, 0));
    assert!(!world.server.request("r").status.is(Type::CapacityAvailable));
    world.pass(MINUTE);
    assert_eq!((world.provisioned("r"), world.attached().len()), (FOUND.to_owned(), 2));
}

#[test]
fn a_call_whose_answer_is_lost_was_carried_out_or_all_is_detached() {
    for call in 0..2 {
        for (fate, told, attached) in [(Fate::FailBefore, NOT_FOUND, 0), (Fate::FailAfter, FOUND, 2)] {
            let mut world = world();
            world.call_fates.plan(call, fate);
            world.ask_atomic("r", 3, &[]);
            world.settle();
            assert_eq!((&*world.provisioned("r"), world.attached().len()), (told, attached), "{call} {fate:?}");
            world.pass(MINUTE);
            assert_eq!((&*world.provisioned("r"), world.attached().len()), (FOUND, 2), "{call} {fate:?}");
        }
    }
}

#[test]
fn while_nobody_says_what_is_attached_nothing_is() {
    let mut world = world();
    world.fabric().is_away(true);
    world.ask_atomic("r", 3, &[]);
    world.ask_atomic("small", 1, &[]);
    world.pass(MINUTE);
    assert_eq!((world.provisioned("small"), world.provisioned("r")), (FOUND.to_owned(), NOT_FOUND.to_owned()));
    let message = world.message("r", Type::Provisioned);
    assert!(message.contains("what is attached to nodes cannot be learnt just now"), "{message}");
    world.fabric().is_away(false);
    world.pass(4 * MINUTE);
    assert_eq!((world.provisioned("r"), world.attached().len()), (FOUND.to_owned(), 3));
}

#[test]
fn what_is_attached_and_unused_is_detached_ten_minutes_after_the_booking() {
    let mut world = world();
    world.ask_atomic("r", 3, &[]);
    world.settle();
    world.bind("p", "r", "fab-0", 0);
    world.pass(10 * MINUTE);
    assert_eq!(world.says("r", Type::BookingExpired), "True CapacityReservationTimeExpired");
    world.pass(10 * MINUTE - SECOND);
    assert_eq!(world.attached().len(), 2);
    world.pass(MINUTE);
    assert_eq!(world.attached(), ["fab-0"], "a pod has it");
    world.check_rest();
}

#[test]
fn what_is_attached_for_one_is_promised_to_nobody_else() {
    let mut world = world();
    world.fabric().hides();
    world.ask_atomic("a", 3, &[]);
    world.settle();
    world.ask_atomic("b", 4, &[]);
    world.ask("c", 1);
    world.pass(5 * SECOND);
    assert_eq!((world.provisioned("b"), world.provisioned("c")), (NOT_FOUND.to_owned(), NOT_FOUND.to_owned()));
    assert_eq!(world.fabric().done(), ["+fab-0", "+fab-1"]);
}

#[test]
fn a_plan_stands_in_the_request_before_its_first_step() {
    let mut world = world();
    world.deaths.plan(4, Fate::DieBefore);
    world.most_checks = 1;
    world.ask_atomic("r", 3, &[]);
    world.settle();
    // It died with its first call, before it was carried out; accepted, marked, held and planned for stood there.
    assert_eq!(world.deaths.left(), 0);
    assert!(world.details("r")["attach"].contains(r#"{"node":"n0","device":"fab-1"}"#));
    assert!(world.is_held("r"));
}

/// How a request ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Story {
    Booked,
    Broken,
    Deleted,
}

/// A controller that dies with one write or call, and the next one with another.
fn dies(story: Story, deaths: [(usize, Fate); 2]) {
    let mut world = world();
    world.deaths.extend(deaths);
    match story {
        Story::Booked => {}
        Story::Broken => world.fabric().breaks("fab-1"),
        Story::Deleted => world.fabric().hides(),
    }
    world.ask_atomic("r", 3, &[]);
    world.pass(30 * SECOND);
    if story == Story::Deleted {
        world.delete("r");
        world.pass(MINUTE);
        assert!(!world.server.objects.requests.contains_key(&key("r")), "{deaths:?}: it is held for ever");
    }
    world.pass(MINUTE);
    let attached = world.attached().len();
    match story {
        Story::Booked => assert_eq!((&*world.provisioned("r"), world.kept(), attached), (FOUND, 3, 2), "{deaths:?}"),
        Story::Broken => assert_eq!((&*world.provisioned("r"), attached), (NOT_FOUND, 0), "{deaths:?}"),
        Story::Deleted => assert_eq!((world.kept(), attached), (0, 0), "{deaths:?}"),
    }
    world.check_rest();
    if story == Story::Booked {
        world.pass(25 * MINUTE);
        assert_eq!((world.kept(), world.attached().len()), (0, 0), "{deaths:?}");
    }
    assert!(world.server.objects.requests.values().all(|it| it.finalizers.is_empty()), "{deaths:?}");
    world.check_rest();
}

/// 40
#[test]
fn a_death_at_every_write_and_call_and_again_leaves_all_booked_or_nothing_attached() {
    for story in [Story::Booked, Story::Broken, Story::Deleted] {
        for first in 0..14 {
            for second in [0, 1, 3, 6] {
                for fates in Fate::TWO_DEATHS {
                    dies(story, [(first, fates[0]), (first + 1 + second, fates[1])]);
                }
            }
        }
    }
}
