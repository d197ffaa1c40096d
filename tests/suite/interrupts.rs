//! The real binary keeps interrupts off the CPUs of claims on a made-up machine, is killed at every step of that, twice
//! and with a reboot between, and puts everything back.
use std::{collections::BTreeMap, fs};

use hostler_fake::KILL_EXIT_CODE;
use hostler_testing::{
    host::{Host, SCRIPT, wait_for},
    node::{TestNode, kill_at, uid},
};
use serde_json::json;

/// CPUs of the machine's interrupt lines before a claim changes them.
const LINES: [(&str, &str); 3] = [("24", "0-7"), ("25", "0-3"), ("26", "6")];

fn write(node: &TestNode, path: &str, text: &str) {
    let path = node.path("machine").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Writes `/proc/irq` as after a boot.
fn fresh_interrupts(node: &TestNode) {
    write(node, "proc/irq/default_smp_affinity", "ff");
    for (irq, cpus) in LINES {
        write(node, &format!("proc/irq/{irq}/smp_affinity_list"), cpus);
    }
}

/// One NUMA node of eight CPUs, each a core, and three interrupt lines. Nothing is started.
fn machine() -> TestNode {
    let node = TestNode::new(Host::made_up(SCRIPT));
    for list in ["possible", "present", "online"] {
        write(&node, &format!("sys/devices/system/cpu/{list}"), "0-7");
    }
    write(&node, "sys/devices/system/node/online", "0");
    write(&node, "sys/devices/system/node/node0/cpulist", "0-7");
    for cpu in 0..8 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        let own = cpu.to_string();
        for (file, text) in [
            ("physical_package_id", "0"),
            ("core_id", &own),
            ("core_siblings_list", "0-7"),
            ("thread_siblings_list", &own),
        ] {
            write(&node, &format!("{folder}/{file}"), text);
        }
    }
    fresh_interrupts(&node);
    node
}

/// Gives a claim two CPUs without interrupts, between two cards at whose steps the daemon can be killed.
fn allocate(node: &TestNode, name: &str, cards: [&str; 2]) {
    let result = |request: &str, pool: &str, device: &str| json!({"request": request, "driver": "hostler.dev", "pool": format!("node/{pool}"), "device": device});
    let mut cpus = result("cpus", "cpu", "numa0");
    cpus["shareID"] = json!(format!("{name}-share"));
    cpus["consumedCapacity"] = json!({"cpus": "2"});
    let parameters = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig", "irqs": "avoid"});
    let manifest = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": uid(name)},
        "status": {"allocation": {"devices": {
            "results": [result("first", "fake", cards[0]), cpus, result("last", "fake", cards[1])],
            "config": [{"source": "FromClaim", "requests": ["cpus"], "opaque": {"driver": "hostler.dev", "parameters": parameters}}],
        }}},
    });
    fs::create_dir_all(node.path("manifests")).unwrap();
    fs::write(node.path(&format!("manifests/default_{name}.json")), manifest.to_string()).unwrap();
}

fn interrupts(node: &TestNode) -> BTreeMap<String, String> {
    let text = |path: String| fs::read_to_string(node.path("machine/proc/irq").join(path)).unwrap().trim().to_owned();
    let lines = LINES.iter().map(|(irq, _)| ((*irq).to_owned(), text(format!("{irq}/smp_affinity_list"))));
    lines.chain([("default".to_owned(), text("default_smp_affinity".to_owned()))]).collect()
}

fn lines(of: [&str; 4]) -> BTreeMap<String, String> {
    ["default", "24", "25", "26"].iter().zip(of).map(|(line, cpus)| ((*line).to_owned(), cpus.to_owned())).collect()
}

fn killed(node: &mut TestNode) {
    assert_eq!(node.wait().code(), Some(KILL_EXIT_CODE));
    node.script(SCRIPT);
}

