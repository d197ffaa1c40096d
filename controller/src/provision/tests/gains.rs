//! What gets free is noticed at once by those who were told no, however long their pause has grown, and no flood of it has requests
//! planned all the time.

use std::time::Duration;

use hostler_api::provisioning::ProvisioningConditionType as Type;
use serde_json::json;

use super::world::{World, key};
use crate::provision::context::Keeping;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const FOUND: &str = "True CapacityIsFound";
const NOT_FOUND: &str = "False CapacityIsNotFound";

/// The pod ends that has a device.
fn end(world: &mut World, pod: &str) {
    world.server.given.retain(|_, of| of != pod);
    world.server.facts.remove_claim(&key(&format!("{pod}-gpu")));
    world.server.facts.remove_pod(&key(pod));
}

#[test]
fn a_device_that_gets_free_is_noticed_at_once_however_long_the_pause_has_grown() {
    let mut world = World::of(&[1]);
    world.server.pod("other", &json!({}), Some(("n0", 0)));
    world.ask("r", 1);
    world.pass(40 * MINUTE);
    assert_eq!(world.provisioned("r"), NOT_FOUND);
    let looks = world.batches.len();
    assert!((5..=9).contains(&looks), "it is looked at {looks} times while nothing gets free");
    end(&mut world, "other");
    world.pass(SECOND);
    assert_eq!((world.provisioned("r"), world.kept()), (FOUND.to_owned(), 1));
    world.check_rest();
}

#[test]
fn what_was_booked_for_another_request_is_noticed_at_once_when_that_is_over() {
    for keeping in [Keeping::Kept, Keeping::NotKept("nobody does".to_owned())] {
        let mut world = World::of(&[1]);
        world.keeping = keeping;
        world.ask_with("a", 1, &[("bookingSeconds", "700")]);
        world.settle();
        world.ask("b", 1);
        world.pass(700 * SECOND);
        assert!(world.says("a", Type::BookingExpired).starts_with("True"));
        world.pass(SECOND);
        assert_eq!(world.provisioned("b"), FOUND);
        world.check_rest();
    }
}

#[test]
fn a_flood_of_gains_does_not_have_requests_planned_all_the_time() {
    // Questions that take no time may come once a second; one that takes two seconds may come again after eight.
    for (takes, most) in [(Duration::ZERO, 70), (2 * SECOND, 18)] {
        let mut world = World::of(&[1]);
        world.ask("r", 2);
        world.pass(30 * SECOND);
        let (looks, began) = (world.batches.len(), world.now().steady);
        world.check_takes = takes;
        for at in 0.. {
            world.server.claim_template("noise", 1 + at % 2);
            world.pass(SECOND / 20);
            if world.now().steady >= began + MINUTE {
                break;
            }
        }
        let looks = world.batches.len() - looks;
        assert!((4..=most).contains(&looks), "it is looked at {looks} times in a minute");
    }
}

/// Devices that are closed for a request, and opened again because others of it cannot be, are free by that alone.
#[test]
fn who_could_not_be_kept_is_not_looked_at_at_once_because_its_own_devices_are_open() {
    let mut world = World::of(&[1]);
    world.is_kept = false;
    world.ask("r", 1);
    world.pass(2 * MINUTE);
    assert_eq!(world.provisioned("r"), NOT_FOUND);
    world.is_kept = true;
    world.pass(5 * SECOND);
    assert_eq!((world.provisioned("r"), world.server.reservations.len()), (NOT_FOUND.to_owned(), 0));
    world.pass(6 * SECOND);
    assert_eq!(world.provisioned("r"), FOUND, "and not as late as if nothing had got free");
    world.check_rest();
}
