//! A cluster of requests: what the server has, and one controller that sees all of it at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_allocator::plan::ClusterFacts;
use hostler_api::{
    ObjectKey,
    core::Pod,
    hardware::Condition,
    provisioning::{PodTemplate, ProvisioningConditionType as Type, ProvisioningRequest},
};
use hostler_cluster::rfc3339;
use hostler_reconcile::WriteOutcome;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::keeper::DeviceAt;
use crate::provision::{
    clock::ProvisionMoment,
    context::{Keeping, ProvisionContext, SeenReservations},
    core::{ProvisionCore, ProvisionSettings},
    event::{StatusWrite, WriteResult},
};
use crate::testkit::{self, ApiError, Fate, Fates, ModelCluster, Part, model_kind, over, serves};
use crate::{
    askers::ASKER_BOX,
    requests::{ProvisionClasses, ProvisionObjects, SeenRequest},
    reservation_object::ReservationObject,
};

mod steps;

pub(super) use self::steps::outcome;

pub(super) const CLASS: &str = "check-capacity.hostler.dev";
const START: u64 = 1_800_000_000;

pub(super) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// What the API server has.
#[derive(Clone, Default)]
pub(super) struct ProvisionCluster {
    pub(super) objects: ProvisionObjects,
    pub(super) facts: ClusterFacts,
    /// Devices that do not work.
    pub(super) broken: BTreeSet<DeviceAt>,
    pub(super) reservations: SeenReservations,
    /// By pool, how many devices it has. Pools of nodes have their names.
    pub(super) devices: BTreeMap<String, usize>,
    /// Whether the webhook is installed.
    pub(super) leads_pods: bool,
    /// Which pods have which devices.
    pub(super) given: BTreeMap<DeviceAt, String>,
    /// Writes of requests, and of Reservations.
    pub(super) writes: usize,
    pub(super) keeps: usize,
}

impl ModelCluster for ProvisionCluster {
    type Event = ();
}

model_kind!(SeenRequest: ObjectKey = |it| it.key.clone(), {
    uid: version.uid, version: version.resource_version, finalizers: finalizers, is_deleting: is_going
});

serves!(ProvisionCluster, objects.requests: Arc<SeenRequest>);
serves!(ProvisionCluster, reservations: Arc<ReservationObject>);

pub(super) type ModelServer = testkit::ModelServer<ProvisionCluster>;

