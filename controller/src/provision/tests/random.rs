//! Controllers that take over from one another; writes of the last one that come late, answers that are lost, crashes at every
//! write. Whatever happens, nothing is promised twice, and in the end everybody is told something.
//!
//! Who does not lead any more sends nothing: the Lease sees to that. What it sent before can arrive for as long as whoever leads
//! now waits for his marks.

use std::{sync::Arc, time::Duration};

use hostler_allocator::plan::{PlanOptions, Snapshot};
use hostler_api::provisioning::ProvisioningConditionType as Type;
use hostler_cluster::from_rfc3339;
use hostler_reconcile::WriteOutcome;
use serde_json::json;

use super::world::{CLASS, ModelServer, outcome};
use crate::provision::{
    check::CheckAnswer,
    clock::ProvisionMoment,
    context::Keeping,
    core::{MARKS_COME, ProvisionCore, ProvisionSettings},
    event::{ProvisionCommand, ProvisionEvent, ReservationWrite, StatusWrite, WriteResult},
};
use crate::testkit::{Dice, Fate, RandomLife, live, seeds};
use crate::{
    askers::ASKER_BOX,
    requests::{ProvisionClasses, SeenRequest},
    reservation_object::ReservationObject,
};

const NODES: usize = 3;
const DEVICES: usize = 3;
const SECOND: Duration = Duration::from_secs(1);

/// A write on its way.
#[derive(Clone, Debug)]
enum ModelWrite {
    Status(StatusWrite),
    Keep(ReservationWrite),
}

impl ModelWrite {
    fn answer(&self, result: WriteResult) -> ProvisionEvent {
        match self {
            Self::Status(write) => ProvisionEvent::Written(write.version.uid.clone(), result),
            Self::Keep(write) => ProvisionEvent::Kept(write.name().to_owned(), result),
        }
    }
}

/// A controller with what it has seen.
struct ModelController {
    core: ProvisionCore,
    seen: ModelServer,
    began: Duration,
    /// Sent and not there yet.
    travelling: Vec<ModelWrite>,
    answers: Vec<ProvisionEvent>,
    check: Option<CheckAnswer>,
}

impl ModelController {
    fn new(term: usize, seen: ModelServer, began: Duration) -> Self {
        let settings = ProvisionSettings {
            classes: ProvisionClasses::default(),
            batch: 3,
            time_box: 10 * SECOND,
            term: format!("term-{term}"),
            longest_booking: 3600 * SECOND,
            keep: None,
            asker_box: ASKER_BOX,
        };
        let (travelling, answers) = (Vec::new(), Vec::new());
        Self { core: ProvisionCore::new(settings), seen, began, travelling, answers, check: None }
    }
}

impl RandomLife for RandomWorld {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn step(&mut self) {
        match self.dice.roll(24) {
            0 => self.ask(),
            1 => self.bind(),
            2 => self.wait(),
            3 if self.dice.one_in(4) => self.lead(),
            4 | 5 => self.arrive_late(),
            6 | 7 => self.keep_devices(),
            8 if self.dice.one_in(8) => self.delete(),
            _ => self.turn(),
        }
    }

    fn check(&mut self) {
        self.check_promises();
    }
}

struct RandomWorld {
    dice: Dice,
    server: ModelServer,
    now: Duration,
    leader: ModelController,
    /// What those before have sent and is not there yet.
    late: Vec<ModelWrite>,
    terms: usize,
    requests: usize,
    pods: usize,
    keeping: Keeping,
    /// Writes before the next crash.
    until_crash: Option<usize>,
}

