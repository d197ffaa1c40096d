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