impl ModelServer {
    /// With the class `gpu` and the templates of claims `one` and `two`.
    pub(super) fn with_classes() -> Self {
        let mut server = Self::default();
        server.facts.add_class(read(json!({
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == \"gpu.example\""}}]},
        })));
        for (name, count) in [("one", 1), ("two", 2)] {
            server.claim_template(name, count);
        }
        server
    }

    /// A template of claims for so many devices.
    pub(super) fn claim_template(&mut self, name: &str, count: u32) {
        let request = json!({
            "name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count},
        });
        self.facts.add_template(key(name), read(json!({"devices": {"requests": [request]}})));
    }

    /// A node with 8 CPUs and so many devices.
    pub(super) fn node(&mut self, name: &str, devices: usize) {
        self.devices.insert(name.to_owned(), devices);
        self.facts.add_node(read(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}},
        })));
        let devices: Vec<Value> = (0..devices).map(|at| json!({"name": format!("gpu-{at}")})).collect();
        self.facts.add_slice(read(json!({
            "metadata": {"name": format!("{name}-gpu")},
            "spec": {
                "driver": "gpu.example", "nodeName": name, "devices": devices,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            },
        })));
    }

    /// A node with room for so many pods of one CPU each, and without devices.
    pub(super) fn node_for(&mut self, name: &str, pods: u32) {
        self.facts.add_node(read(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": pods.to_string(), "memory": "64Gi", "pods": pods.to_string()}},
        })));
    }

    /// What pods of a set look like, with a claim from a template, or none.
    pub(super) fn pod_spec(claims_from: &str) -> Value {
        let claims: Vec<Value> = match claims_from {
            "" => Vec::new(),
            template => vec![json!({"name": "gpu", "resourceClaimTemplateName": template})],
        };
        json!({
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "resourceClaims": claims,
        })
    }

    /// A template of pods.
    pub(super) fn template(&mut self, name: &str, spec: &Value) {
        let template: PodTemplate = read(json!({"metadata": {"name": name}, "template": {"spec": spec}}));
        self.objects.see_template(key(name), template);
    }

    /// A request, as JSON.
    pub(super) fn ask(&mut self, request: Value, now: SystemTime) {
        let mut request: ProvisioningRequest = read(request);
        request.metadata.creation_timestamp = Some(rfc3339(now));
        let namespace = &mut request.metadata.namespace;
        if namespace.is_empty() {
            "default".clone_into(namespace);
        }
        self.create(Arc::new(SeenRequest::new(over("", ""), request))).unwrap();
    }

    pub(super) fn request(&self, name: &str) -> &SeenRequest {
        &self.objects.requests[&key(name)]
    }

    /// Writes the status, if it goes over what is there.
    pub(super) fn apply(&mut self, write: &StatusWrite) -> WriteResult {
        let change = |it: &mut Arc<SeenRequest>| Arc::make_mut(it).status.clone_from(&write.status);
        let written = self.update(&write.key, Some(&write.version), Part::Status, change);
        self.request_written(written)
    }

    fn request_written(&mut self, written: Result<Arc<SeenRequest>, ApiError>) -> WriteResult {
        self.writes += usize::from(written.is_ok());
        written.map(|request| request.version.clone()).map_err(WriteOutcome::from)
    }

    /// Somebody else changes something about a request.
    pub(super) fn touch_request(&mut self, name: &str) {
        self.touch::<Arc<SeenRequest>>(&key(name));
    }

    /// A pod of a request, on a node or not. What it has of the node's devices is the n-th one of it.
    pub(super) fn pod(&mut self, name: &str, annotations: &Value, on: Option<(&str, usize)>) {
        let mut spec = Self::pod_spec("one");
        let mut made = Vec::new();
        if let Some((node, device)) = on {
            spec["nodeName"] = json!(node);
            let other = self.given.insert((node.to_owned(), device), name.to_owned());
            assert_eq!(other, None, "two pods have device {device} of {node}");
            self.claim(name, None, Some((node, device)));
            made.push(json!({"name": "gpu", "resourceClaimName": format!("{name}-gpu")}));
        }
        self.see_pod(name, annotations, &spec, &made);
    }

    /// A pod of a request that waits for its device; its claim tolerates what is kept with a value, or nothing.
    pub(super) fn waiting_pod(&mut self, name: &str, request: &str, value: Option<&str>) {
        self.claim(name, value, None);
        let annotations = json!({"autoscaling.x-k8s.io/consume-provisioning-request": request});
        let made = json!({"name": "gpu", "resourceClaimName": format!("{name}-gpu")});
        self.see_pod(name, &annotations, &Self::pod_spec("one"), &[made]);
    }

    fn see_pod(&mut self, name: &str, annotations: &Value, spec: &Value, made: &[Value]) {
        let pod: Pod = read(json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations}, "spec": spec,
            "status": {"resourceClaimStatuses": made},
        }));
        self.facts.add_pod(&pod);
        if self.objects.concerns(&key(name), &pod) {
            self.objects.see_pod(key(name), &pod);
        }
    }

    fn claim(&mut self, pod: &str, value: Option<&str>, has: Option<(&str, usize)>) {
        let tolerations: Vec<Value> =
            value.iter().map(|value| json!({"key": "hostler.dev/held", "value": value})).collect();
        let result = |(node, device): (&str, usize)| {
            let result =
                json!({"request": "r", "driver": "gpu.example", "pool": node, "device": format!("gpu-{device}")});
            json!({"devices": {"results": [result]}})
        };
        self.facts.add_claim(&read(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": format!("{pod}-gpu"), "namespace": "default"},
            "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": "gpu", "tolerations": tolerations}},
            ]}},
            "status": {
                "allocation": has.map(result), "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
            },
        })));
    }

    /// What a controller is shown of it.
    pub(super) fn cx<'a>(&'a self, keeping: &'a Keeping) -> ProvisionContext<'a> {
        let ProvisionCluster { objects, reservations, facts, leads_pods, .. } = &**self;
        ProvisionContext { objects, reservations, facts, keeping, leads_pods: *leads_pods }
    }
}

