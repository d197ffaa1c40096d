//! Schedulers that begin anew know only what the server says: what is kept is in slices and claims, and stays kept.

use serde_json::{Value, json};

use super::{cluster::HoldCluster, value};

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_begins_anew_gives_nothing_of_what_is_kept() {
    let mut cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let _controller = cluster.controller().await;
    cluster.reserve("card", 1, "owner-of-card", &json!({}));
    let card = cluster.until_phase("card", "Available").await;
    cluster.shared_node("n2", 8);
    cluster.reserve_part("part", 5, "owner-of-part", &json!({}));
    let part = cluster.until_phase("part", "Available").await;
    until_accounted(&cluster, &part).await;
    cluster.restart_control_plane().await;
    cluster.template("any", None);
    cluster.template_of_part("four", 4, None);
    cluster.template_of_part("three", 3, None);
    for (stranger, template) in [("wants-a-card", "any"), ("wants-four", "four")] {
        cluster.pod(stranger, template);
        cluster.until_refused(stranger).await;
    }
    cluster.pod("wants-three", "three");
    assert_eq!(cluster.until_bound("wants-three").await, "n2", "the rest of the device is for everybody");
    // And once more with one that knows of none of these pods.
    cluster.restart_control_plane().await;
    cluster.template("of-card", Some(value(&card)));
    cluster.pod("owner-of-card", "of-card");
    assert_eq!(cluster.until_bound("owner-of-card").await, "n1");
    cluster.template_of_part("of-part", 5, Some(value(&part)));
    cluster.pod("owner-of-part", "of-part");
    assert_eq!(cluster.until_bound("owner-of-part").await, "n2");
    for name in ["card", "part"] {
        cluster.until_phase(name, "Succeeded").await;
    }
    for stranger in ["wants-a-card", "wants-four"] {
        let pod = cluster.server.get("pods", &format!("default/{stranger}")).unwrap();
        assert!(pod["spec"]["nodeName"].is_null(), "{stranger}");
    }
}

/// Waits until a claim stands for the part, and its device is open.
async fn until_accounted(cluster: &HoldCluster, reservation: &Value) {
    let device = &reservation["status"]["devices"][0];
    let name = format!("hostler-controller/hold-{}", device["shareID"].as_str().unwrap());
    let look = |view: &hostler_testing::apiserver::ApiServerView<'_>| {
        let has_devices = !view.get("resourceclaims", &name)?["status"]["allocation"].is_null();
        let slice = view.get("resourceslices", "0-n2")?;
        let taints = slice["spec"]["devices"][0]["taints"].as_array().map_or(0, Vec::len);
        (has_devices && taints == 0).then_some(())
    };
    cluster.server.until("a claim stands for the part", look).await;
}
