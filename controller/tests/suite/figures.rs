//! Figures of the running controller: the table explains each, readers get the format that they prefer, and a node whose
//! daemon never came is named.

use std::net::TcpStream;

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease, PolicyRule},
    controller::{ControllerOptions, RunningController},
    exposition::{Exposition, asked_for_format, assert_formats},
    scraper::scrape,
};
use serde_json::{Value, json};

use crate::rig::{install, options, root, slice};

const READER: &str = "system:serviceaccount:hostler-controller:hostler-controller-scraper";

#[tokio::test(flavor = "multi_thread")]
async fn the_table_has_every_figure_of_the_controller_with_its_type_labels_and_meaning() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    install(&server);
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "cpus" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"hostler.dev\"" } }] },
    }));
    server.create(slice("n1-a", "n1"));
    server.create(daemon("n2", "n2"));
    server.create(report("n1"));
    server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n2" } }));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_figure("hostler_controller_leads 1").await;
    controller.until_figure("hostler_controller_unreported_node{node=\"n2\"} 1").await;
    let (_, text) = controller.get("/metrics").await.unwrap();
    let given = Exposition::parse(text);
    let differences = given.differences("hostler-controller");
    assert!(differences.is_empty(), "docs/metrics.md differs:\n{}", differences.join("\n"));
    // What this cluster has none of; a test beside their code compares these.
    assert_eq!(
        given.missing("hostler-controller"),
        [
            "hostler_controller_classic_writes_total",
            "hostler_controller_fabric_attachments",
            "hostler_controller_fabric_devices",
            "hostler_controller_fabric_devices_holding_data",
            "hostler_controller_fabric_failed_attempts_total",
            "hostler_controller_fabric_foreign_devices",
            "hostler_controller_fabric_manager_read",
            "hostler_controller_fabric_manager_unread_seconds",
            "hostler_controller_fabric_oldest_under_way_seconds",
            "hostler_controller_fabric_overdue_attachments",
            "hostler_controller_fabric_quarantined_devices",
            "hostler_controller_fabric_release_waits_seconds",
            "hostler_controller_provisioning_requests",
            "hostler_controller_reservation_writes_total",
            "hostler_controller_reservations",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_answers_in_the_format_that_its_reader_prefers() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    let controller = RunningController::start(&options(&server)).await;
    let address = controller.address();
    let ask = move || assert_formats(|accept| asked_for_format(TcpStream::connect(address).unwrap(), accept));
    tokio::task::spawn_blocking(ask).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_hosts_get_figures_over_tls_with_a_token_that_the_shipped_role_allows() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    let role = std::fs::read_to_string(root().join("deploy/components/prometheus-controller/scraper.yaml")).unwrap();
    server.allow(READER, PolicyRule::from_yaml(&role));
    server.allow("nosy", Vec::new());
    let options = ControllerOptions { listen: "0.0.0.0".to_owned(), ..options(&server) };
    let controller = RunningController::start(&options).await;
    let address = ([127, 0, 0, 1], controller.address().port()).into();
    let code = async |token: Option<&str>| scrape(address, "/metrics", token).await.unwrap().code;
    let (reader, nosy) = (server.user(READER, None), server.user("nosy", None));
    let codes = [code(Some(&reader)).await, code(Some(&nosy)).await, code(Some("garbage")).await, code(None).await];
    assert_eq!(codes, [200, 403, 401, 401]);
}

/// A pod that the DaemonSet of the daemon has made for a node.
fn daemon(name: &str, node: &str) -> Value {
    let named = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default",
            "labels": { "app.kubernetes.io/name": "hostler", "app.kubernetes.io/component": "node-driver" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "hostler", "uid": "u", "controller": true }],
        },
        "spec": {
            "containers": [{ "name": "hostler", "image": "hostler" }],
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [named] } } },
        },
    })
}

/// A report of a node.
fn report(node: &str) -> Value {
    json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": { "name": node },
        "spec": { "nodeName": node },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_daemon_never_came_is_named_until_it_reports_and_not_where_no_node_reports() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    install(&server);
    for node in ["n1", "n2"] {
        server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } }));
        server.create(daemon(&format!("hostler-{node}"), node));
    }
    // No daemon is for this one.
    server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n3" } }));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_figure("hostler_controller_objects{kind=\"nodes\"} 3").await;
    let named = async |it: &RunningController| {
        let (_, text) = it.get("/metrics").await?;
        let series = Exposition::parse(text).samples.into_iter();
        let own = series.filter(|(name, _)| name == "hostler_controller_unreported_node");
        Some(own.map(|(_, labels)| labels["node"].clone()).collect::<Vec<String>>())
    };
    // Reports may be switched off.
    assert_eq!(named(&controller).await.unwrap(), Vec::<String>::new());
    for (reporter, expected) in [("n1", &["n2"][..]), ("n2", &[])] {
        server.create(report(reporter));
        let are_so = async |it: &RunningController| named(it).await.filter(|nodes| nodes == expected).map(|_| ());
        controller.until(&format!("{expected:?} are named"), are_so).await;
    }
}