/// A server and a controller that sees everything at once.
pub(super) struct World {
    pub(super) server: ModelServer,
    pub(super) core: ProvisionCore,
    settings: ProvisionSettings,
    /// Whether devices can be kept, and whether somebody does it just now.
    pub(super) keeping: Keeping,
    pub(super) is_kept: bool,
    /// What people were told.
    pub(super) told: Vec<(String, &'static str)>,
    /// The fates of writes of Reservations.
    pub(super) keep_fates: Fates,
    /// The writes and calls at which the controller dies.
    pub(super) deaths: Fates,
    terms: usize,
    wall: SystemTime,
    steady: Duration,
    /// Since the beginning, by the server's clock, which nobody sets.
    passed: Duration,
    wake: Option<Duration>,
    /// By name of the request: the fate of its next write.
    pub(super) fates: BTreeMap<String, Fate>,
    /// How long each candidate of a check takes.
    pub(super) candidate_takes: Duration,
    /// How long a check takes as a whole, and how many get an answer.
    pub(super) check_takes: Duration,
    pub(super) most_checks: usize,
    /// Sizes of the batches that were asked.
    pub(super) batches: Vec<usize>,
}

impl World {
    pub(super) fn new() -> Self {
        let settings = ProvisionSettings {
            classes: ProvisionClasses { instance: "hostler".to_owned(), ..ProvisionClasses::default() },
            batch: 10,
            time_box: Duration::from_secs(10),
            term: "term-0".to_owned(),
            longest_booking: Duration::from_secs(3600),
            keep: None,
            asker_box: ASKER_BOX,
        };
        Self {
            server: ModelServer::with_classes(),
            core: ProvisionCore::new(settings.clone()),
            settings,
            keeping: Keeping::Kept,
            is_kept: true,
            told: Vec::new(),
            keep_fates: Fates::default(),
            deaths: Fates::default(),
            terms: 0,
            wall: UNIX_EPOCH + Duration::from_secs(START),
            steady: Duration::ZERO,
            passed: Duration::ZERO,
            wake: None,
            fates: BTreeMap::new(),
            candidate_takes: Duration::ZERO,
            check_takes: Duration::ZERO,
            most_checks: usize::MAX,
            batches: Vec::new(),
        }
    }

    /// With nodes `n0`, `n1`, … that have so many devices each.
    pub(super) fn of(devices: &[usize]) -> Self {
        let mut world = Self::new();
        for (at, devices) in devices.iter().enumerate() {
            world.server.node(&format!("n{at}"), *devices);
        }
        world
    }

    /// A request for so many pods with one device each, and its template of the same name.
    pub(super) fn ask(&mut self, name: &str, pods: i64) {
        self.ask_with(name, pods, &[]);
    }

    pub(super) fn ask_with(&mut self, name: &str, pods: i64, parameters: &[(&str, &str)]) {
        self.server.template(name, &ModelServer::pod_spec("one"));
        self.ask_for(name, CLASS, &[(name, pods)], parameters);
    }

    /// Requests that are all accepted before any is looked at, since their templates come later.
    pub(super) fn ask_together(&mut self, names: &[&str]) {
        for name in names {
            self.ask_for(name, CLASS, &[(name, 1)], &[]);
        }
        self.settle();
        names.iter().for_each(|name| self.server.template(name, &ModelServer::pod_spec("one")));
    }

