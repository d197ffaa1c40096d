//! The quick start of docs/fabric.md: a fabric in the controller's memory, a scheduler that waits for binding conditions, and
//! a person who plays the daemon of the node.

use std::{fs, sync::Arc};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView, PolicyRule},
    control_plane::ControlPlane,
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};

use crate::rig::{USER, install, options, root};

const ATTACHMENTS: &str = "fabricattachments";
const UUID: &str = "918eda4d-2b69-432f-b0d3-dc2a8d80a351";

/// The page, whose snippets are used as they are printed.
fn page() -> String {
    fs::read_to_string(root().join("docs/fabric.md")).unwrap()
}

/// The first snippet of the quick start in a language.
fn snippet(language: &str) -> String {
    let page = page();
    let (_, start) = page.split_once("## Quick start without hardware").unwrap();
    let (_, snippet) = start.split_once(&format!("```{language}\n")).unwrap();
    snippet
        .split_once("```")
        .unwrap()
        .0
        .lines()
        .map(|line| line.strip_prefix("   ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

async fn cluster() -> Arc<ApiServer> {
    let options = ApiServerOptions { release: ApiServerRelease::V1_36, ..ApiServerOptions::default() };
    let server = Arc::new(ApiServer::start(options).await);
    install(&server);
    server.create_yaml(&fs::read_to_string(root().join("deploy/crds/fabric/fabricattachments.yaml")).unwrap());
    let rules = ["deploy/controller/base/rbac.yaml", "deploy/fabric/rbac.yaml"];
    let rules = rules.iter().flat_map(|file| PolicyRule::from_yaml(&fs::read_to_string(root().join(file)).unwrap()));
    server.allow(USER, rules.collect());
    server.create(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "node-1", "labels": { "kubernetes.io/hostname": "node-1" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }], "allocatable": { "pods": "110" } },
    }));
    let classes = fs::read_to_string(root().join("deploy/cluster/deviceclasses.yaml")).unwrap();
    for class in serde_saphyr::from_multiple::<Value>(&classes).unwrap() {
        if class["metadata"]["name"] == "cxl.hostler.dev" {
            server.create(class);
        }
    }
    server
}

async fn until_phase(server: &ApiServer, phase: &str) -> Value {
    let is_so = |view: &ApiServerView<'_>| view.list(ATTACHMENTS).into_iter().find(|it| it["status"]["phase"] == phase);
    server.until(&format!("the device is {phase}"), is_so).await
}

/// Says what the daemon of the node would say.
fn report(server: &ApiServer, attachment: &Value, report: Value) {
    let name = attachment["metadata"]["name"].as_str().unwrap();
    server.edit(ATTACHMENTS, name, |object| object["status"]["node"] = report);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_gives_a_pod_a_device_and_takes_it_back() {
    let server = cluster().await;
    let _running = ControlPlane::new().run(&server);
    let config = snippet("toml").replace("NODE", "node-1");
    assert!(config.contains(UUID), "{config}");
    let controller = RunningController::start(&ControllerOptions { config, ..options(&server) }).await;
    controller.until_figure("hostler_controller_fabric_devices{pool=\"fabric/trial/fabric\",state=\"free\"} 4").await;
    for mut object in serde_saphyr::from_multiple::<Value>(&snippet("yaml")).unwrap() {
        object["metadata"]["namespace"] = json!("default");
        server.create(object);
    }
    let attached = until_phase(&server, "Attached").await;
    assert_eq!(attached["spec"]["attempt"], 0);
    let phase = "hostler_controller_fabric_attachments{manager=\"trial\",phase=\"Attached\"} 1";
    controller.until_figure(phase).await;
    report(&server, &attached, json!({ "attempt": 0, "state": "Ready" }));
    let is_bound = |view: &ApiServerView<'_>| {
        (view.get("pods", "default/far-memory")?["spec"]["nodeName"] == "node-1").then_some(())
    };
    server.until("the pod is bound", is_bound).await;
    server.delete("pods", "default/far-memory");
    let releasing = until_phase(&server, "Releasing").await;
    report(&server, &releasing, json!({ "attempt": 0, "state": "Released", "erased": "Sanitize" }));
    until_phase(&server, "Detached").await;
    controller.until_figure("hostler_controller_fabric_devices{pool=\"fabric/trial/fabric\",state=\"free\"} 4").await;
    assert_eq!(controller.stop().await, Some(0));
}
