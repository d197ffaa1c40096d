//! Owners that wait by a scheduling gate: the running controller has the API server set it, and takes it away when the
//! place is free, or when the pod waits for nothing any more.

use std::{fs, net::SocketAddr};

use hostler_testing::{
    apiserver::{ApiFault, ApiServerView, FaultEffect, LoggedRequest},
    controller::RunningController,
    provisioning::definition,
};
use serde_json::{Value, json};

use super::{
    cluster::HoldCluster,
    webhook::{NAME, NAMESPACE, address},
};
use crate::rig::{USER, root};

const GATE: &str = "hostler.dev/reservation";
const CONFIGURATIONS: &str = "mutatingwebhookconfigurations";
const ON: &str = "hostler_controller_condition{type=\"PodGates\",status=\"True\"} 1";

fn deployed(file: &str) -> String {
    fs::read_to_string(root().join("deploy/holds").join(file)).unwrap()
}

/// A node with four CPUs, and everything that gates take but a controller.
async fn cluster() -> HoldCluster {
    cluster_with(&["places", "webhook", "gates"]).await
}

/// The same, where the controller may what is in these folders alone.
async fn cluster_with(parts: &[&str]) -> HoldCluster {
    let mut cluster = HoldCluster::start().await;
    cluster.run_kubelets();
    cluster.node("n1", 1);
    cluster.server.edit("nodes", "n1", |node| node["status"]["allocatable"]["cpu"] = json!("4"));
    for file in ["places/namespace.yaml", "webhook/configuration.yaml", "gates/configuration.yaml"] {
        cluster.server.create_yaml(&deployed(file));
    }
    cluster.allow(parts);
    cluster
}

/// Starts a controller with this switch.
async fn start(cluster: &HoldCluster, gates: &str, more: &str) -> RunningController {
    let mut options = cluster.options();
    let places = "places = \"auto\"\n[webhook]\nlisten = \"127.0.0.1:0\"\n";
    options.config.push_str(&format!("{places}gates = {gates}\n{more}"));
    let controller = RunningController::start(&options).await;
    controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1").await;
    controller
}

/// A controller that gates pods; the API server is led to it, and trusts it.
async fn gating(cluster: &HoldCluster, gates: &str, more: &str) -> RunningController {
    let controller = start(cluster, gates, more).await;
    controller.until_figure(ON).await;
    cluster.server.lead_to(NAMESPACE, NAME, address(&controller));
    let is_trusted = |view: &ApiServerView<'_>| {
        let configuration = view.get(CONFIGURATIONS, "hostler-webhook-pods")?;
        configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().filter(|it| !it.is_empty()).map(drop)
    };
    cluster.server.until("the API server trusts the webhook for pods", is_trusted).await;
    controller
}

fn container(cpus: &str) -> Value {
    json!([{ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpus } } }])
}

fn pod(cluster: &HoldCluster, name: &str, app: &str, cpus: &str, annotations: &Value) {
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": app }, "annotations": annotations },
        "spec": { "containers": container(cpus) },
    }));
}

fn reserve(cluster: &HoldCluster, cpus: &str, more: &Value) {
    let mut spec = json!({
        "template": { "metadata": { "namespace": "default" }, "spec": { "containers": container(cpus) } },
        "owners": [{ "labelSelector": { "matchLabels": { "app": "owner" } } }],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    cluster.server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": { "name": "r" }, "spec": spec,
    }));
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE))
}

fn seen(cluster: &HoldCluster, pod: &str) -> Value {
    cluster.server.get("pods", &format!("default/{pod}")).unwrap()
}

/// Makes a pod until it is made with the gate: what the controller knows is a moment old, and a slow answer is none.
async fn gated(cluster: &HoldCluster, name: &str, app: &str, cpus: &str, annotations: &Value) {
    for _ in 0..100 {
        pod(cluster, name, app, cpus, annotations);
        // It may have been let go since.
        let is_let_go = |call: &LoggedRequest| call.user == USER && call.resource == "pods" && call.verb == "patch";
        if cluster.server.log().iter().any(is_let_go) {
            return;
        }
        if is_gated(&seen(cluster, name)) {
            return;
        }
        cluster.server.delete("pods", &format!("default/{name}"));
    }
    panic!("{name} was never made with the gate");
}

