//! Hot-plug, from the kernel's socket to what the daemon says: the real binary in a user and a network namespace of our
//! own, its machine a captured one that is exchanged under it, its uevents those that the real machine sent.
//!
//! Has a `main` of its own because a user namespace can be entered by a process with one thread only, and the test
//! harness has more. Words on the command line choose tests.

#![allow(clippy::panic, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used, reason = "this is a test")]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use hostler_linux::archive::UnpackedCapture;
use hostler_proto::health_v1::HealthStatus;
use hostler_testing::{
    binary::binary,
    host::{Host, wait_for},
    kubelet::{Kubelet, KubeletRelease, claim},
    uevents::{UeventDatagram, UeventInjector, enter_namespaces, recorded},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

type Test = (&'static str, fn());

const TESTS: [Test; 8] = [
    ("a_recorded_run_gives_the_inventory_of_each_of_its_moments", || replay(<[UeventDatagram]>::to_vec)),
    ("doubled_events_change_nothing", || {
        replay(|events| events.iter().flat_map(|it| [it.clone(), it.clone()]).collect())
    }),
    ("reordered_events_change_nothing", || replay(|events| events.iter().rev().cloned().collect())),
    ("events_that_are_lost_in_a_storm_are_made_up_for", lost_in_a_storm),
    ("a_change_without_an_event_is_found_by_the_timed_scan", without_an_event),
    ("events_that_concern_no_backend_ask_for_nothing", of_no_concern),
    ("a_removed_device_that_is_held_turns_unhealthy_until_it_is_back", removed_while_held),
    ("a_daemon_that_shall_not_listen_hears_nothing", not_listening),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    if let Err(error) = enter_namespaces() {
        eprintln!("skipped: this machine does not allow user namespaces ({error})");
        return;
    }
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    for (name, test) in TESTS {
        if words.is_empty() || words.iter().any(|word| name.contains(*word)) {
            test();
            println!("test {name} ... ok");
        }
    }
}

/// A tree, when its events begin (seconds of the log), and its CXL devices with what cards are used for.
type Moment = (&'static str, f64, &'static [(&'static str, &'static str)]);

/// The moments of the recorded run.
const MOMENTS: [Moment; 4] = [
    ("boot", 0.0, &UNUSED),
    ("regions", 9.0, &USED),
    ("hotadd", 14.0, &[USED[0], USED[1], USED[2], USED[3], ("memory-4001", "none"), ("node5", ""), ("node6", "")]),
    ("removed", 27.0, &UNUSED),
];

const UNUSED: [(&str, &str); 4] =
    [("memory-1001", "none"), ("memory-2001", "none"), ("memory-2002", "none"), ("memory-3001", "none")];
const USED: [(&str, &str); 6] = [
    ("memory-1001", "systemRam"),
    ("memory-2001", "persistent"),
    ("memory-2002", "systemRam"),
    ("memory-3001", "systemRam"),
    ("node5", ""),
    ("node6", ""),
];

/// What else is there at every moment.
const ALWAYS: [&str; 11] = [
    "cpu/numa0",
    "cpu/numa1",
    "cpu/numa2",
    "memory/node0",
    "memory/node0-hugepages-2mi",
    "memory/node1",
    "memory/node1-hugepages-2mi",
    "memory/node2",
    "memory/node2-hugepages-2mi",
    "memory/node3",
    "memory/node3-hugepages-2mi",
];

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("backends/linux/tests/trees")
}

/// A captured machine, made fit for a daemon.
fn tree(moment: &str) -> UnpackedCapture {
    let tree = UnpackedCapture::open(captures().join(format!("qemu-cxl-7.3.4-{moment}.tar.zst"))).unwrap();
    let boot_id = tree.root().path("proc/sys/kernel/random/boot_id");
    fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
    fs::write(boot_id, "7d3f1a52-9f1e-4c55-8a51-3c1c4f6f0a11\n").unwrap();
    tree
}

/// The machine after boot, before the modules that the recorded run begins with were loaded.
fn tree_before() -> UnpackedCapture {
    let tree = tree("boot");
    for bus in ["cxl", "dax"] {
        fs::remove_dir_all(tree.root().path(format!("sys/bus/{bus}"))).unwrap();
    }
    tree
}

/// A host whose daemon sees one captured machine now and another one later.
struct Exchange {
    host: Host,
    injector: UeventInjector,
}

impl Exchange {
    /// The daemon looks unasked after an hour, unless `more` says otherwise.
    fn new(first: &UnpackedCapture, more: &str) -> Self {
        let host = Host::new("");
        let root = host.path("");
        let root = root.display();
        let config = format!(
            "node_name = \"node\"\nhook = \"{hook}\"\n\
             [paths]\nstate = \"{root}state\"\nrun = \"{root}run\"\ncdi = \"{root}cdi\"\nkubelet = \"{root}kubelet\"\n\
             root = \"{root}now\"\n[cluster]\nmanifests = \"{root}manifests\"\n\
             [log]\nlevel = \"info,hostler::inventory=debug\"\n{more}",
            hook = binary().display(),
        );
        fs::write(host.path("hostler.toml"), config).unwrap();
        let mut exchange = Self { host, injector: UeventInjector::new() };
        exchange.show(first);
        exchange.host.start();
        exchange
    }

    /// Makes the daemon's machine another one, in one step.
    fn show(&self, tree: &UnpackedCapture) {
        symlink(tree.root().path(""), self.host.path("next")).unwrap();
        fs::rename(self.host.path("next"), self.host.path("now")).unwrap();
    }

    fn devices(&self) -> Value {
        self.host.get("/v1/inventory")["devices"].take()
    }

    fn wait_for_devices(&self, moment: &str, expected: &Value) {
        wait_for(&format!("the devices of {moment}"), || (self.devices() == *expected).then_some(()));
    }

    /// What the command line finds in a tree.
    fn found_in(&self, tree: &UnpackedCapture) -> Value {
        let root = tree.root().path("");
        let text = self.host.run_ok(&["inventory", "-o", "json", "--root", root.to_str().unwrap()]);
        serde_json::from_str::<Value>(&text).unwrap()["devices"].take()
    }
}

const LISTENING: &str = "[inventory]\nuevents = \"kernel\"\nrescan = \"1h\"\n";

/// Names and uses.
fn outline(devices: &Value) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |device: &Value| format!("{}/{}", text(&device["backend"]), text(&device["name"]));
    let devices = devices.as_array().unwrap().iter();
    devices.map(|device| (name(device), text(&device["attributes"]["use"]))).collect()
}

