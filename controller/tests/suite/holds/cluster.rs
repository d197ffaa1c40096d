//! A cluster of today in the test's own process: API server, scheduler, controller of claims, and nodes whose daemons do what
//! NodeHardware says.

use std::{fs, sync::Arc, time::Duration};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView, PolicyRule},
    control_plane::ControlPlane,
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::rig::{USER, install, install_rules_for_devices, options, root};

const HARDWARE: &str = "nodehardware";
const SLICES: &str = "resourceslices";
pub(crate) const RESERVATIONS: &str = "reservations";

/// A cluster; who acts in it ends with it.
pub(crate) struct HoldCluster {
    pub(crate) server: Arc<ApiServer>,
    control_plane: JoinHandle<()>,
    running: Vec<JoinHandle<()>>,
}

impl Drop for HoldCluster {
    fn drop(&mut self) {
        self.control_plane.abort();
        self.running.iter().for_each(JoinHandle::abort);
    }
}

/// What the controller may do where it holds devices.
pub(crate) fn rules() -> Vec<PolicyRule> {
    let files = ["deploy/controller/base/rbac.yaml", "deploy/holds/base/rbac.yaml"];
    files.iter().flat_map(|file| rules_in(file)).collect()
}

/// What the roles in a file allow.
pub(crate) fn rules_in(file: &str) -> Vec<PolicyRule> {
    PolicyRule::from_yaml(&fs::read_to_string(root().join(file)).unwrap())
}

impl HoldCluster {
    /// With everybody.
    pub(crate) async fn start() -> Self {
        let mut cluster = Self::without_daemons().await;
        cluster.run_daemons();
        cluster
    }

