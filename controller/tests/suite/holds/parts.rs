//! Parts of devices that several claims share.

use hostler_testing::controller::RunningController;
use nix::sys::signal::Signal;
use serde_json::json;

use super::{cluster::HoldCluster, value};
use crate::rig::USER;

#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_kept_for_its_owner_and_the_rest_of_the_device_is_for_everybody() {
    let cluster = HoldCluster::start().await;
    cluster.shared_node("n1", 8);
    let controller = cluster.controller().await;
    cluster.reserve_part("r", 5, "owner", &json!({}));
    let kept = cluster.until_phase("r", "Available").await;
    assert_eq!(kept["status"]["devices"][0]["consumedCapacity"], json!({ "cpus": "5" }));
    cluster.until_accounted(1).await;
    let name = format!("hostler-controller/hold-{}", kept["status"]["devices"][0]["shareID"].as_str().unwrap());
    let claim = cluster.server.get("resourceclaims", &name).unwrap();
    assert_eq!(claim["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    assert_eq!(claim["metadata"]["labels"]["hostler.dev/reservation-uid"], kept["metadata"]["uid"]);
    cluster.template_of_part("four", 4, None);
    cluster.template_of_part("three", 3, None);
    cluster.pod("large", "four");
    cluster.until_refused("large").await;
    cluster.pod("small", "three");
    assert_eq!(cluster.until_bound("small").await, "n1");
    cluster.template_of_part("kept", 5, Some(value(&kept)));
    cluster.pod("owner", "kept");
    assert_eq!(cluster.until_bound("owner").await, "n1");
    cluster.until_phase("r", "Succeeded").await;
    cluster.until_accounted(0).await;
    assert!(cluster.server.get("pods", "default/large").unwrap()["spec"]["nodeName"].is_null());
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_goes_leaves_its_part_kept_and_what_is_deleted_leaves_nothing() {
    let cluster = HoldCluster::start().await;
    cluster.shared_node("n1", 8);
    let _controller = cluster.controller().await;
    cluster.reserve_part("r", 6, "owner", &json!({ "allocateOnce": false }));
    let kept = cluster.until_phase("r", "Available").await;
    cluster.until_accounted(1).await;
    cluster.template_of_part("kept", 6, Some(value(&kept)));
    cluster.pod("owner", "kept");
    cluster.until_bound("owner").await;
    cluster.server.delete("pods", "default/owner");
    cluster.until_accounted(1).await;
    cluster.template_of_part("three", 3, None);
    cluster.pod("stranger", "three");
    cluster.until_refused("stranger").await;
    cluster.ask_to_go("r");
    cluster.server.until("it is gone", |view| view.get("reservations", "r").is_none().then_some(())).await;
    cluster.until_accounted(0).await;
    assert_eq!(cluster.until_bound("stranger").await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_any_write_keeps_every_part_once() {
    let cluster = HoldCluster::start().await;
    cluster.shared_node("n1", 8);
    cluster.reserve_part("r", 3, "owner", &json!({ "replicas": 2 }));
    let verbs = ["patch", "create", "update", "delete"];
    let is_write = |verb: &str, resource: &str| verbs.contains(&verb) && resource != "leases" && resource != "events";
    let writes = || {
        let log = cluster.server.log();
        log.iter().filter(|call| call.user == USER && is_write(call.verb, &call.resource)).count()
    };
    for after in [2, 3, 1, 2, 1, 2] {
        let controller = RunningController::start(&cluster.options()).await;
        let before = writes();
        let is_done = || cluster.is_accounted(2);
        controller.until("it has written", async |_| (writes() >= before + after || is_done()).then_some(())).await;
        controller.signal(Signal::SIGKILL);
        drop(controller);
        cluster.drop_lease();
    }
    let _controller = cluster.controller().await;
    cluster.until_phase("r", "Available").await;
    cluster.until_accounted(2).await;
}
