//! Selectors: compiled once, evaluated for one device.

use std::hint::black_box;

use hostler_api::{KubernetesVersion, resource::SliceDevice};
use hostler_cel::{CelOptions, DeviceFacts, Selector};

use super::measure::{median, report};

/// Turns of one run, so that reading the clock does not matter, and runs of which the median counts.
const TURNS: u32 = 10_000;
const RUNS: usize = 31;

/// What users of drivers write.
const SELECTORS: [(&str, &str); 7] = [
    ("the driver", r#"device.driver == "gpu.example.com""#),
    ("an attribute", r#"device.attributes["gpu.example.com"].productName == "NVIDIA A100-SXM4-80GB""#),
    ("a capacity", r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#),
    ("a version", r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("535.0.0"))"#),
    ("an optional attribute", r#"device.attributes["gpu.example.com"].?migProfile.orValue("none") == "none""#),
    (
        "three terms",
        r#"device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu"
           && device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))"#,
    ),
    (
        "a bound domain",
        r#"cel.bind(g, device.attributes["gpu.example.com"], g.type == "gpu" && g.index in [0, 1, 2, 3])"#,
    ),
];

pub(crate) fn measure() {
    let device = device();
    let facts = DeviceFacts {
        driver: "gpu.example.com",
        attributes: &device.attributes,
        capacity: &device.capacity,
        allow_multiple_allocations: false,
    };
    let options = CelOptions::of(KubernetesVersion::V1_36, false);
    for (name, text) in SELECTORS {
        let selector = Selector::compile(text, &options).unwrap();
        assert_eq!(selector.matches(&facts), Ok(true), "{text}");
        figure(&format!("one selector on one device: {name}"), "≤ 1000 ns", || selector.matches(black_box(&facts)));
    }
    for (name, text) in SELECTORS {
        figure(&format!("compiling {name}"), "", || Selector::compile(black_box(text), &options));
    }
}

fn figure<T>(name: &str, wanted: &str, mut turn: impl FnMut() -> T) {
    let (time, ()) = median(RUNS, || (0..TURNS).for_each(|_| drop(black_box(turn()))));
    report(name, format!("{} ns", (time / TURNS).as_nanos()), wanted);
}

/// A device as a driver of GPUs publishes it.
fn device() -> SliceDevice {
    serde_json::from_value(serde_json::json!({
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-4f7a3a7e-6f1c-4d0b-9f57-3f7d0a0f5c11"},
            "productName": {"string": "NVIDIA A100-SXM4-80GB"},
            "architecture": {"string": "Ampere"},
            "index": {"int": 3},
            "driverVersion": {"version": "535.104.5"},
            "cudaComputeCapability": {"version": "8.0.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:07"},
        },
        "capacity": {"memory": {"value": "80Gi"}, "multiprocessors": {"value": "108"}},
    }))
    .unwrap()
}
