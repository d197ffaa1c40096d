//! What the API server adds: reading claims, publishing devices, and how much of either is written.
//!
//! The server is the tests' own, in this process, over TLS and HTTP/2 on the loopback interface.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use hostler_proto::dra_v1::Claim;
use hostler_testing::{
    apiserver::{ApiServer, ApiServerView},
    host::wait_for,
    kubelet::{self, KubeletPlugin},
};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use tokio::runtime::{self, Runtime};

use super::{
    idle::Memory,
    limits::Limits,
    machine,
    report::{Amount, Report},
    rig::Rig,
    samples::Samples,
};

const NODE: &str = "node";
const DRIVER: &str = "hostler.dev";
const SINGLE: usize = 400;
const WARM_UP: usize = 20;
const BATCH: usize = 100;
const BATCHES: usize = 10;
const CYCLES: usize = 1000;
const STARTS: usize = 20;
const DEVICES: usize = 1000;
/// A scan each second for a minute is as many scans as an hour has by default.
const STEADY: Duration = Duration::from_secs(60);

pub(crate) fn measure(report: &mut Report) {
    let on = machine::file_system(&machine::disk());
    claims(report, &machine::disk(), &on);
    claims(report, machine::memory(), "memory");
    starts(report);
    thousand(report);
}

/// A server on threads of its own, so that it does not wait for whoever measures.
pub(crate) struct Api {
    runtime: Runtime,
    server: ApiServer,
}

impl Api {
    pub(crate) fn start() -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(async {
            let server = ApiServer::start(Default::default()).await;
            server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } }));
            server
        });
        Self { runtime, server }
    }

    /// What a daemon needs in order to use it.
    pub(crate) fn configuration(&self) -> String {
        let kubeconfig = self.server.kubeconfig("hostler");
        // What becomes of claims is written off the path that is measured, and would compete with it for two CPUs.
        format!("cluster.mode = \"kubernetes\"\ncluster.kubeconfig = {kubeconfig:?}\ncluster.claim_status = false\n")
    }

    /// A claim for one CPU, allocated.
    pub(crate) fn claim(&self, number: usize) -> Claim {
        let name = format!("claim-{number}");
        let spec = json!({ "devices": { "requests": [
            { "name": "cpu", "exactly": { "deviceClassName": "cpu.hostler.dev" } },
        ] } });
        let metadata = json!({ "name": name, "namespace": "default" });
        let created = self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec,
        }));
        let result = json!({
            "request": "cpu", "driver": DRIVER, "pool": format!("{NODE}/cpu"), "device": format!("numa{}", number % 4),
            "shareID": format!("3f0c6a1e-0000-4000-8000-{number:012}"), "consumedCapacity": { "cpus": "1" },
        });
        let status = json!({ "allocation": { "devices": { "results": [result] } } });
        self.server.set_status("resourceclaims", &format!("default/{name}"), status);
        kubelet::claim("default", &name, created["metadata"]["uid"].as_str().unwrap())
    }

    /// Waits until every pool of the node is whole; gives the number of devices and of slices.
    fn published(&self, devices: usize) -> (usize, usize) {
        self.runtime.block_on(self.server.until("all devices are published", |view| {
            let (found, slices) = complete(view)?;
            (found >= devices).then_some((found, slices))
        }))
    }
}

/// Devices and slices, if no pool lacks a slice.
fn complete(view: &ApiServerView<'_>) -> Option<(usize, usize)> {
    let slices = view.list("resourceslices");
    let pools: BTreeSet<&str> = slices.iter().filter_map(|slice| slice["spec"]["pool"]["name"].as_str()).collect();
    let is_whole = |pool: &&str| {
        let own: Vec<&Value> = slices.iter().filter(|slice| slice["spec"]["pool"]["name"] == **pool).collect();
        own.iter().all(|slice| slice["spec"]["pool"]["resourceSliceCount"] == own.len())
    };
    let count = |slice: &Value| slice["spec"]["devices"].as_array().map_or(0, Vec::len);
    (!pools.is_empty() && pools.iter().all(is_whole)).then(|| (slices.iter().map(count).sum(), slices.len()))
}