/// Checks that all interrupts are as before; masks are as wide as they are written.
fn assert_original(node: &TestNode, case: &str) {
    let default = interrupts(node)["default"].clone();
    assert_eq!(u32::from_str_radix(&default, 16), Ok(0xff), "{case}");
    assert_eq!(interrupts(node), lines([&default, "0-7", "0-3", "6"]), "{case}");
    assert!(!node.path("state/irqs.json").exists(), "{case}");
}

#[test]
fn interrupts_leave_the_cpus_of_claims_and_come_back_in_any_order() {
    let mut node = machine();
    node.begin();
    allocate(&node, "a", ["card-0", "card-1"]);
    allocate(&node, "b", ["card-2", "card-3"]);
    node.prepare("a");
    assert_eq!(interrupts(&node), lines(["000000fc", "2-7", "2-3", "6"]));
    node.prepare("b");
    assert_eq!(interrupts(&node), lines(["000000f0", "4-7", "4-7", "6"]));
    node.unprepare("a");
    assert_eq!(interrupts(&node), lines(["000000f3", "0-1,4-7", "0-1", "6"]));
    node.unprepare("b");
    assert_original(&node, "both are gone");
    assert!(node.stop().success());
}

#[test]
fn a_line_that_stays_is_told_where_people_look_at_the_claim() {
    let mut node = machine();
    // A line that names only CPUs that are offline has none left once the claim's CPUs are kept free.
    write(&node, "sys/devices/system/cpu/online", "0-1");
    node.begin();
    allocate(&node, "a", ["card-0", "card-1"]);
    node.prepare("a");
    let reason = "no running CPU is left for it: claims keep interrupts off all others";
    for text in [
        node.run_ok(&["claim", "show", "a"]),
        node.run_ok(&["explain", "claim", "a"]),
        node.get(&format!("/v1/claims/{}", uid("a")))["devices"].to_string(),
    ] {
        assert!(text.contains(reason), "{text}");
    }
    node.unprepare("a");
    assert_original(&node, "nothing was moved");
}

#[test]
fn a_daemon_that_is_killed_at_any_two_steps_puts_every_interrupt_back() {
    // The CPUs come between the two cards.
    let prepares = [
        ("prepare", "before", "c0"),
        ("prepare", "after", "c0"),
        ("prepare", "before", "c1"),
        ("verify", "after", "c1"),
    ];
    for (step, at, card) in prepares {
        for reboots in [false, true] {
            let case = format!("killed {at} {step} of {card}, reboot: {reboots}");
            let card = if card == "c0" { "card-2" } else { "card-3" };
            let mut node = machine();
            node.begin();
            allocate(&node, "a", ["card-0", "card-1"]);
            allocate(&node, "b", ["card-2", "card-3"]);
            node.prepare("a");
            node.script(&kill_at(step, at, card));
            node.call_prepare(&["b"]).expect_err(&case);
            killed(&mut node);
            if reboots {
                for folder in ["cdi", "hardware"] {
                    fs::remove_dir_all(node.path(folder)).unwrap();
                }
                fresh_interrupts(&node);
                node.boot("00000000-0000-4000-8000-000000000002");
            }
            // Once more, while the start takes back a half-done claim.
            node.script(&kill_at("unprepare", "before", card));
            Host::spawn(&mut node);
            killed(&mut node);
            node.begin();
            wait_for("claim a", || (node.state("a").as_deref() == Some("prepared")).then_some(()));
            assert!(node.traces("b").is_gone(), "{case}");
            assert_eq!(interrupts(&node), lines(["000000fc", "2-7", "2-3", "6"]), "{case}");
            // And at the step of an unprepare behind which interrupts are back already.
            node.script(&kill_at("unprepare", "before", "card-0"));
            node.call_unprepare(&["a"]).expect_err(&case);
            killed(&mut node);
            node.begin();
            assert_eq!(interrupts(&node), lines(["000000fc", "2-7", "2-3", "6"]), "{case}: the claim is whole again");
            node.prepare("b");
            node.unprepare("a");
            node.unprepare("b");
            assert_original(&node, &case);
        }
    }
}
