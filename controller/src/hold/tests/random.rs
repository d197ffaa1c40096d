//! Users, scheduler, controller manager, daemons, nodes and controller in any order, with lost answers, late news and sudden
//! deaths.

use std::{ops::Range, time::Duration};

use serde_json::json;

use super::world::{World, by_attribute, by_rules, wants_and, wants_part};
use crate::{
    hold::{AllocatedClaim, DeviceKey},
    testkit::{Dice, Fate, RandomLife, expect_enough, live, seeds},
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
    /// Another scheduler gives devices that are given; the controller and the scheduler begin anew at times.
    Conflicts,
    /// The cluster is full, and many want others to make room or to move; the controller dies at times.
    Crowds,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// How often the controller died.
    deaths: usize,
    /// At how many moments something was kept.
    kept: usize,
    /// At how many moments claims stood for parts.
    parts: usize,
    /// Pods that were evicted.
    evicted: usize,
    /// At how many moments devices that two claims have were closed.
    conflicts: usize,
}

/// A cluster under users who do not know what they want.
struct Chaos {
    world: World,
    dice: Dice,
    names: usize,
    trouble: Trouble,
    kept: usize,
    parts: usize,
    conflicts: usize,
    /// Whether everybody wants parts of devices only.
    only_parts: bool,
}

impl Chaos {
    fn new(seed: u64, trouble: Trouble) -> Self {
        let dice = Dice::new(seed);
        let mut world = World::new(&[3, 2, 2]);
        world.share("a", "gpu-2", 4);
        world.share("b", "gpu-1", 4);
        if trouble == Trouble::Crowds {
            (0..7).for_each(|at| world.running(&format!("first-{at}"), ["db", "web"][at % 2], 1, 10));
        }
        Self { world, dice, names: 0, trouble, kept: 0, parts: 0, conflicts: 0, only_parts: false }
    }

