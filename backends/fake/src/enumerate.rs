//! The devices of a script, as they are after a number of enumerations.

use hostler_api::DeviceName;
use hostler_backend::{BackendError, Device, Enumeration, Health};

use crate::script::{FakeScript, ScriptError, ScriptedDevice};

/// The answer to the enumeration that `earlier` others have gone before.
pub(crate) fn enumeration(script: &FakeScript, earlier: u64) -> Enumeration {
    let devices = script.devices.iter().map(|scripted| now(scripted, earlier)).collect();
    Enumeration { devices, counter_sets: script.counter_sets.clone(), warnings: script.warnings.clone() }
}

fn now(scripted: &ScriptedDevice, earlier: u64) -> Device {
    Device { health: health(scripted, earlier).clone(), ..scripted.device.clone() }
}

fn health(scripted: &ScriptedDevice, earlier: u64) -> &Health {
    let due = scripted.changes.iter().rev().find(|(after, _)| *after <= earlier);
    due.map_or(&scripted.device.health, |(_, health)| health)
}

/// Checks that the device is there and works, as the last of `enumerations` has seen it.
pub(crate) fn usable(script: &FakeScript, enumerations: u64, name: &DeviceName) -> Result<(), BackendError> {
    let Some(scripted) = script.devices.iter().find(|scripted| scripted.device.name == *name) else {
        return Err(BackendError::NotUsable { reason: format!("{name} is not there any more") });
    };
    match health(scripted, enumerations.saturating_sub(1)) {
        Health::Unhealthy { reason } => {
            Err(BackendError::NotUsable { reason: format!("{name} is unhealthy: {reason}") })
        }
        Health::Healthy | Health::Unknown { .. } => Ok(()),
    }
}

/// A script that cannot be read says nothing about its devices.
pub(crate) fn failed(error: ScriptError) -> BackendError {
    BackendError::Enumerate { reason: "the script cannot be used".to_owned(), source: Some(Box::new(error)) }
}
