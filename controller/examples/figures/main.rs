//! What the running controller costs: `cargo run --release -p hostler-controller --example figures [NODES]`.
//!
//! Starts the released binary (`HOSTLER_CONTROLLER_BIN`, or the one beside this program) against an API server of its own on
//! the loopback interface: in a cluster of 10 nodes, and in one of 5,000 nodes with 100 devices each in 10,000 slices, 50,000
//! claims that have one of them each, and 2,500 reports of nodes. Prints one line per figure, with what it should be.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a program for developers, made of modules of which it uses a part"
)]

#[path = "../stock/cluster.rs"]
mod cluster;
mod page;

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease},
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};

/// As whom the controller runs; this server lets everybody do everything who is given no rules.
const USER: &str = "system:serviceaccount:hostler-controller:hostler-controller";
/// Changes of which each is waited for.
const CHANGES: usize = 100;
/// Changes of which none is waited for.
const STORM: usize = 20_000;
/// How many cards are ill, in the figures.
const ILL: &str = "hostler_controller_devices{class=\"gpu.example\",state=\"unhealthy\"}";
/// How long an idle controller is left alone before it is looked at.
const REST: Duration = Duration::from_secs(10);

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
    small().await;
    large().await;
}

/// Ten nodes, at rest.
async fn small() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    fill(&server, 10, 20);
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    tokio::time::sleep(REST).await;
    let memory = Memory::of(&controller);
    report("10 nodes × 100 devices: resident, idle", memory.resident(), "≤ 15 MB");
    report("  of that its own data", memory.anonymous(), "");
    controller.stop().await;
}

/// Five thousand.
async fn large() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    fill(&server, *cluster::NODES, 10);
    let start = Instant::now();
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    report(&format!("{} nodes × 100 devices: start to ready", *cluster::NODES), ms(start.elapsed()), "≤ 10 s");
    report("  processor time of it", ms(controller.processor_time()), "");
    report("  resident when ready", Memory::of(&controller).resident(), "≤ 120 MB");
    shown(&server, &controller).await;
    page::paint(&server, &controller);
    storm(&server, &controller).await;
    tokio::time::sleep(REST).await;
    let memory = Memory::of(&controller);
    report("  resident after it", memory.resident(), "≤ 300 MB");
    report("  resident at its peak", memory.peak(), "≤ 300 MB");
    controller.stop().await;
}

/// A device falls ill or is well again: from the write until the figures say so.
async fn shown(server: &ApiServer, controller: &RunningController) {
    let ready = Instant::now();
    let mut times = Vec::new();
    for round in 0..CHANGES {
        let slice = cluster::slice_object(round / 2, 0, round % 2 == 0);
        let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
        let wanted = u64::from(round % 2 == 0);
        let start = Instant::now();
        server.edit("resourceslices", &name, |known| known["spec"]["devices"] = slice["spec"]["devices"].clone());
        while figure(controller, ILL).await != Some(wanted) {
            assert!(start.elapsed() < Duration::from_secs(30), "a change is not shown");
        }
        times.push((start.elapsed(), start - ready));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times.sort();
    let ((median, _), (most, since)) = (times[CHANGES / 2], times[CHANGES - 1]);
    report("  a slice changed: shown in /metrics", format!("{}, {} at most", ms(median), ms(most)), "≤ 100 ms");
    report("    the slowest of them: written after the controller was ready", ms(since), "");
}

/// Slices change faster than anybody can follow: how long after the last change all is shown.
async fn storm(server: &ApiServer, controller: &RunningController) {
    let start = Instant::now();
    for round in 0..STORM {
        let slice = cluster::slice_object(round % 1_000, 0, round >= STORM - 1_000);
        let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
        server.edit("resourceslices", &name, |known| known["spec"]["devices"] = slice["spec"]["devices"].clone());
    }
    let written = start.elapsed();
    while figure(controller, ILL).await != Some(1_000) {
        assert!(start.elapsed() < Duration::from_secs(120), "the end of a storm is not shown");
    }
    let rate = u128::try_from(STORM).unwrap() * 1_000 / written.as_millis().max(1);
    let shown = ms(start.elapsed() - written);
    report(&format!("  {STORM} changes of slices, {rate} each second: shown after the last"), shown, "");
}

async fn figure(controller: &RunningController, name: &str) -> Option<u64> {
    let (_, text) = controller.get("/metrics").await?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn fill(server: &ApiServer, nodes: usize, claims: usize) {
    let start = Instant::now();
    server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostler-controller" } }));
    for file in ["nodehardware.yaml", "clusterhardware.yaml"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
        let text = fs::read_to_string(folder.join(file)).unwrap();
        server.create_yaml(&text);
    }
    for team in 0..5 {
        let name = format!("team-{team}");
        server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
    }
    for driver in cluster::DRIVERS {
        server.create(cluster::class_object(driver, &format!("device.driver == \"{driver}\"")));
    }
    for node in 0..nodes {
        server.create(cluster::node_object(node));
        server.create(cluster::slice_object(node, 0, false));
        server.create(cluster::slice_object(node, 1, false));
        if node % 2 == 1 {
            with_status(server, "nodehardware", cluster::report_object(node));
        }
        // The first device of each is left alone, to fall ill.
        for at in 0..claims {
            with_status(server, "resourceclaims", cluster::claim_object(node, 2 * at + 1));
        }
    }
    report(&format!("a server with {nodes} nodes, filled"), ms(start.elapsed()), "");
}

/// Objects of kinds with a status are created without it.
fn with_status(server: &ApiServer, plural: &str, mut object: Value) {
    let status = object["status"].take();
    object.as_object_mut().unwrap().remove("status");
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap();
    let path = metadata["namespace"].as_str().map_or_else(|| name.to_owned(), |space| format!("{space}/{name}"));
    server.create(object);
    server.set_status(plural, &path, status);
}

fn options(server: &ApiServer) -> ControllerOptions {
    ControllerOptions::as_deployed(server.kubeconfig(USER), "")
}

/// What the kernel says of a process.
struct Memory(String);

impl Memory {
    fn of(controller: &RunningController) -> Self {
        Self(fs::read_to_string(format!("/proc/{}/status", controller.pid())).unwrap())
    }

    fn resident(&self) -> String {
        self.line("VmRSS")
    }

    fn anonymous(&self) -> String {
        self.line("RssAnon")
    }

    fn peak(&self) -> String {
        self.line("VmHWM")
    }

    fn line(&self, name: &str) -> String {
        let found = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib: u64 = found.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
        format!("{}.{} MB", kib * 1024 / 1_000_000, kib * 1024 / 100_000 % 10)
    }
}

fn report(what: &str, found: impl std::fmt::Display, wanted: &str) {
    println!("{what:<64} {found:>32}   {wanted}");
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
