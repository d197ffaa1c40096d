//! Users, scheduler, controller manager, daemons, nodes and controller in any order, with lost answers, late news and sudden
//! deaths.

use std::time::Duration;

use serde_json::json;

use super::{
    cluster::Dice,
    world::{Fate, World, wants_and},
};

const NODES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 2] = ["web", "job"];

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

/// A cluster under users who do not know what they want.
struct Chaos {
    world: World,
    dice: Dice,
    names: usize,
    trouble: Trouble,
    kept: usize,
}

impl Chaos {
    fn new(seed: u64, trouble: Trouble) -> Self {
        let dice = Dice(seed);
        Self { world: World::new(&[3, 2, 2]), dice, names: 0, trouble, kept: 0 }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names)
    }

    fn pick(&mut self, mut names: Vec<String>) -> Option<String> {
        let at = self.dice.roll(names.len());
        (at < names.len()).then(|| names.swap_remove(at))
    }

    fn pick_pod(&mut self) -> Option<String> {
        let names = self.world.server.pods.keys().map(|key| key.name.clone()).collect();
        self.pick(names)
    }

    /// One thing happens.
    fn step(&mut self) {
        if self.trouble == Trouble::Deaths && self.dice.roll(8) == 0 {
            let fate = [Fate::DieBefore, Fate::DieAfter][self.dice.roll(2)];
            self.world.fates.insert(self.world.writes.len(), fate);
        }
        match self.dice.roll(48) {
            0 => self.reserve(),
            1 => {
                let names = self.world.server.reservations.keys().cloned().collect();
                if let Some(name) = self.pick(names).filter(|_| self.dice.roll(2) == 0) {
                    self.world.server.delete_reservation(&name);
                }
            }
            2..=3 => self.come(),
            4 => {
                if let Some(pod) = self.pick_pod() {
                    self.world.delete_pod(&pod);
                }
            }
            5 => self.change_node(),
            6 => {
                let fates =
                    [Fate::DieBefore, Fate::DieAfter, Fate::Conflict, Fate::FailBefore, Fate::FailAfter, Fate::Refuse];
                let at = self.world.writes.len() + self.dice.roll(3);
                self.world.fates.insert(at, fates[self.dice.roll(fates.len())]);
            }
            7..=9 => {
                let pause = Duration::from_millis(u64::try_from(self.dice.roll(9000)).unwrap());
                let at = self.world.now + pause;
                self.world.tick(at);
            }
            10 => self.world.control(),
            11 => drop(self.world.end_going_pods()),
            12..=14 => {
                if let Some(pod) = self.pick_pod() {
                    self.world.decide(&pod);
                }
            }
            15..=17 => {
                if let Some(pod) = self.pick_pod() {
                    self.world.bind(&pod);
                }
            }
            18..=20 => drop(self.world.publish()),
            21 if self.trouble == Trouble::Rivals && self.world.rival.is_none() => self.world.begin_rival(),
            22 if self.dice.roll(4) == 0 => self.world.rival = None,
            23 => self.world.swap(),
            24..=25 => drop(self.world.answer()),
            26..=36 => drop(self.world.deliver()),
            _ => {
                let at = self.dice.roll(self.world.controller.commands.len());
                self.world.execute_next(at);
            }
        }
        self.world.check();
        self.kept += usize::from(self.world.server.reservations.values().any(|it| it.status.held > 0));
    }

    fn reserve(&mut self) {
        let (name, app) = (self.name(), APPS[self.dice.roll(2)]);
        let ttl = ["0", "1m", "10m"][self.dice.roll(3)];
        let more = json!({
            "ttl": ttl,
            "allocateOnce": self.dice.roll(2) == 0,
            "replicas": 1 + self.dice.roll(2),
            "preAllocation": self.dice.roll(3) == 0,
            "preAllocationPolicy": {"enableMultiple": self.dice.roll(2) == 0},
        });
        let count = 1 + self.dice.roll(2);
        self.world.reserve(&name, wants_and(count, app, more));
    }

    fn come(&mut self) {
        let (name, app) = (self.name(), ["web", "job", "db"][self.dice.roll(3)]);
        let reservations: Vec<String> = self.world.server.reservations.keys().cloned().collect();
        let tolerates = match (self.dice.roll(8), self.pick(reservations)) {
            (0, _) => "*".to_owned(),
            (1..=4, Some(name)) => self.world.value(&name),
            _ => String::new(),
        };
        let wants = 1 + self.dice.roll(2);
        self.world.pod(&name, app, wants, &tolerates);
    }

    fn change_node(&mut self) {
        let node = NODES[self.dice.roll(NODES.len())];
        match self.dice.roll(6) {
            0 if self.world.server.nodes.contains(node) => {
                self.world.server.remove_node(node);
                self.world.server.remove_slice(node);
            }
            0 => self.world.node(node, super::world::DRIVER, 2),
            1 => self.world.server.remove_slice(node),
            2 if self.world.server.nodes.contains(node) && !self.world.server.slices.contains_key(node) => {
                self.world.node(node, super::world::DRIVER, 2);
            }
            3 => drop(self.world.daemons_down.insert(node.to_owned())),
            4 => drop(self.world.daemons_down.remove(node)),
            _ if self.world.server.slices.contains_key(node) => {
                let device = format!("gpu-{}", self.dice.roll(2));
                self.world.edit_device(node, &device, |device| device.is_usable = !device.is_usable);
            }
            _ => {}
        }
    }

    /// Everybody goes home: what was deleted must disappear, and nothing may be left.
    fn end(mut self) -> (usize, usize, usize) {
        self.world.fates.clear();
        self.world.rival = None;
        self.world.daemons_down.clear();
        self.world.in_flight.clear();
        // None of those that expire is left then.
        self.world.settle_for(900);
        self.world.settle();
        self.world.check_rest();
        let pods: Vec<_> = self.world.server.pods.keys().map(|key| key.name.clone()).collect();
        pods.iter().for_each(|pod| self.world.end_pod(pod));
        self.world.settle();
        self.world.settle();
        self.world.check_rest();
        let names: Vec<String> = self.world.server.reservations.keys().cloned().collect();
        names.iter().for_each(|name| self.world.server.delete_reservation(name));
        self.world.settle();
        assert!(self.world.server.reservations.is_empty());
        self.world.settle();
        self.world.check_rest();
        let left: Vec<_> = self.world.server.node_fences.values().flat_map(|it| &it.fences).collect();
        assert!(left.is_empty(), "{left:?}");
        (self.world.restarts, self.world.writes.len(), self.kept)
    }
}