    /// Nobody does yet what NodeHardware says.
    pub(crate) async fn without_daemons() -> Self {
        let options = ApiServerOptions { release: ApiServerRelease::V1_36, ..ApiServerOptions::default() };
        let server = Arc::new(ApiServer::start(options).await);
        install(&server);
        server.create_yaml(&fs::read_to_string(root().join("deploy/crds/reservations.yaml")).unwrap());
        server.allow(USER, rules());
        server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "card" },
            "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"hostler.dev\"" } }] },
        }));
        let control_plane = ControlPlane::new().run(&server);
        Self { server, control_plane, running: Vec::new() }
    }

    /// Scheduler and controller of claims end where they stand; others begin, who know nothing but what the server says.
    pub(crate) async fn restart_control_plane(&mut self) {
        self.control_plane.abort();
        let ended = (&mut self.control_plane).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it ran until now");
        self.control_plane = ControlPlane::new().run(&self.server);
    }

    pub(crate) fn run_daemons(&mut self) {
        let server = self.server.clone();
        self.running.push(tokio::spawn(async move {
            loop {
                let mut told = None;
                // Nothing is to be done for longer than a test waits for anything.
                while told.is_none() {
                    let next = server.until("a node is to hold something", untold);
                    told = tokio::time::timeout(Duration::from_secs(30), next).await.ok();
                }
                told.iter().for_each(|told| publish(&server, told));
            }
        }));
    }

    /// Pods that are to go have ended, wherever they ran.
    pub(crate) fn run_kubelets(&mut self) {
        let server = self.server.clone();
        self.running.push(tokio::spawn(async move {
            loop {
                let ending = |view: &ApiServerView<'_>| {
                    let pods = view.list("pods");
                    let pod = pods.iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_string())?;
                    let text = |field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
                    Some(format!("{}/{}", text("namespace"), text("name")))
                };
                // Nothing is to be done for longer than a test waits for anything.
                let mut path = None;
                while path.is_none() {
                    path = tokio::time::timeout(Duration::from_secs(30), server.until("a pod is to go", ending))
                        .await
                        .ok();
                }
                if let Some(path) = path {
                    server.delete("pods", &path);
                }
            }
        }));
    }

    pub(crate) fn options(&self) -> ControllerOptions {
        let mut options = options(&self.server);
        options.config = "[capabilities]\nreservations = \"on\"\n[reservations]\nsettle_seconds = 1\n".to_owned();
        options
    }

    /// A controller that holds what is to be held.
    pub(crate) async fn controller(&self) -> RunningController {
        let controller = RunningController::start(&self.options()).await;
        controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1").await;
        controller
    }

    /// A node with a device of so many CPUs, of which several claims can have parts.
    pub(crate) fn shared_node(&self, name: &str, cpus: u64) {
        let capacity = json!({ "cpus": { "value": cpus.to_string() } });
        self.node_with(name, &[json!({ "name": "cores", "allowMultipleAllocations": true, "capacity": capacity })]);
    }

    /// A node with so many cards.
    pub(crate) fn node(&self, name: &str, cards: usize) {
        let devices: Vec<Value> = (0..cards).map(|at| json!({ "name": format!("card-{at}") })).collect();
        self.node_with(name, &devices);
    }

    pub(crate) fn node_with(&self, name: &str, devices: &[Value]) {
        self.server.create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }], "allocatable": { "pods": "110" } },
        }));
        self.server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": { "name": name },
            "spec": { "nodeName": name },
        }));
        let states =
            ["capacity", "allocatable", "allocated", "held", "unhealthy", "drained", "unknown", "blocked", "free"];
        let counts: serde_json::Map<String, Value> =
            states.iter().map(|state| ((*state).to_owned(), json!(0))).collect();
        let status = json!({
            "driver": "hostler.dev", "hostlerVersion": "0", "kernelVersion": "0", "bootID": "b", "devices": counts,
        });
        self.server.set_status(HARDWARE, name, status);
        self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("0-{name}") },
            "spec": {
                "driver": "hostler.dev", "nodeName": name,
                "pool": { "name": format!("{name}/fake"), "generation": 1, "resourceSliceCount": 1 }, "devices": devices,
            },
        }));
    }

    /// The first card of a node is broken.
    pub(crate) fn fail(&self, node: &str) {
        self.server.edit("resourceslices", &format!("0-{node}"), |slice| {
            let taint = json!({ "key": "hostler.dev/unhealthy", "value": "hot", "effect": "NoSchedule" });
            slice["spec"]["devices"][0]["taints"].as_array_mut().unwrap().push(taint);
        });
    }

    /// A device on a node of a driver that is not ours, and its class.
    pub(crate) fn other_driver(&self, node: &str) {
        self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("1-{node}") },
            "spec": {
                "driver": "gpu.example.com", "nodeName": node,
                "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 }, "devices": [{ "name": "gpu-0" }],
            },
        }));
        self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" },
            "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"gpu.example.com\"" } }] },
        }));
    }

    /// Keeps one for the pod `owner`.
    pub(crate) fn reserve_of_other_driver(&self, name: &str) {
        let request = json!({ "name": "gpu", "exactly": { "deviceClassName": "gpu" } });
        let claims = json!([{ "name": "gpu", "spec": { "devices": { "requests": [request] } } }]);
        self.reserve(name, 0, "owner", &json!({ "deviceClaims": claims }));
    }

    /// Rules for devices of all drivers, which the controller may make, and a scheduler that is known to act on them.
    pub(crate) fn serve_rules(&self) {
        install_rules_for_devices(&self.server);
        self.scheduler("kube-scheduler-of-today", "v1.37.0");
        self.allow(&["rules"]);
    }

    /// A pod of kube-scheduler as kubeadm has it.
    pub(crate) fn scheduler(&self, name: &str, tag: &str) {
        self.server.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "kube-system", "labels": { "component": "kube-scheduler" } },
            "spec": { "containers": [{ "name": "s", "image": format!("registry.k8s.io/kube-scheduler:{tag}") }] },
        }));
    }

    /// The controller may what is in these folders below `deploy/holds` as well.
    pub(crate) fn allow(&self, parts: &[&str]) {
        let of = |part: &&str| rules_in(&format!("deploy/holds/{part}/rbac.yaml"));
        self.server.allow(USER, rules().into_iter().chain(parts.iter().flat_map(of)).collect());
    }

    /// A template of claims for a card, which tolerates what is held with this value.
    pub(crate) fn template(&self, name: &str, value: Option<&str>) {
        let tolerations: Vec<Value> = value
            .iter()
            .map(|value| json!({ "key": "hostler.dev/held", "operator": "Equal", "value": value, "effect": "NoSchedule" }))
            .collect();
        let request = json!({ "name": "card", "exactly": { "deviceClassName": "card", "tolerations": tolerations } });
        self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": { "name": name },
            "spec": { "spec": { "devices": { "requests": [request] } } },
        }));
    }

    /// A template of claims for so many CPUs, which tolerates what is held with this value.
    pub(crate) fn template_of_part(&self, name: &str, cpus: u64, value: Option<&str>) {
        self.template(name, value);
        let part = json!({ "requests": { "cpus": cpus.to_string() } });
        self.server.edit("resourceclaimtemplates", &format!("default/{name}"), |object| {
            object["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = part.clone();
        });
    }

    /// A pod with a claim of a template.
    pub(crate) fn pod(&self, name: &str, template: &str) {
        self.server.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } },
            "spec": {
                "containers": [{ "name": "c", "image": "i", "resources": { "claims": [{ "name": "card" }] } }],
                "resourceClaims": [{ "name": "card", "resourceClaimTemplateName": template }],
            },
        }));
    }

    /// Keeps so many cards for the pod of this name.
    pub(crate) fn reserve(&self, name: &str, cards: usize, pod: &str, more: &Value) {
        let claims: Vec<Value> = (0..cards)
            .map(|at| {
                let request = json!({ "name": "card", "exactly": { "deviceClassName": "card" } });
                json!({ "name": format!("c{at}"), "spec": { "devices": { "requests": [request] } } })
            })
            .collect();
        let mut spec = json!({
            "deviceClaims": claims, "owners": [{ "object": { "namespace": "default", "name": pod } }],
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        self.server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": { "name": name }, "spec": spec,
        }));
    }

    /// Keeps so many CPUs of a shared device for pods with the label `app`.
    pub(crate) fn reserve_part(&self, name: &str, cpus: u64, app: &str, more: &Value) {
        let exactly = json!({ "deviceClassName": "card", "capacity": { "requests": { "cpus": cpus.to_string() } } });
        let request = json!({ "name": "card", "exactly": exactly });
        let mut spec = json!({
            "deviceClaims": [{ "name": "c", "spec": { "devices": { "requests": [request] } } }],
            "owners": [{ "labelSelector": { "matchLabels": { "app": app } } }],
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        self.server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": { "name": name }, "spec": spec,
        }));
    }

    /// Waits until so many claims stand for parts, and no device is held.
    pub(crate) async fn until_accounted(&self, parts: usize) {
        let look = |view: &ApiServerView<'_>| are_accounted(view, parts).then_some(());
        self.server.until(&format!("{parts} claims stand for parts, and nothing is closed"), look).await;
    }

    /// The same, now.
    pub(crate) fn is_accounted(&self, parts: usize) -> bool {
        self.server.look(|view| are_accounted(view, parts))
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) -> Value {
        let look =
            |view: &ApiServerView<'_>| view.get(RESERVATIONS, name).filter(|object| object["status"]["phase"] == phase);
        self.server.until(&format!("{name} is {phase}"), look).await
    }

    pub(crate) async fn until_bound(&self, pod: &str) -> String {
        let look = |view: &ApiServerView<'_>| {
            Some(view.get("pods", &format!("default/{pod}"))?["spec"]["nodeName"].as_str()?.to_owned())
        };
        self.server.until(&format!("{pod} has a node"), look).await
    }

    /// Waits until one of two has a node; says which.
    pub(crate) async fn until_either_bound<'a>(&self, pods: [&'a str; 2]) -> &'a str {
        let is_bound = |view: &ApiServerView<'_>, pod: &&str| {
            view.get("pods", &format!("default/{pod}")).is_some_and(|it| it["spec"]["nodeName"].is_string())
        };
        self.server.until("one has a node", |view| pods.into_iter().find(|pod| is_bound(view, pod))).await
    }

    /// Waits until the scheduler has said that there is nothing for the pod.
    pub(crate) async fn until_refused(&self, pod: &str) {
        let look = |view: &ApiServerView<'_>| {
            let conditions = view.get("pods", &format!("default/{pod}"))?["status"]["conditions"].take();
            conditions
                .as_array()?
                .iter()
                .any(|it| it["type"] == "PodScheduled" && it["status"] == "False")
                .then_some(())
        };
        self.server.until(&format!("{pod} has been refused"), look).await;
    }

    /// Values of the taint on all devices: `pool/device=value`.
    pub(crate) fn fences(&self) -> Vec<String> {
        self.server.look(fences)
    }

    pub(crate) async fn until_no_fence(&self) {
        self.until_fences(&[]).await;
    }

    /// Waits until these devices are held, and no other.
    pub(crate) async fn until_fences(&self, expected: &[String]) {
        let what = format!("{expected:?} are held");
        self.server.until(&what, |view| (fences(view) == expected).then_some(())).await;
    }

    /// As a person deletes it.
    pub(crate) fn ask_to_go(&self, name: &str) {
        let object = self.server.get(RESERVATIONS, name).unwrap();
        if object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
            self.server.delete(RESERVATIONS, name);
        } else {
            self.server.edit(RESERVATIONS, name, |object| {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            });
        }
    }

    /// Another one may lead at once.
    pub(crate) fn drop_lease(&self) {
        self.server.delete("leases", "hostler-controller/hostler-controller");
    }
}

