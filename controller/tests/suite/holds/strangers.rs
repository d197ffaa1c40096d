//! Others write where only the controller writes.

use std::fs;

use hostler_testing::{apiserver::ApiServerView, controller::RunningController};
use serde_json::json;

use super::{
    cluster::{HoldCluster, RESERVATIONS},
    value,
};
use crate::rig::{USER, root};

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_into_its_status_goes_with_the_next_write_and_holds_nothing_up() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let mut options = cluster.options();
    options.config.push_str("keep_seconds = 1\n");
    let controller = RunningController::start(&options).await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let mut status = cluster.until_phase("r", "Available").await["status"].clone();
    status["allocated"] = json!({ "theirs": "1" });
    status["devices"][0]["claim"] = json!("theirs");
    cluster.server.set_status(RESERVATIONS, "r", status);
    let is_mended = |view: &ApiServerView<'_>| {
        view.get(RESERVATIONS, "r")?["status"]["allocated"]["theirs"].is_null().then_some(())
    };
    cluster.server.until("it says what is", is_mended).await;
    let kept = cluster.until_phase("r", "Available").await;
    cluster.template("kept", Some(value(&kept)));
    cluster.pod("owner", "kept");
    cluster.until_bound("owner").await;
    cluster.until_no_fence().await;
    cluster.server.until("it is gone", |view| view.get(RESERVATIONS, "r").is_none().then_some(())).await;
    let writes =
        cluster.server.log().iter().filter(|call| call.user == USER && call.resource == "reservations/status").count();
    assert!(writes < 20, "{writes} writes of one status");
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_leaves_out_what_is_written_is_told_of_and_not_asked_again_at_once() {
    let cluster = HoldCluster::start().await;
    cluster.server.delete("customresourcedefinitions", "reservations.hostler.dev");
    let text = fs::read_to_string(root().join("deploy/crds/reservations.yaml")).unwrap();
    // As a release would have it that did not know the field.
    let older = text.replace("tolerationValue:", "somethingElse:");
    assert_ne!(older, text);
    cluster.server.create_yaml(&older);
    cluster.node("n1", 1);
    let controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let has_failed = async |it: &RunningController| {
        let figure = "hostler_controller_reservation_writes_total{what=\"status\",outcome=\"failed\"} ";
        let (_, figures) = it.get("/metrics").await?;
        let count: u32 = figures.lines().find_map(|line| line.strip_prefix(figure))?.parse().ok()?;
        (count >= 3).then_some(())
    };
    controller.until("it has failed some times", has_failed).await;
    let log = controller.log();
    let told: Vec<&String> = log.iter().filter(|it| it.contains("has kept another status than it was given")).collect();
    assert!(told.len() == 1 && told[0].contains("Reservation r"), "it is told once: {told:?}");
    assert_eq!(controller.stop().await, Some(0));
}
