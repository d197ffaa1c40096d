//! Pods whose claims were made while the webhook was away: they are made anew where somebody makes them, and told of elsewhere.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hostler_testing::{apiserver::ApiServerView, controller::RunningController};
use serde_json::{Value, json};

use super::{
    cluster::HoldCluster,
    webhook::{NAME, NAMESPACE, address, claim, device, installed, options, until_answering},
};
use crate::rig::USER;

/// Nobody answers there.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

/// A cluster in which all cards are kept for pods with the label kept=yes, and the API server does not reach the webhook.
async fn cut_off(cards: usize, config: &str, roles: &[&str]) -> (HoldCluster, RunningController) {
    let cluster = installed(cards).await;
    cluster.allow(roles);
    let mut options = options(&cluster);
    options.config.push_str(config);
    let controller = RunningController::start(&options).await;
    until_answering(&cluster, &controller).await;
    let owners = json!([{ "labelSelector": { "matchLabels": { "kept": "yes" } } }]);
    cluster.reserve("r", cards, "", &json!({ "owners": owners }));
    cluster.until_phase("r", "Available").await;
    cluster.server.lead_to(NAMESPACE, NAME, nowhere());
    (cluster, controller)
}

/// A pod of an owner with so many claims, made by a ReplicaSet if anything makes it.
fn pod(cluster: &HoldCluster, name: &str, claims: usize, replica_set: Option<&str>) {
    let owner = |uid: &str| json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true });
    let owners: Vec<Value> = replica_set.map(owner).into_iter().collect();
    let names: Vec<String> = (0..claims).map(|at| format!("card-{at}")).collect();
    let used: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    let asked = names.iter().map(|name| json!({ "name": name, "resourceClaimTemplateName": "any" }));
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "kept": "yes" }, "ownerReferences": owners },
        "spec": {
            "containers": [{ "name": "c", "image": "i", "resources": { "claims": used } }],
            "resourceClaims": asked.collect::<Vec<_>>(),
        },
    }));
}

fn deletions(cluster: &HoldCluster, resource: &str) -> Vec<Option<String>> {
    let log = cluster.server.log();
    let ours = log.iter().filter(|call| call.user == USER && call.verb == "delete" && call.resource == resource);
    ours.map(|call| call.name.clone()).collect()
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
async fn a_pod_that_was_passed_by_is_led_later_and_nobody_deletes_it() {
    let (cluster, _controller) = cut_off(1, "", &["webhook"]).await;
    pod(&cluster, "single", 1, None);
    assert_eq!(cluster.until_bound("single").await, "n1");
    let claim = claim(&cluster, "single");
    assert_eq!(device(&claim).0, "card/held");
    let former = claim["metadata"]["annotations"]["hostler.dev/instead-of"].as_str().unwrap();
    assert_eq!(deletions(&cluster, "resourceclaims"), [Some(former.to_owned())]);
    assert!(deletions(&cluster, "pods").is_empty());
    let told = until_told(&cluster, "single").await;
    assert!(told.contains("while the webhook did not answer") && told.contains("in its place now"), "{told}");
    cluster.until_phase("r", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_without_room_for_a_second_claim_is_told_and_tried_again() {
    let (cluster, _controller) = cut_off(1, "", &["webhook"]).await;
    let is_full = Arc::new(AtomicBool::new(true));
    let quota = is_full.clone();
    cluster.server.admit(move |write| match (write.resource, write.operation) {
        ("resourceclaims", "CREATE") if write.user.name == USER && quota.load(Ordering::SeqCst) => {
            Err("exceeded quota: q, requested: count/resourceclaims.resource.k8s.io=1, used: 1, limited: 1".to_owned())
        }
        _ => Ok(()),
    });
    pod(&cluster, "single", 1, None);
    let told = until_told(&cluster, "single").await;
    assert!(told.contains("cannot be made in its place") && told.contains("exceeded quota: q"), "{told}");
    assert!(deletions(&cluster, "resourceclaims").is_empty(), "the first claim stays");
    is_full.store(false, Ordering::SeqCst);
    assert_eq!(cluster.until_bound("single").await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_older_than_its_reservation_is_led_later() {
    let cluster = installed(1).await;
    let controller = RunningController::start(&options(&cluster)).await;
    until_answering(&cluster, &controller).await;
    // No node takes pods when the claim is made.
    cluster.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(true));
    pod(&cluster, "early", 1, None);
    cluster.until_refused("early").await;
    let owners = json!([{ "labelSelector": { "matchLabels": { "kept": "yes" } } }]);
    cluster.reserve("r", 1, "", &json!({ "owners": owners }));
    cluster.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(false));
    // Either the pod was faster than the Reservation, or it is led: it never waits beside what is kept for it.
    assert_eq!(cluster.until_bound("early").await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_several_claims_is_made_anew_where_that_is_wanted_and_led() {
    // The role says it: no word is needed beside it.
    let (cluster, controller) = cut_off(2, "repair = \"auto\"\n", &["webhook", "repair"]).await;
    pod(&cluster, "web-1", 2, Some("set"));
    cluster.until_refused("web-1").await;
    cluster.server.lead_to(NAMESPACE, NAME, address(&controller));
    let is_gone = |view: &ApiServerView<'_>| view.get("pods", "default/web-1").is_none().then_some(());
    cluster.server.until("the pod is gone", is_gone).await;
    // What a ReplicaSet does.
    pod(&cluster, "web-2", 2, Some("set"));
    assert_eq!(cluster.until_bound("web-2").await, "n1");
    assert_eq!(device(&claim(&cluster, "web-2")).0, "card/held");
    assert!(until_told(&cluster, "web-1").await.contains("Reservation r keeps devices for this pod"));
    assert_eq!(deletions(&cluster, "pods"), [Some("web-1".to_owned())]);
    assert!(deletions(&cluster, "resourceclaims").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_pod_with_several_claims_that_nobody_makes_anew_people_are_told_what_to_write() {
    let (cluster, _controller) = cut_off(2, "repair = true\n", &["webhook", "repair"]).await;
    let kept = cluster.server.get("reservations", "r").unwrap();
    pod(&cluster, "single", 2, None);
    let told = until_told(&cluster, "single").await;
    assert!(told.contains(kept["status"]["tolerationValue"].as_str().unwrap()), "{told}");
    assert!(cluster.server.get("pods", "default/single").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_is_deleted_where_nobody_asked_for_that() {
    let (cluster, _controller) = cut_off(2, "", &["webhook"]).await;
    pod(&cluster, "web-1", 2, Some("set"));
    let told = until_told(&cluster, "web-1").await;
    assert!(told.contains("webhook.repair"), "{told}");
    assert!(cluster.server.get("pods", "default/web-1").is_some());
    assert!(deletions(&cluster, "pods").is_empty());
}

/// The role for claims that pods name lets the controller delete pods as well, and is not meant for this.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_where_another_role_lets_pods_be_deleted() {
    let (cluster, _controller) = cut_off(2, "repair = \"auto\"\n", &["webhook", "annotations", "claims"]).await;
    pod(&cluster, "web-1", 2, Some("set"));
    let told = until_told(&cluster, "web-1").await;
    assert!(told.contains("deploy/holds/repair"), "{told}");
    assert!(cluster.server.get("pods", "default/web-1").is_some());
}
