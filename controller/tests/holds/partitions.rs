//! Parts of a device that draw on one counter set, of a driver that is not ours.

use hostler_testing::{apiserver::ApiServerView, controller::RunningController};
use serde_json::{Value, json};

use crate::cluster::{HoldCluster, RESERVATIONS};

/// A card on a node, of which one half or the other can be had, or both.
fn halves(cluster: &HoldCluster, node: &str) {
    let slice = |at: usize, more: &Value| {
        let mut spec = json!({
            "driver": "gpu.example.com", "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 2 },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{at}-{node}-gpu") },
            "spec": spec,
        })
    };
    let counters = |value: &str| json!({ "slices": { "value": value } });
    let half =
        |name: &str| json!({ "name": name, "consumesCounters": [{ "counterSet": "card", "counters": counters("1") }] });
    cluster.server.create(slice(1, &json!({ "sharedCounters": [{ "name": "card", "counters": counters("2") }] })));
    cluster.server.create(slice(2, &json!({ "devices": [half("half-0"), half("half-1")] })));
    cluster.server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"gpu.example.com\"" } }] },
    }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_card_is_kept_where_the_configuration_says_that_schedulers_can_bear_it() {
    let cluster = HoldCluster::start().await;
    cluster.serve_rules();
    cluster.node("n1", 0);
    halves(&cluster, "n1");
    let controller = cluster.controller().await;
    cluster.reserve_of_other_driver("r");
    let refused = |view: &ApiServerView<'_>| {
        let conditions = view.get(RESERVATIONS, "r")?["status"]["conditions"].clone();
        let messages = conditions.as_array()?.iter().filter_map(|it| it["message"].as_str());
        messages.into_iter().any(|it| it.contains("set reservations.holds_partitions = true")).then_some(())
    };
    cluster.server.until("r is refused with the key", refused).await;
    assert!(cluster.server.list("devicetaintrules").is_empty());
    assert_eq!(controller.stop().await, Some(0));
    let mut options = cluster.options();
    options.config.push_str("holds_partitions = true\n");
    let controller = RunningController::start(&options).await;
    let kept = cluster.until_phase("r", "Available").await;
    let rules = cluster.server.list("devicetaintrules");
    let closed: Vec<_> = rules.iter().map(|rule| &rule["spec"]["deviceSelector"]["device"]).collect();
    assert_eq!(closed, [&kept["status"]["devices"][0]["device"]]);
    assert_eq!(controller.stop().await, Some(0));
}