async fn until_ungated(cluster: &HoldCluster, name: &str) -> Value {
    let path = format!("default/{name}");
    let is_free = |view: &ApiServerView<'_>| view.get("pods", &path).filter(|pod| !is_gated(pod));
    cluster.server.until(&format!("{name} has no gate"), is_free).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_is_made_with_the_gate_and_bound_when_its_place_is_free() {
    let cluster = cluster().await;
    let controller = gating(&cluster, "\"auto\"", "").await;
    reserve(&cluster, "3", &json!({}));
    cluster.until_phase("r", "Available").await;
    pod(&cluster, "stranger", "stranger", "2", &json!({}));
    assert!(!is_gated(&seen(&cluster, "stranger")), "strangers wait for nothing");
    cluster.until_refused("stranger").await;
    gated(&cluster, "owner", "owner", "3", &json!({})).await;
    assert_eq!(cluster.until_bound("owner").await, "n1");
    cluster.until_phase("r", "Succeeded").await;
    let owner = seen(&cluster, "owner");
    let preferred = &owner["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!((&preferred["weight"], is_gated(&owner)), (&json!(100), false), "{owner}");
    let refusals = owner["status"]["conditions"].as_array().cloned().unwrap_or_default();
    assert!(!refusals.iter().any(|it| it["reason"] == "Unschedulable"), "the scheduler tried it in vain: {owner}");
    let log = cluster.server.log();
    let at = |verb: &str, resource: &str| {
        let is_it = |call: &&LoggedRequest| call.verb == verb && call.resource == resource && call.status < 300;
        log.iter().position(|call| call.user == USER && is_it(&call)).unwrap()
    };
    let order = [at("patch", "pods/status"), at("delete", "pods"), at("patch", "pods")];
    assert!(order.is_sorted(), "nominated, the place holder gone, and then the gate: {order:?}");
    assert!(cluster.server.log().iter().all(|call| call.user != USER || call.status != 403), "a right is missing");
    controller.until_figure("hostler_controller_webhook_answers_total{what=\"gated\"} 1").await;
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_let_go_when_their_reservation_goes() {
    let cluster = cluster().await;
    let _controller = gating(&cluster, "true", "").await;
    reserve(&cluster, "3", &json!({ "allocatePolicy": "Restricted" }));
    cluster.until_phase("r", "Available").await;
    // Another program's gate keeps the place from being handed over.
    let gates = json!([{ "name": "other" }]);
    for _ in 0..100 {
        cluster.server.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "owner", "labels": { "app": "owner" } },
            "spec": { "containers": container("3"), "schedulingGates": gates },
        }));
        if is_gated(&seen(&cluster, "owner")) {
            break;
        }
        cluster.server.delete("pods", "default/owner");
    }
    assert!(is_gated(&seen(&cluster, "owner")));
    cluster.ask_to_go("r");
    let owner = until_ungated(&cluster, "owner").await;
    assert_eq!(owner["spec"]["schedulingGates"], gates, "the other gate stays");
    assert!(owner["spec"]["affinity"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_of_the_webhook_an_owner_is_given_its_place_as_before() {
    let cluster = cluster().await;
    let _controller = gating(&cluster, "\"auto\"", "").await;
    reserve(&cluster, "3", &json!({}));
    cluster.until_phase("r", "Available").await;
    cluster.server.lead_to(NAMESPACE, NAME, SocketAddr::from(([127, 0, 0, 1], 1)));
    pod(&cluster, "owner", "owner", "3", &json!({}));
    assert!(!is_gated(&seen(&cluster, "owner")));
    assert_eq!(cluster.until_bound("owner").await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_before_its_request_waits_for_the_decision() {
    let cluster = cluster().await;
    cluster.server.create(definition(&["v1"]));
    let files = ["deploy/provisioning/rbac.yaml"];
    let more = files.iter().flat_map(|file| super::rules_in(file));
    let roles = ["places", "webhook", "gates"]
        .iter()
        .flat_map(|part| super::rules_in(&format!("deploy/holds/{part}/rbac.yaml")));
    cluster.server.allow(USER, super::rules().into_iter().chain(roles).chain(more).collect());
    let mut options = cluster.options();
    options.config = options.config.replace("[capabilities]\n", "[capabilities]\nprovisioning = \"on\"\n");
    options.config.push_str("[webhook]\nlisten = \"127.0.0.1:0\"\ngates = \"auto\"\n");
    let controller = RunningController::start(&options).await;
    controller.until_figure(ON).await;
    cluster.server.lead_to(NAMESPACE, NAME, address(&controller));
    controller.until_figure("hostler_controller_condition{type=\"ProvisioningRequests\",status=\"True\"} 1").await;
    let is_trusted = |view: &ApiServerView<'_>| {
        let configuration = view.get(CONFIGURATIONS, "hostler-webhook-pods")?;
        configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().filter(|it| !it.is_empty()).map(drop)
    };
    cluster.server.until("the API server trusts the webhook for pods", is_trusted).await;
    let consumes = json!({ "autoscaling.x-k8s.io/consume-provisioning-request": "q" });
    gated(&cluster, "p", "any", "1", &consumes).await;
    // It fails at once: it would book for longer than the controller allows.
    cluster.server.create(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": "q", "namespace": "default" },
        "spec": {
            "provisioningClassName": "check-capacity.hostler.dev", "parameters": { "bookingSeconds": "7200" },
            "podSets": [{ "podTemplateRef": { "name": "t" }, "count": 1 }],
        },
    }));
    until_ungated(&cluster, "p").await;
    assert_eq!(cluster.until_bound("p").await, "n1");
    let request = cluster.server.get("provisioningrequests", "default/q").unwrap();
    assert!(request["status"]["conditions"].as_array().unwrap().iter().any(|it| it["type"] == "Failed"), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_role_no_pod_is_gated_and_a_condition_says_so() {
    let cluster = cluster_with(&["places", "webhook"]).await;
    let controller = start(&cluster, "true", "").await;
    controller.until_figure("hostler_controller_condition{type=\"PodGates\",status=\"False\"} 1").await;
    cluster.server.lead_to(NAMESPACE, NAME, address(&controller));
    controller
        .until("readiness tells of gates", async |it| {
            it.get("/readyz").await?.1.contains("PodGates=False (Forbidden)").then_some(())
        })
        .await;
    reserve(&cluster, "3", &json!({}));
    cluster.until_phase("r", "Available").await;
    pod(&cluster, "owner", "owner", "3", &json!({}));
    assert!(!is_gated(&seen(&cluster, "owner")));
    assert_eq!(cluster.until_bound("owner").await, "n1");
}

/// Policies and webhooks of a cluster refuse with any of these codes.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_affinity_is_refused_is_let_go_without_it() {
    for code in [400, 403, 422] {
        let cluster = cluster().await;
        let _controller = gating(&cluster, "\"auto\"", "").await;
        reserve(&cluster, "3", &json!({}));
        cluster.until_phase("r", "Available").await;
        let fault = ApiFault::new("patch", "pods", 1, FaultEffect::Status(code, None));
        cluster.server.fail(ApiFault { name: Some("owner".to_owned()), ..fault });
        gated(&cluster, "owner", "owner", "3", &json!({})).await;
        assert_eq!(cluster.until_bound("owner").await, "n1");
        let owner = seen(&cluster, "owner");
        assert!(!is_gated(&owner) && owner["spec"]["affinity"].is_null(), "{code}: {owner}");
        assert_eq!(cluster.server.faults_left(), 0, "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_gate_the_server_refuses_to_remove_is_a_figure() {
    let cluster = cluster().await;
    let controller = gating(&cluster, "\"auto\"", "").await;
    reserve(&cluster, "3", &json!({}));
    cluster.until_phase("r", "Available").await;
    let fault = ApiFault::new("patch", "pods", u32::MAX, FaultEffect::Status(422, None));
    cluster.server.fail(ApiFault { name: Some("owner".to_owned()), ..fault });
    gated(&cluster, "owner", "owner", "3", &json!({})).await;
    controller.until_figure("hostler_controller_stuck_gated_pods 1").await;
    cluster.server.heal();
    until_ungated(&cluster, "owner").await;
    controller.until_figure("hostler_controller_stuck_gated_pods 0").await;
}