/// The events of the recorded run from the beginning of a moment to that of the next.
fn events_of(moment: usize) -> Vec<UeventDatagram> {
    let (from, to) = (MOMENTS[moment].1, MOMENTS.get(moment + 1).map_or(f64::INFINITY, |next| next.1));
    let events = recorded(&captures().join("qemu-cxl-7.3.4.uevents.log"));
    events.into_iter().filter(|event| (from..to).contains(&event.at)).map(|event| event.datagram).collect()
}

fn replay(change: fn(&[UeventDatagram]) -> Vec<UeventDatagram>) {
    let before = tree_before();
    let exchange = Exchange::new(&before, LISTENING);
    assert_eq!(exchange.devices(), exchange.found_in(&before));
    for (at, (moment, _, cxl)) in MOMENTS.into_iter().enumerate() {
        let tree = tree(moment);
        let expected = exchange.found_in(&tree);
        let always = ALWAYS.iter().map(|name| ((*name).to_owned(), String::new()));
        let cxl = cxl.iter().map(|(name, used)| (format!("cxl/{name}"), (*used).to_owned()));
        assert_eq!(outline(&expected), always.chain(cxl).collect(), "{moment}");
        exchange.show(&tree);
        exchange.injector.send_all(&change(&events_of(at)));
        exchange.wait_for_devices(moment, &expected);
        // Events asked for all that is needed: looking at everything finds nothing more.
        exchange.host.request("POST", "/v1/rescan", "");
        assert_eq!(exchange.devices(), expected, "{moment}");
    }
}

fn lost_in_a_storm() {
    let (boot, regions) = (tree("boot"), tree("regions"));
    let exchange = Exchange::new(&boot, LISTENING);
    // A daemon that gets no time while more comes in than its buffer holds.
    exchange.host.signal(Signal::SIGSTOP);
    let noise = UeventDatagram::new("add", "/devices/virtual/net/veth0", "net");
    exchange.injector.send_all(std::iter::repeat_n(&noise, 60_000));
    exchange.show(&regions);
    exchange.injector.send_all(&events_of(1));
    exchange.host.signal(Signal::SIGCONT);
    exchange.wait_for_devices("regions", &exchange.found_in(&regions));
    assert!(exchange.host.log().contains("rescan=All"), "something was lost");
}

