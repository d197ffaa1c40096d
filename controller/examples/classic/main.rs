//! What allocating claims of classic DRA costs: `cargo run --release -p hostler-controller --example classic`.
//!
//! Starts the released binary (`HOSTLER_CONTROLLER_BIN`, or the one beside this program) against an API server of 1.31 on the
//! loopback interface: in a cluster of 5,000 nodes with 10 devices each, of which half are given, and in one of 500 nodes where
//! 1,000 pods wait for their node. Prints one line per figure, with what it should be.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a program for developers"
)]

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView},
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};

const DRIVER: &str = "hostler.dev";
/// As whom the controller runs; this server lets everybody do everything who is given no rules.
const USER: &str = "system:serviceaccount:hostler-controller:hostler-controller";
/// Pods that wait.
const PODS: usize = 1_000;
/// Nodes that they wait for, each with four cards.
const NODES: usize = 500;
/// Nodes that a scheduler names for one pod.
const POTENTIAL: usize = 128;
/// A scheduler takes one pod after the other. This is between two of them.
const BETWEEN_PODS: Duration = Duration::from_millis(20);
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(5);
/// What is written to answer.
const ANSWERS: &str = "podschedulingcontexts/status";
/// How long an idle controller is left alone before it is looked at.
const REST: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() {
    pending().await;
    large().await;
}

/// Every pod that waits is told which nodes will not do; then the scheduler selects a node for one after the other.
async fn pending() {
    let server = server().await;
    (0..NODES).for_each(|at| node(&server, at, 4));
    let controller = controller(&server).await;
    let start = Instant::now();
    (0..PODS).for_each(|at| pod(&server, at));
    while server.writes(ANSWERS) < PODS {
        tokio::time::sleep(LOOK).await;
    }
    report("1,000 pods on 500 nodes: all told which nodes will not do", ms(start.elapsed()), "");
    tokio::time::sleep(REST).await;
    report("  writes of status for them, with a rest after it", server.writes(ANSWERS), "≤ 1 each");
    let mut times = Vec::new();
    for at in 0..PODS {
        let started = Instant::now();
        let name = pod_name(at);
        server.edit("podschedulingcontexts", &name, |context| {
            context["spec"]["selectedNode"] = node_name(at % NODES).into()
        });
        server.until("a claim is allocated", |view| is_allocated(view, &name).then_some(())).await;
        times.push(started.elapsed());
        tokio::time::sleep(BETWEEN_PODS.saturating_sub(started.elapsed())).await;
    }
    times.sort();
    let found =
        format!("{}, 99 % {}, {} at most", ms(times[PODS / 2]), ms(times[PODS * 99 / 100]), ms(times[PODS - 1]));
    report("  selected node to allocation, while the others wait", found, "99 % ≤ 50 ms");
    report("  resident, at its peak", memory(&controller, "VmHWM"), "");
    controller.stop().await;
}

/// Five thousand nodes.
async fn large() {
    let server = server().await;
    (0..5_000).for_each(|at| node(&server, at, 8));
    let start = Instant::now();
    let controller = controller(&server).await;
    report("5,000 nodes with 10 devices: start to ready", ms(start.elapsed()), "");
    tokio::time::sleep(REST).await;
    report("  resident", memory(&controller, "VmRSS"), "≤ 64 MB");
    report("  of that its own data", memory(&controller, "RssAnon"), "");
    report("  resident at its peak", memory(&controller, "VmHWM"), "");
    controller.stop().await;
}

async fn server() -> ApiServer {
    let gates = [("DRAControlPlaneController".to_owned(), true)].into();
    let release = ApiServerRelease::V1_31;
    let server = ApiServer::start(ApiServerOptions { release, gates, ..ApiServerOptions::default() }).await;
    server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostler-controller" } }));
    for file in ["nodehardware.yaml", "clusterhardware.yaml"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
        server.create_yaml(&fs::read_to_string(folder.join(file)).unwrap());
    }
    for kind in ["cpu", "card"] {
        let expression = format!("device.driver == \"{DRIVER}\" && device.attributes[\"{DRIVER}\"].kind == \"{kind}\"");
        server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": kind },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] },
        }));
    }
    server
}

