//! Devices that are kept in a real cluster, by the real daemon and the real controller, for a pod that a real scheduler
//! and a real kubelet run. `HOSTLER_E2E_KUBECONFIG` and `HOSTLER_E2E_NODE` name the cluster (1.36 or later, with device
//! taints); without them no test runs. Figures are printed: `--nocapture` shows them.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and shows what it measured"
)]

mod figures;
mod led;
mod modes;
mod places;
mod races;
mod refused;
mod requests;

use std::{fs, path::Path};

use hostler_testing::{
    controller::RunningController,
    host::Host,
    real_node::{RealNode, eventually},
};
use serde_json::{Value, json};

const RESOURCE: &str = "/apis/resource.k8s.io/v1";
const OURS: &str = "/apis/hostler.dev/v1alpha1";
const CARDS: usize = 4;

/// A node with cards, a controller that keeps them, and the namespace of a test.
struct HoldingCluster {
    node: RealNode,
    host: Host,
    controller: RunningController,
}

fn deployed(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&fs::read_to_string(Path::new("deploy").join(file)).unwrap()).unwrap()
}

fn apply(node: &RealNode, objects: &[Value]) {
    for object in objects {
        let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let plural = match kind {
            "CustomResourceDefinition" => "customresourcedefinitions",
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
            "MutatingWebhookConfiguration" => "mutatingwebhookconfigurations",
            "ClusterRole" => "clusterroles",
            "ClusterRoleBinding" => "clusterrolebindings",
            "Role" => "roles",
            "RoleBinding" => "rolebindings",
            "Namespace" => "namespaces",
            "PriorityClass" => "priorityclasses",
            other => panic!("{other} is not applied here"),
        };
        let name = object["metadata"]["name"].as_str().unwrap();
        let namespace =
            object["metadata"]["namespace"].as_str().map(|it| format!("namespaces/{it}/")).unwrap_or_default();
        let root = if version == "v1" { "/api" } else { "/apis" };
        let path = format!("{root}/{version}/{namespace}{plural}/{name}?fieldManager=test&force=true");
        let answer = node.ask("PATCH", &path, "application/apply-patch+yaml", object);
        answer.unwrap_or_else(|(code, message)| panic!("{kind} {name}: {code}: {message}"));
    }
}

impl HoldingCluster {
    fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// Starts with more lines of the controller's configuration.
    fn start_with(config: &str) -> Option<Self> {
        Self::start_as(&format!("[[device]]\nname = \"card\"\ncount = {CARDS}\n"), CARDS, config)
    }