    /// A request for sets of pods, by name of the template and number.
    pub(super) fn ask_for(&mut self, name: &str, class: &str, sets: &[(&str, i64)], parameters: &[(&str, &str)]) {
        let parameters: BTreeMap<&str, &str> = parameters.iter().copied().collect();
        let sets: Vec<Value> = sets
            .iter()
            .map(|(template, count)| json!({"podTemplateRef": {"name": template}, "count": count}))
            .collect();
        let request = json!({
            "metadata": {"name": name},
            "spec": {"provisioningClassName": class, "podSets": sets, "parameters": parameters},
        });
        self.server.ask(request, self.wall);
    }

    pub(super) fn now(&self) -> ProvisionMoment {
        ProvisionMoment { wall: self.wall, steady: self.steady }
    }

    /// Time passes, and whatever is due happens when it is.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.steady + time;
        self.settle();
        while let Some(wake) = self.wake.take().filter(|wake| *wake <= end) {
            let step = wake.saturating_sub(self.steady);
            self.go_on(step);
            self.settle();
        }
        let rest = end.saturating_sub(self.steady);
        self.go_on(rest);
        self.settle();
    }

    fn go_on(&mut self, time: Duration) {
        (self.steady, self.wall, self.passed) = (self.steady + time, self.wall + time, self.passed + time);
    }

    fn server_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(START) + self.passed
    }

    /// Somebody sets the clock.
    pub(super) fn jump(&mut self, seconds: i64) {
        let by = Duration::from_secs(seconds.unsigned_abs());
        self.wall = if seconds < 0 { self.wall - by } else { self.wall + by };
    }

    /// The controller dies, and another one begins with what the server says.
    pub(super) fn restart(&mut self) {
        self.terms += 1;
        self.settings.term = format!("term-{}", self.terms);
        self.core = ProvisionCore::new(self.settings.clone());
        (self.steady, self.wake) = (Duration::ZERO, None);
    }

    pub(super) fn condition(&self, name: &str, kind: Type) -> Option<&Condition> {
        self.server.request(name).status.condition(kind)
    }

    /// `True CapacityIsFound`, or nothing.
    pub(super) fn says(&self, name: &str, kind: Type) -> String {
        let condition = self.condition(name, kind);
        condition.map(|it| format!("{} {}", it.status.as_str(), it.reason)).unwrap_or_default()
    }

    pub(super) fn message(&self, name: &str, kind: Type) -> &str {
        &self.condition(name, kind).unwrap_or_else(|| panic!("{name} has no {}", kind.as_str())).message
    }

    pub(super) fn provisioned(&self, name: &str) -> String {
        self.says(name, Type::Provisioned)
    }

    pub(super) fn details(&self, name: &str) -> &BTreeMap<String, String> {
        &self.server.request(name).status.provisioning_class_details
    }

    /// A pod of a request on a node, with its n-th device.
    pub(super) fn bind(&mut self, pod: &str, request: &str, node: &str, device: usize) {
        let annotations = json!({"autoscaling.x-k8s.io/consume-provisioning-request": request});
        self.server.pod(pod, &annotations, Some((node, device)));
        self.settle();
    }

    /// A request goes.
    pub(super) fn delete(&mut self, name: &str) {
        self.server.delete_request(&key(name));
        self.settle();
    }

    /// What it says stays as it is, however long.
    pub(super) fn check_rest(&mut self) {
        let before = (self.server.writes, self.server.keeps);
        for _ in 0..3 {
            self.settle();
        }
        assert_eq!((self.server.writes, self.server.keeps), before, "it writes at rest");
    }

    pub(super) fn with_status(&mut self, name: &str, change: impl FnOnce(&mut SeenRequest)) {
        let mut request = self.server.request(name).clone();
        change(&mut request);
        self.server.put(Arc::new(request));
    }
}

impl World {
    /// All devices that are kept.
    pub(super) fn kept(&self) -> usize {
        self.server.held().len()
    }
}