fn without_an_event() {
    let (boot, regions) = (tree("boot"), tree("regions"));
    let exchange = Exchange::new(&boot, "[inventory]\nuevents = \"kernel\"\nrescan = \"1s\"\n");
    exchange.show(&regions);
    exchange.wait_for_devices("regions", &exchange.found_in(&regions));
}

fn of_no_concern() {
    let boot = tree("boot");
    let exchange = Exchange::new(&boot, LISTENING);
    exchange.injector.send(&UeventDatagram::new("remove", "/devices/virtual/net/veth0", "net"));
    exchange.injector.send(&UeventDatagram::new("add", "/devices/platform/serial8250", "platform"));
    exchange.injector.send(&UeventDatagram::new("online", "/devices/system/cpu/cpu1", "cpu"));
    let asked = || -> Vec<String> {
        let log = exchange.host.log();
        log.lines().filter_map(|line| Some(line.split_once("uevents ask for a rescan ")?.1.to_owned())).collect()
    };
    wait_for("the event that counts", || asked().iter().any(|line| line.contains("cpu")).then_some(()));
    assert_eq!(asked(), ["rescan=Subsystems({\"cpu\"})"]);
}

fn removed_while_held() {
    let boot = tree("boot");
    let mut exchange = Exchange::new(&boot, &format!("{LISTENING}[backends.cpu]\nmode = \"core\"\n"));
    let cpus = |path: &str| boot.root().path(format!("sys/devices/system/cpu/{path}"));
    exchange.host.manifest("held", "5f0c6a1e-0000-4000-8000-000000000001", &[("core", "cpu", "core-2-0", json!(null))]);
    let claim = claim("default", "held", "5f0c6a1e-0000-4000-8000-000000000001");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let online = fs::read_to_string(cpus("online")).unwrap();
    runtime.block_on(async {
        let mut plugin = Kubelet::new(exchange.host.path("kubelet"), KubeletRelease::V1_37).register().await.unwrap();
        assert!(plugin.prepare(std::slice::from_ref(&claim)).await.unwrap().values().all(Result::is_ok));
        let mut reports = plugin.health().await.unwrap();
        reports.wait_for("node/cpu", "core-2-0", HealthStatus::Healthy).await.unwrap();
        fs::write(cpus("online"), "0-3\n").unwrap();
        for cpu in ["cpu4", "cpu5"] {
            fs::rename(cpus(&format!("{cpu}/topology")), cpus(&format!("{cpu}/gone"))).unwrap();
            exchange.injector.send(&UeventDatagram::new("offline", &format!("/devices/system/cpu/{cpu}"), "cpu"));
        }
        reports.wait_for("node/cpu", "core-2-0", HealthStatus::Unhealthy).await.unwrap();
        let (_, message) = reports.of("node/cpu", "core-2-0").unwrap();
        assert!(message.starts_with("removed from this host while held by claim 5f0c6a1e"), "{message}");
        let device = |name: &str| {
            let devices = exchange.host.get("/v1/devices");
            devices.as_array().unwrap().iter().find(|device| device["name"] == name).cloned().unwrap()
        };
        assert_eq!(device("core-2-0")["health"], "Absent");
        assert_eq!(device("core-2-0")["holders"], json!(["default/held"]));
        for cpu in ["cpu4", "cpu5"] {
            fs::rename(cpus(&format!("{cpu}/gone")), cpus(&format!("{cpu}/topology"))).unwrap();
        }
        fs::write(cpus("online"), online).unwrap();
        exchange.injector.send(&UeventDatagram::new("online", "/devices/system/cpu/cpu4", "cpu"));
        reports.wait_for("node/cpu", "core-2-0", HealthStatus::Healthy).await.unwrap();
        assert!(plugin.unprepare(&[claim]).await.unwrap().values().all(Result::is_ok));
    });
    assert!(exchange.host.stop().success());
}

fn not_listening() {
    let (boot, regions) = (tree("boot"), tree("regions"));
    // By default the root decides: the kernel's events are not about a captured machine.
    for more in ["[inventory]\nrescan = \"1h\"\n", "[inventory]\nuevents = \"off\"\nrescan = \"1h\"\n"] {
        let exchange = Exchange::new(&boot, more);
        let before = exchange.devices();
        exchange.show(&regions);
        exchange.injector.send_all(&events_of(1));
        assert!(!exchange.host.log().contains("listening to uevents"));
        assert_eq!(exchange.devices(), before);
        exchange.host.request("POST", "/v1/rescan", "");
        assert_eq!(exchange.devices(), exchange.found_in(&regions));
    }
}
