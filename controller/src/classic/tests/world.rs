//! The core, with a server instead of a cluster: every watch event, command and answer is one step that a test can take,
//! delay, lose or repeat.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{ObjectKey, classic::ClassicVersion, hardware::NodeGrant, resource::DeviceRequestAllocationResult};
use hostler_reconcile::WriteOutcome;
use serde_json::{Value, json};

use super::{
    super::{
        core::ClassicCore,
        dialect::{ClassicDialect, ClassicNode},
        event::{ClassicCommand, ClassicEvent, ClassicEventNote, ClassicWrite},
        model::DeviceSource,
        settings::ClassicSettings,
    },
    objects::{CPUS, GIBIBYTES, KINDS, device_class},
    server::{Server, WatchEvent, finalizers},
};
use crate::testkit::{self, ApiError, Fate, Model, Sorted};

pub(super) const DRIVER: &str = "hostler.dev";
pub(super) const FINALIZER: &str = "hostler.dev/deletion-protection";

/// Parts of the world besides the server and the controller.
pub(super) struct ClassicModel {
    pub(super) dialect: ClassicDialect,
    pub(super) settings: ClassicSettings,
    /// A claim, and a node for which its allocation is refused.
    refused: Option<(String, String)>,
}

pub(super) type World = testkit::World<ClassicModel>;

impl Model for ClassicModel {
    type Core = ClassicCore;
    type Server = Server;
    type Entry = WatchEvent;
    type Event = ClassicEvent;
    type Command = ClassicCommand;
    type Notice = ClassicEventNote;
    type Write = ClassicWrite;
    /// The object after the write.
    type Written = Value;
    type Answer = ();

    fn core(&self) -> ClassicCore {
        ClassicCore::new(self.settings.clone())
    }

    fn log(server: &Server) -> &[WatchEvent] {
        &server.log
    }

    fn event(&self, event: &WatchEvent) -> Option<ClassicEvent> {
        let WatchEvent { resource, object, is_gone } = event;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey { namespace: text("namespace"), name: text("name") };
        let dialect = &self.dialect;
        Some(match (&**resource, is_gone) {
            ("resourceclaims", false) => ClassicEvent::Claim(Box::new(dialect.claim(object).unwrap())),
            ("resourceclaims", true) => ClassicEvent::ClaimGone(key, text("uid")),
            ("resourceclasses" | "deviceclasses", false) => {
                ClassicEvent::Class(Box::new(dialect.class(object).unwrap()))
            }
            ("resourceclasses" | "deviceclasses", true) => ClassicEvent::ClassGone(key.name),
            ("podschedulings" | "podschedulingcontexts", false) => {
                let (key, context) = dialect.context(object).unwrap();
                ClassicEvent::Context(key, Box::new(context))
            }
            ("podschedulings" | "podschedulingcontexts", true) => ClassicEvent::ContextGone(key, text("uid")),
            ("claimparameters" | "classparameters" | "resourceclaimparameters", is_gone) => {
                let kind = match &**resource {
                    "claimparameters" => "ClaimParameters",
                    "classparameters" => "ClassParameters",
                    _ => "ResourceClaimParameters",
                };
                let (key, read) = dialect.parameters(kind, object)?;
                if *is_gone { ClassicEvent::ParametersGone(key) } else { ClassicEvent::Parameters(key, read) }
            }
            ("nodes", false) => {
                let (name, state) = serde_json::from_value::<ClassicNode>(object.clone()).unwrap().named_state();
                ClassicEvent::Node(name, Box::new(state))
            }
            ("nodes", true) => ClassicEvent::NodeGone(key.name),
            ("nodehardware", false) => ClassicEvent::Source(Box::new(dialect.source(object).unwrap())),
            ("nodehardware", true) => ClassicEvent::SourceGone(key.name),
            _ => return None,
        })
    }

    fn everything(world: &World) -> Vec<ClassicEvent> {
        let objects = world.server.objects.iter();
        let mut all: Vec<WatchEvent> = objects
            .map(|((resource, ..), object)| WatchEvent {
                resource: resource.clone(),
                object: object.json.clone(),
                is_gone: false,
            })
            .collect();
        // Each kind has a watch of its own: any of them can be first.
        if world.restarts % 2 == 1 {
            all.reverse();
        }
        all.iter().filter_map(|entry| world.event(entry)).chain([ClassicEvent::Synced]).collect()
    }

    fn time_passed() -> ClassicEvent {
        ClassicEvent::Tick
    }

    fn step(world: &mut World, event: ClassicEvent) -> Vec<ClassicCommand> {
        world.controller.core.step(world.now, event)
    }

    fn sort(command: ClassicCommand) -> Sorted<Self> {
        match command {
            ClassicCommand::WakeAt(at) => Sorted::WakeAt(at),
            ClassicCommand::Tell(notice) => Sorted::Tell(notice),
            command => Sorted::Queue(command),
        }
    }

