//! Users, scheduler, controller manager and controller in any order, with lost answers, late news and sudden deaths.

use std::time::Duration;

use hostler_api::classic::ClassicVersion;
use serde_json::json;

use super::{
    objects::{cpus, memory, slice},
    world::World,
};
use crate::testkit::{Dice, Fate, RandomLife, expect_enough, live, seeds};

const NODES: [&str; 4] = ["a", "b", "c", "d"];

/// What happens besides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trouble {
    /// Nothing that does not happen anyway.
    Usual,
    /// The controller dies all the time.
    Deaths,
    /// There are two controllers at times.
    Rivals,
}

/// A cluster under a user who does not know what he wants.
struct Chaos {
    world: World,
    dice: Dice,
    names: usize,
    trouble: Trouble,
    /// Changes of the server that were there at the last check.
    checked: usize,
}

impl Chaos {
    fn new(version: ClassicVersion, seed: u64, trouble: Trouble) -> Self {
        let mut chaos = Self { world: World::new(version), dice: Dice::new(seed), names: 0, trouble, checked: 0 };
        for node in NODES {
            chaos.world.node(node, 0);
            chaos.equip(node, 2);
        }
        chaos
    }

    /// The node has so many cards, and CPUs and memory of which claims have parts.
    fn equip(&mut self, node: &str, cards: usize) {
        let card = |at: usize| json!({"name": format!("card-{at}"), "attributes": {"kind": {"string": "card"}}});
        let cards = slice(node, "card", (0..cards).map(card).collect());
        self.world.hardware(
            node,
            json!([
                cards,
                slice(node, "cpu", vec![cpus("numa-0", 0)]),
                slice(node, "memory", vec![memory("numa-0", 0)])
            ]),
            true,
        );
    }

