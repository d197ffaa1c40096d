//! The script: what may stand in it, and what it means.

mod mistake;
mod raw;
mod shared;
#[cfg(test)]
mod tests;
mod values;

use std::{collections::BTreeSet, path::Path, time::Duration};

use hostler_api::DeviceName;
use hostler_backend::{CounterSet, Device, Health, Warning};
use mistake::{Mistake, Place};
use serde::Deserialize;

pub use mistake::ScriptError;

/// A script that makes sense.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) counter_sets: Vec<CounterSet>,
    pub(crate) devices: Vec<ScriptedDevice>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) warnings: Vec<Warning>,
    latency_ms: raw::Latency,
}

/// A device, and what becomes of its health.
#[derive(Debug)]
pub(crate) struct ScriptedDevice {
    pub(crate) device: Device,
    /// After how many enumerations, ascending, and to what.
    pub(crate) changes: Vec<(u64, Health)>,
}

/// What goes wrong, and when.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    pub(crate) step: Step,
    pub(crate) device: Option<DeviceName>,
    #[serde(default)]
    pub(crate) at: Moment,
    #[serde(default)]
    pub(crate) skip: u64,
    pub(crate) times: Option<u64>,
    pub(crate) probability: Option<f64>,
    #[serde(default)]
    pub(crate) delay_ms: u64,
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) kill: bool,
}

/// A method of the backend.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    Enumerate,
    Plan,
    Prepare,
    Verify,
    Unprepare,
}

/// Where in a step a fault strikes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Moment {
    #[default]
    Before,
    After,
}

impl Step {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Enumerate => "enumerate",
            Self::Plan => "plan",
            Self::Prepare => "prepare",
            Self::Verify => "verify",
            Self::Unprepare => "unprepare",
        }
    }
}

impl Fault {
    pub(crate) fn concerns(&self, step: Step, device: Option<&DeviceName>) -> bool {
        self.step == step && (self.device.is_none() || self.device.as_ref() == device)
    }

    fn check(&self, place: &Place) -> Result<(), Mistake> {
        if self.kill && self.error.is_some() {
            return Err(place.key("kill").mistake("a fault ends the process or gives an error; leave one out"));
        }
        if !self.kill && self.error.is_none() && self.delay_ms == 0 {
            return Err(place.mistake("a fault does something: add error = \"…\", kill = true or delay_ms = …"));
        }
        if self.error.as_ref().is_some_and(|error| error.trim().is_empty()) {
            return Err(place.key("error").mistake("say what goes wrong"));
        }
        if self.step == Step::Enumerate && self.device.is_some() {
            return Err(place.key("device").mistake("enumerate concerns all devices; leave this out"));
        }
        if self.times == Some(0) {
            return Err(place.key("times").mistake("0 strikes are none; write 1 or more, or remove the fault"));
        }
        if self.probability.is_some_and(|probability| !(0.0..=1.0).contains(&probability)) {
            return Err(place.key("probability").mistake("write a number from 0 to 1"));
        }
        Ok(())
    }
}

impl Script {
    /// Reads `text`; `path` is for messages.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ScriptError> {
        let raw = raw::parse(path, text)?;
        Self::from_raw(raw).map_err(|mistake| mistake.located(path, text))
    }

    fn from_raw(raw: raw::Script) -> Result<Self, Mistake> {
        let counter_sets = shared::counter_sets(raw.counter_set)?;
        let mut devices = Vec::new();
        let mut names = BTreeSet::new();
        for (index, entry) in raw.device.into_iter().enumerate() {
            let place = Place::default().key("device").index(index);
            for scripted in entry.expand(&place)? {
                if let Some(problem) = scripted.device.counter_problems(&counter_sets).into_iter().next() {
                    return Err(place.path(&problem.field).mistake(problem.reason));
                }
                if !names.insert(scripted.device.name.clone()) {
                    let reason = format!("{} is taken by an earlier device; choose another", scripted.device.name);
                    return Err(place.key("name").mistake(reason));
                }
                devices.push(scripted);
            }
        }
        for (index, fault) in raw.fault.iter().enumerate() {
            fault.check(&Place::default().key("fault").index(index))?;
        }
        let (seed, latency_ms) = (raw.seed, raw.latency_ms);
        Ok(Self { seed, counter_sets, devices, faults: raw.fault, warnings: raw.warning, latency_ms })
    }

    /// What is in force whichever device it is about.
    pub(crate) fn without_devices(&self) -> Self {
        let Self { seed, faults, latency_ms, .. } = self;
        Self {
            seed: *seed,
            devices: Vec::new(),
            counter_sets: Vec::new(),
            faults: faults.clone(),
            warnings: Vec::new(),
            latency_ms: *latency_ms,
        }
    }

    pub(crate) fn latency(&self, step: Step) -> Duration {
        let raw::Latency { enumerate, plan, prepare, verify, unprepare } = self.latency_ms;
        Duration::from_millis(match step {
            Step::Enumerate => enumerate,
            Step::Plan => plan,
            Step::Prepare => prepare,
            Step::Verify => verify,
            Step::Unprepare => unprepare,
        })
    }
}
