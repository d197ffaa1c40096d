//! Claims without an allocation, on a host without a cluster: the real daemon allocates them, and writes real files.

use std::{collections::BTreeSet, fs, thread};

use hostler_testing::host::Host;
use serde_json::{Value, json};

const SCRIPT: &str = r#"
[[device]]
name = "card"
count = 3
numa_node = 0

[[device]]
name = "pool"
sharing = "shared"
capacity.units = { value = 10, min = 2, step = 2, default = 2 }
"#;

const CLASSES: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: card}
spec: {selectors: [{cel: {expression: 'device.driver == "hostler.dev" && !device.allowMultipleAllocations'}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: pool}
spec: {selectors: [{cel: {expression: 'device.driver == "hostler.dev" && device.allowMultipleAllocations'}}]}
---
"#;

fn host() -> Host {
    let mut host = Host::bare(SCRIPT);
    host.start();
    host
}

fn claim(name: &str, requests: &Value) -> String {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}},
    });
    format!("{CLASSES}{claim}\n")
}

fn cards(name: &str, count: u32) -> String {
    claim(name, &json!([{"name": "cards", "exactly": {"deviceClassName": "card", "count": count}}]))
}

/// A file of the host with this text.
fn file(host: &Host, text: &str) -> String {
    let path = host.path("claim.yaml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn shown(host: &Host, name: &str) -> Value {
    serde_json::from_str(&host.run_ok(&["claim", "show", name, "-o", "json"])).unwrap()
}

#[test]
fn a_claim_without_an_allocation_is_allocated_prepared_and_survives_a_restart() {
    let mut host = host();
    host.run_ok(&["claim", "create", "taken", "-d", "fake/card-0"]);
    let path = file(&host, &cards("train", 2));
    host.run_ok(&["claim", "create", "-f", &path]);
    let devices = |host: &Host| {
        let shown = shown(host, "train");
        assert_eq!(shown["state"], "prepared", "{shown}");
        let devices = shown["devices"].as_array().unwrap();
        devices.iter().map(|device| device["device"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(devices(&host), ["card-1", "card-2"]);
    host.kill();
    host.start();
    assert_eq!(devices(&host), ["card-1", "card-2"]);
    host.run_ok(&["claim", "delete", "train"]);
    host.run_ok(&["claim", "create", "-f", &path]);
}

#[test]
fn a_share_is_rounded_as_its_device_wants_and_taken_from_what_is_left() {
    let host = host();
    let part = |name: &str, units: &str| {
        let capacity = json!({"requests": {"units": units}});
        claim(name, &json!([{"name": "part", "exactly": {"deviceClassName": "pool", "capacity": capacity}}]))
    };
    for name in ["a", "b"] {
        host.run_ok(&["claim", "create", "-f", &file(&host, &part(name, "3"))]);
    }
    let record = shown(&host, "a");
    assert_eq!(record["devices"][0]["consumed"]["units"], "4", "{record}");
    let refused = host.run(&["claim", "create", "-f", &file(&host, &part("c", "3"))]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("request \"part\""), "{said}");
    host.run_ok(&["claim", "create", "-f", &file(&host, &part("c", "2"))]);
}

#[test]
fn an_amount_that_is_rounded_is_told_by_every_command_in_every_shape() {
    let host = host();
    let capacity = json!({"requests": {"units": "3"}});
    let asked = json!([{"name": "part", "exactly": {"deviceClassName": "pool", "capacity": capacity}}]);
    let path = file(&host, &claim("a", &asked));
    let note = "pool: units 3 was asked for and 4 given, since it has steps";
    for command in [&["claim", "create", "--dry-run"][..], &["explain", "fit"], &["claim", "create"]] {
        let said = |shape: &str| host.run_ok(&[command, &["-f", &path, "-o", shape]].concat());
        if command.last() != Some(&"create") {
            assert!(said("table").contains(note), "{command:?}: {}", said("table"));
        }
        let object: Value = serde_json::from_str(&said("json")).unwrap();
        assert_eq!(object["notes"], json!([note]), "{command:?}: {object}");
    }
}

#[test]
fn claims_that_are_made_at_the_same_time_are_given_different_devices() {
    let host = host();
    let files = ["a", "b", "c"].map(|name| {
        let path = host.path(name);
        fs::write(&path, cards(name, 1)).unwrap();
        path.display().to_string()
    });
    thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| host.run_ok(&["claim", "create", "-f", file]));
        }
    });
    let given: BTreeSet<String> =
        ["a", "b", "c"].map(|name| shown(&host, name)["devices"][0]["device"].to_string()).into();
    assert_eq!(given.len(), 3, "{given:?}");
}