/// Claims that stand for parts of devices.
fn placeholders(view: &ApiServerView<'_>) -> Vec<Value> {
    let is_one = |claim: &Value| claim["metadata"]["namespace"] == "hostler-controller";
    view.list("resourceclaims").into_iter().filter(is_one).collect()
}

fn are_accounted(view: &ApiServerView<'_>, parts: usize) -> bool {
    let claims = placeholders(view);
    let is_given = |claim: &Value| !claim["status"]["allocation"].is_null();
    claims.len() == parts && claims.iter().all(is_given) && fences(view).is_empty()
}

fn fences(view: &ApiServerView<'_>) -> Vec<String> {
    let slices = view.list(SLICES);
    let devices = slices.iter().flat_map(|slice| {
        let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
        devices.map(move |device| (slice["spec"]["pool"]["name"].as_str().unwrap(), device))
    });
    let value = |(pool, device): (&str, &Value)| {
        let taint = device["taints"].as_array()?.iter().find(|it| it["key"] == "hostler.dev/held")?;
        Some(format!("{pool}/{}={}", device["name"].as_str()?, taint["value"].as_str()?))
    };
    devices.filter_map(value).collect()
}

/// A node whose daemon has not done yet what it is told.
fn untold(view: &ApiServerView<'_>) -> Option<Value> {
    let is_untold = |object: &Value| {
        let has_ever = object["status"]["holdsGeneration"].is_number() || object["spec"]["holds"].is_array();
        has_ever && object["status"]["holdsGeneration"] != object["metadata"]["generation"]
    };
    view.list(HARDWARE).into_iter().find(is_untold)
}