fn claims(report: &mut Report, state: &Path, on: &str) {
    let how = "claim read from an API server on the loopback interface, captured machine with 128 CPUs";
    let Some(mut rig) = Rig::large(state) else {
        return report.skipped("prepare through the API server", "captures are absent", how);
    };
    let api = Api::start();
    rig.configure(&api.configuration());
    rig.host.start();
    let mut plugin = rig.register();
    let read = reads(&api);
    let (mut prepare, mut unprepare, mut batch) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..WARM_UP + SINGLE {
        let claims = [api.claim(number)];
        prepare.push(rig.prepare(&mut plugin, &claims));
        unprepare.push(rig.unprepare(&mut plugin, &claims));
    }
    let (prepare, unprepare) = (Samples::new(prepare.split_off(WARM_UP)), Samples::new(unprepare.split_off(WARM_UP)));
    let added = prepare.median().saturating_sub(read.median());
    let limits = Limits::of_this_machine();
    let is_in_memory = state.starts_with(machine::memory());
    let own = if is_in_memory { limits.prepare_in_memory() } else { limits.prepare_on_disk() };
    let figure = format!("prepare of one claim, API read included, state on {on}");
    report.median_of_budget(&figure, own + limits.read(), &prepare, how);
    report.median("the bare read of a claim", &read, "the same server, a client of the same library");
    let figure = format!("of that beyond the read, p50, state on {on}");
    report.at_most(&figure, Amount::Time(millis(0.5)), Amount::Time(added), "", "difference of the two medians");
    report.median(&format!("unprepare of one claim, state on {on}"), &unprepare, how);
    for number in 0..BATCHES {
        let claims: Vec<Claim> = (0..BATCH).map(|claim| api.claim(10_000 + number * BATCH + claim)).collect();
        batch.push(rig.prepare(&mut plugin, &claims));
        rig.unprepare(&mut plugin, &claims);
    }
    let figure = format!("prepare of {BATCH} claims in one request, API reads included, state on {on}");
    report.median_at_most(&figure, millis(30.0), &Samples::new(batch), how);
    cpu_time(report, &rig, &api, &mut plugin, on);
    rig.host.kill();
}

/// Time that a client waits for a claim, on a connection that it has.
pub(crate) fn bare_read() -> Samples {
    reads(&Api::start())
}

/// What a client has to wait for a claim.
fn reads(api: &Api) -> Samples {
    let claim = api.claim(100_000);
    let resource = ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceClaim".to_owned(),
        plural: "resourceclaims".to_owned(),
    };
    let client = api.runtime.block_on(api.server.client("reader"));
    let claims: kube::Api<DynamicObject> = kube::Api::namespaced_with(client, "default", &resource);
    let read = |_| {
        let start = Instant::now();
        api.runtime.block_on(claims.get(&claim.name)).unwrap();
        start.elapsed()
    };
    Samples::new((0..WARM_UP + SINGLE).map(read).collect::<Vec<_>>().split_off(WARM_UP))
}

fn cpu_time(report: &mut Report, rig: &Rig, api: &Api, plugin: &mut KubeletPlugin, on: &str) {
    let all: Vec<Claim> = (0..CYCLES).map(|number| api.claim(20_000 + number)).collect();
    let before = cpu(rig.host.pid());
    for claim in all {
        let claims = [claim];
        rig.prepare(plugin, &claims);
        rig.unprepare(plugin, &claims);
    }
    let each = (cpu(rig.host.pid()) - before) / u32::try_from(CYCLES).unwrap();
    let how = format!("user and system time of the daemon over {CYCLES} claims, one at a time");
    let figure = format!("CPU time per prepare and unprepare, state on {on}");
    report.at_most(&figure, Amount::Time(millis(0.7)), Amount::Time(each), "", &how);
}

