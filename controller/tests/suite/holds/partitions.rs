//! Parts of a device that draw on one counter set.

use hostler_testing::{apiserver::ApiServerView, controller::RunningController};
use serde_json::{Value, json};

use super::cluster::{HoldCluster, RESERVATIONS};

/// A card on a node, of which one half or the other can be had, or both.
fn halves(cluster: &HoldCluster, node: &str, driver: &str) {
    let slice = |at: usize, more: &Value| {
        let mut spec = json!({
            "driver": driver, "nodeName": node,
            "pool": { "name": format!("{node}/{driver}"), "generation": 1, "resourceSliceCount": 2 },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{at}-{node}-{driver}") },
            "spec": spec,
        })
    };
    let counters = |value: &str| json!({ "slices": { "value": value } });
    let half =
        |name: &str| json!({ "name": name, "consumesCounters": [{ "counterSet": "card", "counters": counters("1") }] });
    cluster.server.create(slice(1, &json!({ "sharedCounters": [{ "name": "card", "counters": counters("2") }] })));
    cluster.server.create(slice(2, &json!({ "devices": [half("half-0"), half("half-1")] })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_card_is_kept_where_the_configuration_says_that_schedulers_can_bear_it() {
    let cluster = HoldCluster::start().await;
    cluster.serve_rules();
    cluster.node("n1", 0);
    cluster.server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"gpu.example.com\"" } }] },
    }));
    ["hostler.dev", "gpu.example.com"].into_iter().for_each(|driver| halves(&cluster, "n1", driver));
    let controller = cluster.controller().await;
    cluster.reserve("own", 1, "owner", &json!({}));
    cluster.reserve_of_other_driver("r");
    let refused = |view: &ApiServerView<'_>| {
        let is_refused = |name: &str| {
            let conditions = view.get(RESERVATIONS, name).unwrap()["status"]["conditions"].take();
            let mut messages = conditions.as_array().into_iter().flatten().filter_map(|it| it["message"].as_str());
            messages.any(|it| it.contains("set reservations.holds_partitions = true"))
        };
        ["own", "r"].into_iter().all(is_refused).then_some(())
    };
    cluster.server.until("both are refused with the key", refused).await;
    assert!(cluster.server.list("devicetaintrules").is_empty());
    assert_eq!(controller.stop().await, Some(0));
    let mut options = cluster.options();
    options.config.push_str("holds_partitions = true\n");
    let controller = RunningController::start(&options).await;
    let kept = cluster.until_phase("r", "Available").await;
    let rules = cluster.server.list("devicetaintrules");
    let closed: Vec<_> = rules.iter().map(|rule| &rule["spec"]["deviceSelector"]["device"]).collect();
    assert_eq!(closed, [&kept["status"]["devices"][0]["device"]]);
    let own = cluster.until_phase("own", "Available").await;
    let told = &cluster.server.get("nodehardware", "n1").unwrap()["spec"];
    assert_eq!((&told["holdsPartitions"], told["holds"].as_array().map(Vec::len)), (&json!(true), Some(1)));
    assert_eq!(told["holds"][0]["device"], own["status"]["devices"][0]["device"]);
    assert_eq!(cluster.fences().len(), 1);
    assert_eq!(controller.stop().await, Some(0));
}
