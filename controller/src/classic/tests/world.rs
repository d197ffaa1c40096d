//! The core, with a server instead of a cluster: every watch event, command and answer is one step that a test can take,
//! delay, lose or repeat.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use hostler_api::{
    ObjectKey,
    classic::{ClassicVersion, NodeGrant},
    resource::DeviceRequestAllocationResult,
};
use hostler_reconcile::WriteOutcome;
use serde_json::{Value, json};

use super::{
    super::{
        alarm::Alarm,
        core::{ClassicCore, ClassicSettings},
        dialect::{ClassicDialect, ClassicNode, ClassicPatch},
        event::{ClassicCommand, ClassicEvent, ClassicEventNote, ClassicWrite},
        model::DeviceSource,
    },
    objects::{CPUS, GIBIBYTES, KINDS, device_class},
    server::{Server, WatchEvent, finalizers},
};
use crate::testkit::{ApiError, Fate, Fated, Fates, ModelWatch};

pub(super) const DRIVER: &str = "hostler.dev";
pub(super) const FINALIZER: &str = "hostler.dev/deletion-protection";

/// A controller, what it has heard, and what it wants done.
pub(super) struct Controller {
    core: ClassicCore,
    watch: ModelWatch,
    pub(super) commands: VecDeque<ClassicCommand>,
    pub(super) alarm: Alarm,
}

impl Controller {
    fn new(settings: &ClassicSettings) -> Self {
        Self {
            core: ClassicCore::new(settings.clone()),
            watch: ModelWatch::default(),
            commands: VecDeque::new(),
            alarm: Alarm::default(),
        }
    }
}

pub(super) struct World {
    pub(super) server: Server,
    pub(super) dialect: ClassicDialect,
    pub(super) settings: ClassicSettings,
    pub(super) now: Duration,
    /// The one that runs, or of two that one which is just running.
    pub(super) controller: Controller,
    /// Another one, that believes that it is the only one.
    pub(super) rival: Option<Controller>,
    pub(super) notices: Vec<ClassicEventNote>,
    /// All writes that were sent.
    pub(super) writes: Vec<ClassicWrite>,
    pub(super) fates: Fates,
    /// A claim, and a node for which its allocation is refused.
    refused: Option<(String, String)>,
    pub(super) restarts: usize,
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
        let mut world = Self {
            server: Server::new(version),
            dialect: ClassicDialect { version, driver: DRIVER.to_owned() },
            controller: Controller::new(&settings),
            rival: None,
            settings,
            now: Duration::ZERO,
            notices: Vec::new(),
            writes: Vec::new(),
            fates: Fates::default(),
            refused: None,
            restarts: 0,
        };
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

    /// Lets happen what is to happen within two minutes.
    pub(super) fn settle(&mut self) {
        let until = self.now + Duration::from_secs(120);
        for _ in 0..100_000 {
            if self.deliver() || self.execute_next(0) {
                continue;
            }
            match self.controller.alarm.at().filter(|wake| *wake <= until) {
                Some(wake) => self.tick(wake),
                None => return,
            }
        }
        panic!("there is no rest: {:?}", self.writes.iter().rev().take(6).collect::<Vec<_>>());
    }

    pub(super) fn tick(&mut self, at: Duration) {
        self.now = at.max(self.now);
        self.controller.alarm.ring();
        self.feed(ClassicEvent::Tick);
    }

    /// Time passes, and whoever keeps it is busy: what happens next is heard before the alarm.
    pub(super) fn doze(&mut self, pause: Duration) {
        self.now += pause;
    }

    pub(super) fn feed(&mut self, event: ClassicEvent) {
        for command in self.controller.core.step(self.now, event) {
            match command {
                ClassicCommand::WakeAt(at) => self.controller.alarm.set(at),
                ClassicCommand::Tell(notice) => self.notices.push(notice),
                command => self.controller.commands.push_back(command),
            }
        }
    }

    /// Delivers the next watch event, if there is one.
    pub(super) fn deliver(&mut self) -> bool {
        let Some(event) = self.controller.watch.next(&self.server.log).cloned() else { return false };
        if let Some(event) = self.event(&event) {
            self.feed(event);
        }
        true
    }

    /// Delivers the next watch event, or lets the core go on that said it was not done.
    pub(super) fn hear(&mut self) -> bool {
        let is_due = self.controller.alarm.at().is_some_and(|at| at <= self.now);
        self.deliver()
            || is_due && {
                self.tick(self.now);
                true
            }
    }

