//! Shared claims against a scheduler, a controller of claims, users, and deaths of the controller. docs/reservations.md says which test is
//! which scenario.

#![allow(clippy::needless_pass_by_value, reason = "values are made for the call")]

mod world;

use std::time::Duration;

use serde_json::json;

use self::world::SharedWorld;
use super::context::{SharedStep, SharedWrite};
use crate::{
    claim_write::ClaimWrite,
    testkit::{Dice, Fate, RandomLife, live, seeds},
};

/// A job's pods come one after the other, and then nobody needs it any more.
fn life(world: &mut SharedWorld) {
    world.reserve(json!({}));
    world.settle();
    assert_eq!(world.phase(), "Available");
    for pod in ["a", "b"] {
        world.come(pod, "owner");
        world.settle();
        assert!(world.is_bound(pod), "{pod} has no node");
        world.go(pod);
        world.settle();
        assert_eq!(world.phase(), "Available");
    }
    world.delete_reservation();
    world.settle();
    world.check_nothing_is_left();
}

#[test]
fn a_claim_keeps_its_devices_between_one_owner_and_the_next() {
    let mut world = SharedWorld::new(&["n1", "n2"]);
    world.reserve(json!({}));
    world.settle();
    let kept = world.allocation();
    assert!(kept.is_some());
    assert_eq!((world.status().held, world.status().claims[0].resource_claim_name.as_str()), (1, "r-gpu"));
    assert!(!world.has_pod("r-reserve"), "nobody asks any more");
    for pod in ["a", "b"] {
        world.come(pod, "owner");
        world.settle();
        assert_eq!(world.allocation(), kept);
        assert_eq!(world.status().current_owners[0].name, pod);
        assert_eq!(world.status().held, 0);
        world.go(pod);
        world.settle();
        assert_eq!((world.allocation(), world.status().held), (kept.clone(), 1));
    }
    assert!(world.status().current_owners.is_empty());
}

#[test]
fn it_takes_five_writes_of_the_reservation_at_most_and_none_at_rest() {
    let mut world = SharedWorld::new(&["n1"]);
    world.reserve(json!({}));
    world.settle();
    let of_reservation = world.writes.iter().filter(|it| matches!(it, SharedWrite::Reservation(_))).count();
    assert!(of_reservation <= 5, "{of_reservation} writes: {:#?}", world.writes);
    let before = world.writes.len();
    world.settle();
    assert_eq!(world.writes.len(), before, "a write at rest");
    assert!(matches!(world.look(), SharedStep::Rest(Some(_))), "it expires some day");
}

#[test]
fn a_pod_that_is_no_owner_and_uses_the_claim_is_named() {
    let mut world = SharedWorld::new(&["n1"]);
    world.reserve(json!({}));
    world.settle();
    world.come("thief", "stranger");
    world.settle();
    let ready = world.ready();
    assert_eq!((world.phase(), ready.reason.as_str()), ("Available", "Available"));
    assert!(ready.message.ends_with("used by no owner: pod ml/thief"), "{}", ready.message);
    assert_eq!(world.status().held, 1);
}

#[test]
fn without_room_it_says_what_the_scheduler_says_and_goes_on_when_there_is_some() {
    let mut world = SharedWorld::new(&["n1"]);
    world.take("n1");
    world.reserve(json!({}));
    world.settle();
    assert_eq!((world.phase(), world.ready().reason.as_str()), ("Pending", "Unschedulable"));
    assert_eq!(world.ready().message, "0/1 nodes are available: cannot allocate all claims");
    world.free("n1");
    world.settle();
    assert_eq!(world.phase(), "Available");
}

