//! Reservations of Koordinator in a cluster where their kind is installed: the running controller serves them in place.

use std::fs;

use hostler_testing::{
    apiserver::{ApiFault, ApiServerView, FaultEffect, LoggedRequest},
    controller::{ControllerOptions, RunningController},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::HoldCluster;
use crate::rig::{USER, root};

const THEIRS: &str = "reservations.scheduling.koordinator.sh";
const ON: &str = "hostler_controller_condition{type=\"KoordinatorReservations\",status=\"True\"} 1";

/// A node with four CPUs, the kind, and a controller's rights.
async fn cluster() -> HoldCluster {
    let mut cluster = HoldCluster::start().await;
    cluster.run_kubelets();
    cluster.node("n1", 1);
    cluster.server.edit("nodes", "n1", |node| node["status"]["allocatable"]["cpu"] = json!("4"));
    let kind = fs::read_to_string(root().join("tests/support/kinds/koordinator-reservations.yaml")).unwrap();
    cluster.server.create_yaml(&kind);
    cluster.server.create_yaml(&fs::read_to_string(root().join("deploy/holds/places/namespace.yaml")).unwrap());
    cluster.allow(&["places", "koordinator"]);
    cluster
}

fn options(cluster: &HoldCluster) -> ControllerOptions {
    let mut options = cluster.options();
    options.config = options.config.replace("[capabilities]\n", "[capabilities]\nkoordinator = \"auto\"\n");
    options.config.push_str("places = \"auto\"\n");
    options
}

async fn serving(cluster: &HoldCluster) -> RunningController {
    let controller = RunningController::start(&options(cluster)).await;
    controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1").await;
    controller.until_figure(ON).await;
    controller
}

fn reserve(cluster: &HoldCluster, name: &str, cpus: &str, more: &Value) {
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpus } } });
    let mut spec = json!({
        "template": { "metadata": { "namespace": "default" }, "spec": { "containers": [container] } },
        "owners": [{ "object": { "namespace": "default" }, "labelSelector": { "matchLabels": { "app": "owner" } } }],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    cluster.server.create(json!({
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": { "name": name },
        "spec": spec,
    }));
}

async fn until(cluster: &HoldCluster, name: &str, phase: &str) -> Value {
    let look = |view: &ApiServerView<'_>| view.get(THEIRS, name).filter(|object| object["status"]["phase"] == phase);
    cluster.server.until(&format!("Koordinator's {name} is {phase}"), look).await
}

/// Waits until the object says that it is served, or not, for this reason.
async fn until_served(cluster: &HoldCluster, name: &str, reason: &str) -> String {
    let look = |view: &ApiServerView<'_>| {
        let object = view.get(THEIRS, name)?;
        let served = object["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == "Served")?.clone();
        (served["reason"] == reason).then(|| served["message"].as_str().unwrap().to_owned())
    };
    cluster.server.until(&format!("Koordinator's {name} says {reason}"), look).await
}

fn owner(cluster: &HoldCluster, name: &str, cpus: &str) {
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": "owner" } },
        "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpus } } }] },
    }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_of_koordinator_is_kept_given_to_its_owner_and_shown() {
    let cluster = cluster().await;
    let controller = serving(&cluster).await;
    reserve(&cluster, "night", "3", &json!({ "ttl": "1h" }));
    let kept = until(&cluster, "night", "Available").await["status"].clone();
    assert_eq!((&kept["nodeName"], &kept["allocatable"]), (&json!("n1"), &json!({ "cpu": "3" })));
    let own = cluster.server.get("reservations", "night").unwrap();
    assert_eq!(own["metadata"]["ownerReferences"][0]["kind"], "Reservation");
    owner(&cluster, "owner", "3");
    assert_eq!(cluster.until_bound("owner").await, "n1");
    let done = until(&cluster, "night", "Succeeded").await["status"].clone();
    assert_eq!((&done["currentOwners"][0]["name"], &done["allocated"]), (&json!("owner"), &json!({ "cpu": "3" })));
    // Pods are told of it with the right of deploy/holds/annotations alone.
    let is_refused = |it: &LoggedRequest| it.user == USER && it.status == 403 && it.resource != "pods";
    let refused: Vec<LoggedRequest> = cluster.server.log().into_iter().filter(is_refused).collect();
    assert!(refused.is_empty(), "a right is missing: {refused:?}");
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_and_deletions_follow_and_refusals_are_said() {
    let cluster = cluster().await;
    let _controller = serving(&cluster).await;
    reserve(&cluster, "night", "3", &json!({}));
    until(&cluster, "night", "Available").await;
    cluster.server.edit(THEIRS, "night", |object| object["spec"]["unschedulable"] = json!(true));
    let is_closed = |view: &ApiServerView<'_>| {
        view.get("reservations", "night")?["spec"]["unschedulable"].as_bool().filter(|it| *it).map(drop)
    };
    cluster.server.until("the change is there", is_closed).await;
    // What is kept cannot become something else: hostler's rules say so.
    cluster.server.edit(THEIRS, "night", |object| {
        object["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    });
    let refused = until_served(&cluster, "night", "Refused").await;
    assert!(refused.contains("update Reservation night") && refused.contains("template"), "{refused}");
    assert_eq!(until(&cluster, "night", "Available").await["status"]["allocatable"], json!({ "cpu": "3" }));
    cluster.server.delete(THEIRS, "night");
    let is_gone = |view: &ApiServerView<'_>| view.get("reservations", "night").is_none().then_some(());
    cluster.server.until("hostler's is gone", is_gone).await;
    cluster.reserve("night", 1, "owner", &json!({}));
    reserve(&cluster, "night", "1", &json!({}));
    until_served(&cluster, "night", "NameTaken").await;
    reserve(&cluster, "wrong", "1", &json!({ "expires": "2030-01-31T18:00:00Z", "ttl": "soon" }));
    let message = until_served(&cluster, "wrong", "NotConverted").await;
    assert!(message.starts_with("spec.ttl: "), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_while_koordinators_scheduler_leads() {
    let cluster = cluster().await;
    let lease = |renewed: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "koord-scheduler", "namespace": "koordinator-system" },
            "spec": { "holderIdentity": "koord-scheduler-0_x", "leaseDurationSeconds": 15, "renewTime": renewed },
        })
    };
    cluster.server.create(lease("2099-01-01T00:00:00.000000Z"));
    let controller = serving(&cluster).await;
    reserve(&cluster, "night", "3", &json!({}));
    let says = async |controller: &RunningController| {
        controller.log().iter().any(|line| line.contains("koordinator-system/koord-scheduler")).then_some(())
    };
    controller.until("the log says so", says).await;
    assert!(cluster.server.get("reservations", "night").is_none());
    cluster.server.edit("leases", "koordinator-system/koord-scheduler", |lease| {
        lease["spec"]["holderIdentity"] = json!("");
    });
    cluster.server.edit(THEIRS, "night", |object| object["metadata"]["labels"] = json!({ "a": "b" }));
    until(&cluster, "night", "Available").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_any_write_makes_one_reservation_for_each() {
    let cluster = cluster().await;
    for at in 0..3 {
        reserve(&cluster, &format!("r{at}"), "1", &json!({}));
    }
    let writes = || {
        let is_write = |verb: &str| matches!(verb, "create" | "patch" | "update");
        cluster.server.log().iter().filter(|call| call.user == USER && is_write(call.verb)).count()
    };
    let is_done =
        || (0..3).all(|at| cluster.server.get(THEIRS, &format!("r{at}")).unwrap()["status"]["phase"] == "Available");
    for after in [2, 1, 3, 2, 4] {
        let controller = RunningController::start(&options(&cluster)).await;
        let before = writes();
        controller.until("it has written", async |_| (writes() >= before + after || is_done()).then_some(())).await;
        controller.signal(Signal::SIGKILL);
        drop(controller);
        cluster.drop_lease();
    }
    // An answer that is lost after the work was done.
    cluster.server.fail(ApiFault::new("create", "reservations", 1, FaultEffect::LoseAnswer));
    let _controller = serving(&cluster).await;
    reserve(&cluster, "late", "1", &json!({}));
    for name in ["r0", "r1", "r2", "late"] {
        until(&cluster, name, "Available").await;
    }
    assert_eq!(cluster.server.list("reservations").len(), 4);
}