    fn execute(world: &mut World, command: ClassicCommand) {
        match command {
            ClassicCommand::FetchPod(key) => {
                let pod = world.server.get("pods", &key.namespace, &key.name);
                let pod = pod.map(|pod| world.dialect.pod(pod).unwrap());
                world.feed(ClassicEvent::Pod(key, Ok(pod)));
            }
            ClassicCommand::FindClaim(key, uid) => {
                let is_it = |claim: &Value| claim["metadata"]["uid"] == *uid;
                let found = world.server.get("resourceclaims", &key.namespace, &key.name).is_some_and(is_it);
                world.feed(ClassicEvent::ClaimFound(uid, Ok(found)));
            }
            ClassicCommand::Write(write) => world.send(write),
            ClassicCommand::Tell(_) | ClassicCommand::WakeAt(_) => {}
        }
    }

    fn fate(&self, write: &ClassicWrite, planned: Option<Fate>) -> Option<Fate> {
        let ClassicWrite::Allocation(claim, new) = write else { return planned };
        let is_refused = self.refused.as_ref().is_some_and(|(name, node)| *name == claim.key.name && *node == new.node);
        if is_refused { Some(Fate::Refuse) } else { planned }
    }

    fn overtake(world: &mut World, write: &ClassicWrite) {
        let path = world.dialect.patch(write).unwrap().path;
        let parts: Vec<&str> = path.split('/').collect();
        let (resource, namespace, name) = match parts[..] {
            [.., "namespaces", namespace, resource, name] => (resource, namespace, name),
            [.., resource, name] => (resource, "", name),
            _ => return,
        };
        let count = world.writes.len();
        let touched = |object: &mut Value| object["metadata"]["annotations"] = json!({"touched": count.to_string()});
        drop(world.server.edit(resource, namespace, name, false, touched));
    }

    /// A claim is never allocated but in the version that its grants name. What it was given before may not be taken back yet.
    fn write(world: &mut World, write: &ClassicWrite) -> Result<Value, ApiError> {
        let patch = world.dialect.patch(write).unwrap();
        let answer = world.server.patch(&patch);
        if let (Ok(_), ClassicWrite::Allocation(claim, new)) = (&answer, write) {
            let sources = world.sources().into_iter();
            let grants: Vec<NodeGrant> = sources.filter_map(|mut source| source.grants.remove(&claim.uid)).collect();
            let named = grants.iter().filter(|grant| grant.claim_version == claim.version);
            let named: Vec<_> = named.flat_map(|grant| &grant.devices).map(|it| (&it.pool, &it.device)).collect();
            let is_granted = |it: &DeviceRequestAllocationResult| named.contains(&(&it.pool, &it.device));
            assert!(new.result.devices.results.iter().all(is_granted), "{} has no grant: {grants:?}", claim.key);
        }
        answer
    }

    fn written(world: &mut World, write: ClassicWrite, answer: Result<Value, ApiError>) {
        let outcome = match answer {
            Ok(object) => world.answered(&write, &object),
            Err(error) => error.into(),
        };
        world.feed(ClassicEvent::Written(write.target(), outcome));
    }
}

impl World {
    pub(super) fn new(version: ClassicVersion) -> Self {
        let settings = ClassicSettings {
            version,
            driver: DRIVER.to_owned(),
            device_classes: KINDS.map(device_class).to_vec(),
            reserves_for_pods: true,
            needs_devices: version == ClassicVersion::V1Alpha1,
        };
        let dialect = ClassicDialect { version, driver: DRIVER.to_owned() };
        let model = ClassicModel { dialect, settings, refused: None };
        let mut world = Self::begin(Server::new(version), model, Duration::ZERO);
        KINDS.into_iter().for_each(|kind| world.class(kind, kind, json!({})));
        world.feed(ClassicEvent::Synced);
        world
    }

    pub(super) fn is_devices(&self) -> bool {
        self.server.version == ClassicVersion::V1Alpha3
    }

