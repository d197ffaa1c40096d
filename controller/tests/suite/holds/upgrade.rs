//! Objects that an earlier controller has written, before today's controller.

use std::fs;

use hostler_api::reservation::{RESERVATION_FINALIZER, toleration_value};
use hostler_testing::apiserver::ApiServerView;
use serde_json::{Value, json};

use super::cluster::{HoldCluster, RESERVATIONS};
use crate::rig::root;

const HARDWARE: &str = "nodehardware";

/// A status in the form of an earlier commit, for a Reservation with this value.
fn status_of_before(commit: &str, value: &str) -> Value {
    let path = root().join("tests/golden/upgrade").join(commit).join("reservation-status.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap().replace("VALUE", value)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_controller_kept_stays_kept_and_goes_to_its_owner() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 3);
    cluster.reserve("r", 1, "owner", &json!({}));
    let object = cluster.server.get(RESERVATIONS, "r").unwrap();
    let value = toleration_value(object["metadata"]["uid"].as_str().unwrap());
    cluster.server.edit(RESERVATIONS, "r", |it| it["metadata"]["finalizers"] = json!([RESERVATION_FINALIZER]));
    // Not the first card: a controller that planned anew would take that one.
    let holds = json!([{ "pool": "n1/fake", "device": "card-2", "value": value }]);
    cluster.server.edit(HARDWARE, "n1", |it| it["spec"]["holds"] = holds.clone());
    cluster.server.set_status(RESERVATIONS, "r", status_of_before("efcb5b8", &value));

    let controller = cluster.controller().await;
    cluster.template("stranger", None);
    for name in ["s0", "s1", "s2"] {
        cluster.pod(name, "stranger");
    }
    cluster.until_refused("s2").await;
    let kept = cluster.until_phase("r", "Available").await;
    assert_eq!(kept["status"]["devices"][0]["device"], "card-2");
    assert_eq!(cluster.server.get(HARDWARE, "n1").unwrap()["spec"]["holds"], holds, "closed all the time");

    cluster.template("kept", Some(&value));
    cluster.pod("owner", "kept");
    cluster.until_bound("owner").await;
    let has = |view: &ApiServerView<'_>| {
        let device = view.get(RESERVATIONS, "r")?["status"]["devices"][0].take();
        (device["state"] == "HandedOver").then_some(device)
    };
    let device = cluster.server.until("its owner has it", has).await;
    assert_eq!((&device["device"], &device["owner"]["pod"]), (&json!("card-2"), &json!("owner")));
    assert_eq!(controller.stop().await, Some(0));
}