    fn pick(&mut self, resource: &str) -> Option<String> {
        let all: Vec<_> = self.world.server.all(resource).collect();
        let name = all.get(self.dice.roll(all.len()))?["metadata"]["name"].as_str()?;
        Some(name.to_owned())
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names)
    }

    /// One thing happens.
    fn happen(&mut self) {
        if self.trouble == Trouble::Deaths && self.dice.roll(5) == 0 {
            let fate = self.dice.pick(&Fate::DEATHS);
            self.world.fates.plan(0, fate);
        }
        match self.dice.roll(44) {
            0..=1 => self.come(),
            2 => self.go(),
            3 => {
                if let Some(claim) = self.pick("resourceclaims") {
                    self.world.server.delete("resourceclaims", "default", &claim);
                }
            }
            4 => self.change_hardware(),
            5 => self.world.fates.plan_any(3, &Fate::ALL, &mut self.dice),
            6 => {
                let pause = Duration::from_millis(u64::try_from(self.dice.roll(5000)).unwrap());
                if self.dice.roll(2) == 0 {
                    return self.world.doze(pause);
                }
                let at = self.world.controller.wake.unwrap_or_default().max(self.world.now + pause);
                self.world.tick(at);
            }
            7..=9 => self.world.control(),
            10..=15 => {
                if let Some(pod) = self.pick("pods") {
                    self.world.schedule(&pod, &mut self.dice);
                }
            }
            16..=27 => self.hear(),
            28 if self.trouble == Trouble::Rivals && self.world.rival.is_none() => self.world.begin_rival(),
            29 => self.world.rival = None,
            30..=33 => self.world.swap(),
            _ => {
                let at = self.dice.roll(self.world.controller.commands.len());
                self.world.execute_next(at);
            }
        }
    }

    /// News of one kind can come long before those of another.
    fn hear(&mut self) {
        let kinds = ["resourceclaims", "nodehardware", self.world.contexts(), ""];
        match kinds[self.dice.roll(kinds.len())] {
            "" => drop(self.world.deliver()),
            kind => self.world.deliver_of(kind),
        }
    }

    /// A pod with claims of its own, and perhaps one that others have too.
    fn come(&mut self) {
        let (pod, count) = (self.name(), 1 + self.dice.roll(2));
        let mut claims = Vec::new();
        for _ in 0..count {
            let claim = self.name();
            let amount = 1 + self.dice.roll(2);
            let part = |class: &str, name: &str, amount: String| json!({"name": "r", "deviceClassName": class, "capacity": {"requests": {name: amount}}});
            let request = match self.dice.roll(6) {
                0 => part("memory", "memory", format!("{}Gi", amount * 5)),
                1 => part("cpu", "cpus", (amount * 3).to_string()),
                _ => json!({"name": "r", "deviceClassName": "card", "count": amount}),
            };
            let mut spec = self.world.spec_for(&claim, json!({"requests": [request]}));
            if !self.world.is_devices() && self.dice.roll(4) == 0 {
                spec["allocationMode"] = json!("Immediate");
            }
            self.world.claim_of(&claim, spec);
            claims.push(claim);
        }
        if self.dice.roll(3) == 0
            && let Some(shared) = self.pick("resourceclaims").filter(|shared| !claims.contains(shared))
        {
            claims.push(shared);
        }
        let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
        self.world.pod(&pod, &claims);
        if self.dice.roll(8) == 0 {
            let node = NODES[self.dice.roll(NODES.len())];
            let place = |it: &mut serde_json::Value| it["spec"]["nodeName"] = json!(node);
            self.world.server.edit("pods", "default", &pod, false, place).unwrap();
        }
    }

    fn go(&mut self) {
        if let Some(pod) = self.pick("pods") {
            self.world.server.delete("pods", "default", &pod);
        }
    }

    fn change_hardware(&mut self) {
        let (node, cards) = (NODES[self.dice.roll(NODES.len())], self.dice.roll(4));
        self.equip(node, cards);
    }

    /// Everybody goes home: what was deleted must disappear, and nothing may be left.
    fn end(mut self) -> (usize, usize) {
        self.world.fates.clear();
        self.world.rival = None;
        for pod in self.world.server.list("pods") {
            self.world.server.delete("pods", "default", pod["metadata"]["name"].as_str().unwrap());
        }
        for _ in 0..3 {
            self.world.control();
            self.world.settle();
        }
        let left = self.world.server.list("resourceclaims");
        let deleted = left.iter().find(|claim| !claim["metadata"]["deletionTimestamp"].is_null());
        assert!(deleted.is_none(), "it does not go: {deleted:?}");
        self.world.check_rest();
        for claim in left {
            self.world.server.delete("resourceclaims", "default", claim["metadata"]["name"].as_str().unwrap());
        }
        self.world.settle();
        assert!(self.world.server.list("resourceclaims").is_empty());
        self.world.settle();
        assert!(self.world.grants().is_empty(), "{:?}", self.world.grants());
        (self.world.restarts, self.world.writes.len())
    }
}

/// Says how often the controller died, and how often it wrote.
fn run(version: ClassicVersion, seed: u64, steps: usize, trouble: Trouble) -> (usize, usize) {
    let mut chaos = Chaos::new(version, seed, trouble);
    live(&mut chaos, steps);
    chaos.end()
}

impl RandomLife for Chaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn step(&mut self) {
        self.happen();
    }

    /// The invariants are about objects of the server, which most steps do not change.
    fn check(&mut self) {
        let changes = self.world.server.log.len();
        if std::mem::replace(&mut self.checked, changes) != changes {
            self.world.check();
        }
    }
}

#[test]
fn in_any_order_no_device_is_given_twice_and_nothing_is_left_behind() {
    for seed in seeds(0..8) {
        for version in ClassicVersion::ALL {
            run(version, seed, 400, Trouble::Usual);
        }
    }
}

#[test]
fn two_controllers_at_the_same_time_give_no_device_twice() {
    for seed in seeds(100..112) {
        for version in ClassicVersion::ALL {
            run(version, seed, 600, Trouble::Rivals);
        }
    }
}

#[test]
fn a_thousand_deaths_lose_and_double_nothing() {
    let (mut deaths, mut writes) = (0, 0);
    for seed in seeds(1000..) {
        if deaths >= 1000 {
            break;
        }
        for version in ClassicVersion::ALL {
            let (died, wrote) = run(version, seed, 600, Trouble::Deaths);
            deaths += died;
            writes += wrote;
        }
    }
    expect_enough(writes > deaths, &(writes, deaths));
}
