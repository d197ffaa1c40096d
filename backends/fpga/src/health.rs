//! Findings against a device, and the time for which a finding must hold before it counts.
//!
//! ```text
//!            grave, or passing in a second look
//!   healthy ───────────────────────────────────► unhealthy
//!           ◄───────────────────────────────────
//!                 three looks without either
//! ```
//!
//! Looks that follow each other at once count as one: a burst of events must not make a moment long. The first look of
//! all is believed. A fact (no driver, no group) holds exactly as long as it is seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use hostler_api::DeviceName;
use hostler_backend::Health;

mod sensors;
#[cfg(test)]
mod tests;

pub(crate) use sensors::HwmonSensors;

/// Looks that must show a passing trouble before it counts.
const BAD_LOOKS: u8 = 2;
/// Looks without trouble before it is over.
const GOOD_LOOKS: u8 = 3;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FindingWeight {
    /// A fact about how the machine is set up.
    Fact,
    /// Broken: believed at once.
    Grave,
    /// May be over in a moment: heat, errors that the hardware mends.
    Passing,
}

/// Something that speaks against a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HealthFinding {
    weight: FindingWeight,
    /// Path of the file, as people find it: `dfl-fme.0/errors/catfatal_errors`. Empty for a fact that is not one
    /// file's.
    file: String,
    /// Value that the file has, or the sentence of a fact.
    value: String,
}

impl HealthFinding {
    /// A fact, in a sentence.
    pub(crate) fn fact(sentence: impl Into<String>) -> Self {
        Self { weight: FindingWeight::Fact, file: String::new(), value: sentence.into() }
    }

    pub(crate) fn grave(file: impl Into<String>, value: impl Into<String>) -> Self {
        Self { weight: FindingWeight::Grave, file: file.into(), value: plain(&value.into()) }
    }

    pub(crate) fn passing(file: impl Into<String>, value: impl Into<String>) -> Self {
        Self { weight: FindingWeight::Passing, file: file.into(), value: plain(&value.into()) }
    }
}

/// Shortens the content of a file for reasons, logs and tables: one line, and not more of it than a person reads.
fn plain(value: &str) -> String {
    const MOST: usize = 120;
    value.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST).collect()
}

impl fmt::Display for HealthFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() { f.write_str(&self.value) } else { write!(f, "{} is {}", self.file, self.value) }
    }
}

/// Remembers looks, so that health does not flap. Lost with the process: the first look after a start is believed.
#[derive(Debug)]
pub(crate) struct SteadyHealth {
    /// Looks closer together than this are one.
    spacing: Duration,
    devices: BTreeMap<DeviceName, DeviceHistory>,
}

#[derive(Clone, Debug)]
struct DeviceHistory {
    /// The trouble that is told; empty while there is none.
    told: Vec<HealthFinding>,
    /// Looks in a row that disagree with what is told.
    against: u8,
    /// Time at which a look last counted.
    counted: Instant,
}

impl SteadyHealth {
    /// For looks that come every `poll`.
    pub(crate) fn new(poll: Duration) -> Self {
        Self { spacing: poll / 2, devices: BTreeMap::new() }
    }

    /// Health to report for `device` after a look at `now`.
    pub(crate) fn judge(&mut self, device: &DeviceName, findings: &[HealthFinding], now: Instant) -> Health {
        let (facts, trouble): (Vec<&HealthFinding>, Vec<&HealthFinding>) =
            findings.iter().partition(|finding| finding.weight == FindingWeight::Fact);
        let trouble: Vec<HealthFinding> = trouble.into_iter().cloned().collect();
        let first = DeviceHistory { told: trouble.clone(), against: 0, counted: now };
        let history = self.devices.entry(device.clone()).or_insert(first);
        history.look(trouble, now, self.spacing);
        health(facts.into_iter().chain(&history.told))
    }

    /// Health to report for `device` after a look that has asked nothing of it again: what is told stays told, since an
    /// answer of an earlier look says nothing twice.
    pub(crate) fn recall(&self, device: &DeviceName, findings: &[HealthFinding]) -> Health {
        let is_fact = |finding: &&HealthFinding| finding.weight == FindingWeight::Fact;
        match self.devices.get(device) {
            Some(history) => health(findings.iter().filter(is_fact).chain(&history.told)),
            None => health(findings),
        }
    }

    /// Forgets the devices that are gone.
    pub(crate) fn retain(&mut self, present: &BTreeSet<DeviceName>) {
        self.devices.retain(|name, _| present.contains(name));
    }
}

impl DeviceHistory {
    fn look(&mut self, seen: Vec<HealthFinding>, now: Instant, spacing: Duration) {
        let agrees = self.told.is_empty() == seen.is_empty();
        let grave = seen.iter().any(|finding| finding.weight == FindingWeight::Grave);
        if agrees || grave {
            self.against = 0;
            self.counted = now;
            // A temperature that changes with every look is no news.
            if files(&self.told) != files(&seen) {
                self.told = seen;
            }
            return;
        }
        if self.against > 0 && now.saturating_duration_since(self.counted) < spacing {
            return;
        }
        self.against += 1;
        self.counted = now;
        let enough = if seen.is_empty() { GOOD_LOOKS } else { BAD_LOOKS };
        if self.against >= enough {
            self.against = 0;
            self.told = seen;
        }
    }
}

fn health<'a>(findings: impl IntoIterator<Item = &'a HealthFinding>) -> Health {
    let reasons: Vec<String> = findings.into_iter().map(HealthFinding::to_string).collect();
    if reasons.is_empty() { Health::Healthy } else { Health::Unhealthy { reason: reasons.join("; ") } }
}

fn files(findings: &[HealthFinding]) -> BTreeSet<&str> {
    findings.iter().map(|finding| finding.file.as_str()).collect()
}