    pub(super) fn contexts(&self) -> &'static str {
        self.server.version.scheduling_resource()
    }

    /// Time passes while the clock is busy: the next news is heard before the alarm.
    pub(super) fn doze(&mut self, pause: Duration) {
        self.now += pause;
    }

    /// Delivers the next watch event, or lets the core go on that said it was not done.
    pub(super) fn hear_or_go_on(&mut self) -> bool {
        let is_due = self.controller.wake.is_some_and(|at| at <= self.now);
        self.deliver()
            || is_due && {
                self.tick(self.now);
                true
            }
    }

    pub(super) fn deliver_of(&mut self, resource: &str) {
        self.deliver_where(|entry| entry.resource == resource);
    }

    pub(super) fn refuse(&mut self, claim: &str, node: &str) {
        self.refused = Some((claim.to_owned(), node.to_owned()));
    }

    /// What is written is seen before its answer.
    fn answered(&mut self, write: &ClassicWrite, object: &Value) -> WriteOutcome {
        let resource = match write {
            ClassicWrite::Grants { .. } => "nodehardware",
            ClassicWrite::Unsuitable { .. } => self.contexts(),
            ClassicWrite::Labels { .. } => "nodes",
            _ => "resourceclaims",
        };
        let is_gone = !object["metadata"]["deletionTimestamp"].is_null() && finalizers(object).is_empty();
        let event = WatchEvent { resource: resource.to_owned(), object: object.clone(), is_gone };
        if let Some(event) = self.event(&event) {
            self.feed(event);
        }
        let dropped = self.dialect.dropped(write, object);
        dropped.map_or(WriteOutcome::Done, |fields| WriteOutcome::Dropped(fields.to_owned()))
    }

    pub(super) fn get_claim(&self, name: &str) -> Option<&Value> {
        self.server.get("resourceclaims", "default", name)
    }

    /// The devices of an allocated claim, as `pool/device`.
    pub(super) fn devices(&self, name: &str) -> Option<Vec<String>> {
        let claim = self.dialect.claim(self.get_claim(name)?).unwrap();
        let devices = claim.allocation?.devices.unwrap();
        Some(devices.iter().map(|it| format!("{}/{}", it.pool, it.device)).collect())
    }

    /// Where a claim of a pod is said to be unsuitable.
    pub(super) fn unsuitable(&self, pod: &str, claim: &str) -> Option<BTreeSet<String>> {
        let object = self.server.get(self.contexts(), "default", pod)?;
        self.dialect.context(object).unwrap().1.entries.get(claim).cloned()
    }

    /// What all NodeHardware say was given, as `source uid`.
    pub(super) fn grants(&self) -> Vec<String> {
        let named = |source: DeviceSource| source.grants.into_keys().map(move |uid| format!("{} {uid}", source.name));
        self.sources().into_iter().flat_map(named).collect()
    }

    fn sources(&self) -> Vec<DeviceSource> {
        self.server.all("nodehardware").map(|object| self.dialect.source(object).unwrap()).collect()
    }

    /// What must be true at every moment.
    pub(super) fn check(&self) {
        let mut holders: BTreeMap<String, String> = BTreeMap::new();
        let mut parts: BTreeMap<String, i64> = BTreeMap::new();
        for object in self.server.all("resourceclaims") {
            let claim = self.dialect.claim(object).unwrap();
            let Some(allocation) = &claim.allocation else { continue };
            let is_kept = claim.finalizers.contains(&FINALIZER.to_owned());
            assert!(is_kept || allocation.by != DRIVER, "{} is allocated and not kept", claim.key);
            for result in allocation.devices.as_ref().unwrap() {
                let device = format!("{}/{}", result.pool, result.device);
                if result.share_id.is_some() {
                    *parts.entry(device).or_default() += consumed(result);
                    continue;
                }
                let other = holders.insert(device.clone(), claim.key.to_string());
                assert!(other.is_none(), "{device} is held by {} and {other:?}", claim.key);
            }
        }
        let most = |device: &String| if device.contains("/memory/") { GIBIBYTES } else { CPUS };
        self.check_grants();
        assert!(parts.iter().all(|(device, taken)| *taken <= most(device)), "more parts than there is: {parts:?}");
    }

    /// No whole device is given twice, whether or not a claim has it by now.
    fn check_grants(&self) {
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        for source in self.sources() {
            let whole = source.grants.iter().flat_map(|(uid, grant)| grant.devices.iter().map(move |it| (uid, it)));
            for (uid, result) in whole.filter(|(_, result)| result.share_id.is_none()) {
                let device = format!("{}/{}", result.pool, result.device);
                let other = given.insert(device.clone(), uid.clone());
                assert!(other.is_none(), "{device} is given to {uid} and {other:?}");
            }
        }
    }

    /// What must be true once nothing more happens: no write is left to be made, and nothing is left behind.
    pub(super) fn check_rest(&mut self) {
        self.check();
        self.check_no_more_writes();
        let claims = self.server.list("resourceclaims");
        for claim in &claims {
            let is_allocated = claim["status"]["allocation"].is_object();
            assert!(is_allocated || !finalizers(claim).contains(&FINALIZER.to_owned()), "left behind: {claim}");
        }
        for source in self.sources() {
            for (uid, grant) in source.grants {
                let claim = claims.iter().find(|claim| claim["metadata"]["uid"] == *uid);
                let claim = claim.map(|claim| self.dialect.claim(claim).unwrap());
                let has = claim.and_then(|claim| claim.allocation?.devices.ok()).unwrap_or_default();
                let is_its = |given: &DeviceRequestAllocationResult| {
                    has.iter().any(|it| (&it.pool, &it.device) == (&given.pool, &given.device))
                };
                let is_left = !grant.devices.iter().all(is_its);
                assert!(!is_left, "a grant of {} is left behind: {uid} {grant:?}", source.name);
            }
        }
    }
}

/// How many CPUs or gibibytes of a device.
fn consumed(result: &DeviceRequestAllocationResult) -> i64 {
    let result = serde_json::to_value(result).unwrap();
    let amounts = &result["consumedCapacity"];
    let amount = amounts["cpus"].as_str().or_else(|| amounts["memory"].as_str()?.strip_suffix("Gi"));
    amount.unwrap().parse().unwrap()
}
