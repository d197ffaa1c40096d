//! The memory of captured machines: what is offered must fit into what the machine has.

use std::collections::BTreeMap;

use hostler_backend::{
    AttributeValue, Backend, Device,
    testkit::{Samples, conformance},
};
use hostler_linux::{archive::UnpackedCapture, testkit::captures, topology::Topology};

use crate::{MemoryBackend, MemoryBackendConfig};

fn node(device: &Device) -> u32 {
    match device.attributes["resource.kubernetes.io/numaNode"] {
        AttributeValue::Int(node) => u32::try_from(node).unwrap(),
        ref other => panic!("{other:?} is no node"),
    }
}

#[test]
fn captured_machines_offer_no_more_than_they_have_and_keep_the_promises_of_a_backend() {
    for path in captures() {
        // Unpacking thousands of small files is what takes long here, so each capture is unpacked once.
        let capture = UnpackedCapture::open(&path).unwrap();
        let topology = Topology::read(&capture.root()).unwrap();
        let backend = MemoryBackend::new(capture.root(), MemoryBackendConfig::default());
        let label = path.display();
        if topology.nodes.is_empty() {
            // A capture of PCI devices alone.
            assert!(backend.enumerate().is_err(), "{label}");
            continue;
        }
        let found = backend.enumerate().unwrap();
        let mut offered: BTreeMap<u32, u64> = BTreeMap::new();
        for device in &found.devices {
            assert_eq!(device.problems(), [], "{label}");
            *offered.entry(node(device)).or_default() += device.capacity["memory"].value.as_whole().unwrap();
        }
        for (number, node) in &topology.nodes {
            let total = node.memory_bytes.unwrap_or(0);
            let offered = offered.get(number).copied().unwrap_or(0);
            assert!(offered <= total, "{label} node {number}: {offered} of {total}");
            // Without reservations and `zoneinfo`, what is missing is less than a step.
            let wanted = topology.allowed_nodes.contains(*number) && node.gpu.is_none();
            assert!(!wanted || total - offered < 1 << 20, "{label} node {number}: {offered} of {total}");
        }
        // Old captures lack the sizes of nodes.
        if !found.devices.is_empty() {
            conformance(&backend, &Samples::default());
        }
    }
}