impl RandomWorld {
    fn new(seed: u64) -> Self {
        let mut server = ModelServer::with_classes();
        for at in 0..NODES {
            server.node(&format!("n{at}"), DEVICES);
        }
        server.template("t", &ModelServer::pod_spec("one"));
        Self {
            dice: Dice::new(seed),
            server,
            now: Duration::ZERO,
            leader: ModelController::new(0, ModelServer::with_classes(), Duration::ZERO),
            late: Vec::new(),
            terms: 0,
            requests: 0,
            pods: 0,
            keeping: Keeping::Kept,
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
        let pods = 1 + self.dice.roll(5);
        let class = if self.dice.one_in(3) { "atomic-scale-up.hostler.dev" } else { CLASS };
        let request = json!({
            "metadata": {"name": format!("r{}", self.requests)},
            "spec": {
                "provisioningClassName": class, "podSets": [{"podTemplateRef": {"name": "t"}, "count": pods}],
            },
        });
        let wall = self.wall();
        self.server.ask(request, wall);
    }

    /// A pod of a request that has a booking comes to a node.
    fn bind(&mut self) {
        let mut booked: Vec<String> = self.booked().map(|(name, _)| name).collect();
        let Some(request) = self.dice.take(&mut booked) else { return };
        // It may have what is kept for it, or what nobody wants.
        let mut devices = self.server.free();
        let prefix = format!("provreq-{}-", self.server.request(&request).uid());
        let held = self.server.held();
        let own = held.into_iter().filter(|(at, of)| of.starts_with(&prefix) && !self.server.given.contains_key(at));
        devices.extend(own.map(|(at, _)| at));
        let Some((node, device)) = self.dice.take(&mut devices) else { return };
        let annotations = json!({"autoscaling.x-k8s.io/consume-provisioning-request": request});
        self.pods += 1;
        self.server.pod(&format!("p{}", self.pods), &annotations, Some((&node, device)));
    }

    /// Cluster Autoscaler deletes requests, or their owner does.
    fn delete(&mut self) {
        let mut names: Vec<_> = self.server.objects.requests.keys().cloned().collect();
        self.dice.take(&mut names).iter().for_each(|name| self.server.delete_request(name));
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
        for command in controller.core.step(now, &controller.seen.cx(&self.keeping), event) {
            match command {
                ProvisionCommand::Write(write) => controller.travelling.push(ModelWrite::Status(write)),
                ProvisionCommand::Keep(write) => controller.travelling.push(ModelWrite::Keep(write)),
                ProvisionCommand::Check(batch) => {
                    let snapshot = Snapshot::new(controller.seen.facts.clone());
                    let answer = batch.run(&snapshot, &PlanOptions::default(), &mut || Duration::ZERO);
                    controller.check = Some(answer);
                }
                ProvisionCommand::Delete(key, _) => panic!("{key} is deleted, though requests are kept for ever"),
                ProvisionCommand::WakeAt(_) | ProvisionCommand::Tell(_) => {}
            }
        }
    }

    /// Something happens to the leader.
    fn turn(&mut self) {
        match self.dice.roll(4) {
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
                if let Some(answer) = self.leader.answers.pop() {
                    self.step(answer);
                }
            }
        }
    }

    /// One of the leader's writes arrives, or is lost, or its answer is.
    fn arrive(&mut self) {
        let Some(write) = self.dice.take(&mut self.leader.travelling) else { return };
        let (is_lost, is_unheard) = (self.dice.one_in(8), self.dice.one_in(8));
        let fate = is_lost.then_some(Fate::FailBefore).or_else(|| is_unheard.then_some(Fate::FailAfter));
        let answer = self.deliver(&write, fate);
        self.check_promises();
        self.leader.answers.push(answer);
        self.until_crash = self.until_crash.map(|left| left - 1);
        if self.until_crash == Some(0) {
            self.until_crash = None;
            self.lead();
        }
    }

    fn wait(&mut self) {
        self.now += SECOND * u32::try_from(self.dice.roll(90)).unwrap();
        if self.now - self.leader.began >= MARKS_COME {
            self.late.clear();
        }
    }

    /// What one who does not lead any more has sent arrives.
    fn arrive_late(&mut self) {
        if let Some(write) = self.dice.take(&mut self.late) {
            drop(self.apply(&write));
        }
    }

    /// What comes of a write.
    fn deliver(&mut self, write: &ModelWrite, fate: Option<Fate>) -> ProvisionEvent {
        write.answer(outcome(Fate::carry_out(fate, self, |_| {}, |world| world.apply(write))))
    }

    fn apply(&mut self, write: &ModelWrite) -> WriteResult {
        match write {
            ModelWrite::Status(write) => self.server.apply(write),
            ModelWrite::Keep(write) => self.server.keep(write, self.wall()),
        }
    }

    fn keep_devices(&mut self) {
        let wall = self.wall();
        self.server.keep_devices(wall);
    }

