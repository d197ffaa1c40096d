//! The core, with a server instead of a cluster: every watch event, command and answer is one step that a test can take,
//! delay, lose or repeat.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use hostler_allocator::plan::ObjectKey;
use hostler_api::{classic::ClassicVersion, resource::DeviceClass};
use serde_json::{Value, json};

use super::{
    super::{
        core::{ClassicCore, ClassicSettings},
        dialect::ClassicDialect,
        event::{ClassicCommand, ClassicEvent, ClassicNotice, ClassicWrite, WriteOutcome},
    },
    server::{ApiError, Server, WatchEvent, finalizers},
};

pub(super) const DRIVER: &str = "hostler.dev";
pub(super) const FINALIZER: &str = "hostler.dev/deletion-protection";

/// What happens to a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    /// The controller dies before it is sent.
    DieBefore,
    /// The controller dies before it hears the answer.
    DieAfter,
    /// Somebody writes the object first.
    Conflict,
    /// The server fails, and has written nothing.
    FailBefore,
    /// The server fails, and has written it.
    FailAfter,
    /// The server refuses it.
    Refuse,
}

pub(super) struct World {
    pub(super) server: Server,
    pub(super) dialect: ClassicDialect,
    pub(super) settings: ClassicSettings,
    pub(super) core: ClassicCore,
    pub(super) now: Duration,
    seen: usize,
    pub(super) commands: VecDeque<ClassicCommand>,
    wake: Option<Duration>,
    pub(super) notices: Vec<ClassicNotice>,
    /// All writes that were sent.
    pub(super) writes: Vec<ClassicWrite>,
    /// What happens to a write, by its number.
    pub(super) fates: BTreeMap<usize, Fate>,
    /// A claim, and a node for which its allocation is refused.
    refused: Option<(String, String)>,
    pub(super) restarts: usize,
}

impl World {
    pub(super) fn new(version: ClassicVersion) -> Self {
        let usual: DeviceClass = serde_json::from_value(json!({"metadata": {"name": "card.hostler.dev"},
            "spec": {"selectors": [{"cel": {"expression": "device.attributes['hostler.dev'].kind == 'card'"}}]}}))
        .unwrap();
        let settings = ClassicSettings {
            version,
            driver: DRIVER.to_owned(),
            device_classes: vec![usual],
            reserves_for_pods: true,
        };
        let mut world = Self {
            server: Server::new(version),
            dialect: ClassicDialect { version, driver: DRIVER.to_owned() },
            core: ClassicCore::new(settings.clone()),
            settings,
            now: Duration::ZERO,
            seen: 0,
            commands: VecDeque::new(),
            wake: None,
            notices: Vec::new(),
            writes: Vec::new(),
            fates: BTreeMap::new(),
            refused: None,
            restarts: 0,
        };
        world.class("card", json!({}));
        world.feed(ClassicEvent::Synced);
        world
    }

    pub(super) fn is_devices(&self) -> bool {
        self.server.version == ClassicVersion::V1Alpha3
    }

