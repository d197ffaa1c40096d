//! What every backend promises, on a small made-up machine and on the one that runs the tests.

use std::{fs, path::Path};

use hostler_backend::{
    Backend,
    testkit::{Samples, conformance},
};
use hostler_linux::SysRoot;
use serde_json::json;

use crate::{MemoryBackend, MemoryBackendConfig};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Node 0 with a CPU, 1 GiB and 64 huge pages of 2 MiB; node 1 with 512 MiB alone.
fn machine(root: &Path) {
    for list in ["possible", "present", "online"] {
        write(root, &format!("sys/devices/system/cpu/{list}"), "0");
    }
    write(root, "sys/devices/system/cpu/cpu0/topology/core_id", "0");
    for list in ["possible", "online", "has_memory"] {
        write(root, &format!("sys/devices/system/node/{list}"), "0-1");
    }
    for (node, cpus, megabytes) in [(0, "0", 1024), (1, "", 512)] {
        let folder = format!("sys/devices/system/node/node{node}");
        write(root, &format!("{folder}/cpulist"), cpus);
        write(root, &format!("{folder}/meminfo"), &format!("Node {node} MemTotal:  {} kB", megabytes * 1024));
    }
    let pool = "sys/devices/system/node/node0/hugepages/hugepages-2048kB";
    for (file, pages) in [("nr_hugepages", "64"), ("free_hugepages", "60"), ("surplus_hugepages", "0")] {
        write(root, &format!("{pool}/{file}"), pages);
    }
    write(root, "proc/zoneinfo", "Node 0, zone   Normal\n  min 256\n  managed 262144");
}

#[test]
fn a_small_machine_is_read_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    machine(root.path());
    let found = MemoryBackend::new(SysRoot::new(root.path()), MemoryBackendConfig::default()).enumerate().unwrap();
    let devices = found.devices.iter().map(|device| (device.name.as_str(), device.capacity["memory"].value.human()));
    let expected =
        [("node0", "895Mi"), ("node0-hugepages-2mi", "128Mi"), ("node1", "512Mi")].map(|(a, b)| (a, b.to_owned()));
    assert_eq!(devices.collect::<Vec<_>>(), expected);
}

#[test]
fn a_small_machine_keeps_the_promises_of_a_backend() {
    let root = tempfile::tempdir().unwrap();
    machine(root.path());
    let backend = || MemoryBackend::new(SysRoot::new(root.path()), MemoryBackendConfig::default());
    let restart = || -> Box<dyn Backend> { Box::new(backend()) };
    let policy =
        |policy: &str| vec![json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "MemoryConfig", "policy": policy})];
    let configs = vec![Vec::new(), policy("bind"), policy("preferred"), policy("interleave")];
    conformance(&backend(), &Samples { restart: Some(&restart), configs, ..Samples::default() });
}

#[test]
fn this_machine_keeps_the_promises_of_a_backend() {
    let backend = MemoryBackend::new(SysRoot::host(), MemoryBackendConfig::default());
    match backend.enumerate() {
        Ok(found) if !found.devices.is_empty() => conformance(&backend, &Samples::default()),
        other => println!("skipped: no memory of this machine can be offered: {other:?}"),
    }
}
