//! The whole way: scheduler, controller, kubelet, daemon and containers, all of them real.

use hostler_testing::{controller::RunningController, real_node::eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::old_cluster::{DRIVER, OldCluster, V1_31};

/// A device class that parameters can name, and that 1.31 has as an object.
const CPU: &str = "cpu.hostler.dev";
const CLASS: &str = "hostler";

/// A cluster in which a controller of ours allocates.
struct Negotiating {
    cluster: OldCluster,
    controller: Option<RunningController>,
}

impl Negotiating {
    fn start() -> Option<Self> {
        let cluster = OldCluster::start()?;
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for file in ["clusterhardware", "classic/claimparameters", "classic/classparameters"] {
            cluster.node.apply_file(crds, format!("deploy/crds/{file}.yaml").as_ref());
        }
        let namespace = "/api/v1/namespaces";
        if cluster.node.get(&format!("{namespace}/hostler-controller")).is_none() {
            cluster.node.create(
                namespace,
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hostler-controller"}}),
            );
        }
        let mut this = Self { cluster, controller: None };
        this.make_classes();
        this.start_controller();
        Some(this)
    }

    fn start_controller(&mut self) {
        let options = self.cluster.node.controller_options();
        let controller = self.cluster.node.block_on(RunningController::start(&options));
        let allocates = "hostler_controller_condition{type=\"ClassicAllocation\",status=\"True\"} 1";
        self.cluster.node.block_on(controller.until_figure(allocates));
        self.controller = Some(controller);
    }

    fn kill_controller(&mut self) {
        let controller = self.controller.take().expect("it runs");
        controller.signal(Signal::SIGKILL);
    }

    fn is_1_31(&self) -> bool {
        self.cluster.version == V1_31
    }

    fn make_classes(&self) {
        let (plural, name, class) = if self.is_1_31() {
            let expression = r#"device.driver == "hostler.dev" && "cpus" in device.capacity["hostler.dev"]"#;
            let spec = json!({"spec": {"selectors": [{"cel": {"expression": expression}}]}});
            ("deviceclasses", CPU, self.cluster.object("DeviceClass", CPU, &spec))
        } else {
            let class = json!({"driverName": DRIVER});
            ("resourceclasses", CLASS, self.cluster.object("ResourceClass", CLASS, &class))
        };
        let collection = format!("{}/{plural}", self.cluster.root());
        if self.cluster.node.get(&format!("{collection}/{name}")).is_none() {
            self.cluster.node.create(&collection, &class);
        }
    }

    /// Makes a claim for so many CPUs.
    fn claim(&self, name: &str, cpus: usize) {
        let cpus = cpus.to_string();
        let spec = if self.is_1_31() {
            let config =
                json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "RequestConfig", "capacity": {"cpus": cpus}});
            json!({"controller": DRIVER, "devices": {
                "requests": [{"name": "cpus", "deviceClassName": CPU}],
                "config": [{"requests": ["cpus"], "opaque": {"driver": DRIVER, "parameters": config}}]}})
        } else {
            let request = json!({"name": "cpus", "deviceClassName": CPU, "capacity": {"requests": {"cpus": cpus}}});
            self.cluster.node.create(
                &self.cluster.node.of("/apis/hostler.dev/v1alpha1", "claimparameters"),
                &json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ClaimParameters", "metadata": {"name": name},
                    "spec": {"requests": [request]}}),
            );
            let reference = json!({"apiGroup": "hostler.dev", "kind": "ClaimParameters", "name": name});
            json!({"resourceClassName": CLASS, "parametersRef": reference})
        };
        let claim = self.cluster.object("ResourceClaim", name, &json!({"spec": spec}));
        self.cluster.node.create(&self.cluster.node.of(&self.cluster.root(), "resourceclaims"), &claim);
    }

    fn stored(&self, claim: &str) -> Value {
        self.cluster.node.get(&self.cluster.claim_path(claim)).expect("the claim is there")
    }

    /// Returns the grants of the controller on a node, by UID of the claim.
    fn given(&self, node: &str) -> Value {
        let path = format!("/apis/hostler.dev/v1alpha1/nodehardware/{node}");
        self.cluster.node.get(&path).unwrap_or_default()["spec"]["claims"].clone()
    }

    /// Makes an unused claim release its devices. In 1.26 no component does so by itself: an allocated claim stays so
    /// until it is deleted, or a pod needs it elsewhere.
    fn give_up(&self, claim: &str, node: &str) {
        if self.cluster.version == "v1alpha1" {
            self.delete(claim, node);
        } else {
            self.wait_until_free(claim, node);
        }
    }

    /// Deletes a claim, and waits until claim and grant are gone.
    fn delete(&self, claim: &str, node: &str) {
        let path = self.cluster.claim_path(claim);
        let Some(stored) = self.cluster.node.get(&path) else { return };
        self.cluster.node.delete(&path, 0);
        eventually(&format!("claim {claim} is gone"), || self.cluster.node.get(&path).is_none().then_some(()));
        let uid = stored["metadata"]["uid"].as_str().unwrap();
        assert!(self.given(node)[uid].is_null(), "{claim} is gone, and still has devices of {node}");
    }

    /// Waits until a claim has no device any more, neither in its status nor in a node's journal.
    fn wait_until_free(&self, claim: &str, node: &str) {
        eventually(&format!("claim {claim} is taken back"), || {
            let stored = self.stored(claim);
            let uid = stored["metadata"]["uid"].as_str()?.to_owned();
            let is_free = stored["status"]["allocation"].is_null() && self.given(node)[&uid].is_null();
            (is_free && stored["metadata"]["finalizers"].is_null()).then_some(())
        });
    }

    /// Returns the node that a claim was allocated for.
    fn node_of(&self, claim: &str) -> Option<String> {
        let stored = self.stored(claim);
        let selector = if self.is_1_31() { "nodeSelector" } else { "availableOnNodes" };
        let term = &stored["status"]["allocation"][selector]["nodeSelectorTerms"][0];
        Some(term["matchFields"][0]["values"][0].as_str()?.to_owned())
    }
}

