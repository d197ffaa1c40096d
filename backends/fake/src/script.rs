//! The script: its permitted content and the meaning of it.

mod entries;
mod numbering;
mod problem;
#[cfg(test)]
mod tests;
mod values;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hostler_api::{ConfigProblem, DeviceName};
use hostler_backend::{BackendWarning, CounterSet, Device, Health};
use serde::Deserialize;
use toml::Table;

use entries::{CounterSetEntry, DeviceEntry};
use numbering::expand;
use problem::{read, within};

pub use problem::ScriptError;

/// A script without mistakes.
#[derive(Debug, Default)]
pub(crate) struct FakeScript {
    pub(crate) seed: u64,
    pub(crate) counter_sets: Vec<CounterSet>,
    pub(crate) devices: Vec<ScriptedDevice>,
    pub(crate) faults: Vec<ScriptedFault>,
    pub(crate) warnings: Vec<BackendWarning>,
    latency_ms: MethodLatencies,
}

/// A device, and the changes of its health.
#[derive(Debug)]
pub(crate) struct ScriptedDevice {
    pub(crate) device: Device,
    /// Number of enumerations before each change, ascending, and the health after it.
    pub(crate) changes: Vec<(u64, Health)>,
}

/// A fault, and when it strikes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedFault {
    pub(crate) step: BackendMethod,
    pub(crate) device: Option<DeviceName>,
    #[serde(default)]
    pub(crate) at: FaultTiming,
    #[serde(default)]
    pub(crate) skip: u64,
    pub(crate) times: Option<u64>,
    pub(crate) probability: Option<f64>,
    #[serde(default)]
    pub(crate) delay_ms: u64,
    /// Hang until this file is there.
    pub(crate) until: Option<PathBuf>,
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) kill: bool,
}

/// A method of the backend; the script calls it a step.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BackendMethod {
    Enumerate,
    Plan,
    Prepare,
    Verify,
    Unprepare,
}

/// Moment at which a fault strikes: before the method has its effect, or after.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FaultTiming {
    #[default]
    Before,
    After,
}

/// Duration of each method, milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MethodLatencies {
    enumerate: u64,
    plan: u64,
    prepare: u64,
    verify: u64,
    unprepare: u64,
}

/// The whole file as it is written. Devices and counter sets are tables until they are counted out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptTables {
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    latency_ms: MethodLatencies,
    #[serde(default)]
    counter_set: Vec<Table>,
    #[serde(default)]
    device: Vec<Table>,
    #[serde(default)]
    fault: Vec<ScriptedFault>,
    #[serde(default)]
    warning: Vec<BackendWarning>,
}

impl ScriptedFault {
    pub(crate) fn concerns(&self, method: BackendMethod, device: Option<&DeviceName>) -> bool {
        self.step == method && (self.device.is_none() || self.device.as_ref() == device)
    }

    fn check(&self) -> Result<(), ConfigProblem> {
        let Self { step, device, times, probability, delay_ms, until, error, kill, .. } = self;
        let rules = [
            (*kill && error.is_some(), "kill", "a fault ends the process or gives an error; leave one out"),
            (
                !kill && error.is_none() && until.is_none() && *delay_ms == 0,
                "",
                "a fault does something: add error = \"…\", kill = true, delay_ms = … or until = \"…\"",
            ),
            (error.as_ref().is_some_and(|error| error.trim().is_empty()), "error", "say what goes wrong"),
            (until.as_ref().is_some_and(|file| !file.is_absolute()), "until", "write the absolute path of a file"),
            (
                *step == BackendMethod::Enumerate && device.is_some(),
                "device",
                "enumerate concerns all devices; leave this out",
            ),
            (*times == Some(0), "times", "0 strikes are none; write 1 or more, or remove the fault"),
            (
                probability.is_some_and(|share| !(0.0..=1.0).contains(&share)),
                "probability",
                "write a number from 0 to 1",
            ),
        ];
        match rules.into_iter().find(|(broken, ..)| *broken) {
            Some((_, field, reason)) => Err(ConfigProblem::new(field, reason)),
            None => Ok(()),
        }
    }
}

impl FakeScript {
    /// Reads `text`; `path` is for messages.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ScriptError> {
        let toml = toml::Deserializer::parse(text).map_err(|error| ScriptError::syntax(path, text, &error))?;
        read(toml).and_then(Self::from_tables).map_err(|problem| ScriptError::mistake(path, text, problem))
    }

    fn from_tables(tables: ScriptTables) -> Result<Self, ConfigProblem> {
        let ScriptTables { seed, latency_ms, counter_set, device, fault: faults, warning: warnings } = tables;
        let counter_sets = expand("counter_set", counter_set, CounterSetEntry::counter_set, |set| &set.name)?;
        let make = |entry: DeviceEntry| entry.device(&counter_sets);
        let devices = expand("device", device, make, |scripted| &scripted.device.name)?;
        for (index, fault) in faults.iter().enumerate() {
            fault.check().map_err(|problem| within(&format!("fault[{index}]"), problem))?;
        }
        Ok(Self { seed, counter_sets, devices, faults, warnings, latency_ms })
    }

    /// The parts of the script that are in force for any device.
    pub(crate) fn without_devices(&self) -> Self {
        let Self { seed, latency_ms, .. } = *self;
        Self { seed, latency_ms, faults: self.faults.clone(), ..Self::default() }
    }

    pub(crate) fn latency(&self, method: BackendMethod) -> Duration {
        let MethodLatencies { enumerate, plan, prepare, verify, unprepare } = self.latency_ms;
        Duration::from_millis(match method {
            BackendMethod::Enumerate => enumerate,
            BackendMethod::Plan => plan,
            BackendMethod::Prepare => prepare,
            BackendMethod::Verify => verify,
            BackendMethod::Unprepare => unprepare,
        })
    }
}
