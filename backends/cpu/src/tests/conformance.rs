//! What every backend promises, on a small made-up machine and on the one that runs the tests.

use std::{fs, path::Path};

use hostler_backend::{
    Backend,
    testkit::{Samples, conformance},
};
use hostler_linux::SysRoot;
use serde_json::{Value, json};

use crate::{CpuBackend, CpuBackendConfig, CpuGrouping};

const MODES: [CpuGrouping; 5] =
    [CpuGrouping::Numa, CpuGrouping::L3, CpuGrouping::Socket, CpuGrouping::Machine, CpuGrouping::Core];

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Two nodes, each a package with an L3 cache and two cores of two threads: CPUs 0-3 with 0-1 and 2-3, then 4-7.
fn machine(root: &Path) {
    for list in ["possible", "present", "online"] {
        write(root, &format!("sys/devices/system/cpu/{list}"), "0-7");
    }
    write(root, "sys/devices/system/node/online", "0-1");
    for cpu in 0..8 {
        let (package, core) = (cpu / 4, cpu / 2);
        let (package_cpus, core_cpus) =
            (format!("{}-{}", package * 4, package * 4 + 3), format!("{}-{}", core * 2, core * 2 + 1));
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        for (file, text) in [
            ("topology/physical_package_id", package.to_string()),
            ("topology/core_id", (core % 2).to_string()),
            ("topology/core_siblings_list", package_cpus.clone()),
            ("topology/thread_siblings_list", core_cpus),
            ("cache/index0/level", "3".to_owned()),
            ("cache/index0/type", "Unified".to_owned()),
            ("cache/index0/id", package.to_string()),
            ("cache/index0/shared_cpu_list", package_cpus.clone()),
        ] {
            write(root, &format!("{folder}/{file}"), &text);
        }
        write(root, &format!("sys/devices/system/node/node{package}/cpulist"), &package_cpus);
    }
}

#[test]
fn a_small_machine_is_read_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    machine(root.path());
    let names = |mode| -> Vec<String> {
        let backend =
            CpuBackend::new(SysRoot::new(root.path()), CpuBackendConfig { mode, ..CpuBackendConfig::default() });
        backend.enumerate().unwrap().devices.iter().map(|device| device.name.to_string()).collect()
    };
    assert_eq!(names(CpuGrouping::Numa), ["numa0", "numa1"]);
    assert_eq!(names(CpuGrouping::L3), ["l3-0", "l3-1"]);
    assert_eq!(names(CpuGrouping::Core), ["core-0-0", "core-0-1", "core-1-0", "core-1-1"]);
}

#[test]
fn every_mode_keeps_the_promises_of_a_backend() {
    let root = tempfile::tempdir().unwrap();
    machine(root.path());
    for (mode, full_cores) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let config = CpuBackendConfig { mode, full_cores, reserved: "0-1".to_owned(), ..CpuBackendConfig::default() };
        let backend = || CpuBackend::new(SysRoot::new(root.path()), config.clone());
        let restart = || -> Box<dyn Backend> { Box::new(backend()) };
        let mut configs = vec![Vec::new(), vec![wish(&json!({"l3Exclusive": true, "coreType": "performance"}))]];
        if full_cores {
            configs.push(vec![wish(&json!({"smt": "isolated"}))]);
        }
        // The first one goes through the tests of several claims at once.
        for _ in 0..configs.len() {
            conformance(
                &backend(),
                &Samples { restart: Some(&restart), configs: configs.clone(), ..Samples::default() },
            );
            configs.rotate_left(1);
        }
    }
}

fn wish(fields: &Value) -> Value {
    let mut config = fields.clone();
    config["apiVersion"] = "hostler.dev/v1alpha1".into();
    config["kind"] = "CpuConfig".into();
    config
}

#[test]
fn this_machine_keeps_the_promises_of_a_backend() {
    let backend =
        CpuBackend::new(SysRoot::host(), CpuBackendConfig { full_cores: false, ..CpuBackendConfig::default() });
    match backend.enumerate() {
        Ok(found) if !found.devices.is_empty() => conformance(&backend, &Samples::default()),
        other => println!("skipped: no CPU of this machine can be offered: {other:?}"),
    }
}