#[test]
fn pods_get_cpus_and_share_them_and_whoever_is_killed_nothing_is_lost() {
    let Some(mut it) = Negotiating::start() else { return };
    let all = it.cluster.cpus();
    let node = it.cluster.node.name().to_owned();
    it.claim("one", 1);
    it.claim("rest", all.len() - 1);
    it.claim("more", 1);
    it.cluster.run("a", &["one"]);
    let one = it.cluster.bound_to("a", &["one"]);
    assert_eq!(one.len(), 1);
    it.cluster.run("b", &["one"]);
    assert_eq!(it.cluster.bound_to("b", &["one"]), one, "one claim, two pods");

    // Controller and daemon die while a pod starts.
    it.cluster.run("c", &["rest"]);
    it.kill_controller();
    it.cluster.host.kill();
    assert_eq!(it.cluster.kernel_lets("a"), one);
    it.cluster.host.start();
    it.start_controller();
    assert_eq!(it.cluster.bound_to("c", &["rest"]), all.difference(&one));

    // No CPU is left. The pod that fits nowhere says why, and starts when another has gone.
    it.cluster.run("d", &["more"]);
    let told = eventually("an event that says why", || {
        let events = it.cluster.node.events("ResourceClaim", "more");
        events.into_iter().find(|event| event.contains("no node will do"))
    });
    assert!(told.contains(&node), "{told}");
    ["a", "b"].iter().for_each(|pod| it.cluster.delete(pod));
    ["a", "b"].iter().for_each(|pod| it.cluster.wait_until_gone(pod));
    it.give_up("one", &node);
    assert_eq!(it.cluster.bound_to("d", &["more"]), one, "what the claim before it had");

    it.cluster.node.restart_kubelet();
    it.kill_controller();
    ["c", "d"].iter().for_each(|pod| it.cluster.delete(pod));
    it.start_controller();
    ["c", "d"].iter().for_each(|pod| it.cluster.wait_until_gone(pod));
    // A kubelet of 1.26 that was killed takes nothing back: the daemon itself finds claims that are gone.
    ["one", "rest", "more"].iter().for_each(|claim| it.delete(claim, &node));
    it.cluster.wait_until_nothing_is_held();
}

#[test]
fn a_claim_that_nobody_uses_any_more_moves_to_the_node_of_its_next_pod() {
    let Some(it) = Negotiating::start() else { return };
    let (here, there) = (it.cluster.node.name().to_owned(), format!("{}-there", it.cluster.node.namespace()));
    let hardware = "/apis/hostler.dev/v1alpha1/nodehardware";
    it.claim("one", 1);
    it.cluster.run("a", &["one"]);
    it.cluster.bound_to("a", &["one"]);
    assert_eq!(it.node_of("one").as_deref(), Some(&*here));

    // A second node with the same devices, but no kubelet: a pod that is scheduled there stays as it is.
    let found = it.cluster.node.get(&format!("{hardware}/{here}")).unwrap();
    let text = found["status"].to_string().replace(&format!("\"{here}\""), &format!("\"{there}\""));
    let status: Value = serde_json::from_str(&text.replace(&format!("\"{here}/"), &format!("\"{there}/"))).unwrap();
    let of_kind = |kind: &str, version: &str, rest: Value| {
        let mut object = rest;
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": there, "labels": {"kubernetes.io/hostname": there}});
        object
    };
    it.cluster.node.create("/api/v1/nodes", &of_kind("Node", "v1", json!({})));
    it.cluster.node.change(&format!("/api/v1/nodes/{there}"), "/status", |node| {
        let amounts = json!({"cpu": "8", "memory": "8Gi", "pods": "10"});
        node["status"] = json!({"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]});
    });
    it.cluster
        .node
        .create(hardware, &of_kind("NodeHardware", "hostler.dev/v1alpha1", json!({"spec": {"nodeName": there}})));
    it.cluster.node.change(&format!("{hardware}/{there}"), "/status", |object| object["status"] = status.clone());

    it.cluster.delete("a");
    it.cluster.wait_until_gone("a");
    it.cluster.wait_until_nothing_is_held();
    it.cluster.run_on("b", &["one"], &json!({"kubernetes.io/hostname": there}));
    eventually("the claim is the other node's", || (it.node_of("one").as_deref() == Some(&*there)).then_some(()));
    let uid = it.stored("one")["metadata"]["uid"].as_str().unwrap().to_owned();
    assert!(it.given(&there)[&uid].is_object() && it.given(&here)[&uid].is_null());
    eventually("the pod is on that node", || {
        let pod = it.cluster.node.get(&it.cluster.node.of("/api/v1", "pods/b"))?;
        (pod["spec"]["nodeName"] == *there).then_some(())
    });

    // That node goes for good: its pod is deleted without a kubelet's answer, and so the claim is taken back.
    it.cluster.node.delete(&it.cluster.node.of("/api/v1", "pods/b"), 0);
    it.give_up("one", &there);
    it.cluster.node.delete(&format!("/api/v1/nodes/{there}"), 0);
    it.cluster.node.delete(&format!("{hardware}/{there}"), 0);
}
