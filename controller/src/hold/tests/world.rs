//! The core, with a server instead of a cluster: every watch event, command and answer is one step that a test can take, delay,
//! lose or repeat.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_allocator::plan::{PlanOptions, Snapshot};
use hostler_api::ObjectKey;
use hostler_api::reservation::{ReservationPhase, ReservedDevice, ReservedDeviceState, toleration_value};
use hostler_reconcile::WriteOutcome;
use serde_json::{Value, json};

use super::{
    super::{
        AllocatedClaim, DeviceKey, HoldAnswer, HoldCommand, HoldCore, HoldEvent, HoldEventNote, HoldSettings, HoldTime,
        HoldWrite, NodeFences, PublishedDevice,
    },
    cluster::GivenDevices,
    server::{ModelPod, Server, read},
};
use crate::{
    askers::ASKER_BOX,
    reservation_object::ReservationObject,
    testkit::{self, ApiError, Model, Sorted},
};

pub(super) const DRIVER: &str = "hostler.dev";
/// When the world began, since 1970.
pub(super) const BEGIN: Duration = Duration::from_secs(1_800_000_000);

/// Parts of the world besides the server and the controller.
pub(super) struct HoldModel {
    pub(super) settings: HoldSettings,
    /// The server does not say what time it is.
    pub(super) is_silent: bool,
    /// Reservations that the controller cannot understand.
    pub(super) unreadable: BTreeSet<String>,
    /// By how much the clock of the controller's machine is wrong, in seconds.
    pub(super) skew: i64,
    /// Nodes whose daemons do nothing.
    pub(super) daemons_down: BTreeSet<String>,
    /// What the scheduler has decided and not written yet: a pod, and its devices.
    pub(super) in_flight: BTreeMap<ObjectKey, Vec<DeviceKey>>,
    /// What the scheduler takes for given away.
    pub(super) given: GivenDevices,
    /// Devices that another scheduler gave though they were given, as long as anybody has them.
    pub(super) given_twice: BTreeSet<DeviceKey>,
    /// Devices in conflict that were seen closed.
    pub(super) sealed: BTreeSet<DeviceKey>,
    /// How often the planner was asked, and how often it may be asked until the world is at rest.
    pub(super) questions: u64,
    most_questions: u64,
    /// Rules that people edited: for a moment they may close something for a Reservation that is gone.
    pub(super) edited: BTreeSet<String>,
    /// What closes devices to others.
    pub(super) means: Means,
}

pub(super) type World = testkit::World<HoldModel>;

/// What closes devices to others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Means {
    /// A taint that the daemon publishes, which drives them.
    Taints,
    /// An attribute that it publishes, since the server knows no taints.
    Attribute,
    /// DeviceTaintRules, since another driver's daemon knows nothing of us.
    Rules,
}

thread_local! {
    static MEANS: Cell<Means> = const { Cell::new(Means::Taints) };
}

fn by<T>(means: Means, what: impl FnOnce() -> T) -> T {
    MEANS.set(means);
    let value = what();
    MEANS.set(Means::Taints);
    value
}

/// Has something happen where devices are closed by an attribute.
pub(super) fn by_attribute<T>(what: impl FnOnce() -> T) -> T {
    by(Means::Attribute, what)
}

/// Has something happen where devices are another driver's, and closed by DeviceTaintRules.
pub(super) fn by_rules<T>(what: impl FnOnce() -> T) -> T {
    by(Means::Rules, what)
}

impl PublishedDevice {
    /// Whether it is closed to those who do not tolerate that.
    pub(super) fn is_closed(&self) -> bool {
        self.held_for.is_some() || self.is_held
    }
}

impl Model for HoldModel {
    type Core = HoldCore;
    type Server = Server;
    type Entry = HoldEvent;
    type Event = HoldEvent;
    type Command = HoldCommand;
    type Notice = HoldEventNote;
    type Write = HoldWrite;
    /// The object after the write.
    type Written = Option<HoldEvent>;
    /// An answer of the planner.
    type Answer = HoldAnswer;