    /// Starts with so many devices of this script.
    fn start_as(script: &str, count: usize, config: &str) -> Option<Self> {
        let node = RealNode::find_modern()?;
        // Roles, accounts and namespaces are there: the kubeconfigs of the node's folder are of them.
        for file in
            ["crds/nodehardware.yaml", "crds/clusterhardware.yaml", "crds/reservations.yaml", "holds/base/policy.yaml"]
        {
            apply(&node, &deployed(file));
        }
        let mut host =
            Host::real_node("[backends.cpu]\nenabled = false\n[backends.memory]\nenabled = false\n", node.membership());
        host.script(script);
        host.start();
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "kept-card"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == \"hostler.dev\""}}]},
        });
        if node.get(&format!("{RESOURCE}/deviceclasses/kept-card")).is_none() {
            node.create(&format!("{RESOURCE}/deviceclasses"), &class);
        }
        let mut options = node.controller_options();
        options.config = format!("[capabilities]\nreservations = \"on\"\n{config}");
        let controller = node.block_on(RunningController::start(&options));
        node.block_on(controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1"));
        let cluster = Self { node, host, controller };
        eventually("the cards", || (cluster.fences()?.len() == count).then_some(()));
        Some(cluster)
    }

    /// Returns the holder of each card, in the order of their names; `None` until the cards are published.
    fn fences(&self) -> Option<Vec<Option<String>>> {
        let slices = self.node.get(&format!("{RESOURCE}/resourceslices"))?;
        let slices = slices["items"].as_array()?.iter().filter(|it| it["spec"]["driver"] == "hostler.dev");
        let devices = slices.flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default());
        let value = |device: Value| {
            let taints = device["taints"].as_array()?;
            taints.iter().find(|it| it["key"] == "hostler.dev/held")?["value"].as_str().map(str::to_owned)
        };
        Some(devices.map(value).collect())
    }

    fn held(&self) -> usize {
        self.fences().unwrap_or_default().iter().flatten().count()
    }

    fn reserve(&self, name: &str, cards: usize, pod: &str) {
        self.reserve_with(name, cards, pod, &json!({}));
    }

    fn reserve_with(&self, name: &str, cards: usize, pod: &str, more: &Value) {
        let request = json!({"name": "card", "exactly": {"deviceClassName": "kept-card"}});
        let claim = |at: usize| json!({"name": format!("c{at}"), "spec": {"devices": {"requests": [request]}}});
        let owner = json!({"object": {"namespace": self.node.namespace(), "name": pod}});
        let mut spec =
            json!({"deviceClaims": (0..cards).map(claim).collect::<Vec<_>>(), "owners": [owner], "ttl": "20m"});
        more.as_object().unwrap().iter().for_each(|(field, value)| spec[field] = value.clone());
        self.node.create(
            &format!("{OURS}/reservations"),
            &json!({
                "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec,
            }),
        );
    }

    fn until_phase(&self, name: &str, phase: &str) -> Value {
        eventually(&format!("{name} to be {phase}"), || {
            self.node.get(&format!("{OURS}/reservations/{name}")).filter(|it| it["status"]["phase"] == phase)
        })
    }

    fn release(&self, name: &str) {
        let path = format!("{OURS}/reservations/{name}");
        self.node.delete(&path, 0);
        eventually("it to be gone", || self.node.get(&path).is_none().then_some(()));
    }

    fn template(&self, name: &str, tolerations: &Value) -> Result<(), String> {
        let request = json!({"name": "card", "exactly": {"deviceClassName": "kept-card", "tolerations": tolerations}});
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        });
        let made =
            self.node.ask("POST", &self.node.of(RESOURCE, "resourceclaimtemplates"), "application/json", &template);
        made.map(drop).map_err(|(_, message)| message)
    }

    fn pod(&self, name: &str, template: &str) {
        self.node.run_pod(name, &[json!({"name": "card", "resourceClaimTemplateName": template})], &Value::Null);
    }

    fn is_bound(&self, pod: &str) -> bool {
        let pod = self.node.get(&self.node.of("/api/v1", &format!("pods/{pod}"))).unwrap();
        pod["spec"]["nodeName"].is_string()
    }

    fn stop(self) {
        assert_eq!(self.node.block_on(self.controller.stop()), Some(0));
        drop(self.host);
    }
}

fn exactly(value: &str) -> Value {
    json!([{"key": "hostler.dev/held", "operator": "Equal", "value": value, "effect": "NoSchedule"}])
}

#[test]
fn what_is_kept_goes_to_its_owner_and_to_nobody_before_him() {
    let Some(cluster) = HoldingCluster::start() else { return };
    cluster.reserve("e2e-kept", CARDS, "owner");
    let kept = cluster.until_phase("e2e-kept", "Available");
    let value = kept["status"]["tolerationValue"].as_str().unwrap().to_owned();
    assert_eq!(cluster.fences().unwrap(), vec![Some(value.clone()); CARDS]);
    cluster.template("any", &json!([])).unwrap();
    cluster.template("kept", &exactly(&value)).unwrap();
    cluster.pod("stranger", "any");
    eventually("the scheduler's refusal", || {
        cluster.node.events("Pod", "stranger").iter().any(|it| it.contains("cannot allocate all claims")).then_some(())
    });
    assert!(!cluster.is_bound("stranger"));
    cluster.pod("owner", "kept");
    eventually("the owner's container", || cluster.node.pid("owner"));
    let done = cluster.until_phase("e2e-kept", "Succeeded");
    assert_eq!(done["status"]["currentOwners"][0]["name"], "owner");
    // A device that the owner did not take is open to every pod now.
    eventually("the stranger's container", || cluster.node.pid("stranger"));
    // The taken device is opened when every scheduler has seen the owner's claim.
    eventually("no fence", || (cluster.held() == 0).then_some(()));
    for pod in ["owner", "stranger"] {
        cluster.node.delete(&cluster.node.of("/api/v1", &format!("pods/{pod}")), 1);
    }
    cluster.release("e2e-kept");
    cluster.stop();
}

