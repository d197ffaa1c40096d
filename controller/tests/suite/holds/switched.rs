//! What bundles add is found by the roles that they bring, while the controller runs: its configuration is the one of every bundle.

use std::fs;

use hostler_testing::controller::{ControllerOptions, RunningController};
use serde_json::json;

use super::cluster::HoldCluster;
use crate::rig::root;

const GATE: &str = "hostler.dev/placement";

/// The configuration of `deploy/controller`, but for addresses, the log, and how long a test waits.
fn shipped(cluster: &HoldCluster) -> ControllerOptions {
    let text = fs::read_to_string(root().join("deploy/controller/base/controller.toml")).unwrap();
    let sections = text.split_once("[capabilities]").unwrap().1.split_once("[log]").unwrap().0;
    let sections = sections.replace("0.0.0.0:9443", "127.0.0.1:0");
    let sections = sections.replace("[reservations]\n", "[reservations]\nsettle_seconds = 1\n");
    ControllerOptions { config: format!("[capabilities]{sections}"), ..cluster.options() }
}

fn condition(kind: &str, status: &str) -> String {
    format!("hostler_controller_condition{{type=\"{kind}\",status=\"{status}\"}} 1")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_switches_on_what_its_bundle_is_for_and_nothing_that_another_one_may_as_well() {
    let mut cluster = HoldCluster::start().await;
    cluster.run_kubelets();
    cluster.node("n1", 1);
    cluster.template("cards", None);
    // Claims that pods name: this role may delete pods, patch claims and change what they are given, too.
    cluster.allow(&["claims"]);
    let controller = RunningController::start(&shipped(&cluster)).await;
    controller.until_figure(&condition("Reservations", "True")).await;
    controller.until_figure(&condition("Webhook", "False")).await;
    controller.until_figure(&condition("ProvisioningRequests", "False")).await;
    controller.until_answers("/readyz", 200).await;
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "gated" },
        "spec": {
            "schedulingGates": [{ "name": GATE }], "containers": [{ "name": "c", "image": "i" }],
            "resourceClaims": [{ "name": "one", "resourceClaimTemplateName": "cards" }],
        },
    }));
    controller.until_figure("hostler_controller_leads 1").await;
    assert!(cluster.server.list("reservations").is_empty());
    // Another bundle comes.
    cluster.allow(&["claims", "direct", "webhook"]);
    cluster.server.create_yaml(&fs::read_to_string(root().join("deploy/holds/webhook/configuration.yaml")).unwrap());
    cluster.until_bound("gated").await;
    controller.until_figure(&condition("Webhook", "True")).await;
    assert_eq!(controller.stop().await, Some(0));
}
