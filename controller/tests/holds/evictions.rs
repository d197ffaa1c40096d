//! Pods that make room: they go by the Eviction API, once it is certain that something is kept for whoever comes after them.

use hostler_testing::apiserver::ApiServerView;
use serde_json::{Value, json};

use crate::{cluster::HoldCluster, value};

/// A budget for a pod, of which so many may go now.
fn budget(cluster: &HoldCluster, pod: &str, allowed: u32) {
    cluster.server.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "careful", "namespace": "default" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": pod } } },
    }));
    allow(cluster, allowed);
}

fn allow(cluster: &HoldCluster, allowed: u32) {
    cluster.server.edit("poddisruptionbudgets", "default/careful", |budget| {
        budget["status"] =
            json!({ "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1, "expectedPods": 1 });
    });
}

fn pod(cluster: &HoldCluster, name: &str) -> Option<Value> {
    cluster.server.get("pods", &format!("default/{name}"))
}

fn is_going(cluster: &HoldCluster, name: &str) -> bool {
    pod(cluster, name).is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string())
}

/// Waits until the only eviction of a Reservation is so far; gives what is said of it.
async fn until_eviction(cluster: &HoldCluster, reservation: &str, state: &str) -> Value {
    let look = |view: &ApiServerView<'_>| {
        let object = view.get("reservations", reservation)?;
        Some(object["status"]["evictions"][0].clone()).filter(|it| it["state"] == state)
    };
    cluster.server.until(&format!("the eviction is {state}"), look).await
}

/// The kubelet ends a pod that is to go.
async fn end(cluster: &HoldCluster, name: &str) {
    let path = format!("default/{name}");
    let look =
        |view: &ApiServerView<'_>| view.get("pods", &path)?["metadata"]["deletionTimestamp"].is_string().then_some(());
    cluster.server.until(&format!("{name} is to go"), look).await;
    cluster.server.delete("pods", &path);
}

fn replaces(cluster: &HoldCluster, name: &str) -> Value {
    let uid = pod(cluster, name).unwrap()["metadata"]["uid"].clone();
    json!({ "replaces": { "namespace": "default", "name": name, "uid": uid } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_moved_when_its_budget_allows_it_and_its_successor_gets_what_is_kept() {
    let cluster = HoldCluster::start().await;
    cluster.allow(&["evictions", "annotations"]);
    cluster.node("n1", 1);
    cluster.template("any", None);
    cluster.pod("web", "any");
    assert_eq!(cluster.until_bound("web").await, "n1");
    budget(&cluster, "web", 0);
    let _controller = cluster.controller().await;
    cluster.reserve("move", 1, "web-2", &replaces(&cluster, "web"));
    cluster.node("n2", 1);
    let kept = cluster.until_phase("move", "Available").await;
    assert_eq!(kept["status"]["nodeName"], "n2");
    let blocked = until_eviction(&cluster, "move", "Blocked").await;
    assert!(blocked["message"].as_str().unwrap().contains("budget careful needs 1 healthy pods"), "{blocked}");
    assert!(!is_going(&cluster, "web"));
    allow(&cluster, 1);
    until_eviction(&cluster, "move", "Evicted").await;
    end(&cluster, "web").await;
    // Somebody else gets what it had.
    cluster.pod("other", "any");
    assert_eq!(cluster.until_bound("other").await, "n1");
    cluster.template("kept", Some(value(&kept)));
    cluster.pod("web-2", "kept");
    assert_eq!(cluster.until_bound("web-2").await, "n2");
    let done = cluster.until_phase("move", "Succeeded").await;
    assert_eq!(done["status"]["evictions"][0]["state"], "Evicted");
    let annotated = |view: &ApiServerView<'_>| {
        let pod = view.get("pods", "default/web-2")?;
        Some(pod["metadata"]["annotations"]["hostler.dev/reservation-allocated"].as_str()?.to_owned())
    };
    let said = cluster.server.until("the pod says of which Reservation it has its card", annotated).await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said, json!({ "name": "move", "uid": done["metadata"]["uid"] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_role_the_reservation_says_which_right_is_missing() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    cluster.template("any", None);
    cluster.pod("web", "any");
    cluster.until_bound("web").await;
    cluster.node("n2", 1);
    let controller = cluster.controller().await;
    cluster.reserve("move", 1, "web-2", &replaces(&cluster, "web"));
    let blocked = until_eviction(&cluster, "move", "Blocked").await;
    let message = blocked["message"].as_str().unwrap();
    assert!(message.contains("pods/eviction") && message.contains("deploy/holds/evictions"), "{message}");
    assert!(!is_going(&cluster, "web"));
    // What is kept stays kept, and goes when it is not wanted any more.
    cluster.until_phase("move", "Available").await;
    cluster.ask_to_go("move");
    cluster.until_no_fence().await;
    assert_eq!(controller.stop().await, Some(0));
}