/// What the real daemon does: first the slices, then the word that they are so.
fn publish(server: &ApiServer, told: &Value) {
    let node = told["metadata"]["name"].as_str().unwrap();
    let holds = told["spec"]["holds"].as_array().cloned().unwrap_or_default();
    for mut slice in server.list(SLICES).into_iter().filter(|slice| slice["spec"]["nodeName"] == node) {
        let pool = slice["spec"]["pool"]["name"].clone();
        let before = slice.clone();
        // One of counters has no devices.
        for device in slice["spec"]["devices"].as_array_mut().into_iter().flatten() {
            let hold = holds.iter().find(|hold| hold["pool"] == pool && hold["device"] == device["name"]);
            let taint =
                hold.map(|hold| json!({ "key": "hostler.dev/held", "value": hold["value"], "effect": "NoSchedule" }));
            let of_others = device["taints"].as_array().cloned().unwrap_or_default();
            let of_others = of_others.into_iter().filter(|taint| taint["key"] != "hostler.dev/held");
            device["taints"] = of_others.chain(taint).collect();
            let attributes = device.as_object_mut().unwrap().entry("attributes").or_insert_with(|| json!({}));
            match hold {
                Some(hold) => attributes["hostler.dev/heldFor"] = json!({ "string": hold["value"] }),
                None => drop(attributes.as_object_mut().unwrap().remove("hostler.dev/heldFor")),
            }
        }
        if slice != before {
            server.update(slice);
        }
    }
    // The rest of what a daemon says is of no matter here.
    server.edit(HARDWARE, node, |object| object["status"]["holdsGeneration"] = told["metadata"]["generation"].clone());
}
