//! What it takes to look at a large made-up host: the time of a scan of everything, how it grows, and what is opened.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use hostler::{config::DaemonConfig, registry};
use hostler_linux::testkit::{AccessCounts, MachineTree};

use super::{
    report::Report,
    rig::Rig,
    samples::Samples,
    synthetic::{self, Quarters},
};

const MOST: Duration = Duration::from_millis(20);
const RUNS: usize = 60;

pub(crate) fn measure(report: &mut Report) {
    for (quarters, size) in [
        (4, "a host with 256 CPUs, 8 nodes, 64 FPGA functions and 64 CXL devices"),
        (2, "half of it"),
        (1, "a quarter of it"),
    ] {
        let tree = MachineTree::new();
        synthetic::plug(&tree, Quarters(quarters));
        let (samples, devices) = scans(&tree);
        let opened: Vec<String> = opened(&tree).into_iter().map(|(name, count)| format!("{name} {count}")).collect();
        let figure = format!("scan of everything: {size}, median");
        let how = format!(
            "`POST /v1/rescan` of the daemon on a made-up host in memory: {devices} devices; files, links and folders opened: {}",
            opened.join(", "),
        );
        if quarters == 4 {
            report.median_at_most(&figure, MOST, &samples, &how);
        } else {
            report.median(&figure, &samples, &how);
        }
    }
}

fn scans(tree: &MachineTree) -> (Samples, usize) {
    let mut rig = Rig::on(&tree.path(""), "[inventory]\nrescan = \"1h\"\n");
    rig.host.start();
    let scan = |_| {
        let start = Instant::now();
        assert_eq!(rig.host.request("POST", "/v1/rescan", "").0, 204);
        start.elapsed()
    };
    // The first round warms the caches.
    let times = (0..=RUNS).map(scan).skip(1).collect();
    let devices = rig.host.get("/v1/inventory")["devices"].as_array().unwrap().len();
    (Samples::new(times), devices)
}

/// How often each backend opens something, whatever it is.
fn opened(tree: &MachineTree) -> BTreeMap<String, usize> {
    let counts = Arc::new(AccessCounts::default());
    let root = tree.root().tapped(counts.clone());
    let backends = registry::from_config(&DaemonConfig::default(), &root);
    let opened = |backend: &dyn hostler_backend::Backend| {
        backend.enumerate().unwrap();
        counts.take().into_values().sum()
    };
    backends.iter().map(|(name, backend)| (name.to_string(), opened(backend.as_ref()))).collect()
}
