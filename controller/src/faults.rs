//! Whole controllers without a process, on a model of an API server: killed and paused at any moment, ten thousand
//! times.
//!
//! ```text
//!   changes of the cluster ──► ModelServer ──events, late──► ClusterModel ──► what shall stand there
//!                               ▲    │ answers, late or lost                        │
//!                               └────┴── writes, late ◄── LeaseCore, decide ◄──────┘
//! ```

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hostler_api::{
    ObjectKey,
    hardware::{ClusterHardwareStatus, ClusterNodeCounts},
    resource::ResourceSlice,
};
use hostler_reconcile::{LeaseCommand, LeaseCore, LeaseEvent, SeenLease};

use crate::{
    hardware::{HardwareStep, StoredHardware, decide},
    model::ClusterModel,
    observed::{ClusterEvent, ObservedKind, ObservedObject, SeenObject},
    testkit::{Change, Dice, ModelCluster, ModelServer, ModelWatch, Part, model_kind, over, seeds, serves},
};

const MS: Duration = Duration::from_millis(1);
/// The time between two moments of the model.
const TICK: Duration = Duration::from_millis(250);
const CONTROLLERS: usize = 3;
const KILLS: usize = 10_000;

/// A slice, of which the name matters.
#[derive(Clone, Debug, Default)]
struct ModelSlice {
    name: String,
    version: String,
}

/// The objects that are written, and those that are read.
#[derive(Default)]
struct Cluster {
    lease: BTreeMap<(), SeenLease>,
    hardware: BTreeMap<(), StoredHardware>,
    slices: BTreeMap<String, ModelSlice>,
    hardware_writes: usize,
    refused: usize,
}

/// Slices are watched: each of them, and whether it is there.
impl ModelCluster for Cluster {
    type Event = (ModelSlice, bool);
}

model_kind!(SeenLease: () = |_lease| (), { version: version });
model_kind!(StoredHardware: () = |_hardware| (), { version: version });
model_kind!(ModelSlice: String = |slice| slice.name.clone(), { version: version });

serves!(Cluster, lease: SeenLease);
serves!(Cluster, hardware: StoredHardware, |cluster, _change| {
    cluster.hardware_writes += 1;
    Vec::new()
});

serves!(Cluster, slices: ModelSlice, |_cluster, change| {
    match change {
        Change::Put(slice) => vec![(slice.clone(), true)],
        Change::Gone(slice) => vec![(slice.clone(), false)],
    }
});

impl ModelServer<Cluster> {
    fn change_slice(&mut self, name: String) {
        if self.remove::<ModelSlice>(&name).is_none() {
            self.put(ModelSlice { name, ..ModelSlice::default() });
        }
    }

    fn answer_lease(&mut self, command: &LeaseCommand) -> LeaseEvent {
        let LeaseCommand::Write { over: version, record, .. } = command else {
            return LeaseEvent::Read(self.lease.get(&()).cloned());
        };
        let written = match version {
            None => self.create(SeenLease { version: String::new(), record: record.clone() }),
            Some(version) => {
                self.update(&(), Some(&over("", version)), Part::Spec, |it: &mut SeenLease| it.record = record.clone())
            }
        };
        written.map_or_else(
            |_| {
                self.refused += 1;
                LeaseEvent::Refused
            },
            LeaseEvent::Written,
        )
    }

    fn answer_hardware(&mut self, call: &HardwareCall) -> HardwareReply {
        let HardwareCall::Write(step) = call else { return HardwareReply::Read(self.hardware.get(&()).cloned()) };
        let written = match step {
            HardwareStep::Rest => unreachable!("it is no write"),
            HardwareStep::Create => {
                let (version, status) = (String::new(), ClusterHardwareStatus::default());
                self.create(StoredHardware { version, status })
            }
            HardwareStep::Write { version, status } => {
                let change = |it: &mut StoredHardware| it.status = ClusterHardwareStatus::clone(status);
                self.update(&(), Some(&over("", version)), Part::Status, change)
            }
        };
        self.refused += usize::from(written.is_err());
        written.map_or(HardwareReply::Failed, |_| HardwareReply::Written)
    }
}

