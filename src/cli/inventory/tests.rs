//! The whole answer, on a small machine and on captured ones.

use std::{fs, path::Path};

use hostler_linux::{archive::UnpackedCapture, testkit::captures};

use super::*;
use crate::cli::ConfigFileArgs;

/// A machine of two nodes with two CPUs each, one node without CPUs, and huge pages.
fn small_machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join("sys/devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for (file, text) in [("online", "0-3"), ("present", "0-3"), ("possible", "0-3")] {
        write(&format!("cpu/{file}"), text);
    }
    for cpu in 0..4 {
        let (package, pair) = (cpu / 2, if cpu < 2 { "0-1" } else { "2-3" });
        let topology = format!("cpu/cpu{cpu}/topology");
        write(&format!("{topology}/physical_package_id"), &package.to_string());
        write(&format!("{topology}/core_id"), &(cpu % 2).to_string());
        write(&format!("{topology}/thread_siblings_list"), &cpu.to_string());
        write(&format!("{topology}/core_siblings_list"), pair);
    }
    write("node/online", "0-2");
    for (node, cpus, distance) in [(0, "0-1", "10 20 17"), (1, "2-3", "20 10 28"), (2, "", "17 28 10")] {
        write(&format!("node/node{node}/cpulist"), cpus);
        write(&format!("node/node{node}/distance"), distance);
        write(
            &format!("node/node{node}/meminfo"),
            &format!("Node {node} MemTotal:  1048576 kB\nNode {node} MemFree: 524288 kB"),
        );
        let pool = format!("node/node{node}/hugepages/hugepages-2048kB");
        write(&format!("{pool}/nr_hugepages"), if node == 0 { "8" } else { "0" });
        write(&format!("{pool}/free_hugepages"), if node == 0 { "8" } else { "0" });
        write(&format!("{pool}/surplus_hugepages"), "0");
    }
    dir
}

fn answer(root: &Path, output: InventoryFormat, backend: Option<&str>) -> Result<String, CliFailure> {
    let args = InventoryArgs {
        backend: backend.map(str::to_owned),
        output,
        machine: MachineArgs { root: Some(root.to_owned()), config: ConfigFileArgs { config: None } },
    };
    let mut out = Vec::new();
    run(&args, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// Compares with a file of `tests/golden`, or writes it where `UPDATE_GOLDEN=1`.
fn assert_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(actual, expected, "{name} changed; if that is right, run the test with UPDATE_GOLDEN=1");
}

#[test]
fn the_answers_for_a_small_machine_are_golden() {
    let machine = small_machine();
    for (output, name) in [
        (InventoryFormat::Table, "table.txt"),
        (InventoryFormat::Wide, "wide.txt"),
        (InventoryFormat::Tree, "tree.txt"),
        (InventoryFormat::Json, "json.json"),
        (InventoryFormat::Yaml, "yaml.yaml"),
        (InventoryFormat::Svg, "svg.svg"),
    ] {
        assert_golden(&format!("inventory-{name}"), &answer(machine.path(), output, None).unwrap());
    }
}

#[test]
fn json_has_what_is_promised() {
    let text = answer(small_machine().path(), InventoryFormat::Json, None).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let topology = &json["topology"];
    assert_eq!((&topology["packages"], &topology["cores"], &topology["threads"]), (&2.into(), &4.into(), &4.into()));
    let node = &topology["numa_nodes"][2];
    assert_eq!((&node["id"], &node["cpus"], &node["memory_bytes"]), (&2.into(), &"".into(), &(1_u64 << 30).into()));
    assert_eq!(node["distances"], serde_json::json!({"0": 17, "1": 28, "2": 10}));
    let device = &json["devices"][0];
    assert_eq!(
        (&device["backend"], &device["pool"], &device["health"]),
        (&"cpu".into(), &"captured/cpu".into(), &"Healthy".into())
    );
    assert!(device["attributes"].is_object() && device["capacity"].is_object());
    assert!(json["warnings"].is_array());
}

#[test]
fn yaml_says_the_same_as_json() {
    let machine = small_machine();
    let yaml: serde_json::Value =
        serde_saphyr::from_str(&answer(machine.path(), InventoryFormat::Yaml, None).unwrap()).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&answer(machine.path(), InventoryFormat::Json, None).unwrap()).unwrap();
    assert_eq!(yaml, json);
}

#[test]
fn one_backend_can_be_asked_for() {
    let machine = small_machine();
    let text = answer(machine.path(), InventoryFormat::Json, Some("memory")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let devices = json["devices"].as_array().unwrap();
    assert!(!devices.is_empty() && devices.iter().all(|device| device["backend"] == "memory"));
    let error = answer(machine.path(), InventoryFormat::Json, Some("gpu")).unwrap_err().to_string();
    assert!(error.starts_with("no backend \"gpu\" is enabled"), "{error}");
}

#[test]
fn a_folder_without_a_machine_says_what_was_probably_meant() {
    let dir = tempfile::tempdir().unwrap();
    let text = answer(dir.path(), InventoryFormat::Table, None).unwrap();
    assert!(
        text.contains("warnings:\n  /: the tree holds neither sys nor proc; name the folder above them\n"),
        "{text}"
    );
    let error = answer(&dir.path().join("absent"), InventoryFormat::Table, None).unwrap_err().to_string();
    assert!(error.contains("/absent is not there: name a .tar.zst file"), "{error}");
}

#[test]
fn the_node_is_named_by_the_captured_tree() {
    let machine = small_machine();
    fs::create_dir_all(machine.path().join("proc/sys/kernel")).unwrap();
    fs::write(machine.path().join("proc/sys/kernel/hostname"), "Worker-7\n").unwrap();
    let text = answer(machine.path(), InventoryFormat::Table, None).unwrap();
    assert!(text.starts_with("worker-7: 2 packages, 4 cores"), "{text}");
}

#[test]
fn every_captured_machine_gives_every_answer() {
    let archives = captures();
    if archives.is_empty() {
        return;
    }
    for path in &archives {
        let capture = UnpackedCapture::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let root = capture.root().path("");
        let json =
            answer(&root, InventoryFormat::Json, None).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["topology"].is_object());
        let tree = answer(&root, InventoryFormat::Tree, None).unwrap();
        let drawing = answer(&root, InventoryFormat::Svg, None).unwrap();
        assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"), "{}", path.display());
        let longest = tree.lines().take_while(|line| *line != "warnings:").map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest < 160), "{}: a line of {longest:?} characters", path.display());
    }
}

#[test]
fn a_packed_machine_is_read_like_an_unpacked_one() {
    let archives = captures();
    if archives.is_empty() {
        return;
    }
    let packed = archives.iter().find(|path| path.ends_with("qemu-cxl-7.3.4-boot.tar.zst")).expect("the capture");
    let unpacked = UnpackedCapture::open(packed).unwrap();
    let folder = answer(&unpacked.root().path(""), InventoryFormat::Table, None).unwrap();
    assert_eq!(answer(packed, InventoryFormat::Table, None).unwrap(), folder);
}