    /// Of devices that claims share.
    fn of_parts(seed: u64, trouble: Trouble) -> Self {
        let mut chaos = Self { only_parts: true, ..Self::new(seed, trouble) };
        chaos.world = World::new(&[2, 2, 2]);
        NODES.into_iter().for_each(|node| chaos.share(node));
        chaos
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names)
    }

    fn pick(&mut self, mut names: Vec<String>) -> Option<String> {
        self.dice.take(&mut names)
    }

    fn pick_pod(&mut self) -> Option<String> {
        let names = self.world.server.pods.keys().map(|key| key.name.clone()).collect();
        self.pick(names)
    }

    /// The controller may die at its next write.
    fn may_die(&mut self) {
        let deaths = match self.trouble {
            Trouble::Deaths => 8,
            Trouble::Crowds | Trouble::Conflicts => 40,
            Trouble::Usual | Trouble::Rivals => return,
        };
        if self.dice.roll(deaths) == 0 {
            let fate = self.dice.pick(&Fate::DEATHS);
            self.world.fates.plan(0, fate);
        }
    }

    /// One thing happens.
    fn happen(&mut self) {
        self.may_die();
        if self.trouble == Trouble::Conflicts {
            self.give_anyway();
        }
        match self.dice.roll(48) {
            0 => self.reserve(),
            1 => self.delete_reservation(),
            2..=3 => self.come(),
            4 => {
                if let Some(pod) = self.pick_pod() {
                    self.world.delete_pod(&pod);
                }
            }
            5 if self.dice.roll(6) == 0 => self.change_budget(),
            5 => self.change_node(),
            6 => self.world.fates.plan_any(3, &Fate::ALL, &mut self.dice),
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
            23 if self.is_tampered_with() && self.dice.roll(4) == 0 => self.world.tamper(&mut self.dice),
            23 => self.world.swap(),
            24..=25 => drop(self.world.answer()),
            26..=36 => drop(self.world.deliver()),
            _ => {
                let at = self.dice.roll(self.world.controller.commands.len());
                self.world.execute_next(at);
            }
        }
    }

    /// What must be true, and what there is by now.
    fn look(&mut self) {
        self.world.check();
        if self.trouble == Trouble::Conflicts {
            self.world.check_sealed();
            self.conflicts += usize::from(!self.world.sealed.is_empty());
        }
        self.kept += usize::from(self.world.server.reservations.values().any(|it| it.status.held > 0));
        let has_part = self.world.server.claims.values().any(|it| it.placeholder.is_some() && !it.devices.is_empty());
        self.parts += usize::from(has_part);
    }

    /// Somebody who waits for one device gets one that is kept and that somebody has.
    fn give_anyway(&mut self) {
        match self.dice.roll(40) {
            0 => {}
            1 => return self.world.restart_scheduler(),
            _ => return,
        }
        let is_kept = |device: &DeviceKey| {
            let mut fences = self.world.server.node_fences.values().flat_map(|node| &node.fences);
            fences.any(|fence| fence.pool == device.pool && fence.device == device.device)
        };
        let whole = |claim: &&AllocatedClaim| claim.parts.is_empty();
        let given = self.world.server.claims.values().filter(whole).flat_map(|claim| &claim.devices);
        let device = given.filter(|device| is_kept(device)).min().cloned();
        let waits = |name: &&String| {
            let pod = &self.world.server.pods[&super::cluster::key(name)];
            pod.wants == 1 && pod.part == 0 && self.world.has(name).is_empty()
        };
        let pods = self.world.server.pods.keys().map(|key| key.name.clone());
        let pod = pods.collect::<Vec<_>>().into_iter().find(|name| waits(&name));
        if let (Some(device), Some(pod)) = (device, pod) {
            self.world.give_anyway(&pod, &device);
        }
    }

    /// Whether people take away and edit what closes devices.
    fn is_tampered_with(&self) -> bool {
        self.trouble == Trouble::Usual
    }

    fn delete_reservation(&mut self) {
        let names = self.world.server.reservations.keys().cloned().collect();
        if let Some(name) = self.pick(names).filter(|_| self.dice.roll(2) == 0) {
            self.world.server.delete_reservation(&name);
        }
    }

    fn reserve(&mut self) {
        let (name, app) = (self.name(), APPS[self.dice.roll(2)]);
        let ttl = ["0", "1m", "10m"][self.dice.roll(3)];
        let more = json!({
            "ttl": ttl,
            "allocateOnce": self.dice.roll(2) == 0,
            "replicas": 1 + self.dice.roll(2),
            "preAllocation": self.dice.roll(3) == 0 && self.trouble != Trouble::Crowds,
            "preAllocationPolicy": {"enableMultiple": self.dice.roll(2) == 0},
        });
        let count = 1 + self.dice.roll(2);
        let is_part = self.trouble != Trouble::Crowds && self.dice.roll(3) == 0 || self.only_parts;
        let mut spec = if is_part { wants_part(count, app, more) } else { wants_and(count, app, more) };
        let few = if self.trouble == Trouble::Crowds { 3 } else { 6 };
        match self.dice.roll(few) {
            0 => spec["replaces"] = self.replaced(),
            1..=2 if spec["preAllocation"] == false => {
                spec["preemptionPolicy"] = json!("PreemptLowerPriority");
                spec["template"]["spec"]["priorityClassName"] = json!("high");
            }
            _ => {}
        }
        self.world.reserve(&name, spec);
    }

    /// Somebody who is to be moved; not always the one who has the name.
    fn replaced(&mut self) -> serde_json::Value {
        let Some(pod) = self.pick_pod() else { return json!(null) };
        let uid = self.world.server.pods[&super::cluster::key(&pod)].is.uid.clone();
        let uid = if self.dice.roll(4) == 0 { "other".to_owned() } else { uid };
        json!({"namespace": "default", "name": pod, "uid": uid})
    }

    fn change_budget(&mut self) {
        let app = ["web", "job", "db"][self.dice.roll(3)].to_owned();
        let least = self.dice.roll(2);
        self.world.server.budgets.insert(app, least);
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
        if self.trouble != Trouble::Crowds && self.dice.roll(3) == 0 || self.only_parts {
            self.world.pod_of_part(&name, app, u64::try_from(wants).unwrap(), &tolerates);
        } else {
            self.world.pod(&name, app, wants, &tolerates);
        }
        let priority = [0, 10, 2000][self.dice.roll(3)];
        self.world.server.pods.get_mut(&super::cluster::key(&name)).unwrap().is.priority = priority;
    }

    fn change_node(&mut self) {
        let node = NODES[self.dice.roll(NODES.len())];
        match self.dice.roll(6) {
            0 if self.world.server.nodes.contains(node) => {
                self.world.server.remove_node(node);
                self.world.server.remove_slice(node);
            }
            0 => self.bring(node),
            1 => self.world.server.remove_slice(node),
            2 if self.world.server.nodes.contains(node) && !self.world.server.slices.contains_key(node) => {
                self.bring(node);
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

    fn bring(&mut self, node: &str) {
        self.world.node(node, super::world::DRIVER, 2);
        if self.only_parts {
            self.share(node);
        }
    }

    fn share(&mut self, node: &str) {
        ["gpu-0", "gpu-1"].into_iter().for_each(|device| self.world.share(node, device, 4));
    }

    /// Everybody goes home: what was deleted must disappear, and nothing may be left.
    fn end(mut self) -> Outcome {
        self.world.fates.clear();
        self.world.rival = None;
        self.world.daemons_down.clear();
        self.world.server.budgets.clear();
        self.world.in_flight.clear();
        (0..2).for_each(|_| self.world.control());
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
        assert!(self.world.server.rules.is_empty(), "{:?}", self.world.server.rules);
        let evicted = self.world.server.evictions.iter().filter(|it| it.is_done).count();
        Outcome { deaths: self.world.restarts, kept: self.kept, evicted, parts: self.parts, conflicts: self.conflicts }
    }
}

impl RandomLife for Chaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn step(&mut self) {
        self.happen();
    }

    fn check(&mut self) {
        self.look();
    }
}

fn run(mut chaos: Chaos, steps: usize) -> Outcome {
    live(&mut chaos, steps);
    chaos.end()
}

/// Lives with these seeds, and their ends.
fn lives(of: Range<u64>, steps: usize, trouble: Trouble) -> Vec<Outcome> {
    seeds(of).map(|seed| run(Chaos::new(seed, trouble), steps)).collect()
}

fn sum(lives: &[Outcome], what: impl Fn(&Outcome) -> usize) -> usize {
    lives.iter().map(what).sum()
}

#[test]
fn in_any_order_nothing_is_kept_twice_or_for_nobody() {
    let kept = sum(&lives(0..24, 600, Trouble::Usual), |it| it.kept);
    expect_enough(kept > 320, &kept);
}

/// What came of lives in which everybody wants parts.
fn share(of: Range<u64>, steps: usize, trouble: Trouble) -> usize {
    seeds(of).map(|seed| run(Chaos::of_parts(seed, trouble), steps).parts).sum()
}

#[test]
fn in_any_order_no_part_is_kept_twice_or_for_nobody() {
    let parts = share(200..224, 800, Trouble::Usual);
    expect_enough(parts > 400, &parts);
}

#[test]
fn in_any_order_nothing_that_an_attribute_closes_is_kept_twice() {
    let kept = by_attribute(|| sum(&lives(500..520, 600, Trouble::Usual), |it| it.kept));
    expect_enough(kept > 200, &kept);
}

#[test]
fn in_any_order_nothing_that_rules_close_is_kept_twice_or_for_nobody() {
    let (kept, parts) = by_rules(|| {
        let kept = sum(&lives(520..530, 600, Trouble::Usual), |it| it.kept);
        (kept, share(535..541, 800, Trouble::Usual))
    });
    expect_enough(kept > 80 && parts > 50, &(kept, parts));
}

#[test]
fn two_controllers_at_the_same_time_keep_nothing_twice_that_rules_close() {
    let kept = by_rules(|| sum(&lives(545..553, 600, Trouble::Rivals), |it| it.kept));
    expect_enough(kept > 60, &kept);
}

#[test]
fn two_controllers_at_the_same_time_keep_no_part_twice() {
    let parts = share(300..315, 800, Trouble::Rivals);
    expect_enough(parts > 100, &parts);
}

#[test]
fn parts_outlive_deaths_and_nothing_stands_for_them_in_the_end() {
    let parts = share(400..415, 2000, Trouble::Deaths);
    expect_enough(parts > 100, &parts);
}

/// When anybody is asked to go, what must be true then is looked at: `World::check_eviction`.
#[test]
fn nobody_is_evicted_for_nothing_in_any_order() {
    let evicted = sum(&lives(200..230, 1200, Trouble::Crowds), |it| it.evicted);
    expect_enough(evicted > 20, &evicted);
}

#[test]
fn in_any_order_what_two_claims_have_stays_closed_until_neither_has_it() {
    let conflicts = sum(&lives(600..615, 800, Trouble::Conflicts), |it| it.conflicts);
    expect_enough(conflicts > 100, &conflicts);
}

#[test]
fn two_controllers_at_the_same_time_keep_nothing_twice() {
    let kept = sum(&lives(100..122, 600, Trouble::Rivals), |it| it.kept);
    expect_enough(kept > 220, &kept);
}

/// Dies so often, and says at how many moments something was kept.
fn die(deaths: usize) -> usize {
    let (mut died, mut kept) = (0, 0);
    for seed in seeds(1000..) {
        if died >= deaths {
            break;
        }
        let outcome = run(Chaos::new(seed, Trouble::Deaths), 3000);
        died += outcome.deaths;
        kept += outcome.kept;
    }
    kept
}

#[test]
fn a_thousand_deaths_lose_nothing_and_keep_nothing_twice_or_for_nobody() {
    let kept = die(1000);
    expect_enough(kept > 250, &kept);
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_deaths_lose_nothing_and_keep_nothing_twice_or_for_nobody() {
    let kept = die(10_000);
    expect_enough(kept > 2500, &kept);
}
