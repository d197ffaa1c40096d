//! CPU of nodes: the running controller has a pod stand where it is kept, and has its owner come in that pod's place.

use std::fs;

use hostler_testing::{
    apiserver::{ApiServerView, LoggedRequest},
    controller::RunningController,
};
use serde_json::{Value, json};

use super::cluster::HoldCluster;
use crate::rig::{USER, root};

/// A node with four CPUs.
async fn cluster(parts: &[&str]) -> HoldCluster {
    let mut cluster = HoldCluster::start().await;
    cluster.run_kubelets();
    cluster.node("n1", 1);
    cluster.server.edit("nodes", "n1", |node| node["status"]["allocatable"]["cpu"] = json!("4"));
    let namespace = root().join("deploy/holds/places/namespace.yaml");
    cluster.server.create_yaml(&fs::read_to_string(namespace).unwrap());
    cluster.allow(parts);
    cluster
}

async fn controller(cluster: &HoldCluster) -> RunningController {
    let mut options = cluster.options();
    options.config.push_str("places = \"auto\"\n");
    let controller = RunningController::start(&options).await;
    controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1").await;
    controller
}

fn container(cpus: &str) -> Value {
    json!([{ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpus } } }])
}

fn pod(cluster: &HoldCluster, name: &str, cpus: &str) {
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } },
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

/// Place holders, as the server has them.
fn holders(view: &ApiServerView<'_>) -> Vec<Value> {
    view.list("pods").into_iter().filter(|pod| pod["metadata"]["namespace"] == "hostler-places").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cpu_of_a_node_is_kept_by_a_pod_and_goes_to_the_owner() {
    let cluster = cluster(&["places"]).await;
    let controller = controller(&cluster).await;
    reserve(&cluster, "3", &json!({}));
    let kept = cluster.until_phase("r", "Available").await;
    assert_eq!((&kept["status"]["nodeName"], &kept["status"]["places"][0]["state"]), (&json!("n1"), &json!("Held")));
    let holder = cluster.server.look(|view| holders(view).remove(0));
    assert_eq!(holder["spec"]["containers"][0]["resources"]["requests"], json!({ "cpu": "3" }));
    let (class, pulled) = (&holder["spec"]["priorityClassName"], &holder["spec"]["containers"][0]["imagePullPolicy"]);
    assert_eq!((class, pulled), (&json!("hostler-place"), &json!("Never")));
    pod(&cluster, "stranger", "2");
    cluster.until_refused("stranger").await;
    pod(&cluster, "owner", "3");
    assert_eq!(cluster.until_bound("owner").await, "n1");
    cluster.until_phase("r", "Succeeded").await;
    cluster.server.until("no place holder is left", |view| holders(view).is_empty().then_some(())).await;
    let at = |call: &LoggedRequest, verb: &str, resource: &str| {
        call.user == USER && call.verb == verb && call.resource == resource && call.status < 300
    };
    let log = cluster.server.log();
    let nominated = log.iter().position(|call| at(call, "patch", "pods/status")).unwrap();
    let deleted = log.iter().position(|call| at(call, "delete", "pods")).unwrap();
    assert!(nominated < deleted, "the owner is nominated before the place holder goes");
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_and_its_cpus_are_kept_on_one_node() {
    let cluster = cluster(&["places"]).await;
    let _controller = controller(&cluster).await;
    let request = json!({ "name": "card", "exactly": { "deviceClassName": "card" } });
    let claims = json!([{ "name": "c", "spec": { "devices": { "requests": [request] } } }]);
    reserve(&cluster, "3", &json!({ "deviceClaims": claims }));
    let kept = cluster.until_phase("r", "Available").await;
    let status = &kept["status"];
    assert_eq!((&status["places"][0]["nodeName"], &status["devices"][0]["nodeName"]), (&json!("n1"), &json!("n1")));
    assert_eq!(status["conditions"].as_array().unwrap().len(), 3, "{status}");
    cluster.server.delete("reservations", "r");
    let is_gone =
        |view: &ApiServerView<'_>| (holders(view).is_empty() && view.list("reservations").is_empty()).then_some(());
    cluster.server.until("nothing is left", is_gone).await;
    cluster.until_no_fence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_role_a_reservation_of_cpu_alone_says_what_to_apply_and_is_kept_when_the_role_comes() {
    let cluster = cluster(&[]).await;
    let _controller = controller(&cluster).await;
    reserve(&cluster, "3", &json!({}));
    let is_told = |view: &ApiServerView<'_>| {
        let reservation = view.get("reservations", "r")?;
        let conditions = reservation["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|it| it["type"] == "Ready" && it["reason"] == "Invalid")
    };
    let told = cluster.server.until("it is refused", is_told).await;
    assert!(told["message"].as_str().unwrap().contains("apply deploy/holds/places"), "{told}");
    assert!(cluster.server.look(|view| holders(view).is_empty()));
    cluster.allow(&["places"]);
    cluster.until_phase("r", "Available").await;
}
