//! Everything in any order: pods, machines that end, a manager that fails, daemons that are late, deaths of controllers,
//! calls that are carried out long after their callers are gone.

use hostler_api::fabric::AttachmentPhase;
use hostler_fabric::fake::{FabricFault, FakeFabric};

use super::world::{FabricWorld, SECOND, WorldSeen, device_name};
use crate::testkit::{Dice, Fate, RandomLife, expect_enough, live, seeds};

pub(super) const NODES: u32 = 2;
pub(super) const DEVICES: u32 = 3;
/// Half a day and more: the pause after a few failures is over, and the failures are forgiven.
const LONG: u32 = 60 * 60 * 30;

struct FabricChaos {
    world: FabricWorld,
    dice: Dice,
    /// True if persons make connections of their own, and objects are lost.
    has_hands: bool,
}

impl RandomLife for FabricChaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn check(&mut self) {
        self.world.check();
    }

    fn step(&mut self) {
        let Self { world, dice, has_hands } = self;
        step(world, dice, *has_hands);
    }
}

/// One of all the things that happen.
pub(super) fn step(world: &mut FabricWorld, dice: &mut Dice, has_hands: bool) {
    let device = u32::try_from(dice.roll(DEVICES as usize)).unwrap();
    let claims = world.claims();
    let claim = claims.get(dice.roll(claims.len().max(1))).cloned().unwrap_or_default();
    match dice.roll(if has_hands { 48 } else { 40 }) {
        0..=12 => drop(world.control(device, Some(dice))),
        13..=17 => {
            let (refuses, erases) = (dice.one_in(4), !dice.one_in(4));
            world.report(device, refuses, erases);
        }
        18..=22 => world.schedule(&claim, dice),
        23 | 24 => world.start(&claim),
        25 | 26 => world.publish(device),
        27 => world.poll(),
        28 | 29 if claims.len() < 4 => world.pod(),
        28 | 29 => {}
        30 => {
            let by_force = dice.one_in(3);
            world.delete_pod(&claim, by_force);
        }
        31 => world.end_orphans(),
        32 | 33 => {
            let time = SECOND * [1, 5, 20, 60, 200][dice.roll(5)];
            world.pass(time);
        }
        34 => world.deliver(dice),
        35 => {
            let fate = dice.pick(&Fate::ALL);
            world.fates.plan(0, fate);
        }
        36 if dice.one_in(3) => world.switch(u32::try_from(dice.roll(NODES as usize)).unwrap()),
        37 => world.fabric.inject(match dice.roll(6) {
            0 => FabricFault::Unavailable(2),
            1 | 2 => FabricFault::AnswerLost(1),
            3 => FabricFault::Pending(2),
            4 if dice.one_in(4) => FabricFault::NeverEnds,
            4 => FabricFault::FlappingLink(FakeFabric::device(device)),
            _ => FabricFault::WrongDevice,
        }),
        38 => world.fabric.heal(),
        39 if dice.one_in(4) => world.delete_attachment(device),
        40 | 41 => world.connect_by_hand(device, u32::try_from(dice.roll(NODES as usize)).unwrap()),
        42 => world.disconnect_by_hand(device),
        43 => world.lose_attachment(device),
        44 | 45 => world.adopt(device),
        46 => world.poll(),
        // The cluster is restored from a backup, and an operator sees to it.
        47 => {
            (0..DEVICES).for_each(|device| world.lose_attachment(device));
            world.poll();
            (0..DEVICES).for_each(|device| world.adopt(device));
        }
        _ => {}
    }
}

/// Everybody does what is to be done, for so many rounds.
pub(super) fn rounds(world: &mut FabricWorld, dice: &mut Dice, rounds: usize, pause: u32) {
    for _ in 0..rounds {
        world.poll();
        for device in 0..DEVICES {
            world.adopt(device);
            while world.control(device, None) {}
            world.publish(device);
            world.report(device, false, true);
            while world.control(device, None) {}
        }
        for claim in world.claims() {
            world.schedule(&claim, dice);
            world.start(&claim);
        }
        world.end_orphans();
        world.pass(SECOND * pause);
        world.check();
    }
}

/// All pods go, and nothing is left of any device.
pub(super) fn rest(world: &mut FabricWorld, dice: &mut Dice) {
    world.claims().iter().for_each(|claim| world.delete_pod(claim, false));
    rounds(world, dice, 8, 5);
    rounds(world, dice, 4, 620);
    rounds(world, dice, 4, LONG);
    for device in 0..DEVICES {
        // One that holds data waits for its next node.
        let is_free = |phase| phase == AttachmentPhase::Detached;
        assert!(world.phase(device).is_none_or(is_free), "{} is stuck: {}", device_name(device), world.told());
        assert!(!world.tainted.contains(&device), "{} is not offered: {}", device_name(device), world.told());
    }
    assert!(world.fabric.connections().is_empty(), "a device is lost: {}", world.told());
}

fn lives(seed: u64, seen: WorldSeen, has_hands: bool) -> WorldSeen {
    let (world, dice) = (FabricWorld::new(NODES, DEVICES), Dice::new(seed));
    let mut chaos = FabricChaos { world, dice, has_hands };
    chaos.world.seen = seen;
    live(&mut chaos, 160);
    let FabricChaos { mut world, mut dice, .. } = chaos;
    world.fates.clear();
    world.finish_work(&mut dice);
    for node in 0..NODES {
        if !world.machines[node as usize].is_on {
            world.switch(node);
        }
    }
    rest(&mut world, &mut dice);
    // Each device can be had again, and one that held data was erased before.
    (0..DEVICES).for_each(|_| world.pod());
    rounds(&mut world, &mut dice, 6, 5);
    let running = world.machines.iter().map(|it| it.containers.len()).sum::<usize>();
    assert_eq!(running, DEVICES as usize, "a device cannot be had: {}", world.told());
    rest(&mut world, &mut dice);
    assert!(world.server.attachments.is_empty(), "an attachment is left: {}", world.told());
    world.seen.clone()
}

#[test]
fn in_any_order_no_device_is_lost_shared_torn_away_or_given_with_data() {
    let seen = seeds(0..150).fold(WorldSeen::default(), |seen, seed| lives(seed, seen, false));
    let is_enough = seen.bound > 300
        && seen.failed > 20
        && seen.isolated > 20
        && seen.erased_on_arrival > 5
        && seen.deaths > 50
        && seen.late_rounds > 50
        && seen.late_calls > 50;
    expect_enough(is_enough, &seen);
}

#[test]
fn connections_of_others_are_taken_over_by_consent_only_and_no_claim_is_given_their_data() {
    let seen = seeds(0..150).fold(WorldSeen::default(), |seen, seed| lives(seed, seen, true));
    let is_enough = seen.bound > 200
        && seen.by_hand > 100
        && seen.lost > 30
        && seen.taken_over > 100
        && seen.taken_over_in_use > 0
        && seen.deaths > 50
        && seen.late_calls > 30;
    expect_enough(is_enough, &seen);
}
