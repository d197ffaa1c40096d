//! A cluster of 1.26 to 1.31 in the test's own process: API server, scheduler, controller of claims, and nodes with cards.

use std::{collections::BTreeMap, fs, sync::Arc};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView, PolicyRule},
    control_plane::ClassicControlPlane,
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::rig::{USER, install, options, root};

pub(crate) const DRIVER: &str = "hostler.dev";
pub(crate) const FINALIZER: &str = "hostler.dev/deletion-protection";
/// A device class that parameters can name, and that 1.31 has as an object.
const CLASS: &str = "cpu.hostler.dev";

/// A cluster; its scheduler ends with it.
pub(crate) struct ClassicCluster {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) release: ApiServerRelease,
    plane: ClassicControlPlane,
    running: Option<JoinHandle<()>>,
}

impl Drop for ClassicCluster {
    fn drop(&mut self) {
        self.running.iter().for_each(JoinHandle::abort);
    }
}

impl ClassicCluster {
    /// With its scheduler.
    pub(crate) async fn start(release: ApiServerRelease) -> Self {
        let cluster = Self::bare(release).await;
        cluster.class();
        cluster
    }

    /// Without a class.
    pub(crate) async fn bare(release: ApiServerRelease) -> Self {
        let mut cluster = Self::with_gate(release, true).await;
        cluster.running = Some(cluster.plane.run(&cluster.server));
        cluster
    }

    /// Without anybody.
    pub(crate) async fn with_gate(release: ApiServerRelease, is_on: bool) -> Self {
        let gates = match release {
            ApiServerRelease::V1_31 => BTreeMap::from([("DRAControlPlaneController".to_owned(), is_on)]),
            _ => BTreeMap::new(),
        };
        let server = ApiServer::start(ApiServerOptions { release, gates, ..ApiServerOptions::default() }).await;
        install(&server);
        for file in ["claimparameters.yaml", "classparameters.yaml"] {
            server.create_yaml(&fs::read_to_string(root().join("deploy/crds/classic").join(file)).unwrap());
        }
        server.allow(USER, rules());
        Self { server: Arc::new(server), release, plane: ClassicControlPlane::new(release), running: None }
    }

    pub(crate) fn options(&self) -> ControllerOptions {
        options(&self.server)
    }

    /// A controller that has listed everything.
    pub(crate) async fn controller(&self) -> RunningController {
        let controller = RunningController::start(&self.options()).await;
        controller.until_figure("hostler_controller_condition{type=\"ClassicAllocation\",status=\"True\"} 1").await;
        controller
    }

    fn is_devices(&self) -> bool {
        self.release == ApiServerRelease::V1_31
    }