    fn core(&self) -> HoldCore {
        HoldCore::new(self.settings.clone())
    }

    fn log(server: &Server) -> &[HoldEvent] {
        &server.log
    }

    fn event(&self, entry: &HoldEvent) -> Option<HoldEvent> {
        Some(entry.clone())
    }

    fn everything(world: &World) -> Vec<HoldEvent> {
        // The server says with each renewal of the Lease what time it is.
        let time = (!world.is_silent).then(|| HoldEvent::ServerTime(world.true_time()));
        time.into_iter().chain(world.server.everything()).chain([HoldEvent::Synced]).collect()
    }

    fn time_passed() -> HoldEvent {
        HoldEvent::Tick
    }

    fn step(world: &mut World, event: HoldEvent) -> Vec<HoldCommand> {
        let time = world.time();
        let event = match event {
            HoldEvent::Reservation(object) if world.unreadable.contains(&object.name) => {
                HoldEvent::ReservationUnreadable(object.uid)
            }
            event => event,
        };
        world.controller.core.step(time, event)
    }

    fn sort(command: HoldCommand) -> Sorted<Self> {
        match command {
            HoldCommand::WakeAt(at) => Sorted::WakeAt(at),
            HoldCommand::Tell(notice) => Sorted::Tell(notice),
            command => Sorted::Queue(command),
        }
    }

    fn check_command(world: &World, command: &HoldCommand) {
        world.check_eviction(command);
    }

    fn execute(world: &mut World, command: HoldCommand) {
        match command {
            HoldCommand::FetchPod(key) => {
                let pod = world.server.pods.get(&key).map(|pod| Box::new(pod.is.clone()));
                world.feed(HoldEvent::Pod(key, Ok(pod)));
            }
            HoldCommand::ListBudgets => {
                let budgets = world.server.pod_budgets();
                world.feed(HoldEvent::Budgets(budgets));
            }
            HoldCommand::ListPriorities => {
                let classes = world.server.priorities.clone();
                world.feed(HoldEvent::Priorities(classes));
            }
            HoldCommand::ListClaims(list) => {
                let claims: Vec<_> = world.server.claims.values().cloned().collect();
                claims.into_iter().for_each(|claim| world.feed(HoldEvent::Claim(Box::new(claim))));
                world.feed(HoldEvent::ClaimsListed(list));
            }
            HoldCommand::Plan(question) => {
                let snapshot = Snapshot::new(world.server.facts.clone());
                world.questions += 1;
                world.controller.answers.push_back(question.run(&snapshot));
            }
            HoldCommand::Write(write) => world.send(write),
            HoldCommand::Tell(_) | HoldCommand::WakeAt(_) => {}
        }
    }

    fn overtake(world: &mut World, write: &HoldWrite) {
        match write {
            HoldWrite::Finalizers(it, _) | HoldWrite::Status(it, _) | HoldWrite::Delete(it) => {
                world.server.touch::<ReservationObject>(&it.name);
            }
            HoldWrite::NodeFences { node, .. } => world.server.touch::<NodeFences>(node),
            HoldWrite::Claim(write) => world.server.touch::<AllocatedClaim>(write.key()),
            HoldWrite::CreateRule(_) | HoldWrite::DeleteRule(_) | HoldWrite::Pod(_) => {}
        }
    }

    fn write(world: &mut World, write: &HoldWrite) -> Result<Option<HoldEvent>, ApiError> {
        world.server.write(write)
    }

    fn written(world: &mut World, write: HoldWrite, answer: Result<Option<HoldEvent>, ApiError>) {
        let (outcome, event) = match answer {
            Ok(event) => (WriteOutcome::Done, event),
            Err(error) => (error.into(), None),
        };
        // What is written is seen before its answer.
        event.into_iter().for_each(|event| world.feed(event));
        world.feed(HoldEvent::Written(write.target(), outcome));
    }

    fn settling(&mut self, seconds: u64) {
        self.most_questions = self.questions + 50 + seconds;
    }