/// User and system time of a process.
pub(crate) fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // The kernel counts these in hundredths of a second on every architecture that matters.
    Duration::from_millis(ticks * 10)
}

fn starts(report: &mut Report) {
    let api = Api::start();
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let mut rig = Rig::here();
        rig.configure(&api.configuration());
        let start = Instant::now();
        rig.host.spawn();
        api.published(1);
        times.push(start.elapsed());
        rig.host.kill();
        for slice in api.server.list("resourceslices") {
            api.server.delete("resourceslices", slice["metadata"]["name"].as_str().unwrap());
        }
    }
    let how = "this machine, default backends; until the last slice of the last pool is stored";
    report.median_at_most("exec until the slices are visible, median", millis(250.0), &Samples::new(times), how);
}

/// A node with a thousand devices.
fn thousand(report: &mut Report) {
    let api = Api::start();
    let mut rig = Rig::here();
    let script = rig.host.path("thousand.toml");
    fs::write(&script, devices("healthy")).unwrap();
    let mut more = api.configuration();
    write!(more, "inventory.rescan = \"1s\"\nbackends.cpu.enabled = false\nbackends.memory.enabled = false\n").unwrap();
    write!(more, "backends.fake.enabled = true\nbackends.fake.script = {script:?}\n").unwrap();
    rig.configure(&more);
    rig.host.start();
    let (_, slices) = api.published(DEVICES);
    std::thread::sleep(Duration::from_secs(5));
    let memory = Memory::of(rig.host.pid());
    let detail = format!("anonymous {}, file {}", Amount::from(memory.anonymous), Amount::from(memory.file));
    let how = format!("`smaps_rollup` 5 s after {DEVICES} devices with six attributes each are published");
    let figure = "resident memory with 1,000 devices published";
    report.at_most(figure, Amount::Bytes(16_000_000), memory.rss.into(), &detail, &how);
    let figure = "anonymous memory with 1,000 devices published";
    report.at_most(figure, Amount::Bytes(3_000_000), memory.anonymous.into(), "", &how);
    let writes = || i64::try_from(api.server.writes("resourceslices")).unwrap();
    let before = writes();
    std::thread::sleep(STEADY);
    let how = "devices scanned every second for a minute, which is as often as in an hour by default";
    report.at_most("writes of slices in a steady state", Amount::Count(0), Amount::Count(writes() - before), "", how);
    let before = writes();
    flap(&api, &rig, &script);
    let how = format!("{DEVICES} devices in {slices} slices become unhealthy at once");
    let most = Amount::Count(i64::try_from(slices).unwrap());
    report.at_most("writes of slices when 1,000 devices fail", most, Amount::Count(writes() - before), "", &how);
    rig.host.kill();
}

/// Has all devices fail, and waits until every one of them is tainted.
fn flap(api: &Api, rig: &Rig, script: &Path) {
    let next = rig.host.path("thousand.next");
    fs::write(&next, devices("unhealthy")).unwrap();
    fs::rename(&next, script).unwrap();
    wait_for("all devices are tainted", || {
        let slices = api.server.list("resourceslices");
        let devices = slices.iter().filter_map(|slice| slice["spec"]["devices"].as_array()).flatten();
        (devices.filter(|device| device["taints"].is_array()).count() == DEVICES).then_some(())
    });
}

fn devices(health: &str) -> String {
    let reason = if health == "healthy" { "" } else { "reason = \"hot\"\n" };
    format!(
        "[[device]]\nname = \"card\"\ncount = {DEVICES}\nnuma_node = 0\npci_root = \"pci0000:16\"\nhealth = \"{health}\"\n\
         {reason}attributes = {{ model = \"x100\", slot = \"{{n}}\", cores = 64, ecc = true, \
         firmware = {{ version = \"1.2.3\" }} }}\n"
    )
}

fn millis(millis: f64) -> Duration {
    Duration::from_secs_f64(millis / 1e3)
}
