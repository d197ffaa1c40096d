//! Pods whose claims were made while the webhook was away: they are made anew where somebody makes them, and told of elsewhere.

use std::{fs, net::SocketAddr};

use hostler_testing::{
    apiserver::{ApiServerView, PolicyRule},
    controller::RunningController,
};
use serde_json::{Value, json};

use crate::{
    cluster::{HoldCluster, rules},
    rig::{USER, root},
    webhook::{NAME, NAMESPACE, address, claim, device, installed, options, until_answering},
};

/// Nobody answers there.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

/// A cluster in which one card is kept for pods with the label kept=yes, and the API server does not reach the webhook.
async fn cut_off(config: &str) -> (HoldCluster, RunningController) {
    let cluster = installed(1).await;
    let read = |file: &str| PolicyRule::from_yaml(&fs::read_to_string(root().join("deploy/holds").join(file)).unwrap());
    let more = read("webhook/rbac.yaml").into_iter().chain(read("repair/rbac.yaml"));
    cluster.server.allow(USER, rules().into_iter().chain(more).collect());
    let mut options = options(&cluster);
    options.config.push_str(config);
    let controller = RunningController::start(&options).await;
    until_answering(&cluster, &controller).await;
    let owners = json!([{ "labelSelector": { "matchLabels": { "kept": "yes" } } }]);
    cluster.reserve("r", 1, "", &json!({ "owners": owners }));
    cluster.until_phase("r", "Available").await;
    cluster.server.lead_to(NAMESPACE, NAME, nowhere());
    (cluster, controller)
}

/// A pod of an owner, made by a ReplicaSet if anything makes it.
fn pod(cluster: &HoldCluster, name: &str, replica_set: Option<&str>) {
    let owner = |uid: &str| json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true });
    let owners: Vec<Value> = replica_set.map(owner).into_iter().collect();
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "kept": "yes" }, "ownerReferences": owners },
        "spec": {
            "containers": [{ "name": "c", "image": "i", "resources": { "claims": [{ "name": "card" }] } }],
            "resourceClaims": [{ "name": "card", "resourceClaimTemplateName": "any" }],
        },
    }));
}

async fn until_told(cluster: &HoldCluster, pod: &str) -> String {
    let look = |view: &ApiServerView<'_>| {
        let events = view.list("events");
        let event =
            events.iter().find(|it| it["reason"] == "ReservationPassedBy" && it["involvedObject"]["name"] == pod)?;
        Some(event["message"].as_str()?.to_owned())
    };
    cluster.server.until(&format!("people are told of {pod}"), look).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_passed_by_is_made_anew_and_led() {
    let (cluster, controller) = cut_off("repair = true\n").await;
    pod(&cluster, "web-1", Some("set"));
    cluster.until_refused("web-1").await;
    cluster.server.lead_to(NAMESPACE, NAME, address(&controller));
    let is_gone = |view: &ApiServerView<'_>| view.get("pods", "default/web-1").is_none().then_some(());
    cluster.server.until("the pod is gone", is_gone).await;
    // What a ReplicaSet does.
    pod(&cluster, "web-2", Some("set"));
    assert_eq!(cluster.until_bound("web-2").await, "n1");
    assert_eq!(device(&claim(&cluster, "web-2")).0, "card/held");
    assert!(until_told(&cluster, "web-1").await.contains("Reservation r keeps devices for this pod"));
    let deletions: Vec<(String, Option<String>)> = cluster
        .server
        .log()
        .iter()
        .filter(|call| call.user == USER && call.verb == "delete" && call.resource == "pods")
        .map(|call| (call.user.clone(), call.name.clone()))
        .collect();
    assert_eq!(deletions, [(USER.to_owned(), Some("web-1".to_owned()))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_nobody_makes_anew_stays_and_people_are_told_what_to_write() {
    let (cluster, _controller) = cut_off("repair = true\n").await;
    let kept = cluster.server.get("reservations", "r").unwrap();
    pod(&cluster, "single", None);
    let told = until_told(&cluster, "single").await;
    assert!(told.contains(kept["status"]["tolerationValue"].as_str().unwrap()), "{told}");
    assert!(cluster.server.get("pods", "default/single").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_where_nobody_asked_for_that() {
    let (cluster, _controller) = cut_off("").await;
    pod(&cluster, "web-1", Some("set"));
    let told = until_told(&cluster, "web-1").await;
    assert!(told.contains("webhook.repair"), "{told}");
    assert!(cluster.server.get("pods", "default/web-1").is_some());
    assert!(!cluster.server.log().iter().any(|call| call.verb == "delete" && call.resource == "pods"));
}
