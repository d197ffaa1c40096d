//! What hostler sees is what the emulator's command line says.

use serde_json::{Value, json};

use crate::{emulator::DISTANCES, guest::Guest};

const MIB: u64 = 1 << 20;

/// Nodes as the command line has them: number, CPUs, MiB, and ns and MB/s from the nearest CPUs.
const NODES: &[(u64, &str, u64, u64, u64)] = &[
    (0, "0-1", 768, 100, 20_000),
    (1, "2-3", 768, 100, 20_000),
    (2, "4-5", 512, 100, 20_000),
    (3, "", 512, 130, 60_000),
];

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn processors_and_memory_are_those_of_the_command_line() {
    let mut guest = Guest::with_daemon();
    let inventory = guest.json("hostler inventory -o json");
    assert_eq!(inventory["warnings"], json!([]));
    let topology = &inventory["topology"];
    for (field, expected) in [("online_cpus", "0-5"), ("isolated_cpus", "5"), ("nohz_full_cpus", "5")] {
        assert_eq!(topology[field], expected, "{field}");
    }
    assert_eq!((&topology["cores"], &topology["packages"]), (&json!(3), &json!(3)));
    let nodes = topology["numa_nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), NODES.len(), "{nodes:#?}");
    for (node, (id, cpus, size, latency, bandwidth)) in nodes.iter().zip(NODES) {
        assert_eq!((&node["id"], &node["cpus"]), (&json!(id), &json!(cpus)));
        let memory = node["memory_bytes"].as_u64().unwrap();
        // The kernel keeps its own image, and tables for every page, out of what it counts.
        assert!(memory <= size * MIB && memory > size * MIB * 3 / 4, "node {id} has {memory} bytes");
        assert_eq!(node["access"]["read_latency"], json!(latency), "{node:#}");
        assert_eq!(node["access"]["write_bandwidth"], json!(bandwidth), "{node:#}");
        assert_eq!(node["distances"], distances(*id), "{node:#}");
    }
    assert_eq!(nodes[2]["memory_side_caches"][0]["size_bytes"], json!(64 * MIB));
    assert_eq!(names(&inventory, "cpu"), ["numa0", "numa1", "numa2"]);
    let memory = ["node0", "node0-hugepages-2mi", "node1", "node2", "node3"];
    assert_eq!(names(&inventory, "memory"), memory);
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn cxl_devices_are_those_of_the_command_line_under_their_serial_numbers() {
    let mut guest = Guest::with_daemon();
    let inventory = guest.json("hostler inventory -o json");
    // Serial number, MiB volatile and persistent, host bridge, its node, and what lies between it and the device.
    let cards: &[(&str, u64, u64, &str, u64, &str)] = &[
        ("1001", 512, 0, "pci0000:40", 0, "0000:41:00.0"),
        ("2001", 0, 256, "pci0000:c0", 2, "0000:c3:00.0"),
        ("2002", 256, 0, "pci0000:c0", 2, "0000:c4:00.0"),
        ("3001", 256, 0, "pci0000:40", 0, "0000:43:00.0"),
    ];
    let expected: Vec<String> = cards.iter().map(|(serial, ..)| format!("memory-{serial}")).collect();
    assert_eq!(names(&inventory, "cxl"), expected);
    for (serial, volatile, persistent, bridge, node, address) in cards {
        let card = guest.seen_device("cxl", &format!("memory-{serial}")).unwrap();
        let capacity = |name: &str| {
            let value = card["capacity"][name]["value"].as_str().unwrap_or("0");
            value.parse::<u64>().unwrap() / MIB
        };
        assert_eq!((capacity("memory"), capacity("persistentMemory")), (*volatile, *persistent), "{card:#}");
        let attributes = &card["attributes"];
        let standard = |name: &str| &attributes[format!("resource.kubernetes.io/{name}")];
        assert_eq!(standard("pcieRoot"), bridge, "{card:#}");
        assert_eq!(standard("pciBusID"), address, "{card:#}");
        assert_eq!(standard("numaNode"), &json!(node), "{card:#}");
        assert_eq!((&attributes["kind"], &attributes["cxlType"]), (&json!("memory"), &json!(3)));
        assert_eq!(attributes["serial"], format!("0x{serial}"));
        assert_eq!(attributes["use"], "none");
        assert_eq!(attributes["attachable"], json!(*volatile > 0), "{card:#}");
        assert_eq!(attributes["dynamicCapacity"], json!(*serial == "3001"), "{card:#}");
    }
    guest.assert_alive();
}

fn distances(from: u64) -> Value {
    let mut all = json!({});
    for (to, ..) in NODES {
        let pair = (from.min(*to), from.max(*to));
        let distance = DISTANCES.iter().find(|(a, b, _)| (u64::from(*a), u64::from(*b)) == pair);
        all[to.to_string()] = json!(distance.map_or(10, |(_, _, distance)| *distance));
    }
    all
}

fn names(inventory: &Value, backend: &str) -> Vec<String> {
    let devices = inventory["devices"].as_array().unwrap().iter();
    devices
        .filter(|device| device["backend"] == backend)
        .map(|device| device["name"].as_str().unwrap().into())
        .collect()
}
