//! Pods that make room: they go by the Eviction API, once it is certain that something is kept for whoever comes after them.

use hostler_testing::apiserver::{ApiFault, ApiServerView, FaultEffect};
use serde_json::{Value, json};

use super::{cluster::HoldCluster, value};
use crate::rig::root;

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
    // One that kept changing is asked for again.
    cluster.server.fail(ApiFault::new("create", "pods/eviction", 1, FaultEffect::Status(409, None)));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_budget_allows_nothing_is_passed_over_for_one_that_may_go() {
    let cluster = with_example_class().await;
    cluster.node("n2", 1);
    cluster.pod("other", "any");
    assert_eq!(cluster.until_bound("other").await, "n2");
    budget(&cluster, "low", 0);
    let controller = cluster.controller().await;
    example("preemption.yaml").into_iter().for_each(|object| drop(cluster.server.create(object)));
    let evicted = until_eviction(&cluster, "fpga-for-urgent", "Evicted").await;
    assert_eq!(evicted["name"], "other");
    assert!(!is_going(&cluster, "low"));
    end(&cluster, "other").await;
    let kept = cluster.until_phase("fpga-for-urgent", "Available").await;
    assert_eq!(kept["status"]["nodeName"], "n2");
    assert_eq!(controller.stop().await, Some(0));
}

/// The objects of a file in `deploy/examples`.
fn example(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("deploy/examples").join(name)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// A cluster with the class of the examples, and a pod that has the only card.
async fn with_example_class() -> HoldCluster {
    let cluster = HoldCluster::start().await;
    cluster.allow(&["evictions"]);
    cluster.server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "fpga.hostler.dev" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"hostler.dev\"" } }] },
    }));
    cluster.node("n1", 1);
    cluster.template("any", None);
    cluster.pod("low", "any");
    assert_eq!(cluster.until_bound("low").await, "n1");
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_lower_priority_makes_room_as_the_example_says() {
    let cluster = with_example_class().await;
    budget(&cluster, "low", 0);
    let _controller = cluster.controller().await;
    example("preemption.yaml").into_iter().for_each(|object| drop(cluster.server.create(object)));
    until_eviction(&cluster, "fpga-for-urgent", "Blocked").await;
    let waiting = cluster.until_phase("fpga-for-urgent", "Waiting").await;
    assert_eq!(cluster.fences(), [format!("n1/fake/card-0={}", value(&waiting))]);
    let blocked = |view: &ApiServerView<'_>| {
        let object = view.get("reservations", "fpga-for-urgent")?;
        let ready = object["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == "Ready")?.clone();
        let message = ready["message"].as_str()?;
        (message.contains("0 of 1 devices are released") && message.contains("budget careful")).then_some(())
    };
    cluster.server.until("it says who is in the way", blocked).await;
    assert!(!is_going(&cluster, "low"));
    allow(&cluster, 1);
    end(&cluster, "low").await;
    let kept = cluster.until_phase("fpga-for-urgent", "Available").await;
    assert_eq!(kept["status"]["evictions"][0]["state"], "Evicted");
    cluster.pod("other", "any");
    cluster.until_refused("other").await;
    cluster.template("kept", Some(value(&kept)));
    cluster.pod("urgent", "kept");
    cluster.server.edit("pods", "default/urgent", |pod| pod["metadata"]["labels"]["job"] = json!("urgent"));
    assert_eq!(cluster.until_bound("urgent").await, "n1");
    cluster.until_phase("fpga-for-urgent", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_deployment_is_moved_as_the_example_says() {
    let cluster = with_example_class().await;
    let _controller = cluster.controller().await;
    let uid = pod(&cluster, "low").unwrap()["metadata"]["uid"].clone();
    for mut object in example("descheduling.yaml") {
        if object["kind"] == "Reservation" {
            object["spec"]["replaces"]["name"] = json!("low");
            object["spec"]["replaces"]["uid"] = uid.clone();
        }
        cluster.server.create(object);
    }
    let is_refused = |view: &ApiServerView<'_>| {
        let object = view.get("reservations", "move-encoder")?;
        let scheduled = object["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == "Scheduled")?.clone();
        (scheduled["reason"] == "Unschedulable").then_some(())
    };
    cluster.server.until("there is no other", is_refused).await;
    assert!(!is_going(&cluster, "low"));
    cluster.node("n2", 1);
    cluster.until_phase("move-encoder", "Available").await;
    until_eviction(&cluster, "move-encoder", "Evicted").await;
    end(&cluster, "low").await;
}