#[test]
fn what_expires_is_released_and_waits_for_whoever_still_uses_it() {
    let mut world = SharedWorld::new(&["n1"]);
    world.reserve(json!({"ttl": "1h"}));
    world.settle();
    world.come("a", "owner");
    world.settle();
    world.pass(Duration::from_secs(3599));
    assert_eq!(world.phase(), "Available");
    world.pass(Duration::from_secs(2));
    assert_eq!((world.phase(), world.ready().reason.as_str()), ("Failed", "Expired"));
    let settled = world.condition("Settled");
    assert!(settled.message.contains("used by pod ml/a"), "{}", settled.message);
    assert!(world.allocation().is_some(), "nothing is taken from who uses it");
    // Nobody new comes to it.
    world.come("late", "owner");
    world.settle();
    assert!(!world.is_bound("late"));
    world.go("a");
    world.settle();
    assert_eq!((world.claim_count(), world.condition("Settled").status.as_str()), (0, "True"));
    world.pass(Duration::from_secs(24 * 3600 + 1));
    assert!(world.reservation().is_none(), "over for a day");
}

#[test]
fn one_that_never_got_devices_expires_and_leaves_neither_claim_nor_pod() {
    let mut world = SharedWorld::new(&["n1"]);
    world.take("n1");
    world.reserve(json!({"ttl": "1h"}));
    world.settle();
    assert_eq!((world.phase(), world.claim_count(), world.has_pod("r-reserve")), ("Pending", 1, true));
    world.pass(Duration::from_secs(3599));
    assert_eq!(world.phase(), "Pending");
    world.pass(Duration::from_secs(2));
    assert_eq!((world.phase(), world.ready().reason.as_str()), ("Failed", "Expired"));
    assert_eq!((world.claim_count(), world.has_pod("r-reserve")), (0, false));
    world.free("n1");
    world.settle();
    assert_eq!((world.phase(), world.claim_count()), ("Failed", 0));
}

#[test]
fn devices_are_cleared_before_their_claim_is_deleted() {
    let mut world = SharedWorld::new(&["n1"]);
    world.reserve(json!({}));
    world.settle();
    world.writes.clear();
    world.delete_reservation();
    world.settle();
    let words: Vec<&str> = world.writes.iter().map(SharedWrite::what).collect();
    assert_eq!(words, ["claim_status", "claim_finalizers", "claim_deletion", "reservation"]);
    let SharedWrite::Claim(ClaimWrite::Status(_, status)) = &world.writes[0] else { unreachable!("see above") };
    assert!(status.allocation.is_none() && status.reserved_for.is_empty());
}

#[test]
fn before_1_36_and_with_a_spec_that_cannot_be_understood_nothing_is_tried() {
    let mut world = SharedWorld::new(&["n1"]);
    world.is_served = false;
    world.reserve(json!({}));
    world.settle();
    assert_eq!(world.ready().reason, "Invalid");
    assert!(world.ready().message.contains("Kubernetes 1.36"), "{}", world.ready().message);
    assert_eq!((world.claim_count(), world.has_pod("r-reserve")), (0, false));
    let mut world = SharedWorld::new(&["n1"]);
    world.reserve(json!({"allocateOnce": true}));
    world.settle();
    assert!(world.ready().message.contains("spec.allocateOnce"), "{}", world.ready().message);
    assert_eq!(world.claim_count(), 0);
}

#[test]
fn a_claim_or_pod_of_somebody_else_is_left_alone_and_named() {
    let mut world = SharedWorld::new(&["n1"]);
    world.foreign_claim("r-gpu");
    world.reserve(json!({}));
    world.settle();
    assert!(world.ready().message.contains("ResourceClaim ml/r-gpu is somebody else's"), "{}", world.ready().message);
    world.delete_reservation();
    world.settle();
    assert_eq!(world.claim_count(), 1);
    let mut world = SharedWorld::new(&["n1"]);
    world.come("r-reserve", "owner");
    world.reserve(json!({}));
    world.settle();
    world.delete_reservation();
    world.settle();
    assert!(world.has_pod("r-reserve"));
}

#[test]
fn claims_of_one_pod_are_on_one_node_and_start_over_together() {
    let mut world = SharedWorld::new(&["n1", "n1", "n2", "n2"]);
    world.reserve_two();
    world.settle();
    assert_eq!((world.phase(), world.status().held), ("Available", 2));
    assert!(world.status().node_name.is_some());
    // Somebody who may do so takes one of them away.
    world.rob("r-gpu");
    world.settle();
    assert_eq!((world.phase(), world.status().held), ("Available", 2));
    assert!(world.status().node_name.is_some());
}