async fn controller(server: &ApiServer) -> RunningController {
    let controller = RunningController::start(&ControllerOptions::as_deployed(server.kubeconfig(USER), "")).await;
    controller.until_figure("hostler_controller_condition{type=\"ClassicAllocation\",status=\"True\"} 1").await;
    controller
}

fn node_name(at: usize) -> String {
    format!("node-{at:04}")
}

fn pod_name(at: usize) -> String {
    format!("pod-{at:04}")
}

/// Two NUMA nodes with CPUs, and so many cards.
fn node(server: &ApiServer, at: usize, cards: usize) {
    let name = node_name(at);
    server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } }));
    server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": { "name": name },
        "spec": { "nodeName": name },
    }));
    let slices =
        [slice(&name, "cpu", &[cpus(0), cpus(1)]), slice(&name, "card", &(0..cards).map(card).collect::<Vec<_>>())];
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Reporting", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let totals = ["capacity", "allocatable", "free", "allocated", "held", "unhealthy", "drained", "unknown", "blocked"];
    let totals: serde_json::Map<String, Value> = totals.into_iter().map(|name| (name.to_owned(), json!(0))).collect();
    let status = json!({
        "driver": DRIVER, "hostlerVersion": "0.1.0", "kernelVersion": "6.12", "bootID": "boot", "devices": totals,
        "conditions": [ready], "slices": slices,
    });
    server.set_status("nodehardware", &name, status);
}

fn slice(node: &str, kind: &str, devices: &[Value]) -> Value {
    json!({
        "driver": DRIVER, "nodeName": node, "devices": devices,
        "pool": { "name": format!("{node}/{kind}"), "generation": 1, "resourceSliceCount": 1 },
    })
}

fn cpus(at: usize) -> Value {
    json!({
        "name": format!("numa-{at}"), "allowMultipleAllocations": true,
        "attributes": { "kind": { "string": "cpu" }, "numa": { "int": at }, "model": { "string": "EPYC 9654" } },
        "capacity": { "cpus": { "value": "96" } },
    })
}

fn card(at: usize) -> Value {
    json!({
        "name": format!("card-{at}"), "capacity": { "memory": { "value": "16Gi" } },
        "attributes": {
            "kind": { "string": "card" }, "numa": { "int": at % 2 }, "model": { "string": "U55C" },
            "slot": { "string": format!("0000:{at:02x}:00.0") }, "firmware": { "version": "1.2.3" },
        },
    })
}

/// A pod with a claim for a card and four CPUs on one NUMA node, and what the scheduler asks about it.
fn pod(server: &ApiServer, at: usize) {
    let name = pod_name(at);
    let cpus = json!({ "apiVersion": "hostler.dev/v1alpha1", "kind": "RequestConfig", "capacity": { "cpus": "4" } });
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": name, "namespace": "default" },
        "spec": { "controller": DRIVER, "devices": {
            "requests": [{ "name": "cpus", "deviceClassName": "cpu" }, { "name": "card", "deviceClassName": "card" }],
            "constraints": [{ "matchAttribute": format!("{DRIVER}/numa") }],
            "config": [{ "requests": ["cpus"], "opaque": { "driver": DRIVER, "parameters": cpus } }],
        } },
    }));
    let pod = server.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "containers": [{ "name": "c", "image": "i" }],
            "resourceClaims": [{ "name": "devices", "resourceClaimName": name }],
        },
    }));
    let potential: Vec<String> = (0..POTENTIAL).map(|step| node_name((at + step * 3) % NODES)).collect();
    let owner =
        json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"], "controller": true });
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "PodSchedulingContext",
        "metadata": { "name": name, "namespace": "default", "ownerReferences": [owner] },
        "spec": { "potentialNodes": potential },
    }));
}

fn is_allocated(view: &ApiServerView<'_>, claim: &str) -> bool {
    view.get("resourceclaims", claim).is_some_and(|claim| claim["status"]["allocation"].is_object())
}

/// What the kernel says of the process.
fn memory(controller: &RunningController, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", controller.pid())).unwrap();
    let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: u64 = found.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
    format!("{}.{} MB", kib * 1024 / 1_000_000, kib * 1024 / 100_000 % 10)
}

fn report(what: &str, found: impl std::fmt::Display, wanted: &str) {
    println!("{what:<60} {found:>44}   {wanted}");
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
