//! Tests of the whole crate, and the made-up machines that they run on.

mod conformance;
mod devices;
mod fixtures;
mod irqs;
mod machines;
mod picking;
mod plans;
mod wishes;

use hostler_backend::{AttributeValue, Device};

/// The device of that name.
fn device<'a>(devices: &'a [Device], name: &str) -> &'a Device {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    devices.iter().find(|device| device.name.as_str() == name).unwrap_or_else(|| panic!("no {name} among {names:?}"))
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

fn attribute(device: &Device, name: &str) -> Option<AttributeValue> {
    device.attributes.get(name).cloned()
}

/// The capacity `cpus` of a device.
fn cpus(device: &Device) -> u64 {
    device.capacity["cpus"].value.as_whole().unwrap()
}
