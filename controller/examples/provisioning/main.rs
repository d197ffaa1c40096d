//! How long a large request waits: `cargo run --release -p hostler-controller --example provisioning`.
//!
//! Starts the released binary (`HOSTLER_CONTROLLER_BIN`, or the one beside this program) against an API server of its own on
//! the loopback interface, with 5,000 nodes of 100 devices each, of three drivers. A request for 32 sets of 16,384 pods with
//! one device each is told no, as that is more than there is; one for 32 sets of 15,000 is told yes; and one for 32 sets of
//! 1,000 is told no beside that one's booking. Prints one line per figure, with what it should be.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a program for developers, made of modules of which it uses a part"
)]

#[path = "../stock/cluster.rs"]
mod cluster;

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease},
    controller::{ControllerOptions, RunningController},
    provisioning::definition,
};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:hostler-controller:hostler-controller";
const SETS: usize = 32;
/// Far more than the figure: who does not answer is not waited for for ever.
const PATIENCE: Duration = Duration::from_secs(300);

mod reports {
    //! The large cluster is also made for what the controller keeps of it; here it is only told over the network.

    /// Keeps nothing.
    #[derive(Debug, Default)]
    pub(crate) struct NodeReports;

    impl NodeReports {
        pub(crate) fn see(&mut self, _: std::time::Instant, _: &hostler_api::hardware::NodeHardware) {}
    }
}

#[tokio::main]
async fn main() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    fill(&server);
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    controller.until_figure("hostler_controller_provisioning_requests{state=\"open\"} 0").await;
    for (name, pods, answer, wanted) in
        [("no", 16_384, "False", "≤ 10 s"), ("yes", 15_000, "True", "≤ 10 s"), ("beside", 1_000, "False", "")]
    {
        let start = Instant::now();
        ask(&server, name, pods);
        let message = answered(&server, name, answer, start).await;
        let what = format!("{SETS} sets of {pods} pods: made to Provisioned={answer}");
        report(&what, ms(start.elapsed()), wanted);
        println!("  {}…", message.chars().take(120).collect::<String>());
    }
    controller.stop().await;
}

fn fill(server: &ApiServer) {
    let start = Instant::now();
    server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostler-controller" } }));
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    server.create(definition(&["v1"]));
    for file in ["../deploy/crds/nodehardware.yaml", "../deploy/crds/clusterhardware.yaml"] {
        server.create_yaml(&fs::read_to_string(sources.join(file)).unwrap());
    }
    for driver in cluster::DRIVERS {
        server.create(cluster::class_object(driver, &format!("device.driver == \"{driver}\"")));
        server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": driver, "namespace": "default" },
            "spec": { "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": driver } }] } } },
        }));
    }
    for node in 0..*cluster::NODES {
        server.create(cluster::node_object(node));
        server.create(cluster::slice_object(node, 0, false));
        server.create(cluster::slice_object(node, 1, false));
    }
    report(&format!("a server with {} nodes, filled", *cluster::NODES), ms(start.elapsed()), "");
}

/// Every second set asks for a card, the others for what one half of the nodes has beside them.
fn ask(server: &ApiServer, name: &str, pods: usize) {
    for set in 0..SETS {
        let driver = [cluster::DRIVERS[0], cluster::DRIVERS[1 + set / 2 % 2]][set % 2];
        server.create(json!({
            "apiVersion": "v1", "kind": "PodTemplate",
            "metadata": { "name": format!("{name}-{set}"), "namespace": "default" },
            "template": { "spec": {
                "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }],
                "resourceClaims": [{ "name": "device", "resourceClaimTemplateName": driver }],
            } },
        }));
    }
    let set = |set: usize| json!({ "podTemplateRef": { "name": format!("{name}-{set}") }, "count": pods });
    server.create(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "provisioningClassName": "check-capacity.hostler.dev",
            "podSets": (0..SETS).map(set).collect::<Vec<Value>>(),
        },
    }));
}

async fn answered(server: &ApiServer, name: &str, answer: &str, start: Instant) -> String {
    loop {
        let request = server.get("provisioningrequests", name).unwrap();
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if let Some(told) = conditions.iter().find(|condition| condition["type"] == "Provisioned") {
            assert_eq!(told["status"], answer, "{told}");
            return told["message"].as_str().unwrap().to_owned();
        }
        assert!(start.elapsed() < PATIENCE, "{name} is not answered: {conditions:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn options(server: &ApiServer) -> ControllerOptions {
    ControllerOptions::as_deployed(server.kubeconfig(USER), "[capabilities]\nprovisioning = 'on'\n")
}

fn report(what: &str, found: impl std::fmt::Display, wanted: &str) {
    println!("{what:<64} {found:>32}   {wanted}");
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
