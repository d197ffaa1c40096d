//! What the running controller answers to people and programs: who may ask what, and that nobody is in another's way.

mod access;
mod commands;
mod fabric;
mod fits;
mod nodes;
mod page;
mod turns;

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease, PolicyRule},
    controller::{ControllerOptions, RunningController},
    visitor::Visitor,
};
use serde_json::{Value, json};

const CONTROLLER: &str = "system:serviceaccount:hostler:hostler-controller";

/// A cluster with a controller.
struct Scene {
    server: ApiServer,
    controller: RunningController,
}

/// What a visitor may list.
const NODES: (&str, &str) = ("hostler.dev", "nodehardware");
const CLAIMS: (&str, &str) = ("resource.k8s.io", "resourceclaims");
const SLICES: (&str, &str) = ("resource.k8s.io", "resourceslices");
const RESERVATIONS: (&str, &str) = ("hostler.dev", "reservations");
const FABRIC: (&str, &str) = ("hostler.dev", "fabricattachments");

impl Scene {
    /// A controller that knows all of a cluster that `fill` has filled.
    async fn with(fill: impl FnOnce(&ApiServer)) -> Self {
        Self::configured(String::new(), fill).await
    }

    /// The same with this configuration.
    async fn configured(config: String, fill: impl FnOnce(&ApiServer)) -> Self {
        let server = ApiServer::of(ApiServerRelease::default()).await;
        fill(&server);
        let options = ControllerOptions {
            binary: env!("CARGO_BIN_EXE_hostler-controller").into(),
            kubeconfig: server.kubeconfig(CONTROLLER),
            config,
            ..ControllerOptions::default()
        };
        let controller = RunningController::start(&options).await;
        controller.until_answers("/readyz", 200).await;
        Self { server, controller }
    }

    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Somebody who may list these and nothing else.
    fn visitor(&self, name: &str, rights: &[(&str, &str)]) -> Visitor {
        let rule = |(group, resource): &(&str, &str)| PolicyRule {
            api_groups: vec![(*group).to_owned()],
            resources: vec![(*resource).to_owned()],
            verbs: vec!["list".to_owned()],
            ..PolicyRule::default()
        };
        self.server.allow(name, rights.iter().map(rule).collect());
        Visitor::with_token(self.controller.address(), self.server.user(name, None))
    }

    /// Somebody who may see everything.
    fn viewer(&self) -> Visitor {
        self.visitor("viewer", &[NODES, CLAIMS, SLICES])
    }

    fn stranger(&self) -> Visitor {
        Visitor::new(self.controller.address())
    }
}

fn node(name: &str) -> Value {
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "zone": "a" } },
        "status": { "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "110" }, "conditions": ready },
    })
}

fn class(name: &str) -> Value {
    let selector = json!({ "cel": { "expression": format!("device.driver == '{name}'") } });
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
        "spec": { "selectors": [selector] },
    })
}

/// A slice with so many devices of a driver.
fn slice(node: &str, driver: &str, devices: usize) -> Value {
    let devices: Vec<Value> = (0..devices).map(|at| json!({ "name": format!("dev-{at}") })).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{node}-{driver}") },
        "spec": {
            "driver": driver, "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 }, "devices": devices,
        },
    })
}

fn claim(name: &str, class: &str, count: u32) -> Value {
    let request = json!({ "name": "r", "exactly": { "deviceClassName": class, "count": count } });
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": name, "namespace": "ml" },
        "spec": { "devices": { "requests": [request] } },
    })
}
