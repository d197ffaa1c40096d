//! A large fabric: 64 switch domains with 256 devices each, beside the same cluster without them.

use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use hostler_api::limits::MAX_ADVANCED_DEVICES;
use hostler_fabric::fake::FakeFabric;
use hostler_testing::{
    apiserver::ApiServer,
    controller::RunningController,
    redfish::{PlayedRedfish, host_uuid},
};
use serde_json::json;

use super::{ATTACHMENTS, SLICES, cluster, device, host, ms, node, options, report};

const DOMAINS: u32 = 64;
const DEVICES: u32 = 256;
/// Time for which a controller is left alone before it is looked at.
const REST: Duration = Duration::from_secs(45);
/// Far more than anything takes: what does not happen is not waited for for ever.
const PATIENCE: Duration = Duration::from_secs(300);

/// Resident bytes of the fabrics in memory, which play the managers inside the controller. To be asked before this process
/// has freed much: it takes that first.
pub(super) fn fabrics_in_memory() -> u64 {
    let before = resident("self");
    let fabrics: Vec<FakeFabric> = (0..DOMAINS).map(|_| FakeFabric::rack(1, DEVICES)).collect();
    let after = resident("self");
    drop(fabrics);
    after - before
}

pub(super) async fn measure(fabrics: u64) {
    let without = resident_of(String::new()).await;
    let read = resident_of(config(DOMAINS)).await;
    let server = cluster(DOMAINS).await;
    let start = Instant::now();
    let controller = RunningController::start(&options(&server, &config(0))).await;
    until_published(&server, start).await;
    report("64 domains × 256 devices: start to all published", ms(start.elapsed()), "");
    report("  processor time of it", ms(controller.processor_time()), "");
    report("  slices", server.list(SLICES).len(), "");
    report("  writes of slices", server.writes(SLICES), "");
    tokio::time::sleep(REST).await;
    let with = resident(controller.pid());
    report("  resident without them", megabytes(without), "");
    report("  resident where they are read and reach no node", megabytes(read), "");
    report("  resident with them", megabytes(with), "");
    let more = with.saturating_sub(without);
    report("  more", megabytes(more), "≤ 20 MB");
    report("    of that the fabrics in memory, which users do not have", megabytes(fabrics), "");
    report("    and the rest", megabytes(more.saturating_sub(fabrics)), "≤ 20 MB");
    let before = controller.processor_time();
    tokio::time::sleep(REST).await;
    let share = (controller.processor_time() - before).as_secs_f64() / REST.as_secs_f64() * 100.0;
    report("  processor at rest", format!("{share:.2} % of one"), "");
    change(&server, &controller).await;
    controller.stop().await;
}

/// The same devices, at managers that speak Redfish and are played by this process: what users have. They are read once, since
/// each has two thousand documents.
pub(super) async fn measure_redfish() {
    let without = resident_of(String::new()).await;
    let server = cluster(DOMAINS).await;
    let (mut managers, mut config) = (Vec::new(), "[fabric]\npoll_seconds = 3600\n".to_owned());
    for at in 0..DOMAINS {
        let manager = PlayedRedfish::rack(1, DEVICES).await;
        let (played, ours) = (host_uuid(0), host(at).to_uppercase());
        manager.change(|documents| {
            for document in documents.values_mut() {
                let text = document.to_string().replace(&played, &ours);
                *document =
                    text.replace("4C-1D-96-00-00-00-00", &format!("4C-1D-96-00-00-00-{at:02X}")).parse().unwrap();
            }
        });
        config += &format!(
            "[[fabric.managers]]\nname = 'm{at}'\nredfish = {{ address = '{}', allow_plain_http = true }}\n",
            manager.url()
        );
        managers.push(manager);
    }
    let start = Instant::now();
    let controller = RunningController::start(&options(&server, &config)).await;
    until_published(&server, start).await;
    report("64 Redfish managers × 256 devices: start to all published", ms(start.elapsed()), "");
    report("  processor time of it", ms(controller.processor_time()), "");
    tokio::time::sleep(REST).await;
    let with = resident(controller.pid());
    report("  resident without them", megabytes(without), "");
    report("  more with them", megabytes(with.saturating_sub(without)), "≤ 20 MB");
    controller.stop().await;
}

/// Resident bytes of a controller of the same cluster in which no devices behind switches are published.
async fn resident_of(config: String) -> u64 {
    let server = cluster(DOMAINS).await;
    let controller = RunningController::start(&options(&server, &config)).await;
    controller.until_answers("/readyz", 200).await;
    tokio::time::sleep(REST).await;
    let resident = resident(controller.pid());
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
    let (writes, before) = (server.writes(SLICES), controller.processor_time());
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
    report("    processor time within 5 s", ms(controller.processor_time() - before), "");
}

fn resident(process: impl fmt::Display) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}