#[test]
fn nobody_may_tolerate_whatever_is_held() {
    let Some(cluster) = HoldingCluster::start() else { return };
    let told = "status.tolerationValue";
    // A policy is in force some moments after it was made.
    eventually("the policy", || {
        let refused = cluster.template("all", &json!([{"operator": "Exists"}])).err();
        if refused.is_none() {
            cluster.node.delete(&cluster.node.of(RESOURCE, "resourceclaimtemplates/all"), 0);
        }
        refused.filter(|message| message.contains(told))
    });
    for greedy in [
        json!([{"key": "hostler.dev/held", "operator": "Exists"}]),
        json!([{"key": "hostler.dev/held", "operator": "Exists", "effect": "NoSchedule"}]),
    ] {
        assert!(cluster.template("greedy", &greedy).unwrap_err().contains(told), "{greedy}");
    }
    for (name, modest) in [
        ("one", exactly("0123456789abcdef")),
        ("other", json!([{"key": "hostler.dev/drained", "operator": "Exists"}])),
        ("none", json!([])),
        ("evicted", json!([{"operator": "Exists", "effect": "NoExecute"}])),
    ] {
        cluster.template(name, &modest).unwrap();
    }
    cluster.stop();
}

/// Creates a budget for the pods with this label, and waits until the server knows that its only pod must stay; returns
/// its path.
fn keep_all(node: &RealNode, app: &str) -> String {
    let budgets = node.of("/apis/policy/v1", "poddisruptionbudgets");
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": app}}});
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "careful"}, "spec": spec,
    });
    node.create(&budgets, &budget);
    let path = format!("{budgets}/careful");
    eventually("the budget to know its pod", || {
        node.get(&path).filter(|it| it["status"]["currentHealthy"] == 1 && it["status"]["disruptionsAllowed"] == 0)
    });
    path
}

#[test]
fn a_pod_of_lower_priority_makes_room_when_its_budget_allows_it_and_not_before() {
    let Some(cluster) = HoldingCluster::start() else { return };
    let node = &cluster.node;
    for part in ["evictions", "annotations"] {
        apply(node, &deployed(&format!("holds/{part}/rbac.yaml")));
    }
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    if node.get(&format!("{classes}/e2e-urgent")).is_none() {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "e2e-urgent"},
            "value": 1000,
        });
        node.create(classes, &class);
    }
    cluster.template("any", &json!([])).unwrap();
    cluster.pod("low", "any");
    let path = node.of("/api/v1", "pods/low");
    eventually("its container", || node.pid("low"));
    node.change(&path, "", |pod| pod["metadata"]["labels"] = json!({"app": "low"}));
    let budget = keep_all(node, "low");
    let template = json!({"spec": {"priorityClassName": "e2e-urgent"}});
    let more = json!({"preemptionPolicy": "PreemptLowerPriority", "template": template});
    cluster.reserve_with("e2e-urgent", CARDS, "urgent", &more);
    let waiting = eventually("the budget to be named", || {
        let object = node.get(&format!("{OURS}/reservations/e2e-urgent"))?;
        let said = object["status"]["evictions"][0]["message"].as_str()?.contains("careful");
        (said && object["status"]["phase"] == "Waiting").then_some(object)
    });
    let value = waiting["status"]["tolerationValue"].as_str().unwrap().to_owned();
    assert_eq!(cluster.fences().unwrap(), vec![Some(value.clone()); CARDS]);
    assert!(node.get(&path).unwrap()["metadata"]["deletionTimestamp"].is_null());
    node.change(&budget, "", |budget| budget["spec"]["minAvailable"] = json!(0));
    let kept = cluster.until_phase("e2e-urgent", "Available");
    assert_eq!(kept["status"]["evictions"][0]["state"], "Evicted");
    assert!(node.get(&path).is_none());
    cluster.template("kept", &exactly(&value)).unwrap();
    cluster.pod("urgent", "kept");
    eventually("the urgent container", || node.pid("urgent"));
    cluster.until_phase("e2e-urgent", "Succeeded");
    eventually("the pod to say of which Reservation it has its card", || {
        let pod = node.get(&node.of("/api/v1", "pods/urgent"))?;
        let said = pod["metadata"]["annotations"]["hostler.dev/reservation-allocated"].as_str()?;
        said.contains("e2e-urgent").then_some(())
    });
    node.delete(&node.of("/api/v1", "pods/urgent"), 1);
    cluster.release("e2e-urgent");
    cluster.stop();
}
