//! A large fabric: 64 switch domains with 256 devices each, beside the same cluster without them.

use std::{
    fs,
    time::{Duration, Instant},
};

use hostler_api::limits::MAX_ADVANCED_DEVICES;
use hostler_testing::{apiserver::ApiServer, controller::RunningController};
use serde_json::json;

use super::{ATTACHMENTS, SLICES, cluster, device, host, ms, node, options, report};

const DOMAINS: u32 = 64;
const DEVICES: u32 = 256;
/// Time for which a controller is left alone before it is looked at.
const REST: Duration = Duration::from_secs(45);
/// Far more than anything takes: what does not happen is not waited for for ever.
const PATIENCE: Duration = Duration::from_secs(300);
/// The kernel counts processor time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

pub(super) async fn measure() {
    let without = resident_of(String::new()).await;
    let read = resident_of(config(DOMAINS)).await;
    let server = cluster(DOMAINS).await;
    let start = Instant::now();
    let controller = RunningController::start(&options(&server, config(0))).await;
    until_published(&server, start).await;
    report("64 domains × 256 devices: start to all published", ms(start.elapsed()), "");
    report("  processor time of it", ms(processor(&controller)), "");
    report("  slices", server.list(SLICES).len(), "");
    report("  writes of slices", server.writes(SLICES), "");
    tokio::time::sleep(REST).await;
    let with = resident(&controller);
    report("  resident without them", megabytes(without), "");
    report("  resident where they are read and reach no node", megabytes(read), "");
    report("  resident with them", megabytes(with), "");
    report("  more", megabytes(with.saturating_sub(without)), "≤ 20 MB");
    let before = processor(&controller);
    tokio::time::sleep(REST).await;
    let share = (processor(&controller) - before).as_secs_f64() / REST.as_secs_f64() * 100.0;
    report("  processor at rest", format!("{share:.2} % of one"), "");
    change(&server, &controller).await;
    controller.stop().await;
}

/// Resident bytes of a controller of the same cluster in which no devices behind switches are published.
async fn resident_of(config: String) -> u64 {
    let server = cluster(DOMAINS).await;
    let controller = RunningController::start(&options(&server, config)).await;
    controller.until_answers("/readyz", 200).await;
    tokio::time::sleep(REST).await;
    let resident = resident(&controller);
    controller.stop().await;
    resident
}

/// A manager for each domain, since a fabric in memory has one switch. Its hosts are the nodes from `first_node` on.
fn config(first_node: u32) -> String {
    let manager = |at: u32| {
        let (host, first) = (host(first_node + at), at * DEVICES);
        format!(
            "[[fabric.managers]]\nname = 'm{at}'\nfake = {{ hosts = ['{host}'], devices = {DEVICES}, first = {first} }}\n"
        )
    };
    (0..DOMAINS).map(manager).collect()
}

/// Waits for the writes: looking at all slices after each of them would cost more than what is measured.
async fn until_published(server: &ApiServer, start: Instant) {
    let slices = DOMAINS as usize * (DEVICES as usize).div_ceil(MAX_ADVANCED_DEVICES);
    while server.writes(SLICES) < slices || published(server) < (DOMAINS * DEVICES) as usize {
        assert!(start.elapsed() < PATIENCE, "{} of {slices} slices are written", server.writes(SLICES));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn published(server: &ApiServer) -> usize {
    server.list(SLICES).iter().filter_map(|slice| slice["spec"]["devices"].as_array()).map(Vec::len).sum()
}

/// One device is tainted, and free again.
async fn change(server: &ApiServer, controller: &RunningController) {
    let name = device(1);
    let (writes, before) = (server.writes(SLICES), processor(controller));
    let start = Instant::now();
    server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "FabricAttachment", "metadata": { "name": name },
        "spec": {
            "manager": "m0", "domain": "fabric", "device": "FA-B0-00-00-00-00-00-01:0001", "nodeName": node(0), "attempt": 0,
            "release": true,
        },
        "status": { "phase": "Releasing" },
    }));
    server.edit(ATTACHMENTS, &name, |object| object["status"]["phase"] = json!("Releasing"));
    while server.writes(SLICES) == writes {
        assert!(start.elapsed() < PATIENCE, "the device is not tainted");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    report("  one device changed: to its slice", ms(start.elapsed()), "");
    tokio::time::sleep(Duration::from_secs(5)).await;
    report("    writes of slices within 5 s", server.writes(SLICES) - writes, "");
    report("    processor time within 5 s", ms(processor(controller) - before), "");
}

fn resident(controller: &RunningController) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", controller.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Processor time that the controller has used.
fn processor(controller: &RunningController) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", controller.pid())).unwrap();
    // After the name in parentheses, user and system time are the 12th and 13th field.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: u32 = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u32>().unwrap()).sum();
    TICK * ticks
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}