    /// What is booked and what is used is never more than there is, and what was promised is kept.
    fn check_promises(&self) {
        let used = self.server.given.len();
        let booked: usize = self.booked().map(|(_, left)| left).sum();
        let devices: usize = self.server.devices.values().sum();
        assert!(used + booked <= devices, "{used} devices are used and {booked} promised of {devices}");
        let held = self.server.held();
        let in_use = held.keys().chain(self.server.given.keys());
        let gone = in_use.filter(|(pool, _)| !self.server.devices.contains_key(pool)).count();
        assert_eq!(gone, 0, "what is kept or used is gone");
        for (name, left) in self.booked().filter(|(name, _)| self.is_in_time(name)) {
            let prefix = format!("provreq-{}-", self.server.request(&name).uid());
            let kept = held.iter().filter(|(at, of)| of.starts_with(&prefix) && !self.server.given.contains_key(at));
            let kept = kept.count();
            assert!(kept >= left || self.keeping != Keeping::Kept, "{kept} devices are kept for {left} pods of {name}");
        }
    }

    /// Whether the time of a booking is not over yet.
    fn is_in_time(&self, name: &str) -> bool {
        let provisioned = self.server.request(name).status.condition(Type::Provisioned).unwrap();
        let since = from_rfc3339(&provisioned.last_transition_time).unwrap();
        self.wall() < since + Duration::from_secs(600)
    }

    fn story(&mut self) {
        live(self, 400);
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
            self.rounds();
        }
        let left: Vec<_> = self.server.objects.requests.values().map(|it| (&it.key.name, &it.status)).collect();
        assert!(self.is_at_rest(), "a request is told nothing, or a booking never ends: {left:?}");
        self.end_in_quiet();
    }

    /// Everything that is under way arrives, step by step: until nothing is any more.
    fn rounds(&mut self) {
        for _ in 0..60 {
            self.round();
            let is_quiet = self.leader.travelling.is_empty() && self.leader.answers.is_empty();
            if is_quiet && self.leader.check.is_none() {
                return;
            }
        }
    }

    /// Without any time passing, it writes nothing more soon.
    fn end_in_quiet(&mut self) {
        let mut quiet = 0;
        for _ in 0..100 {
            let before = (self.server.writes, self.server.keeps);
            self.round();
            quiet = if (self.server.writes, self.server.keeps) == before { quiet + 1 } else { 0 };
            if quiet == 5 {
                return;
            }
        }
        panic!("it writes at rest");
    }

    /// Everything that is under way arrives.
    fn round(&mut self) {
        self.keep_devices();
        self.leader.seen = self.server.clone();
        for answer in std::mem::take(&mut self.leader.answers) {
            self.step(answer);
        }
        if let Some(answer) = self.leader.check.take() {
            self.step(ProvisionEvent::Checked(answer));
        }
        self.step(ProvisionEvent::Changed);
        for write in std::mem::take(&mut self.leader.travelling) {
            let answer = self.deliver(&write, None);
            self.check_promises();
            self.leader.answers.push(answer);
        }
    }

    /// Everybody was told something, and nothing is booked any more.
    fn is_at_rest(&self) -> bool {
        let is_told = |request: &Arc<SeenRequest>| request.status.condition(Type::Provisioned).is_some();
        let is_open = |it: &Arc<ReservationObject>| !it.status.phase.is_over();
        self.server.objects.requests.values().all(is_told)
            && self.booked().next().is_none()
            && !self.server.reservations.values().any(is_open)
    }
}

/// Without anybody who keeps devices, bookings are among requests.
#[test]
fn without_reservations_nothing_is_promised_twice_either() {
    for seed in seeds(1..=20) {
        let mut world = RandomWorld::new(seed);
        world.keeping = Keeping::NotKept("nobody does".to_owned());
        world.story();
        world.end();
    }
}

#[test]
fn nothing_is_promised_twice_whatever_is_late_or_lost_and_whoever_leads() {
    for seed in seeds(1..=60) {
        let mut world = RandomWorld::new(seed);
        world.story();
        world.end();
    }
}

/// Each crash is followed by another one, some writes later.
#[test]
fn a_crash_at_every_write_and_again_promises_nothing_twice_and_forgets_nobody() {
    for seed in seeds(1..=3) {
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
    world.server.touch_request("r1");
    assert_eq!(world.apply(&write), Err(WriteOutcome::Conflict));
    assert!(!world.server.request("r1").status.is(Type::Accepted));
}
