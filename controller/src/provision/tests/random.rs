//! Controllers that take over from one another; writes of the last one that come late, answers that are lost, crashes at every
//! write. Whatever happens, nothing is promised twice, and in the end everybody is told something.
//!
//! Who does not lead any more sends nothing: the Lease sees to that. What it sent before can arrive for as long as whoever leads
//! now waits for his marks.

use std::{sync::Arc, time::Duration};

use hostler_allocator::plan::{PlanOptions, Snapshot};
use hostler_api::provisioning::ProvisioningConditionType as Type;
use serde_json::json;

use super::world::{CLASS, ModelServer};
use crate::provision::{
    check::CheckAnswer,
    class::ProvisionClasses,
    clock::ProvisionMoment,
    core::{MARKS_COME, ProvisionCore, ProvisionSettings},
    event::{ProvisionCommand, ProvisionEvent, StatusOutcome, StatusWrite},
    objects::SeenRequest,
};

const NODES: usize = 3;
const DEVICES: usize = 3;
const SECOND: Duration = Duration::from_secs(1);

/// xorshift: the same story for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }
}

/// A controller with what it has seen.
struct ModelController {
    core: ProvisionCore,
    seen: ModelServer,
    began: Duration,
    /// Sent and not there yet.
    travelling: Vec<StatusWrite>,
    answers: Vec<(String, StatusOutcome)>,
    check: Option<CheckAnswer>,
}

impl ModelController {
    fn new(term: usize, seen: ModelServer, began: Duration) -> Self {
        let settings = ProvisionSettings {
            classes: ProvisionClasses::default(),
            batch: 3,
            time_box: 10 * SECOND,
            term: format!("term-{term}"),
        };
        let (travelling, answers) = (Vec::new(), Vec::new());
        Self { core: ProvisionCore::new(settings), seen, began, travelling, answers, check: None }
    }
}

struct RandomWorld {
    dice: Dice,
    server: ModelServer,
    now: Duration,
    leader: ModelController,
    /// What those before have sent and is not there yet.
    late: Vec<StatusWrite>,
    terms: usize,
    requests: usize,
    /// Devices that pods have, by node.
    used: [usize; NODES],
    /// Writes before the next crash.
    until_crash: Option<usize>,
}

impl RandomWorld {
    fn new(seed: u64) -> Self {
        let mut server = ModelServer::new();
        for at in 0..NODES {
            server.node(&format!("n{at}"), DEVICES);
        }
        server.template("t", &ModelServer::pod_spec("one"));
        Self {
            dice: Dice(seed * 2_654_435_761 + 1),
            server,
            now: Duration::ZERO,
            leader: ModelController::new(0, ModelServer::new(), Duration::ZERO),
            late: Vec::new(),
            terms: 0,
            requests: 0,
            used: [0; NODES],
            until_crash: None,
        }
    }

    fn wall(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.now
    }

    /// Another one begins to lead; it has listed everything.
    fn lead(&mut self) {
        self.terms += 1;
        let next = ModelController::new(self.terms, self.server.clone(), self.now);
        self.late.extend(std::mem::replace(&mut self.leader, next).travelling);
    }

    fn ask(&mut self) {
        self.requests += 1;
        let pods = 1 + self.dice.below(5);
        let request = json!({
            "metadata": {"name": format!("r{}", self.requests)},
            "spec": {
                "provisioningClassName": CLASS, "podSets": [{"podTemplateRef": {"name": "t"}, "count": pods}],
            },
        });
        let wall = self.wall();
        self.server.create(request, wall);
    }

    /// A pod of a request that has a booking comes to a node.
    fn bind(&mut self) {
        let booked: Vec<String> = self.booked().map(|(name, _)| name).collect();
        let Some(node) = (0..NODES).find(|node| self.used[*node] < DEVICES) else { return };
        if booked.is_empty() {
            return;
        }
        let request = &booked[self.dice.below(booked.len())];
        let annotations = json!({"autoscaling.x-k8s.io/consume-provisioning-request": request});
        let pod = format!("p{node}-{}", self.used[node]);
        self.server.pod(&pod, &annotations, Some((&format!("n{node}"), self.used[node])));
        self.used[node] += 1;
    }

    /// Requests with a booking, and how many pods of each are still to come.
    fn booked(&self) -> impl Iterator<Item = (String, usize)> {
        let objects = &self.server.objects;
        objects.requests.values().filter_map(|request| {
            let status = &request.status;
            let is_booked =
                status.is(Type::Provisioned) && !status.is(Type::BookingExpired) && !status.is(Type::Failed);
            let there = objects.consumers_of(&request.key).count();
            let pods = usize::try_from(request.pods()).unwrap();
            (is_booked && there < pods).then(|| (request.key.name.clone(), pods - there))
        })
    }

    fn step(&mut self, event: ProvisionEvent) {
        let now = ProvisionMoment { wall: self.wall(), steady: self.now - self.leader.began };
        let controller = &mut self.leader;
        for command in controller.core.step(now, &controller.seen.objects, event) {
            match command {
                ProvisionCommand::Write(write) => controller.travelling.push(write),
                ProvisionCommand::Check(batch) => {
                    let snapshot = Snapshot::new(controller.seen.facts.clone());
                    let answer = batch.run(&snapshot, &PlanOptions::default(), &mut || Duration::ZERO);
                    controller.check = Some(answer);
                }
                ProvisionCommand::WakeAt(_) => {}
            }
        }
    }

