//! How long it takes to keep devices for many at once: `cargo run --release -p hostler-controller --example reservations`.
//!
//! Starts the released binary (`HOSTLER_CONTROLLER_BIN`, or the one beside this program) against an API server of its own on the
//! loopback interface, with nodes whose daemons close devices as soon as they are told. Asks for 1,000 Reservations at once, each
//! of one device, on 100 nodes with just as many, and then on 5,000 nodes of 100 devices each; and for 10,000 where eight can be kept.
//! Prints one line per figure, with what it should be.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a program for developers"
)]

use std::{
    collections::BTreeSet,
    env, fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView},
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};

const DRIVER: &str = "hostler.dev";
const HARDWARE: &str = "nodehardware";
const USER: &str = "system:serviceaccount:hostler-controller:hostler-controller";
const RESERVATIONS: usize = 1_000;
/// Far more than there are devices for.
const CROWD: usize = 10_000;
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(20);
/// Far more than the figure: who does not come to an end is not waited for for ever.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long everybody is left alone before writes are counted once more.
const REST: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() {
    // Other numbers of nodes, devices on each, and Reservations are for those who look where the time goes.
    let asked: Vec<usize> = env::args().skip(1).map(|number| number.parse().unwrap()).collect();
    if let [nodes, devices, reservations] = asked[..] {
        return measure(nodes, devices, reservations).await;
    }
    measure(100, 10, RESERVATIONS).await;
    measure(5_000, 100, RESERVATIONS).await;
    measure(2, 4, CROWD).await;
}

/// Of `asked` Reservations as many are kept as there are devices.
async fn measure(nodes: usize, devices: usize, asked: usize) {
    let kept = asked.min(nodes * devices);
    let server = Arc::new(server().await);
    (0..nodes).for_each(|at| node(&server, &format!("node-{at:04}"), devices));
    let daemons = tokio::spawn(run_daemons(server.clone()));
    let start = Instant::now();
    let controller = RunningController::start(&options(&server)).await;
    controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1").await;
    report(&format!("{nodes} nodes × {devices} devices: known to the controller"), seconds(start.elapsed()), "");
    let start = Instant::now();
    (0..asked).for_each(|at| reserve(&server, at));
    until(&server, start, kept, "chosen", |status| !status["devices"].is_null()).await;
    let chosen = start.elapsed();
    until(&server, start, kept, "Available", |status| status["phase"] == "Available").await;
    report(&format!("  {asked} Reservations: devices of {kept} chosen"), seconds(chosen), "");
    report("  these Available", seconds(start.elapsed()), "≤ 60 s");
    until(&server, start, asked, "told", |status| status["phase"].is_string()).await;
    report("  all told", seconds(start.elapsed()), "");
    let writes = || server.writes("reservations") + server.writes("reservations/status");
    let (of_reservations, of_nodes) = (writes(), server.writes(HARDWARE));
    report("  writes of Reservations", of_reservations, "≤ 5 each");
    report("  writes of NodeHardware", of_nodes, "");
    tokio::time::sleep(REST).await;
    report(
        "  more of both, with a rest of ten seconds",
        writes() + server.writes(HARDWARE) - of_reservations - of_nodes,
        "0",
    );
    assert!(server.look(|view| are_kept_once(view, kept)), "a device is kept twice");
    controller.stop().await;
    daemons.abort();
}

