//! The real binary with hardware that hangs: work on other devices goes on.

use hostler_testing::{
    host::{Host, wait_for},
    node::{TestNode, named, uid},
};
use serde_json::{Value, json};

/// More than the threads that a process may block.
const CLAIMS: usize = 600;

/// Calls over one connection, as a server that is careful takes them.
const CALLS: usize = 50;

const HANGS: &str = "[[fault]]\nstep = \"prepare\"\ndevice = \"pool\"\ndelay_ms = 3600000\n";

/// A script with one device for all claims, beside the machine's own CPUs.
fn script(fault: &str) -> String {
    format!(
        "[[device]]\nname = \"pool\"\nsharing = \"shared\"\n\
         capacity.units = {{ value = 1000, min = 1, step = 1, default = 1 }}\n{fault}"
    )
}

fn of_backend<'a>(list: &'a Value, backend: &str) -> impl Iterator<Item = &'a Value> {
    list.as_array().unwrap().iter().filter(move |device| device["backend"] == backend)
}

fn busy(node: &TestNode) -> usize {
    node.get("/v1/claims").as_array().unwrap().iter().filter(|claim| !claim["busy"].is_null()).count()
}

#[test]
fn six_hundred_prepares_that_hang_in_one_backend_hold_up_no_other() {
    let mut node = TestNode::new(Host::with(&script(HANGS), "[backends.cpu]\nfull_cores = false\n"));
    node.begin();
    let names: Vec<String> = (0..CLAIMS).map(|index| format!("hangs-{index}")).collect();
    for name in &names {
        node.manifest(name, &uid(name), &[("part", "fake", "pool", json!({"units": 1}))]);
    }
    let devices = node.get("/v1/devices");
    let cpus = of_backend(&devices, "cpu").next().unwrap()["name"].as_str().unwrap().to_owned();
    node.manifest("healthy", &uid("healthy"), &[("part", "cpu", &cpus, json!({"cpus": 1}))]);
    let mut calls = Vec::new();
    for names in names.chunks(CALLS) {
        let plugin = node.connected();
        for name in names {
            let (mut plugin, claim) = (plugin.clone(), named(name));
            calls.push(node.spawn(async move { plugin.prepare(&[claim]).await }));
        }
    }
    wait_for("all claims", || (busy(&node) == CLAIMS).then_some(()));
    for _ in 0..3 {
        assert_eq!(node.prepare("healthy").len(), 1);
        node.unprepare("healthy");
    }
    assert!(node.run_ok(&["status"]).contains("fake"), "people are answered");
    wait_for("the warning", || node.log().contains("all threads of the backend are at work").then_some(()));
    assert_eq!(busy(&node), CLAIMS);

    node.script(&script(""));
    for (call, name) in calls.into_iter().zip(&names) {
        let mut answers = node.block_on(call).unwrap().unwrap();
        assert_eq!(answers.remove(&uid(name)).unwrap().unwrap().len(), 1, "{name}");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(node.call_unprepare(&names).unwrap().values().all(Result::is_ok));
    assert_eq!(node.all_traces(), [""; 0]);
    assert!(node.stop().success());
}

#[test]
fn a_claim_of_a_call_that_hangs_in_another_backend_is_ready_for_the_next_call() {
    let mut node = TestNode::new(Host::with(&script(HANGS), "[backends.cpu]\nfull_cores = false\n"));
    node.begin();
    let devices = node.get("/v1/devices");
    let cpus = of_backend(&devices, "cpu").next().unwrap()["name"].as_str().unwrap().to_owned();
    node.manifest("hangs", &uid("hangs"), &[("part", "fake", "pool", json!({"units": 1}))]);
    node.manifest("healthy", &uid("healthy"), &[("part", "cpu", &cpus, json!({"cpus": 1}))]);
    let mut plugin = node.connected();
    let call = node.spawn(async move { plugin.prepare(&["hangs", "healthy"].map(named)).await });
    wait_for("the claim that does not hang", || (node.state("healthy").as_deref() == Some("prepared")).then_some(()));
    assert_eq!(node.prepare("healthy").len(), 1, "nor does a call for it alone");
    assert_eq!(node.state("hangs").as_deref(), Some("preparing"));
    node.script(&script(""));
    assert!(node.block_on(call).unwrap().unwrap().values().all(Result::is_ok));
    assert!(node.stop().success());
}