    /// Something happens to the leader.
    fn turn(&mut self) {
        match self.dice.below(4) {
            0 => {
                self.leader.seen = self.server.clone();
                self.step(ProvisionEvent::Changed);
            }
            1 => {
                if let Some(answer) = self.leader.check.take() {
                    self.step(ProvisionEvent::Checked(answer));
                }
            }
            2 => self.arrive(),
            _ => {
                if let Some((uid, outcome)) = self.leader.answers.pop() {
                    self.step(ProvisionEvent::Written(uid, outcome));
                }
            }
        }
    }

    /// One of the leader's writes arrives, or is lost, or its answer is.
    fn arrive(&mut self) {
        let travelling = self.leader.travelling.len();
        if travelling == 0 {
            return;
        }
        let write = self.leader.travelling.swap_remove(self.dice.below(travelling));
        let is_lost = self.dice.one_in(8);
        let outcome = if is_lost { StatusOutcome::Failed } else { self.server.apply(&write) };
        let outcome = if self.dice.one_in(8) { StatusOutcome::Failed } else { outcome };
        self.check_promises();
        self.leader.answers.push((write.version.uid, outcome));
        self.until_crash = self.until_crash.map(|left| left - 1);
        if self.until_crash == Some(0) {
            self.until_crash = None;
            self.lead();
        }
    }

    fn wait(&mut self) {
        self.now += SECOND * u32::try_from(self.dice.below(90)).unwrap();
        if self.now - self.leader.began >= MARKS_COME {
            self.late.clear();
        }
    }

    /// What one who does not lead any more has sent arrives.
    fn arrive_late(&mut self) {
        if !self.late.is_empty() {
            let write = self.late.swap_remove(self.dice.below(self.late.len()));
            self.server.apply(&write);
        }
    }

    /// What is booked and what is used is never more than there is.
    fn check_promises(&self) {
        let used: usize = self.used.iter().sum();
        let booked: usize = self.booked().map(|(_, left)| left).sum();
        assert!(used + booked <= NODES * DEVICES, "{used} devices are used and {booked} promised");
    }

    fn story(&mut self) {
        for _ in 0..400 {
            match self.dice.below(24) {
                0 => self.ask(),
                1 => self.bind(),
                2 => self.wait(),
                3 if self.dice.one_in(4) => self.lead(),
                4 | 5 => self.arrive_late(),
                _ => self.turn(),
            }
            self.check_promises();
        }
    }

    /// Everything arrives, and time passes.
    fn end(&mut self) {
        while !self.late.is_empty() {
            self.arrive_late();
            self.check_promises();
        }
        for _ in 0..400 {
            if self.is_at_rest() {
                break;
            }
            self.now += 60 * SECOND;
            self.leader.seen = self.server.clone();
            for (uid, outcome) in std::mem::take(&mut self.leader.answers) {
                self.step(ProvisionEvent::Written(uid, outcome));
            }
            if let Some(answer) = self.leader.check.take() {
                self.step(ProvisionEvent::Checked(answer));
            }
            self.step(ProvisionEvent::Changed);
            for write in std::mem::take(&mut self.leader.travelling) {
                let outcome = self.server.apply(&write);
                self.check_promises();
                self.leader.answers.push((write.version.uid, outcome));
            }
        }
        let left: Vec<_> = self.server.objects.requests.values().map(|it| (&it.key.name, &it.status)).collect();
        assert!(self.is_at_rest(), "a request is told nothing, or a booking never ends: {left:?}");
    }

    /// Everybody was told something, and nothing is booked any more.
    fn is_at_rest(&self) -> bool {
        let is_told = |request: &Arc<SeenRequest>| request.status.condition(Type::Provisioned).is_some();
        self.server.objects.requests.values().all(is_told) && self.booked().next().is_none()
    }
}

#[test]
fn nothing_is_promised_twice_whatever_is_late_or_lost_and_whoever_leads() {
    for seed in 1..=60 {
        let mut world = RandomWorld::new(seed);
        world.story();
        world.end();
    }
}

/// Each crash is followed by another one, some writes later.
#[test]
fn a_crash_at_every_write_and_again_promises_nothing_twice_and_forgets_nobody() {
    for seed in 1..=3 {
        for first in 1..=16 {
            let mut world = RandomWorld::new(seed);
            world.until_crash = Some(first);
            world.story();
            world.until_crash.get_or_insert(1 + first % 5);
            world.story();
            world.end();
        }
    }
}

#[test]
fn a_request_that_is_written_by_another_one_in_between_is_not_overwritten() {
    let mut world = RandomWorld::new(1);
    world.ask();
    world.lead();
    world.step(ProvisionEvent::Changed);
    let [write] = &*world.leader.travelling else { panic!("it is accepted") };
    let write = write.clone();
    world.server.touch("r1");
    assert_eq!(world.server.apply(&write), StatusOutcome::Conflict);
    assert!(!world.server.request("r1").status.is(Type::Accepted));
}
