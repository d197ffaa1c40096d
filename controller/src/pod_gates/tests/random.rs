//! Everything in any order: Reservations, requests, owners, strangers, gates of others, a webhook that is away, deaths.

use hostler_api::core::PodSchedulingGate;
use serde_json::json;

use super::world::{GatesWorld, is_gated, request, rules};
use crate::{
    places::tests::world::key,
    pod_gates::waits::WaitRules,
    testkit::{Dice, Fate, RandomLife, expect_enough, live, over, seeds},
};

/// The annotation by which a pod names its request.
const CONSUMES: &str = "autoscaling.x-k8s.io/consume-provisioning-request";

/// What came about, over all orders.
#[derive(Debug, Default)]
struct Seen {
    gated: usize,
    released: usize,
    led: usize,
    requests: usize,
    deaths: usize,
}

struct Chaos {
    world: GatesWorld,
    dice: Dice,
    seen: Seen,
}

impl RandomLife for Chaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn check(&mut self) {
        self.world.check();
    }

    fn step(&mut self) {
        match self.dice.roll(30) {
            0..=7 => drop(self.world.places.control()),
            8..=11 => self.world.release(),
            12..=13 => self.world.places.kept.pass([1, 2, 6][self.dice.roll(3)]),
            14..=16 => self.world.places.schedule(),
            17..=19 => self.reservations(),
            20..=22 => self.make(),
            23..=25 => self.remove(),
            26 => {
                let fate = self.dice.pick(&Fate::ALL);
                self.seen.deaths += 1;
                self.world.places.fates.plan(0, fate);
            }
            27 => self.requests(),
            28 => self.world.has_webhook = !self.dice.one_in(4),
            _ => self.world.rules = if self.dice.one_in(6) { WaitRules::default() } else { rules() },
        }
    }
}

impl Chaos {
    fn reservations(&mut self) {
        let Self { world, dice, .. } = self;
        let name = ["r", "q"][dice.roll(2)];
        match world.places.reservation(name).map(|it| over(&it.uid, &it.version)) {
            Some(version) if dice.one_in(12) => world.places.kept.delete(name, &version),
            Some(_) => {}
            None => {
                let policy = ["Aligned", "Restricted"][dice.roll(2)];
                let more = json!({"allocateOnce": dice.one_in(2), "allocatePolicy": policy});
                world.places.reserve(name, ["2", "1500m"][dice.roll(2)], &more);
            }
        }
    }

    fn make(&mut self) {
        let Self { world, dice, seen } = self;
        let name = format!("p{}", dice.roll(6));
        if world.places.server.pods.contains_key(&key(&name)) {
            // Another program lets its pod go.
            if let Some(mut pod) = world.places.server.pods.get(&key(&name)).cloned() {
                pod.spec.scheduling_gates.retain(|gate| gate.name != "other");
                world.places.server.put(pod);
            }
            return;
        }
        let owner = ["r", "q", ""][dice.roll(3)];
        let (has_other_gate, has_request) = (dice.one_in(6), dice.one_in(6));
        let request = format!("n{}", dice.roll(2));
        seen.requests += usize::from(has_request);
        world.pod_with(&name, owner, ["1", "500m", "1500m"][dice.roll(3)], |pod| {
            if has_other_gate {
                pod.spec.scheduling_gates.push(PodSchedulingGate { name: "other".to_owned() });
            }
            if has_request {
                pod.annotate(CONSUMES, &request);
            }
        });
    }

    fn remove(&mut self) {
        let name = format!("p{}", self.dice.roll(6));
        // A pod that was nominated and is gone before it is bound leaves its place to whoever comes first.
        let is_nominated = |pod: &crate::places::PlacePod| !pod.status.nominated_node_name.is_empty();
        let pod = self.world.places.server.pods.get(&key(&name));
        if pod.is_some_and(|pod| pod.node().is_some() || !is_nominated(pod)) {
            self.world.places.delete(&key(&name));
        }
    }

    fn requests(&mut self) {
        let Self { world, dice, .. } = self;
        let name = format!("n{}", dice.roll(2));
        let conditions =
            [vec![], vec![("Provisioned", "False")], vec![("Provisioned", "True")], vec![("Failed", "True")]];
        match dice.roll(5) {
            4 => drop(world.requests.remove(&key(&name))),
            at => drop(world.requests.insert(key(&name), request(&name, &conditions[at]))),
        }
    }
}

#[test]
fn in_any_order_no_pod_is_stuck_and_no_stranger_is_in_a_place() {
    let mut seen = Seen::default();
    for seed in seeds(0..400) {
        let world = GatesWorld::new(&[3000, 2500]);
        let mut chaos = Chaos { world, dice: Dice::new(seed), seen: std::mem::take(&mut seen) };
        live(&mut chaos, 250);
        let Chaos { mut world, dice: _dice, seen: now } = chaos;
        seen = now;
        world.places.fates.clear();
        world.rules = rules();
        settle(&mut world);
        seen.gated += world.gated;
        seen.released += world.released;
        seen.led += world.led;
    }
    let is_enough = seen.gated > 800 && seen.released > 500 && seen.led > 200 && seen.requests > 500;
    expect_enough(is_enough && seen.deaths > 500, &seen);
}

/// Reservations go and requests are decided: then no pod waits any more.
fn settle(world: &mut GatesWorld) {
    for name in ["n0", "n1"] {
        world.requests.insert(key(name), request(name, &[("Provisioned", "True")]));
    }
    for name in ["r", "q"] {
        world.until("it can be deleted", |world| {
            let found = world.places.reservation(name);
            found.is_none_or(|it| it.is_deleting || !it.finalizers.is_empty() || it.status.phase.is_over())
        });
        if let Some(it) = world.places.reservation(name).filter(|it| !it.is_deleting) {
            let version = over(&it.uid, &it.version);
            world.places.kept.delete(name, &version);
        }
        world.until("it is gone", |world| world.places.reservation(name).is_none());
    }
    world.until("no place holder is left", |world| world.places.holders() == 0);
    world.until("no pod is gated", |world| !world.places.server.pods.values().any(is_gated));
}