#[test]
fn a_kill_while_a_claim_is_made_leaves_it_with_its_device_or_not_at_all() {
    for at in ["before", "after"] {
        let mut host = host();
        host.script(&format!("{SCRIPT}[[fault]]\nstep = \"prepare\"\nat = \"{at}\"\nkill = true\n"));
        let torn = host.run(&["claim", "create", "-f", &file(&host, &cards("torn", 1))]);
        assert_eq!(torn.status.code(), Some(1), "{torn:?}");
        host.wait();
        host.script(SCRIPT);
        host.start();
        host.run_ok(&["claim", "create", "-f", &file(&host, &cards("rest", 2))]);
        let (torn, rest) = (shown(&host, "torn"), shown(&host, "rest"));
        let mut given: Vec<String> = [&torn, &rest]
            .iter()
            .flat_map(|claim| claim["devices"].as_array().unwrap())
            .map(|device| device["device"].to_string())
            .collect();
        given.sort();
        given.dedup();
        assert_eq!(given.len(), 3, "{torn} {rest}");
        host.run_ok(&["claim", "prepare", "torn"]);
        assert_eq!(shown(&host, "torn")["state"], "prepared");
    }
}

#[test]
fn a_uid_that_stands_in_a_file_is_not_taken_for_that_of_the_claim() {
    let host = host();
    let exported = |name: &str| cards(name, 1).replace("\"metadata\":{", "\"metadata\":{\"uid\":\"6f6e652d6f662d61\",");
    for name in ["a", "b"] {
        let text = exported(name);
        assert!(text.contains("6f6e652d6f662d61"), "{text}");
        host.run_ok(&["claim", "create", "-f", &file(&host, &text)]);
    }
    assert_ne!(shown(&host, "a")["uid"], shown(&host, "b")["uid"]);
}

#[test]
fn a_refusal_says_why_and_leaves_nothing_behind() {
    let host = host();
    let refused = host.run(&["claim", "create", "-f", &file(&host, &cards("greedy", 4))]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("claim default/greedy, request \"cards\""), "{said}");
    assert!(fs::read_dir(host.path("manifests")).map_or(true, |mut files| files.next().is_none()));
    assert!(!host.run_ok(&["claim", "list"]).contains("greedy"));
}

#[test]
fn a_drained_device_is_given_to_nobody() {
    let host = host();
    host.run_ok(&["device", "drain", "fake/card-0", "--reason", "fan"]);
    host.run_ok(&["claim", "create", "-f", &file(&host, &cards("a", 1))]);
    assert_eq!(shown(&host, "a")["devices"][0]["device"], "card-1");
    let fit = host.run_ok(&["explain", "fit", "-f", &file(&host, &cards("b", 1))]);
    assert!(fit.starts_with("claim default/b fits here once\n") && fit.contains("taint"), "{fit}");
}

#[test]
fn it_is_told_how_often_a_claim_fits_and_a_dry_run_changes_nothing() {
    let host = host();
    let path = file(&host, &cards("a", 2));
    let said = host.run_ok(&["claim", "create", "-f", &path, "--dry-run"]);
    assert!(said.starts_with("dry run: nothing was changed"), "{said}");
    let fit: Value = serde_json::from_str(&host.run_ok(&["explain", "fit", "-f", &path, "-o", "json"])).unwrap();
    assert_eq!((&fit["times"], &fit["devices"][0]["device"]), (&json!(1), &json!("card-0")), "{fit}");
    let none = host.run(&["explain", "fit", "-f", &file(&host, &cards("a", 9))]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stdout).contains("does not fit here now"));
}

#[test]
fn files_that_are_none_are_refused_with_everything_that_is_wrong() {
    let host = host();
    let wrong = "kind: Pod\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: a}, spec: {devices: {request: []}}}\n";
    let refused = host.run(&["claim", "create", "-f", &file(&host, wrong)]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("document 1: field kind") && said.contains("document 2: field spec.devices.request"),
        "{said}"
    );
    let pipe = host.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = host.run(&["claim", "create", "-f", &pipe.display().to_string()]);
    assert!(!refused.status.success(), "a FIFO is no file, and nobody writes into it");
}

#[test]
fn the_example_of_the_documentation_fits_with_amounts_that_a_small_machine_has() {
    let page = include_str!("../../docs/operations.md");
    let example = page.split("```yaml\n").find(|block| block.starts_with("# train.yaml")).unwrap();
    let example = example.split("```").next().unwrap().replace("cpus: \"8\"", "cpus: \"1\"").replace("16Gi", "64Mi");
    let mut host = Host::with("", "[backends.cpu]\nfull_cores = false\n");
    host.start();
    host.run_ok(&["claim", "create", "-f", &file(&host, &example)]);
    let record = shown(&host, "train");
    let of = |index: usize| &record["devices"][index];
    assert_eq!((&of(0)["request"], &of(1)["request"]), (&json!("cpus"), &json!("memory")), "{record}");
    assert!(!of(0)["cpus"].as_str().unwrap().is_empty(), "{record}");
}
