//! Tests of the whole crate, and the made-up machine that they run on.

mod conformance;
mod cxl;
mod devices;
mod fixtures;
mod plans;
mod zones;

use std::collections::BTreeMap;

use hostler_backend::Device;
use hostler_linux::topology::{HugePages, MemorySideCache, NodeAccess, NumaNode, Topology};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Node 0: CPUs, 8 GiB, of which 512 huge pages of 2 MiB and one of 1 GiB. Node 1: CPUs, no memory. Node 2: no CPUs,
/// 4 GiB. Node 8: the memory of a GPU.
fn machine() -> Topology {
    let pool = |total| HugePages { total, free: total, surplus: 0 };
    let nodes = BTreeMap::from([
        (
            0,
            NumaNode {
                cpus: "0-3".parse().unwrap(),
                memory_bytes: Some(8 * GIB),
                huge_pages: BTreeMap::from([(2 * MIB, pool(512)), (GIB, pool(1)), (64 << 10, pool(0))]),
                tier: Some(4),
                memory_side_caches: vec![
                    MemorySideCache { level: 1, size_bytes: GIB, line_bytes: None },
                    MemorySideCache { level: 2, size_bytes: 2 * GIB, line_bytes: None },
                ],
                ..NumaNode::default()
            },
        ),
        (1, NumaNode { cpus: "4-7".parse().unwrap(), memory_bytes: Some(0), ..NumaNode::default() }),
        (
            2,
            NumaNode {
                memory_bytes: Some(4 * GIB + 1),
                tier: Some(22),
                access: Some(NodeAccess {
                    class: 1,
                    read_bandwidth: Some(16_000),
                    read_latency: Some(202),
                    ..NodeAccess::default()
                }),
                ..NumaNode::default()
            },
        ),
        (8, NumaNode { memory_bytes: Some(16 * GIB), gpu: Some("0004:04:00.0".to_owned()), ..NumaNode::default() }),
    ]);
    let all: hostler_linux::IdSet = nodes.keys().copied().collect();
    Topology { nodes, possible_nodes: all.clone(), allowed_nodes: all, ..Topology::default() }
}

/// The device of that name.
fn device<'a>(devices: &'a [Device], name: &str) -> &'a Device {
    devices.iter().find(|device| device.name.as_str() == name).unwrap_or_else(|| panic!("no {name}: {devices:?}"))
}

/// The capacity `memory` of a device.
fn bytes(device: &Device) -> u64 {
    device.capacity["memory"].value.as_whole().unwrap()
}