    fn class(&self) {
        let expression = "device.driver == \"hostler.dev\" && \"cpus\" in device.attributes[\"hostler.dev\"]";
        self.server.create(if self.is_devices() {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": CLASS },
                "spec": { "selectors": [{ "cel": { "expression": expression } }] },
            })
        } else {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClass", "metadata": { "name": "hostler" },
                "driverName": DRIVER,
            })
        });
    }

    /// A node with so many cards.
    pub(crate) fn node(&self, name: &str, cards: usize) {
        let labels = json!({ "kubernetes.io/hostname": name });
        self.server
            .create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } }));
        self.server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": { "name": name },
            "spec": { "nodeName": name },
        }));
        self.cards(name, cards);
    }

    /// A node with so many CPUs, of which claims get parts.
    pub(crate) fn node_of_cpus(&self, name: &str, cpus: usize) {
        self.node(name, 0);
        let device = json!({
            "name": "numa-0", "allowMultipleAllocations": true, "attributes": { "cpus": { "int": cpus } },
            "capacity": { "cpus": { "value": cpus.to_string() } },
        });
        self.devices(name, &json!([device]));
    }

    /// The node has so many cards now.
    pub(crate) fn cards(&self, node: &str, cards: usize) {
        let device = |at: usize| json!({ "name": format!("card-{at}"), "attributes": { "cpus": { "int": 4 } } });
        self.devices(node, &(0..cards).map(device).collect());
    }

    /// A device on the network, which some nodes can use.
    pub(crate) fn switch(&self, name: &str, nodes: &[&str]) {
        self.server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": { "name": name }, "spec": {},
        }));
        let of = json!([{ "key": "kubernetes.io/hostname", "operator": "In", "values": nodes }]);
        let place = json!({ "nodeSelector": { "nodeSelectorTerms": [{ "matchExpressions": of }] } });
        self.offer(name, &place, &json!([{ "name": "card-0", "attributes": { "cpus": { "int": 4 } } }]));
    }

    fn devices(&self, node: &str, devices: &Value) {
        self.offer(node, &json!({ "nodeName": node }), devices);
    }

    fn offer(&self, source: &str, place: &Value, devices: &Value) {
        let mut slice = json!({
            "driver": DRIVER, "devices": devices,
            "pool": { "name": format!("{source}/cpu"), "generation": 1, "resourceSliceCount": 1 },
        });
        slice.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Reporting", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let totals =
            ["capacity", "allocatable", "free", "allocated", "held", "unhealthy", "drained", "unknown", "blocked"];
        let totals: BTreeMap<&str, usize> = totals.into_iter().map(|name| (name, 0)).collect();
        let status = json!({
            "driver": DRIVER, "hostlerVersion": "0.1.0", "kernelVersion": "6.12", "bootID": "boot", "devices": totals,
            "conditions": [ready], "slices": [slice],
        });
        self.server.set_status("nodehardware", source, status);
    }

    /// What a claim of this release says that wants so many cards; until 1.30 they are in parameters of its name.
    pub(crate) fn wish(&self, name: &str, cards: usize) -> Value {
        if self.is_devices() {
            let request = json!({ "name": "cards", "deviceClassName": CLASS, "count": cards });
            return json!({ "controller": DRIVER, "devices": { "requests": [request] } });
        }
        let reference = json!({ "apiGroup": "hostler.dev", "kind": "ClaimParameters", "name": name });
        json!({ "resourceClassName": "hostler", "parametersRef": reference })
    }

    /// What a wish refers to, until 1.30.
    pub(crate) fn parameters(&self, name: &str, cards: usize) {
        if !self.is_devices() {
            let request = json!({ "name": "cards", "deviceClassName": CLASS, "count": cards });
            self.server.create(json!({
                "apiVersion": "hostler.dev/v1alpha1", "kind": "ClaimParameters",
                "metadata": { "name": name, "namespace": "default" }, "spec": { "requests": [request] },
            }));
        }
    }

    pub(crate) fn claim(&self, name: &str, cards: usize) {
        self.parameters(name, cards);
        self.claim_with(name, &self.wish(name, cards));
    }

    pub(crate) fn claim_with(&self, name: &str, spec: &Value) {
        self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": { "name": name, "namespace": "default" }, "spec": spec,
        }));
    }

    /// A pod that uses claims; until 1.30 there is a `source` between.
    pub(crate) fn pod(&self, name: &str, claims: &[&str]) {
        let named = |claim: &&str| match self.is_devices() {
            true => json!({ "name": claim, "resourceClaimName": claim }),
            false => json!({ "name": claim, "source": { "resourceClaimName": claim } }),
        };
        self.server.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "containers": [{ "name": "c", "image": "i" }],
                "resourceClaims": claims.iter().map(named).collect::<Vec<_>>(),
            },
        }));
    }

    /// Waits until a pod is bound; gives its node.
    pub(crate) async fn until_bound(&self, pod: &str) -> String {
        let what = format!("{pod} is bound");
        let node = |view: &ApiServerView<'_>| Some(view.get("pods", pod)?["spec"]["nodeName"].as_str()?.to_owned());
        self.server.until(&what, node).await
    }

    /// Waits until somebody is told something about a claim; gives the words.
    pub(crate) async fn until_told(&self, claim: &str, reason: &str) -> String {
        let what = format!("an event {reason} is about {claim}");
        let told = |view: &ApiServerView<'_>| {
            let events = view.list("events");
            let event = events.iter().find(|it| it["involvedObject"]["name"] == *claim && it["reason"] == *reason)?;
            Some(event["message"].as_str()?.to_owned())
        };
        self.server.until(&what, told).await
    }

    /// Waits until nothing is left of a claim's allocation: neither in it nor in any NodeHardware.
    pub(crate) async fn until_free(&self, claim: &str) {
        let what = format!("{claim} is taken back");
        let is_free = |view: &ApiServerView<'_>| {
            let has_something =
                |claim: &Value| claim["status"]["allocation"].is_object() || finalizers(claim).contains(&FINALIZER);
            // A claim that is gone has nothing; nor has any other one that is gone.
            let uids = view.list("resourceclaims").into_iter().filter(has_something);
            let uids: Vec<Value> = uids.map(|claim| claim["metadata"]["uid"].clone()).collect();
            let is_granted = |hardware: &Value| {
                let claims = hardware["spec"]["claims"].as_object();
                claims.is_some_and(|claims| claims.keys().any(|uid| !uids.contains(&json!(uid))))
            };
            let is_left = view.get("resourceclaims", claim).is_some_and(|claim| has_something(&claim));
            (!is_left && !view.list("nodehardware").iter().any(is_granted)).then_some(())
        };
        self.server.until(&what, is_free).await;
    }

    /// What all NodeHardware say was given, as `pool/device`, with the UID of the claim. No device is given twice.
    pub(crate) fn given(&self) -> BTreeMap<String, String> {
        let mut given = BTreeMap::new();
        for hardware in self.server.list("nodehardware") {
            for (uid, grant) in hardware["spec"]["claims"].as_object().into_iter().flatten() {
                for device in grant["devices"].as_array().unwrap() {
                    let name = format!("{}/{}", device["pool"].as_str().unwrap(), device["device"].as_str().unwrap());
                    let other = given.insert(name.clone(), uid.clone());
                    assert!(other.is_none(), "{name} is given to {uid} and {other:?}");
                }
            }
        }
        given
    }

    /// What must be so once nothing more happens: who is allocated is kept and granted, and nobody else.
    pub(crate) fn check_rest(&self) {
        let mut granted: Vec<String> = self.given().into_values().collect();
        granted.sort();
        granted.dedup();
        for claim in self.server.list("resourceclaims") {
            let uid = claim["metadata"]["uid"].as_str().unwrap().to_owned();
            let is_allocated = claim["status"]["allocation"].is_object();
            assert_eq!(granted.contains(&uid), is_allocated, "{claim}");
            assert_eq!(finalizers(&claim).contains(&FINALIZER), is_allocated, "{claim}");
            granted.retain(|one| *one != uid);
        }
        assert!(granted.is_empty(), "given to claims that there are not: {granted:?}");
    }

    /// Nobody uses the claim any more. In 1.26 it stays allocated until it is deleted.
    pub(crate) fn let_go(&self, claim: &str) {
        if self.release == ApiServerRelease::V1_26 {
            let time = json!("2026-01-01T00:00:00Z");
            self.server.edit("resourceclaims", claim, |claim| claim["metadata"]["deletionTimestamp"] = time);
        }
    }

    /// Another controller need not wait until the Lease of one that was killed has run out.
    pub(crate) fn drop_lease(&self) {
        self.server.delete("leases", "hostler-controller/hostler-controller");
    }
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What the controller may do.
pub(crate) fn rules() -> Vec<PolicyRule> {
    let files = ["deploy/controller/base/rbac.yaml", "deploy/classic/rbac.yaml"];
    files.iter().flat_map(|file| PolicyRule::from_yaml(&fs::read_to_string(root().join(file)).unwrap())).collect()
}