    fn others(world: &mut World) -> bool {
        assert!(world.questions <= world.most_questions, "the planner is asked again and again");
        world.answer() || world.publish() || world.end_going_pods()
    }

    fn rests(world: &mut World, until: Duration) {
        world.edited.clear();
        world.now = until;
    }
}

pub(super) fn settings() -> HoldSettings {
    HoldSettings {
        keeps_places: Some(false),
        own_driver: DRIVER.to_owned(),
        has_rules: false,
        namespace: Some("hostler-controller".to_owned()),
        attaches: false,
        holds_partitions: false,
        settle: Duration::from_secs(5),
        grace: Duration::from_secs(60),
        keep: Duration::from_secs(24 * 3600),
        plan: PlanOptions::default(),
        asker_box: ASKER_BOX,
    }
}

impl World {
    /// Nodes `a`, `b`, … with so many devices each.
    pub(super) fn new(devices: &[usize]) -> Self {
        Self::with(settings(), DRIVER, devices)
    }

    pub(super) fn with(settings: HoldSettings, driver: &str, devices: &[usize]) -> Self {
        let (mut server, means) = (Server::default(), MEANS.get());
        let settings = match means {
            Means::Rules => {
                HoldSettings { own_driver: "of-another.example.com".to_owned(), has_rules: true, ..settings }
            }
            Means::Taints | Means::Attribute => settings,
        };
        // An ordinary class leaves out what is held where an attribute says so.
        let but = if means == Means::Attribute { " && !(\"held\" in device.attributes[\"hostler.dev\"])" } else { "" };
        let expression = format!("device.driver == \"{driver}\"{but}");
        server.facts.add_class(read(
            json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}),
        ));
        for count in 1..=6 {
            server.facts.add_template(ObjectKey::new("default", &format!("gpus-{count}")), read(asks(count)));
            server.facts.add_template(ObjectKey::new("default", &format!("cpus-{count}")), read(asks_part(count)));
        }
        let model = HoldModel {
            settings,
            is_silent: false,
            unreadable: BTreeSet::new(),
            skew: 0,
            daemons_down: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            given: GivenDevices::default(),
            given_twice: BTreeSet::new(),
            sealed: BTreeSet::new(),
            questions: 0,
            most_questions: 0,
            edited: BTreeSet::new(),
            means,
        };
        let mut world = Self::begin(server, model, Duration::from_secs(1000));
        for (at, count) in devices.iter().enumerate() {
            let node = char::from(b'a' + u8::try_from(at).unwrap()).to_string();
            world.node(&node, driver, *count);
        }
        world.feed(HoldEvent::ServerTime(world.true_time()));
        world.feed(HoldEvent::Synced);
        world
    }

    pub(super) fn true_time(&self) -> Duration {
        BEGIN + self.now
    }

    fn time(&self) -> HoldTime {
        let wall = i64::try_from(self.true_time().as_secs()).unwrap() + self.skew;
        HoldTime { elapsed: self.now, wall: Duration::from_secs(u64::try_from(wall).unwrap()) }
    }

    /// Time passes until the controller wants to look again.
    pub(super) fn wake(&mut self) {
        let at = self.controller.wake.unwrap_or(self.now + Duration::from_secs(1));
        self.tick(at);
    }

    /// The planner's answer is heard, if there is one.
    pub(super) fn answer(&mut self) -> bool {
        assert!(self.controller.answers.len() <= 1, "more than one question is under way");
        let Some(answer) = self.controller.answers.pop_front() else { return false };
        self.feed(HoldEvent::Planned(answer));
        true
    }

    /// A Reservation with this spec.
    pub(super) fn reserve(&mut self, name: &str, spec: Value) {
        let object = ReservationObject {
            name: name.to_owned(),
            uid: String::new(),
            version: String::new(),
            generation: 1,
            created: self.true_time(),
            is_deleting: false,
            finalizers: Vec::new(),
            labels: BTreeMap::new(),
            spec: read(spec),
            status: read(json!({})),
        };
        self.server.create(object).unwrap();
    }

    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut ReservationObject)) {
        let mut object = self.get(name).clone();
        object.generation += 1;
        change(&mut object);
        self.server.put(object);
    }

    pub(super) fn get(&self, name: &str) -> &ReservationObject {
        &self.server.reservations[name]
    }

    pub(super) fn phase(&self, name: &str) -> ReservationPhase {
        self.get(name).status.phase
    }

    /// The reason of its condition Ready.
    pub(super) fn reason(&self, name: &str) -> &str {
        self.condition(name, "Ready").0
    }

    /// Reason and message of a condition.
    pub(super) fn condition(&self, name: &str, kind: &str) -> (&str, &str) {
        let conditions = &self.get(name).status.conditions;
        let found = conditions.iter().find(|condition| condition.kind == kind);
        found.map_or(("", ""), |condition| (&condition.reason, &condition.message))
    }

    pub(super) fn value(&self, name: &str) -> String {
        toleration_value(&self.get(name).uid)
    }

    /// Its devices in a state, as `pool/device`.
    pub(super) fn devices(&self, name: &str, state: ReservedDeviceState) -> Vec<String> {
        let devices = self.get(name).status.devices.iter();
        devices.filter(|device| device.state == state).map(short).collect()
    }

    pub(super) fn held(&self, name: &str) -> Vec<String> {
        self.devices(name, ReservedDeviceState::Held)
    }

    /// What must be true at every moment.
    pub(super) fn check(&self) {
        let mut holders = BTreeMap::new();
        for claim in self.server.claims.values() {
            let is_part = |device: &&DeviceKey| claim.parts.iter().any(|part| part.device == **device);
            for device in claim.devices.iter().filter(|device| !is_part(device)) {
                let other = holders.insert(device.clone(), claim.key.clone());
                let is_meant = self.given_twice.contains(device);
                assert!(other.is_none() || is_meant, "{device} is given to {} and {other:?}", claim.key);
            }
        }
        let mut keepers = BTreeMap::new();
        for object in self.server.reservations.values() {
            for device in object.status.devices.iter().filter(|it| it.state == ReservedDeviceState::Held) {
                let other = keepers.insert(short(device), (object.name.clone(), device.is_part()));
                // Parts of one device are counted: see there.
                let is_double = other.as_ref().is_some_and(|(_, is_part)| !device.is_part() || !is_part);
                assert!(!is_double, "{} is kept for {} and {other:?}", short(device), object.name);
            }
        }
        self.check_parts();
        // Two controllers can close something for a Reservation that the other one has just let go; they mend it at rest.
        if !self.is_disputed {
            let values: BTreeSet<String> = self.server.reservations.keys().map(|name| self.value(name)).collect();
            let closed = self.server.node_fences.values().flat_map(|it| &it.fences).map(|fence| &fence.value);
            let stray: Vec<&String> = closed
                .chain(self.server.rules.values().filter(|it| !self.edited.contains(&it.name)).map(|it| &it.value))
                .filter(|it| !values.contains(*it))
                .collect();
            assert!(stray.is_empty(), "closed for nobody: {stray:?}");
        }
    }

    /// What must be true once nothing more happens.
    pub(super) fn check_rest(&mut self) {
        self.check();
        self.check_no_more_writes();
        let mut wanted = BTreeSet::new();
        for object in self.server.reservations.values() {
            let value = self.value(&object.name);
            let is_in_conflict = object.status.devices.iter().any(|device| device.conflict && self.has_claim(device));
            assert!(!object.is_deleting || is_in_conflict, "{} does not go", object.name);
            if (object.is_deleting || object.status.phase.is_over()) && is_in_conflict {
                let marked = object.status.devices.iter().filter(|device| device.conflict);
                wanted.extend(marked.map(|device| (device.pool.clone(), device.device.clone(), value.clone())));
                assert!(!object.finalizers.is_empty(), "{} is let go", object.name);
                continue;
            }
            if object.status.phase.is_over() {
                assert!(object.status.devices.is_empty(), "{} keeps something", object.name);
                assert!(object.finalizers.is_empty(), "{} is not let go", object.name);
                continue;
            }
            for device in &object.status.devices {
                wanted.insert((device.pool.clone(), device.device.clone(), value.clone()));
                let stranger = self.stranger(object, device);
                let is_kept = device.state == ReservedDeviceState::Held && !device.is_part();
                assert!(!is_kept || stranger.is_none(), "{} is not kept: {stranger:?}", short(device));
                let slice = self.server.slices.values().find(|slice| slice.pool == device.pool);
                let published = slice.and_then(|it| it.devices.iter().find(|it| it.name == device.device));
                let key = DeviceKey::new(&device.driver, &device.pool, &device.device);
                let told = self.server.node_fences.get(&device.node_name).map(|it| &it.fences);
                let is_told =
                    told.is_some_and(|it| it.iter().any(|it| it.device == device.device && it.value == value));
                let is_closed = published.and_then(|it| it.held_for.as_ref()) == Some(&value)
                    || published.is_some_and(|it| it.is_held) && is_told
                    || self.server.rules.values().any(|rule| rule.value == value && rule.device == key);
                assert!(!is_kept || is_closed, "{} is not closed", short(device));
            }
        }
        self.check_parts_at_rest();
        let fences = self.server.node_fences.values().flat_map(|it| &it.fences);
        let of_nodes = fences.map(|it| (it.pool.clone(), it.device.clone(), it.value.clone()));
        let rules = self.server.rules.values();
        let of_rules = rules.map(|it| (it.device.pool.clone(), it.device.device.clone(), it.value.clone()));
        for closed in of_nodes.chain(of_rules) {
            assert!(wanted.contains(&closed), "closed for nobody: {closed:?}");
        }
    }

    /// A claim that has the device and is no owner's.
    fn stranger(&self, object: &ReservationObject, device: &ReservedDevice) -> Option<ObjectKey> {
        let has = |key: &DeviceKey| key.pool == device.pool && key.device == device.device;
        let claim = self.server.claims.values().find(|claim| claim.devices.iter().any(has))?;
        let is_owned = |pod: &ModelPod, key: &ObjectKey| object.spec.is_owned_by(&pod.is.candidate(key));
        let pod = self.server.pods.get(&claim.key);
        pod.is_none_or(|pod| !is_owned(pod, &claim.key)).then(|| claim.key.clone())
    }
}