    /// Delivers the next watch event of a kind, before those of other kinds: each kind has a watch of its own.
    pub(super) fn deliver_of(&mut self, resource: &str) {
        let next = self.controller.watch.next_of(&self.server.log, |event| event.resource == resource);
        let Some(event) = next.cloned() else { return };
        if let Some(event) = self.event(&event) {
            self.feed(event);
        }
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

    /// Executes one of the commands, if there is one.
    pub(super) fn execute_next(&mut self, at: usize) -> bool {
        let Some(command) = self.controller.commands.remove(at) else { return false };
        match command {
            ClassicCommand::FetchPod(key) => {
                let pod = self.server.get("pods", &key.namespace, &key.name);
                let pod = pod.map(|pod| self.dialect.pod(pod).unwrap());
                self.feed(ClassicEvent::Pod(key, Ok(pod)));
            }
            ClassicCommand::FindClaim(key, uid) => {
                let is_it = |claim: &Value| claim["metadata"]["uid"] == *uid;
                let found = self.server.get("resourceclaims", &key.namespace, &key.name).is_some_and(is_it);
                self.feed(ClassicEvent::ClaimFound(uid, Ok(found)));
            }
            ClassicCommand::Write(write) => self.send(write),
            ClassicCommand::Tell(_) | ClassicCommand::WakeAt(_) => {}
        }
        true
    }

    pub(super) fn refuse(&mut self, claim: &str, node: &str) {
        self.refused = Some((claim.to_owned(), node.to_owned()));
    }

    fn is_refused(&self, write: &ClassicWrite) -> bool {
        let ClassicWrite::Allocation(claim, new) = write else { return false };
        self.refused.as_ref().is_some_and(|(name, node)| *name == claim.key.name && *node == new.node)
    }

    fn send(&mut self, write: ClassicWrite) {
        let fate = self.fates.next();
        let fate = if self.is_refused(&write) { Some(Fate::Refuse) } else { fate };
        self.writes.push(write.clone());
        let patch = self.dialect.patch(&write).unwrap();
        let overtake = |world: &mut Self| world.touch(&patch.path);
        let answer = match Fate::carry_out(fate, self, overtake, |world| world.carry_out(&write, &patch)) {
            Fated::Answered(answer) => answer,
            Fated::Dead => return self.restart(),
            Fated::Silent => Err(ApiError(500, "no answer".to_owned())),
            Fated::Refused => Err(ApiError(422, "it shall not be".to_owned())),
        };
        let target = write.target();
        let outcome = match answer {
            Ok(object) => self.answered(&write, &object),
            Err(error) => error.into(),
        };
        self.feed(ClassicEvent::Written(target, outcome));
    }

    /// A claim is never allocated but in the version that its grants name. What it was given before may not be taken back yet.
    fn carry_out(&mut self, write: &ClassicWrite, patch: &ClassicPatch) -> Result<Value, ApiError> {
        let answer = self.server.patch(patch);
        if let (Ok(_), ClassicWrite::Allocation(claim, new)) = (&answer, write) {
            let sources = self.server.list("nodehardware");
            let sources = sources.iter().map(|object| self.dialect.source(object).unwrap());
            let grants: Vec<NodeGrant> = sources.filter_map(|mut source| source.grants.remove(&claim.uid)).collect();
            let named = grants.iter().filter(|grant| grant.claim_version == claim.version);
            let named: Vec<_> = named.flat_map(|grant| &grant.devices).map(|it| (&it.pool, &it.device)).collect();
            let is_granted = |it: &DeviceRequestAllocationResult| named.contains(&(&it.pool, &it.device));
            assert!(new.result.devices.results.iter().all(is_granted), "{} has no grant: {grants:?}", claim.key);
        }
        answer
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

    /// Somebody else writes the object.
    fn touch(&mut self, path: &str) {
        let parts: Vec<&str> = path.split('/').collect();
        let (resource, namespace, name) = match parts[..] {
            [.., "namespaces", namespace, resource, name] => (resource, namespace, name),
            [.., resource, name] => (resource, "", name),
            _ => return,
        };
        let count = self.writes.len();
        let touched = |object: &mut Value| object["metadata"]["annotations"] = json!({"touched": count.to_string()});
        let _ = self.server.edit(resource, namespace, name, false, touched);
    }

    /// A second controller is started while the first one runs.
    pub(super) fn begin_rival(&mut self) {
        let first = std::mem::replace(&mut self.controller, Controller::new(&self.settings));
        self.rival = Some(first);
        self.read_everything();
    }

    /// Of two controllers the other one is running now.
    pub(super) fn swap(&mut self) {
        if let Some(rival) = &mut self.rival {
            std::mem::swap(rival, &mut self.controller);
        }
    }

    /// The controller is started anew.
    pub(super) fn restart(&mut self) {
        self.restarts += 1;
        self.controller = Controller::new(&self.settings);
        self.read_everything();
    }

    fn read_everything(&mut self) {
        self.controller.watch = ModelWatch::from_now(&self.server.log);
        let mut all: Vec<WatchEvent> = self
            .server
            .objects
            .iter()
            .map(|((resource, ..), object)| WatchEvent {
                resource: resource.clone(),
                object: object.json.clone(),
                is_gone: false,
            })
            .collect();
        // Each kind has a watch of its own: any of them can be first.
        if self.restarts % 2 == 1 {
            all.reverse();
        }
        for event in all {
            if let Some(event) = self.event(&event) {
                self.feed(event);
            }
        }
        self.feed(ClassicEvent::Synced);
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
        let objects = self.server.list("nodehardware");
        objects.iter().map(|object| self.dialect.source(object).unwrap()).collect()
    }

    /// What must be true at every moment.
    pub(super) fn check(&self) {
        let mut holders: BTreeMap<String, String> = BTreeMap::new();
        let mut parts: BTreeMap<String, i64> = BTreeMap::new();
        for object in self.server.list("resourceclaims") {
            let claim = self.dialect.claim(&object).unwrap();
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
        let before = self.writes.len();
        self.settle();
        self.restart();
        self.settle();
        let more: Vec<_> = self.writes[before..].iter().collect();
        assert!(more.is_empty(), "writes at rest: {more:?}");
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
