//! What devices behind switches cost: `cargo run --release -p hostler-controller --example fabric`.
//!
//! Starts the released binary (`HOSTLER_CONTROLLER_BIN`, or the one beside this program) against an API server of its own on
//! the loopback interface. First 200 claims are given devices of a fabric in memory that takes 100 ms for each call, one
//! after the other and all at once, with 20 workers; the daemons are played. Then 64 switch domains with 256 devices each
//! are published, and the same cluster without them is compared. Prints one line per figure, with what it should be.
//! `attaching` or `offering` as an argument measures that part alone; `redfish` publishes the same devices of 64 Redfish
//! managers that this program plays, which takes minutes of processor time.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a program for developers"
)]

mod attaching;
mod offering;

use std::{env, fs, path::PathBuf, time::Duration};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease},
    controller::ControllerOptions,
};
use serde_json::json;

/// As whom the controller runs; this server lets users do everything who are given no rules.
const USER: &str = "system:serviceaccount:hostler-controller:hostler-controller";
const ATTACHMENTS: &str = "fabricattachments";
const SLICES: &str = "resourceslices";

#[tokio::main]
async fn main() {
    let only = env::args().nth(1);
    let fabrics = offering::fabrics_in_memory();
    let is_meant = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if is_meant("attaching") {
        attaching::measure().await;
    }
    if only.as_deref() == Some("redfish") {
        offering::measure_redfish().await;
    }
    if is_meant("offering") {
        offering::measure(fabrics).await;
    }
}

/// A cluster with so many nodes, each with the UUID of its board.
async fn cluster(nodes: u32) -> ApiServer {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostler-controller" } }));
    let crds = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    for file in ["nodehardware.yaml", "clusterhardware.yaml", "fabric/fabricattachments.yaml"] {
        server.create_yaml(&fs::read_to_string(crds.join(file)).unwrap());
    }
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "cxl.hostler.dev" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"hostler.dev\"" } }] },
    }));
    for at in 0..nodes {
        let name = node(at);
        let labels = json!({ "kubernetes.io/hostname": name });
        server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } }));
        server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": { "name": name },
            "spec": { "nodeName": name },
        }));
        server.edit("nodehardware", &name, |node| node["status"]["systemUUID"] = json!(host(at)));
    }
    server
}

fn node(at: u32) -> String {
    format!("node-{at}")
}

fn host(at: u32) -> String {
    format!("fab00000-0000-4000-8000-{at:012x}")
}

/// The name of a device of a fabric in memory.
fn device(at: u32) -> String {
    format!("{:016x}-0001", 0xfab0_0000_0000_0000_u64 + u64::from(at))
}

fn options(server: &ApiServer, config: &str) -> ControllerOptions {
    ControllerOptions::as_deployed(server.kubeconfig(USER), config)
}

fn report(what: &str, found: impl std::fmt::Display, wanted: &str) {
    println!("{what:<64} {found:>32}   {wanted}");
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
