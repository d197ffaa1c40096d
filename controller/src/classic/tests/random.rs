//! Users, scheduler, controller manager and controller in any order, with lost answers, late news and sudden deaths.

use std::time::Duration;

use hostler_api::classic::ClassicVersion;
use serde_json::json;

use super::{
    scheduler::Dice,
    world::{Fate, World},
};

const NODES: [&str; 4] = ["a", "b", "c", "d"];

/// A cluster under a user who does not know what he wants.
struct Chaos {
    world: World,
    dice: Dice,
    names: usize,
}

impl Chaos {
    fn new(version: ClassicVersion, seed: u64) -> Self {
        let mut world = World::new(version);
        NODES.iter().for_each(|node| world.node(node, 2));
        Self { world, dice: Dice(seed), names: 0 }
    }

    fn pick(&mut self, resource: &str) -> Option<String> {
        let all = self.world.server.list(resource);
        let name = all.get(self.dice.roll(all.len()))?["metadata"]["name"].as_str()?;
        Some(name.to_owned())
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names)
    }

    /// One thing happens.
    fn step(&mut self) {
        match self.dice.roll(40) {
            0..=1 => self.come(),
            2 => self.go(),
            3 => {
                if let Some(claim) = self.pick("resourceclaims") {
                    self.world.server.delete("resourceclaims", "default", &claim);
                }
            }
            4 => self.change_hardware(),
            5 => {
                let at = self.world.writes.len() + self.dice.roll(3);
                let fates =
                    [Fate::DieBefore, Fate::DieAfter, Fate::Conflict, Fate::FailBefore, Fate::FailAfter, Fate::Refuse];
                self.world.fates.insert(at, fates[self.dice.roll(fates.len())]);
            }
            6 => {
                let pause = Duration::from_millis(u64::try_from(self.dice.roll(5000)).unwrap());
                let at = self.world.wake().unwrap_or_default().max(self.world.now + pause);
                self.world.tick(at);
            }
            7..=9 => self.world.control(),
            10..=15 => {
                if let Some(pod) = self.pick("pods") {
                    self.world.schedule(&pod, &mut self.dice);
                }
            }
            16..=27 => drop(self.world.deliver()),
            _ => {
                let at = self.dice.roll(self.world.commands.len());
                self.world.execute_next(at);
            }
        }
        self.world.check();
    }

    /// A pod with claims of its own, and perhaps one that others have too.
    fn come(&mut self) {
        let (pod, count) = (self.name(), 1 + self.dice.roll(2));
        let mut claims = Vec::new();
        for _ in 0..count {
            let claim = self.name();
            let cards = 1 + self.dice.roll(2);
            self.world.claim(&claim, cards);
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
        self.world.cards(node, cards);
    }

    /// Everybody goes home: what was deleted must disappear, and nothing may be left.
    fn end(mut self) -> (usize, usize) {
        self.world.fates.clear();
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
fn live(version: ClassicVersion, seed: u64, steps: usize) -> (usize, usize) {
    let mut chaos = Chaos::new(version, seed);
    (0..steps).for_each(|_| chaos.step());
    chaos.end()
}

#[test]
fn in_any_order_no_device_is_given_twice_and_nothing_is_left_behind() {
    for seed in 0..8 {
        for version in ClassicVersion::ALL {
            live(version, seed, 400);
        }
    }
}

#[test]
#[ignore = "takes minutes: a thousand deaths"]
fn a_thousand_deaths_lose_and_double_nothing() {
    let (mut deaths, mut writes, mut seed) = (0, 0, 1000);
    while deaths < 1000 {
        for version in ClassicVersion::ALL {
            let (died, wrote) = live(version, seed, 600);
            deaths += died;
            writes += wrote;
        }
        seed += 1;
    }
    println!("{deaths} deaths in {writes} writes, {} runs", (seed - 1000) * 3);
}