/// A message on its way: to the server, or back.
enum Travelling<C, E> {
    There(C, Instant),
    Back(E, Instant),
}

/// A call for ClusterHardware.
enum HardwareCall {
    Read,
    Write(HardwareStep),
}

/// The answer to it.
enum HardwareReply {
    Read(Option<StoredHardware>),
    Written,
    Failed,
}

/// A controller.
struct ModelController {
    lease: LeaseCore,
    /// The moment at which ClusterHardware is read again.
    hardware_due: Instant,
    model: ClusterModel,
    watch: ModelWatch,
    lease_call: Option<Travelling<LeaseCommand, LeaseEvent>>,
    hardware_call: Option<Travelling<HardwareCall, HardwareReply>>,
    paused_until: Instant,
}

impl ModelController {
    fn new(identity: &str, server: &ModelServer<Cluster>, now: Instant) -> Self {
        let mut model = ClusterModel::default();
        for kind in ObservedKind::ALL {
            model.step(now, ClusterEvent::ListStarted(kind));
            if kind == ObservedKind::ResourceSlice {
                for slice in server.slices.values() {
                    model.step(now, ClusterEvent::Seen(seen_slice(slice)));
                }
            }
            model.step(now, ClusterEvent::ListEnded(kind));
        }
        Self {
            lease: LeaseCore::new(identity, now),
            hardware_due: now,
            model,
            watch: ModelWatch::from_now(&server.log),
            lease_call: None,
            hardware_call: None,
            paused_until: now,
        }
    }

    /// Takes some of the news, now and then one of them twice or an old one again.
    fn observe(&mut self, server: &ModelServer<Cluster>, now: Instant, dice: &mut Dice) {
        for _ in 0..dice.roll(self.watch.waiting(&server.log) + 1) {
            let event = self.watch.next(&server.log);
            event.into_iter().for_each(|event| self.tell(event, now));
        }
        let heard = self.watch.heard();
        if heard > 0 && dice.one_in(8) {
            let back = dice.roll(heard.min(20));
            self.tell(&server.log[heard - 1 - back], now);
        }
    }

    fn tell(&mut self, (slice, is_there): &(ModelSlice, bool), now: Instant) {
        let event = if *is_there {
            ClusterEvent::Seen(seen_slice(slice))
        } else {
            let SeenObject { kind, key, stamp, .. } = seen_slice(slice);
            ClusterEvent::Gone(kind, key, stamp)
        };
        self.model.step(now, event);
    }

    /// Returns the status that shall stand in the object: here, how many slices are known.
    fn wanted(&self) -> ClusterHardwareStatus {
        let slices = self.model.objects(ObservedKind::ResourceSlice);
        let nodes = ClusterNodeCounts { reporting: u32::try_from(slices).unwrap(), ..ClusterNodeCounts::default() };
        ClusterHardwareStatus { nodes, ..ClusterHardwareStatus::default() }
    }

