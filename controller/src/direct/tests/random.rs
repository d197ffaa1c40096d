//! Everything in any order: two pods, a scheduler that finds nodes full, strangers, deaths.

use std::collections::BTreeSet;

use super::world::{DirectWorld, key};
use crate::testkit::{Dice, Fate, RandomLife, expect_enough, live, seeds};

/// What came about, over all orders.
#[derive(Debug, Default)]
struct Seen {
    planned_again: usize,
    given_back: usize,
    bound: usize,
}

struct Chaos(DirectWorld, Dice);

impl RandomLife for Chaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.1
    }

    fn check(&mut self) {
        self.0.check();
    }

    fn step(&mut self) {
        let Self(world, dice) = self;
        match dice.roll(24) {
            0..=8 => drop(world.control()),
            9..=13 => world.kept.pass([1, 2, 6][dice.roll(3)]),
            14..=18 => world.schedule(),
            19 => drop(world.full.insert(["a", "b"][dice.roll(2)])),
            20 => world.full.clear(),
            21 => {
                let fate = dice.pick(&Fate::DEATHS);
                world.fates.plan(0, fate);
            }
            22 => world.kept.restart(),
            _ => {
                let devices = world.given_to_gated();
                if let Some(device) = devices.first().filter(|_| !world.has_stranger) {
                    world.has_stranger = true;
                    world.kept.give_twice(&key("stranger"), device);
                }
            }
        }
    }
}

#[test]
fn in_any_order_nothing_is_given_twice_and_nothing_is_left_behind() {
    let mut seen = Seen::default();
    let all: Vec<u64> = seeds(0..16).collect();
    for &seed in &all {
        let mut world = DirectWorld::without_pods(&[3, 3]);
        ["p", "q"].iter().for_each(|pod| world.pod(pod, &["one", "two"]));
        let mut chaos = Chaos(world, Dice::new(seed));
        live(&mut chaos, 160);
        let Chaos(mut world, _dice) = chaos;
        seen.planned_again += usize::from(world.writes.iter().filter(|what| **what == "reservation").count() > 2);
        seen.given_back += usize::from(world.has_stranger);
        world.full.clear();
        world.fates.clear();
        world.end_stranger();
        world.settle();
        seen.bound += usize::from(world.is_bound("p") && world.is_bound("q"));
        world.check_nothing_is_kept();
    }
    assert_eq!(seen.bound, all.len());
    expect_enough(seen.planned_again > 2 && seen.given_back > 2, &seen);
}

#[test]
fn what_is_replaced_for_one_claim_is_planned_anew_for_all_of_them() {
    for devices in [&[4][..], &[2, 2]] {
        let mut world = DirectWorld::without_pods(devices);
        world.pod("p", &["one", "two"]);
        world.refused = Some("gates");
        world.until("both have their devices", |world| world.given("p").len() == 2);
        let lost = world.given_to_gated()[0].clone();
        world.kept.give_twice(&key("stranger"), &lost);
        for _ in 0..40 {
            world.round();
            let given = world.given_to_gated();
            let nodes: BTreeSet<&str> = given.iter().map(|(node, _)| &**node).collect();
            assert!(nodes.len() <= 1, "torn: {given:?}");
        }
        assert!(!world.given_to_gated().contains(&lost) && world.kept.closed().contains(&lost));
        world.refused = None;
        world.end_stranger();
        world.settle();
        world.check_nothing_is_kept();
    }
}

#[test]
fn deaths_at_any_write_and_at_the_next_do_no_harm_while_a_stranger_has_a_device() {
    for first in 0..9 {
        for fates in Fate::TWO_DEATHS {
            let mut world = DirectWorld::new(&[2]);
            world.fates.extend([(first, fates[0]), (first + 1, fates[1])]);
            world.until("it has its device", |world| !world.given_to_gated().is_empty());
            let lost = world.given_to_gated();
            world.has_stranger = true;
            world.kept.give_twice(&key("stranger"), &lost[0]);
            // Before the gate goes: later nobody can take it back.
            world.kept.pass(1);
            world.until("it is bound", |world| world.is_bound("p"));
            assert_ne!(world.given("p"), ["a/gpu-0"], "{first} {fates:?}");
            (0..20).for_each(|_| world.round());
            assert_eq!(world.kept.closed(), lost, "{first} {fates:?}: closed until nobody has it");
            world.end_stranger();
            world.settle();
            world.check_nothing_is_kept();
        }
    }
}
