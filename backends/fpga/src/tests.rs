//! Tests of the whole crate.

mod acting;
mod amd;
mod broken;
mod cards;
mod fixtures;
mod managers;
mod removals;
mod trouble;
mod whole;

use std::collections::BTreeMap;

use hostler_backend::{Backend, CounterUse, Device, Enumeration, Health};
use hostler_linux::{
    SysRoot,
    testkit::{FakeDflCard, MachineTree},
};

use crate::{FpgaBackend, FpgaBackendConfig};

/// A card after `change`, as a daemon sees it that has just started.
fn after(change: impl Fn(&MachineTree, &FakeDflCard)) -> Enumeration {
    let (tree, card) = (MachineTree::new(), FakeDflCard::new("0000:b1:00.0"));
    card.plug(&tree);
    change(&tree, &card);
    enumerated(tree.root(), FpgaBackendConfig::default())
}

/// What a new daemon sees under `root`, checked against every limit of a device.
fn enumerated(root: SysRoot, config: FpgaBackendConfig) -> Enumeration {
    let found = FpgaBackend::new(root, config).enumerate().unwrap();
    for device in &found.devices {
        assert_eq!(device.problems(), [], "{}", device.name);
        assert_eq!(device.counter_problems(&found.counter_sets), [], "{}", device.name);
    }
    for set in &found.counter_sets {
        assert_eq!(set.problems(), [], "{}", set.name);
    }
    found
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

fn device<'a>(found: &'a Enumeration, name: &str) -> &'a Device {
    let device = found.devices.iter().find(|device| device.name.as_str() == name);
    device.unwrap_or_else(|| panic!("no {name} in {:?}", names(&found.devices)))
}

/// Every attribute as `name=value`.
fn attributes(device: &Device) -> Vec<String> {
    device.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// The device nodes that a container gets.
fn nodes(device: &Device) -> Vec<&str> {
    device.edits.device_nodes.iter().map(|node| node.path.as_str()).collect()
}

/// What a device takes: `set/counter=amount`.
fn takes(device: &Device) -> Vec<String> {
    let of = |taken: &CounterUse| {
        let amounts: BTreeMap<_, _> = taken.counters.clone().into_iter().collect();
        amounts.into_iter().map(|(name, amount)| format!("{}/{name}={amount}", taken.set)).collect::<Vec<_>>()
    };
    device.consumes.iter().flat_map(of).collect()
}

fn reason(device: &Device) -> &str {
    match &device.health {
        Health::Unhealthy { reason } => reason,
        other => panic!("{} is {other:?}", device.name),
    }
}
