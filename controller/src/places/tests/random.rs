//! Everything in any order: Reservations, owners, strangers that come and go, a scheduler, deaths.

use serde_json::json;

use super::world::{PlacesWorld, key};
use crate::testkit::{Dice, Fate, RandomLife, expect_enough, live, seeds};

/// What came about, over all orders.
#[derive(Debug, Default)]
struct Seen {
    kept: usize,
    owners: usize,
    strangers: usize,
    deaths: usize,
}

struct Chaos(PlacesWorld, Dice, Seen);

impl RandomLife for Chaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.1
    }

    fn check(&mut self) {
        self.0.check();
    }

    fn step(&mut self) {
        let Self(world, dice, seen) = self;
        match dice.roll(24) {
            0..=9 => drop(world.control()),
            10..=12 => world.kept.pass([1, 2, 6][dice.roll(3)]),
            13..=15 => world.schedule(),
            16 | 17 => {
                let name = format!("s{}", dice.roll(8));
                if world.node(&name).is_none() {
                    world.pod(&name, "", ["1", "500m", "2"][dice.roll(3)]);
                }
            }
            18 => {
                let name = format!("s{}", dice.roll(8));
                seen.strangers += usize::from(world.node(&name).is_some());
                world.delete(&key(&name));
            }
            19 => {
                let (name, owner) = (format!("p{}", dice.roll(4)), ["r", "q"][dice.roll(2)]);
                if world.node(&name).is_none() {
                    world.pod(&name, owner, ["1", "500m", "1500m"][dice.roll(3)]);
                }
            }
            20 => {
                let name = format!("p{}", dice.roll(4));
                // A pod that was nominated and is gone before it is bound leaves its place to whoever comes first.
                if world.node(&name).is_some() {
                    seen.owners += 1;
                    world.delete(&key(&name));
                }
            }
            21 => {
                let fate = dice.pick(&Fate::ALL);
                seen.deaths += 1;
                world.fates.plan(0, fate);
            }
            22 => {
                let name = ["r", "q"][dice.roll(2)];
                if world.reservation(name).is_none() {
                    world.reserve(name, ["2", "1500m"][dice.roll(2)], &json!({"allocateOnce": dice.one_in(2)}));
                }
            }
            _ => {
                let name = ["r", "q"][dice.roll(2)];
                if let Some(it) = world.reservation(name).filter(|_| dice.one_in(4)) {
                    let version = crate::testkit::over(&it.uid, &it.version);
                    world.kept.delete(name, &version);
                }
            }
        }
        seen.kept += usize::from(world.holders() > 0);
    }
}

#[test]
fn in_any_order_no_stranger_is_in_a_place_and_nothing_is_left() {
    let mut seen = Seen::default();
    for seed in seeds(0..40) {
        let mut chaos = Chaos(PlacesWorld::new(&[3000, 2500], 0), Dice::new(seed), std::mem::take(&mut seen));
        live(&mut chaos, 250);
        let Chaos(mut world, _dice, now) = chaos;
        seen = now;
        world.fates.clear();
        for name in ["r", "q"] {
            world.until("it can be deleted", |world| {
                world
                    .reservation(name)
                    .is_none_or(|it| it.is_deleting || !it.finalizers.is_empty() || it.status.phase.is_over())
            });
            if let Some(it) = world.reservation(name).filter(|it| !it.is_deleting) {
                let version = crate::testkit::over(&it.uid, &it.version);
                world.kept.delete(name, &version);
            }
            world.until("it is gone", |world| world.reservation(name).is_none());
        }
        world.until("nothing is left", |world| world.holders() == 0);
    }
    expect_enough(seen.kept > 1000 && seen.owners > 20 && seen.strangers > 100 && seen.deaths > 100, &seen);
}