/// Says how often the controller died, how often it wrote, and at how many moments something was kept.
fn live(seed: u64, steps: usize, trouble: Trouble) -> (usize, usize, usize) {
    let mut chaos = Chaos::new(seed, trouble);
    (0..steps).for_each(|_| chaos.step());
    chaos.end()
}

#[test]
fn in_any_order_nothing_is_kept_twice_or_for_nobody() {
    let kept: usize = (0..30).map(|seed| live(seed, 600, Trouble::Usual).2).sum();
    assert!(kept > 1000, "it comes to something: {kept}");
}

#[test]
fn two_controllers_at_the_same_time_keep_nothing_twice() {
    for seed in 100..130 {
        live(seed, 600, Trouble::Rivals);
    }
}

/// Dies so often, and says at how many moments something was kept.
fn die(deaths: usize) -> usize {
    let (mut died, mut kept, mut seed) = (0, 0, 1000);
    while died < deaths {
        let (deaths, _, moments) = live(seed, 3000, Trouble::Deaths);
        died += deaths;
        kept += moments;
        seed += 1;
    }
    kept
}

#[test]
fn a_thousand_deaths_lose_nothing_and_keep_nothing_twice_or_for_nobody() {
    let kept = die(1000);
    assert!(kept > 250, "it comes to something in between: {kept}");
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_deaths_lose_nothing_and_keep_nothing_twice_or_for_nobody() {
    let kept = die(10_000);
    assert!(kept > 2500, "it comes to something in between: {kept}");
}