    /// Lives for one moment; calls take as long as it pleases them, and may come back with nothing.
    fn live(&mut self, server: &mut ModelServer<Cluster>, now: Instant, dice: &mut Dice, is_calm: bool) {
        let trouble = |dice: &mut Dice| !is_calm && dice.one_in(10);
        let delay = |dice: &mut Dice| now + MS * u32::try_from(dice.roll(if is_calm { 300 } else { 2500 })).unwrap();
        let event = match self.lease_call.take() {
            None if now >= self.lease.due() => Some(LeaseEvent::Due),
            None => None,
            Some(Travelling::There(command, at)) if now >= at => {
                let event = server.answer_lease(&command);
                let event = if trouble(dice) { LeaseEvent::Failed } else { event };
                self.lease_call = Some(Travelling::Back(event, delay(dice)));
                None
            }
            Some(Travelling::Back(event, at)) if now >= at => Some(event),
            waiting => {
                self.lease_call = waiting;
                None
            }
        };
        if let Some(command) = event.and_then(|event| self.lease.step(now, event)) {
            self.lease_call = Some(Travelling::There(command, delay(dice)));
        }
        let leads = self.lease.leads(now);
        let call = match self.hardware_call.take() {
            None => (leads && now >= self.hardware_due).then_some(HardwareCall::Read),
            Some(Travelling::There(call, at)) if now >= at => {
                let reply = server.answer_hardware(&call);
                let reply = if trouble(dice) { HardwareReply::Failed } else { reply };
                self.hardware_call = Some(Travelling::Back(reply, delay(dice)));
                None
            }
            Some(Travelling::Back(HardwareReply::Read(found), at)) if now >= at => {
                let step = decide(self.wanted(), found.as_ref());
                self.hardware_due = now + Duration::from_secs(1);
                (leads && step != HardwareStep::Rest).then_some(HardwareCall::Write(step))
            }
            Some(Travelling::Back(_, at)) if now >= at => None,
            waiting => {
                self.hardware_call = waiting;
                None
            }
        };
        if let Some(call) = call {
            self.hardware_call = Some(Travelling::There(call, delay(dice)));
        }
    }

    /// Returns calls that the server gets though their sender is dead.
    fn calls_on_their_way(self) -> impl Iterator<Item = (OrphanedCall, Instant)> {
        let lease = match self.lease_call {
            Some(Travelling::There(command, at)) => Some((OrphanedCall::Lease(command), at)),
            _ => None,
        };
        let hardware = match self.hardware_call {
            Some(Travelling::There(command, at)) => Some((OrphanedCall::Hardware(command), at)),
            _ => None,
        };
        lease.into_iter().chain(hardware)
    }

    /// True if a call is on its way that would change an object.
    fn is_writing(&self) -> bool {
        let lease = matches!(&self.lease_call, Some(Travelling::There(LeaseCommand::Write { .. }, _)));
        lease || matches!(&self.hardware_call, Some(Travelling::There(HardwareCall::Write(_), _)))
    }
}

fn seen_slice(ModelSlice { name, version }: &ModelSlice) -> SeenObject {
    let slice: ResourceSlice = serde_json::from_value(serde_json::json!({
        "metadata": { "name": name },
        "spec": { "driver": "d", "nodeName": "n", "pool": { "name": "n", "generation": 1, "resourceSliceCount": 1 } },
    }))
    .unwrap();
    let version = over(name, version);
    SeenObject {
        kind: ObservedKind::ResourceSlice,
        key: ObjectKey { namespace: String::new(), name: name.clone() },
        stamp: (&version).into(),
        content: Ok(ObservedObject::ResourceSlice(Box::new(slice))),
    }
}

/// A call whose caller is dead: the server gets it all the same, and its answer has no reader.
enum OrphanedCall {
    Lease(LeaseCommand),
    Hardware(HardwareCall),
}

/// A cluster with some controllers.
struct Controllers {
    server: ModelServer<Cluster>,
    controllers: Vec<ModelController>,
    orphans: Vec<(OrphanedCall, Instant)>,
    now: Instant,
    dice: Dice,
    /// Number of controllers that there were.
    born: usize,
    kills: usize,
    kills_while_writing: usize,
    /// Number of moments in which a controller led.
    led: usize,
}