/// Waits until so many Reservations are so.
async fn until(server: &ApiServer, start: Instant, expected: usize, what: &str, is_so: impl Fn(&Value) -> bool) {
    loop {
        let reservations = server.list("reservations");
        let count = reservations.iter().filter(|object| is_so(&object["status"])).count();
        if count == expected {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "only {count} are {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// True if so many devices are named by Reservations, and no two name one.
fn are_kept_once(view: &ApiServerView<'_>, kept: usize) -> bool {
    let all = view.list("reservations");
    let devices = all.iter().flat_map(|object| object["status"]["devices"].as_array().into_iter().flatten());
    let mut names: Vec<String> = devices.map(|device| format!("{}/{}", device["pool"], device["device"])).collect();
    names.sort();
    let all = names.len();
    names.dedup();
    all == kept && names.len() == all
}

async fn server() -> ApiServer {
    let release = ApiServerRelease::V1_36;
    let server = ApiServer::start(ApiServerOptions { release, ..ApiServerOptions::default() }).await;
    server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostler-controller" } }));
    for file in ["nodehardware.yaml", "clusterhardware.yaml", "reservations.yaml"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
        server.create_yaml(&fs::read_to_string(folder.join(file)).unwrap());
    }
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "card" },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == \"{DRIVER}\"") } }] },
    }));
    server
}

fn node(server: &ApiServer, name: &str, devices: usize) {
    server.create(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }], "allocatable": { "pods": "110" } },
    }));
    server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": { "name": name },
        "spec": { "nodeName": name },
    }));
    // A slice with taints has room for 64 devices.
    let slices = devices.div_ceil(50);
    for slice in 0..slices {
        let here = (slice * 50..devices.min(slice * 50 + 50)).map(|at| json!({ "name": format!("card-{at}") }));
        server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": { "name": format!("{name}-{slice}") },
            "spec": {
                "driver": DRIVER, "nodeName": name, "devices": here.collect::<Vec<_>>(),
                "pool": { "name": name, "generation": 1, "resourceSliceCount": slices },
            },
        }));
    }
}

fn reserve(server: &ApiServer, at: usize) {
    let request = json!({ "name": "card", "exactly": { "deviceClassName": "card" } });
    server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": { "name": format!("r-{at:04}") },
        "spec": {
            "deviceClaims": [{ "name": "c", "spec": { "devices": { "requests": [request] } } }],
            "owners": [{ "object": { "namespace": "default", "name": format!("pod-{at}") } }],
        },
    }));
}

/// What daemons do: their slices say what NodeHardware says. Each looks at its own only.
async fn run_daemons(server: Arc<ApiServer>) {
    let mut heard = 0;
    loop {
        let told: BTreeSet<String> = server.look(|view| {
            let news = &view.log()[heard..];
            heard += news.len();
            let written = news.iter().filter(|call| call.verb == "patch" && call.resource == HARDWARE);
            written.filter_map(|call| call.name.clone()).collect()
        });
        for node in &told {
            publish(&server, &server.get(HARDWARE, node).unwrap());
        }
        if told.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn publish(server: &ApiServer, told: &Value) {
    let node = told["metadata"]["name"].as_str().unwrap();
    let holds = told["spec"]["holds"].as_array().map_or(&[][..], Vec::as_slice);
    let mut names: Vec<usize> = holds.iter().map(|hold| number(hold["device"].as_str().unwrap()) / 50).collect();
    names.dedup();
    for at in names {
        let mut slice = server.get("resourceslices", &format!("{node}-{at}")).unwrap();
        let before = slice.clone();
        for device in slice["spec"]["devices"].as_array_mut().unwrap() {
            let hold = holds.iter().find(|hold| hold["device"] == device["name"]);
            let taint =
                hold.map(|hold| json!({ "key": "hostler.dev/held", "value": hold["value"], "effect": "NoSchedule" }));
            device["taints"] = taint.into_iter().collect();
        }
        if slice["spec"] != before["spec"] {
            server.update(slice);
        }
    }
}

fn number(device: &str) -> usize {
    device.trim_start_matches("card-").parse().unwrap()
}

fn options(server: &ApiServer) -> ControllerOptions {
    ControllerOptions::as_deployed(server.kubeconfig(USER), "[capabilities]\nreservations = \"on\"\n")
}

fn report(what: &str, found: impl std::fmt::Display, wanted: &str) {
    println!("{what:<72} {found:>16}   {wanted}");
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