    pub(super) fn contexts(&self) -> &'static str {
        self.server.version.scheduling_resource()
    }

    /// A class of ours; until 1.30 its devices are those of kind `card`.
    pub(super) fn class(&mut self, name: &str, extra: Value) {
        let mut class = if self.is_devices() {
            let expression = "device.attributes['hostler.dev'].kind == 'card'";
            json!({"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})
        } else {
            json!({"metadata": {"name": name}, "driverName": DRIVER})
        };
        let place = if self.is_devices() { &mut class["spec"] } else { &mut class };
        for (field, value) in extra.as_object().unwrap() {
            place[field] = value.clone();
        }
        let resource = if self.is_devices() { "deviceclasses" } else { "resourceclasses" };
        self.server.create(resource, class);
    }

    /// A node with so many whole cards.
    pub(super) fn node(&mut self, name: &str, cards: usize) {
        self.server.create("nodes", json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}));
        self.server
            .create("nodehardware", json!({"metadata": {"name": name}, "spec": {"nodeName": name}, "status": {}}));
        self.cards(name, cards);
    }

    /// The node now has so many cards.
    pub(super) fn cards(&mut self, node: &str, cards: usize) {
        let devices: Vec<Value> = (0..cards)
            .map(|at| json!({"name": format!("card-{at}"), "attributes": {"kind": {"string": "card"}}}))
            .collect();
        let slice = json!({"driver": DRIVER, "nodeName": node, "devices": devices,
            "pool": {"name": format!("{node}/card"), "generation": 1, "resourceSliceCount": 1}});
        self.hardware(node, json!([slice]), true);
    }

    pub(super) fn hardware(&mut self, name: &str, slices: Value, is_ready: bool) {
        let ready = if is_ready { "True" } else { "False" };
        let condition = json!({"type": "Ready", "status": ready, "reason": "r", "lastTransitionTime": "t"});
        let status = json!({"conditions": [condition], "slices": slices});
        self.server.edit("nodehardware", "", name, true, |object| object["status"] = status).unwrap();
    }

    /// A claim for so many cards.
    pub(super) fn claim(&mut self, name: &str, cards: usize) {
        self.claim_of(name, json!([{"name": "cards", "deviceClassName": "card", "count": cards}]), json!({}));
    }

    /// A claim with such requests, of a class. Until 1.30 they are in parameters of the same name.
    pub(super) fn claim_of(&mut self, name: &str, mut requests: Value, extra: Value) {
        let mut spec = if self.is_devices() {
            json!({"controller": DRIVER, "devices": {"requests": requests}})
        } else {
            for request in requests.as_array_mut().unwrap() {
                request["deviceClassName"] = json!("card.hostler.dev");
            }
            self.server.create(
                "claimparameters",
                json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"requests": requests}}),
            );
            let reference = json!({"apiGroup": "hostler.dev", "kind": "ClaimParameters", "name": name});
            json!({"resourceClassName": "card", "parametersRef": reference})
        };
        for (field, value) in extra.as_object().unwrap() {
            spec[field] = value.clone();
        }
        self.server.create("resourceclaims", json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}));
    }

    /// A pod that uses existing claims.
    pub(super) fn pod(&mut self, name: &str, claims: &[&str]) -> String {
        let claims: Vec<Value> = claims
            .iter()
            .map(|claim| match self.server.version {
                ClassicVersion::V1Alpha3 => json!({"name": claim, "resourceClaimName": claim}),
                _ => json!({"name": claim, "source": {"resourceClaimName": claim}}),
            })
            .collect();
        let pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"resourceClaims": claims},
            "status": {"phase": "Pending"}});
        self.server.create("pods", pod)["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// The negotiation of a pod, as the scheduler writes it.
    pub(super) fn context(&mut self, pod: &str, selected: Option<&str>, potential: &[&str]) {
        let mut spec = json!({});
        if let Some(selected) = selected {
            spec["selectedNode"] = json!(selected);
        }
        if !potential.is_empty() {
            spec["potentialNodes"] = json!(potential);
        }
        let contexts = self.contexts();
        if self.server.get(contexts, "default", pod).is_some() {
            self.server.edit(contexts, "default", pod, false, |object| object["spec"] = spec).unwrap();
        } else {
            let uid = self.server.get("pods", "default", pod).unwrap()["metadata"]["uid"].clone();
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": true});
            let meta = json!({"name": pod, "namespace": "default", "ownerReferences": [owner]});
            self.server.create(contexts, json!({"metadata": meta, "spec": spec, "status": {}}));
        }
    }

    /// Lets happen what is to happen within two minutes.
    pub(super) fn settle(&mut self) {
        let until = self.now + Duration::from_secs(120);
        for _ in 0..100_000 {
            if self.deliver() || self.execute_next(0) {
                continue;
            }
            match self.wake.filter(|wake| *wake <= until) {
                Some(wake) => self.tick(wake),
                None => return,
            }
        }
        panic!("there is no rest: {:?}", self.writes.iter().rev().take(6).collect::<Vec<_>>());
    }

    pub(super) fn tick(&mut self, at: Duration) {
        self.now = at.max(self.now);
        self.wake = None;
        self.feed(ClassicEvent::Tick);
    }

    /// When the core wants to be woken.
    pub(super) fn wake(&self) -> Option<Duration> {
        self.wake
    }

    pub(super) fn feed(&mut self, event: ClassicEvent) {
        for command in self.core.step(self.now, event) {
            match command {
                ClassicCommand::WakeAt(at) => self.wake = Some(at),
                ClassicCommand::Tell(notice) => self.notices.push(notice),
                command => self.commands.push_back(command),
            }
        }
    }

    /// Delivers the next watch event, if there is one.
    pub(super) fn deliver(&mut self) -> bool {
        let Some(event) = self.server.log.get(self.seen).cloned() else { return false };
        self.seen += 1;
        if let Some(event) = self.event(&event) {
            self.feed(event);
        }
        true
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
                let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
                ClassicEvent::Node(key.name, labels)
            }
            ("nodes", true) => ClassicEvent::NodeGone(key.name),
            ("nodehardware", false) => ClassicEvent::Source(Box::new(dialect.source(object).unwrap())),
            ("nodehardware", true) => ClassicEvent::SourceGone(key.name),
            _ => return None,
        })
    }

    /// Executes one of the commands, if there is one.
    pub(super) fn execute_next(&mut self, at: usize) -> bool {
        let Some(command) = self.commands.remove(at) else { return false };
        match command {
            ClassicCommand::FetchPod(key) => {
                let pod = self.server.get("pods", &key.namespace, &key.name);
                let pod = pod.map(|pod| self.dialect.pod(pod).unwrap());
                self.feed(ClassicEvent::Pod(key, Ok(pod)));
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
        let mut fate = self.fates.get(&self.writes.len()).copied();
        if self.is_refused(&write) {
            fate = Some(Fate::Refuse);
        }
        self.writes.push(write.clone());
        let patch = self.dialect.patch(&write).unwrap();
        let fail = |message: &str| Err(ApiError(500, message.to_owned()));
        let answer = match fate {
            None => self.server.patch(&patch),
            Some(Fate::DieBefore) => return self.restart(),
            Some(Fate::DieAfter) => {
                let _ = self.server.patch(&patch);
                return self.restart();
            }
            Some(Fate::Conflict) => {
                self.touch(&patch.path);
                self.server.patch(&patch)
            }
            Some(Fate::FailBefore) => fail("no answer"),
            Some(Fate::FailAfter) => {
                let _ = self.server.patch(&patch);
                fail("no answer")
            }
            Some(Fate::Refuse) => Err(ApiError(422, "it shall not be".to_owned())),
        };
        let target = write.target();
        let outcome = match answer {
            Ok(object) => self.answered(&write, &object),
            Err(ApiError(404, _)) => WriteOutcome::Gone,
            Err(ApiError(409, _)) => WriteOutcome::Conflict,
            Err(ApiError(422, message)) => WriteOutcome::Refused(message),
            Err(ApiError(_, message)) => WriteOutcome::Failed(message),
        };
        self.feed(ClassicEvent::Written(target, outcome));
    }

    /// What is written is seen before its answer.
    fn answered(&mut self, write: &ClassicWrite, object: &Value) -> WriteOutcome {
        let resource = match write {
            ClassicWrite::Grants { .. } => "nodehardware",
            ClassicWrite::Unsuitable { .. } => self.contexts(),
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

    /// The controller is started anew, and reads everything.
    pub(super) fn restart(&mut self) {
        self.restarts += 1;
        self.core = ClassicCore::new(self.settings.clone());
        self.commands.clear();
        self.wake = None;
        self.seen = self.server.log.len();
        let all: Vec<WatchEvent> = self
            .server
            .objects
            .iter()
            .map(|((resource, ..), object)| WatchEvent {
                resource: resource.clone(),
                object: object.clone(),
                is_gone: false,
            })
            .collect();
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
        let sources = self.server.list("nodehardware");
        let sources = sources.iter().map(|object| self.dialect.source(object).unwrap());
        sources.flat_map(|source| source.grants.into_keys().map(move |uid| format!("{} {uid}", source.name))).collect()
    }

    /// What must be true at every moment.
    pub(super) fn check(&self) {
        let mut holders: BTreeMap<String, String> = BTreeMap::new();
        for object in self.server.list("resourceclaims") {
            let claim = self.dialect.claim(&object).unwrap();
            let Some(allocation) = &claim.allocation else { continue };
            let is_kept = claim.finalizers.contains(&FINALIZER.to_owned());
            assert!(is_kept || allocation.by != DRIVER, "{} is allocated and not kept", claim.key);
            for device in allocation.devices.as_ref().unwrap().iter().filter(|device| device.share_id.is_none()) {
                let device = format!("{}/{}", device.pool, device.device);
                let other = holders.insert(device.clone(), claim.key.to_string());
                assert!(other.is_none(), "{device} is held by {} and {other:?}", claim.key);
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
        for grant in self.grants() {
            let uid = grant.split(' ').next_back().unwrap();
            let claim = claims.iter().find(|claim| claim["metadata"]["uid"] == uid);
            let is_allocated = claim.is_some_and(|claim| claim["status"]["allocation"].is_object());
            assert!(is_allocated, "a grant is left behind: {grant}");
        }
    }
}