impl Controllers {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let server = ModelServer::<Cluster>::default();
        let controllers = (0..CONTROLLERS).map(|number| ModelController::new(&format!("c{number}"), &server, now));
        let controllers = controllers.collect();
        Self {
            server,
            controllers,
            orphans: Vec::new(),
            now,
            dice: Dice::new(seed),
            born: CONTROLLERS,
            kills: 0,
            kills_while_writing: 0,
            led: 0,
        }
    }

    fn tick(&mut self, is_calm: bool) {
        self.now += TICK;
        if !is_calm && self.dice.one_in(4) {
            let name = format!("slice-{}", self.dice.roll(20));
            self.server.change_slice(name);
        }
        self.deliver_orphans();
        for at in 0..self.controllers.len() {
            if !is_calm {
                self.hurt(at);
            }
            let controller = &mut self.controllers[at];
            if self.now < controller.paused_until {
                continue;
            }
            controller.observe(&self.server, self.now, &mut self.dice);
            controller.live(&mut self.server, self.now, &mut self.dice, is_calm);
        }
        self.check();
    }

    fn deliver_orphans(&mut self) {
        let now = self.now;
        let arrived = self.orphans.extract_if(.., |(_, at)| now >= *at);
        for (call, _) in arrived.collect::<Vec<_>>() {
            match call {
                OrphanedCall::Lease(command) => drop(self.server.answer_lease(&command)),
                OrphanedCall::Hardware(command) => drop(self.server.answer_hardware(&command)),
            }
        }
    }

    /// Kills a controller, mostly in the middle of a write, or pauses it for up to a minute with whatever it is about
    /// to send.
    fn hurt(&mut self, at: usize) {
        let is_writing = self.controllers[at].is_writing();
        if self.dice.one_in(if is_writing { 6 } else { 100 }) {
            self.kills += 1;
            self.kills_while_writing += usize::from(is_writing);
            let identity = format!("c{}", self.born);
            self.born += 1;
            let killed = ModelController::new(&identity, &self.server, self.now);
            let killed = std::mem::replace(&mut self.controllers[at], killed);
            self.orphans.extend(killed.calls_on_their_way());
        } else if self.dice.one_in(300) {
            let pause = MS * u32::try_from(self.dice.roll(60_000)).unwrap();
            self.controllers[at].paused_until = self.now + pause;
        }
    }

    /// Checks that a leader leads alone. Paused ones do nothing, and find out before they do anything.
    fn check(&mut self) {
        let leads =
            |controller: &&ModelController| controller.lease.leads(self.now) && self.now >= controller.paused_until;
        let leaders = self.controllers.iter().filter(leads).count();
        assert!(leaders <= 1, "{leaders} lead at once");
        self.led += leaders;
    }
}

#[test]
fn ten_thousand_kills_at_any_moment_leave_one_leader_one_object_and_the_truth_in_it() {
    let mut cluster = Controllers::new(seeds([0x5eed]).next().unwrap());
    while cluster.kills < KILLS {
        cluster.tick(false);
    }
    // The story had what it was to have.
    assert!(cluster.kills_while_writing > KILLS / 10, "{} while writing", cluster.kills_while_writing);
    assert!(cluster.server.hardware_writes > 100, "{} writes", cluster.server.hardware_writes);
    assert!(cluster.server.refused > 100 && cluster.led > 1000, "{} refused", cluster.server.refused);
    // Then all controllers are left alone for two minutes.
    for _ in 0..480 {
        cluster.tick(true);
    }
    let truth = u32::try_from(cluster.server.slices.len()).unwrap();
    for controller in &cluster.controllers {
        assert_eq!(controller.wanted().nodes.reporting, truth);
    }
    let stored = &cluster.server.hardware[&()];
    assert_eq!(stored.status.nodes.reporting, truth);
    // At rest, the lease is renewed and nothing else is written, by one, for an hour.
    let (writes, refused, led) = (cluster.server.hardware_writes, cluster.server.refused, cluster.led);
    for _ in 0..14_400 {
        cluster.tick(true);
    }
    assert_eq!((cluster.server.hardware_writes, cluster.server.refused), (writes, refused));
    assert_eq!(cluster.led - led, 14_400);
}
