//! `make demo`: the life of a claim on this machine, with a kubelet's part played over the real sockets.
//!
//! The daemon is the real binary on this machine's real hardware; all its files are below a temporary folder. The
//! container at the end is a real one, where root and runc are there.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a demonstration runs programs, talks, and fails by panicking"
)]

mod say;

use std::{fs, path::Path, process::Command};

use hostler_proto::dra_v1::Device;
use hostler_testing::{
    binary::binary,
    container::{Container, containers_work_here},
    host::Host,
    kubelet::{self, Kubelet, KubeletPlugin, KubeletRelease},
};
use serde_json::{Value, json};

use say::step;

const UID: &str = "5f0c1d3e-demo";
const NAME: &str = "train";

/// A card that is not there, on the NUMA node of the first CPUs that are.
const CARD: &str = "[[device]]\nname = \"card0\"\nnuma_node = 0\nattributes = { model = \"demo\" }\nedits = { env = [\"DEMO_CARD=card0\"] }\n";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut host = Host::new(CARD);
    step("The daemon starts on this machine's hardware");
    host.start();
    println!("{}", host.run_ok(&["inventory"]));
    println!("{}", host.run_ok(&["inventory", "-o", "tree"]));

    step("A claim for CPUs and memory of one NUMA node and a card, as a ResourceClaim manifest");
    println!("default/{NAME}: {}\n", write_claim(&host));

    step("A kubelet finds the socket and registers the driver");
    let mut plugin = Kubelet::new(host.path("kubelet"), KubeletRelease::V1_36).register().await.unwrap();
    println!("{} serves {}\n", plugin.info.name, plugin.info.supported_versions.join(", "));

    step("NodePrepareResources, twice: the same answer");
    let devices = prepare(&mut plugin).await;
    assert_eq!(prepare(&mut plugin).await, devices, "a repeated prepare gives the same devices");
    for device in &devices {
        println!(
            "{:8} {}/{}  {}",
            device.request_names.join(","),
            device.pool_name,
            device.device_name,
            device.cdi_device_ids.join(" ")
        );
    }
    println!();

    step("The health stream");
    let mut health = plugin.health().await.unwrap();
    for report in health.next().await.unwrap().expect("a snapshot comes at once") {
        let device = report.device.clone().unwrap_or_default();
        println!("{}/{}  {:?}", device.pool_name, device.device_name, report.health());
    }
    println!();

    step("The claim's CDI file");
    let file = host.files("cdi").pop().expect("the claim has a CDI file");
    println!("{file}\n{}", fs::read_to_string(host.path("cdi").join(&file)).unwrap());
    let checked = Command::new(binary()).args(["cdi", "validate"]).arg(host.path("cdi").join(&file)).output().unwrap();
    assert!(checked.status.success(), "the file is valid");
    println!("{}", String::from_utf8_lossy(&checked.stdout));

    step("A container that uses the claim");
    let container = run_container(&host.path("cdi").join(&file));
    println!("{container}\n");

    step("NodeUnprepareResources: the claim is taken back");
    let answers = plugin.unprepare(&[kubelet::claim("default", NAME, UID)]).await.unwrap();
    answers[UID].as_ref().expect("the claim is taken back");
    for folder in ["cdi", "state/claims", "hardware"] {
        assert!(host.files(folder).is_empty(), "{folder} is clean");
    }
    println!("{}", host.run_ok(&["status"]));
    // A kubelet hangs up when the driver says good-bye; this one has to be off the line for that.
    drop((plugin, health));
    let ended = tokio::task::spawn_blocking(move || host.stop()).await.unwrap();
    assert!(ended.success(), "the daemon ends well");
    println!("demo: all steps passed; {container}");
}

/// Writes the manifest; what it asks for is what this machine has.
fn write_claim(host: &Host) -> String {
    let inventory = host.get("/v1/inventory");
    let find = |backend: &str| -> Value {
        let devices = inventory["devices"].as_array().unwrap();
        devices.iter().find(|device| device["backend"] == backend).expect("this machine has CPUs and memory").clone()
    };
    let (cpu, memory) = (find("cpu"), find("memory"));
    let name = |device: &Value| device["name"].as_str().unwrap().to_owned();
    let (cpu_name, memory_name) = (name(&cpu), name(&memory));
    // The least that can be asked for: the threads of one core.
    let cpus = cpu["capacity"]["cpus"]["policy"]["min"].as_str().unwrap().to_owned();
    let bytes = "64Mi";
    host.manifest(
        NAME,
        UID,
        &[
            ("cpus", "cpu", &cpu_name, json!({ "cpus": cpus })),
            ("memory", "memory", &memory_name, json!({ "memory": bytes })),
            ("card", "fake", "card0", Value::Null),
        ],
    );
    format!("{cpus} CPU(s) of {cpu_name}, {bytes} of {memory_name}, card0")
}

async fn prepare(plugin: &mut KubeletPlugin) -> Vec<Device> {
    let answers = plugin.prepare(&[kubelet::claim("default", NAME, UID)]).await.unwrap();
    answers[UID].clone().unwrap_or_else(|error| panic!("prepare failed: {error}"))
}

/// Runs a container with all devices of the claim's file, and says what became of it.
fn run_container(file: &Path) -> String {
    if !containers_work_here() {
        return "no container was run: that needs root and runc (see the line above)".to_owned();
    }
    let said = Container::new().edit(|container| apply(file, container)).run();
    let variable = |name: &str| said.env.get(name).cloned().unwrap_or_default();
    println!("in the container, /proc/self/status says CPUs {}, memory nodes {}", said.cpus, said.mems);
    for name in ["HOSTLER_CPUS", "HOSTLER_MEMS", "DEMO_CARD"] {
        println!("{name}={}", variable(name));
    }
    assert_eq!(said.cpus.to_string(), variable("HOSTLER_CPUS"), "the container runs on the claim's CPUs alone");
    assert_eq!(said.mems.to_string(), variable("HOSTLER_MEMS"), "the container uses the claim's memory node alone");
    format!("a real container ran on CPUs {} and memory nodes {} alone", said.cpus, said.mems)
}

/// Changes a container as a CDI file says. A runtime has a library for that, which the tests use; here the file has
/// variables and hooks alone, and reading it takes less than compiling that.
fn apply(file: &Path, container: &mut Value) {
    let file: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let devices = file["devices"].as_array().unwrap().iter().map(|device| &device["containerEdits"]);
    for edits in [&file["containerEdits"]].into_iter().chain(devices).filter_map(Value::as_object) {
        for (kind, edits) in edits {
            let edits = edits.as_array().unwrap().iter().cloned();
            match kind.as_str() {
                "env" => container["process"]["env"].as_array_mut().unwrap().extend(edits),
                "hooks" => edits.for_each(|hook| add_hook(container, hook)),
                other => panic!("{other} of a CDI file is not for this demonstration"),
            }
        }
    }
}

fn add_hook(container: &mut Value, mut hook: Value) {
    let moment = hook.as_object_mut().unwrap().remove("hookName").unwrap();
    let hooks = &mut container["hooks"][moment.as_str().unwrap()];
    match hooks.as_array_mut() {
        Some(hooks) => hooks.push(hook),
        None => *hooks = json!([hook]),
    }
}