pub(super) fn short(device: &ReservedDevice) -> String {
    format!("{}/{}", device.pool, device.device)
}

/// What asks for so many devices.
pub(super) fn asks(count: usize) -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]}})
}

/// What asks for so many CPUs of a shared device.
pub(super) fn asks_part(cpus: usize) -> Value {
    let capacity = json!({"requests": {"cpus": cpus.to_string()}});
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "capacity": capacity}}]}})
}

/// What a Reservation says that keeps so many CPUs of a shared device for pods with label `app`.
pub(super) fn wants_part(cpus: usize, app: &str, more: Value) -> Value {
    let mut spec = wants_and(1, app, more);
    spec["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = json!(format!("cpus-{cpus}"));
    spec
}

/// What a Reservation says that keeps so many devices for pods with label `app`.
pub(super) fn wants(count: usize, app: &str) -> Value {
    json!({
        "template": {"metadata": {"namespace": "default"}, "spec": {
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": format!("gpus-{count}")}],
        }},
        "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
    })
}

/// The same, for pods that are more important than others and have them evicted.
pub(super) fn preempts(count: usize, app: &str) -> Value {
    let mut spec = wants_and(count, app, json!({"preemptionPolicy": "PreemptLowerPriority"}));
    spec["template"]["spec"]["priorityClassName"] = json!("high");
    spec
}

/// The same, with more.
pub(super) fn wants_and(count: usize, app: &str, more: Value) -> Value {
    let mut spec = wants(count, app);
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}