#[test]
fn a_reservation_whose_node_is_gone_for_long_fails() {
    let mut world = SharedWorld::new(&["n1"]);
    world.reserve(json!({}));
    world.settle();
    world.lost_node = Some("n1".to_owned());
    world.settle();
    assert_eq!((world.phase(), world.ready().reason.as_str()), ("Failed", "NodeLost"));
    assert_eq!(world.claim_count(), 0);
}

#[test]
fn what_the_server_refuses_is_told_and_tried_again() {
    let mut world = SharedWorld::new(&["n1"]);
    world.refuses_pods = true;
    world.reserve(json!({}));
    world.settle();
    assert!(world.ready().message.contains("pods is forbidden"), "{}", world.ready().message);
    world.refuses_pods = false;
    world.settle();
    assert_eq!(world.phase(), "Available");
}

#[test]
fn a_claim_that_comes_too_late_has_nobody_and_goes() {
    let mut world = SharedWorld::new(&["n1"]);
    world.reserve(json!({}));
    // One who led creates it, and is heard of again when all is over.
    while !matches!(world.look(), SharedStep::Write(SharedWrite::Claim(_))) {
        world.control();
    }
    let SharedStep::Write(late) = world.look() else { unreachable!("see above") };
    world.delete_reservation();
    world.settle();
    assert!(world.reservation().is_none());
    world.apply(&late);
    assert_eq!(world.claim_count(), 1);
    world.settle();
    world.check_nothing_is_left();
}

#[test]
fn two_deaths_at_any_two_writes_do_no_harm() {
    let mut world = SharedWorld::new(&["n1", "n2"]);
    life(&mut world);
    let writes = world.writes.len();
    assert!(writes > 10, "{writes}");
    for first in 0..writes {
        for second in first..=writes {
            for fates in Fate::TWO_DEATHS {
                let mut world = SharedWorld::new(&["n1", "n2"]);
                world.fates.extend([(first, fates[0]), (second, fates[1])]);
                life(&mut world);
            }
        }
    }
}

/// Two controllers, a scheduler, a controller of claims and users, in any order.
struct Chaos {
    world: SharedWorld,
    dice: Dice,
    /// Writes that another controller has decided on, and sends when it gets to it.
    late: Vec<SharedWrite>,
    names: usize,
}

impl RandomLife for Chaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn step(&mut self) {
        let Self { world, dice, late, names } = self;
        match dice.roll(24) {
            0..=5 => world.control(),
            6..=9 => world.schedule(dice.one_in(2)),
            10..=12 => world.collect(),
            13 => world.run_kubelet(),
            14 => {
                if let SharedStep::Write(write) = world.look() {
                    late.push(write);
                }
            }
            15 if !late.is_empty() => {
                let write = dice.take(late);
                write.iter().for_each(|write| drop(world.apply(write)));
            }
            16 => {
                *names += 1;
                world.come(&format!("p{names}"), dice.pick(&["owner", "stranger"]));
            }
            17 | 18 => world.go_any(dice.roll(8)),
            19 if dice.one_in(20) => world.delete_reservation(),
            20 if dice.one_in(20) => world.pass_quietly(Duration::from_secs(3600)),
            21 => world.take(dice.pick(&["n1", "n2"])),
            22 => world.free(dice.pick(&["n1", "n2"])),
            23 => world.go("r-reserve"),
            _ => {}
        }
    }

    fn check(&mut self) {
        self.world.check();
    }
}

#[test]
fn in_any_order_and_with_two_controllers_nothing_is_given_twice_or_left_behind() {
    for seed in seeds(0..400) {
        let mut world = SharedWorld::new(&["n1", "n1", "n2"]);
        world.reserve(json!({"ttl": "2h"}));
        let mut chaos = Chaos { world, dice: Dice::new(seed), late: Vec::new(), names: 0 };
        live(&mut chaos, 400);
        let Chaos { mut world, dice: _dice, late, .. } = chaos;
        late.iter().for_each(|write| drop(world.apply(write)));
        world.delete_reservation();
        world.settle();
        world.everybody_goes();
        world.settle();
        world.check_nothing_is_left();
    }
}
