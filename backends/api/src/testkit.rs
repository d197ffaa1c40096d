//! The conformance tests: what every backend promises, checked from the outside.
//!
//! ```no_run
//! # fn backend() -> Box<dyn hostler_backend::Backend> { unimplemented!() }
//! use hostler_backend::testkit::{Samples, conformance};
//!
//! // In a test of the backend, on a tree that holds some of its hardware:
//! conformance(&*backend(), &Samples::default());
//! ```
//!
//! A rule that is broken panics with the rule's name, the device and what was seen; `docs/writing-a-backend.md` explains
//! each rule. Nothing but the backend's own hardware is touched.
#![expect(clippy::panic, reason = "a test fails by panicking")]

mod cycle;
mod describe;
mod forgeries;
#[cfg(test)]
mod tests;
mod together;

use std::fmt::{self, Display};

use hostler_api::{Chain, DeviceName};
use serde_json::Value;

use crate::{Backend, Device, Enumeration};

/// What the testkit cannot know of a backend. `Samples::default()` fits one that leaves no traces in hardware.
#[derive(Clone)]
pub struct Samples<'a> {
    /// The opaque configurations of the made-up grants: every device goes through one cycle with each.
    pub configs: Vec<Vec<Value>>,
    /// Whether [`prepare`](Backend::prepare) does something that [`verify`](Backend::verify) can see.
    pub effect: Effect,
    /// Describes the hardware as it is now. With it the testkit checks that what is pure stays pure, and that the
    /// hardware is as before when every claim is gone.
    pub observe: Option<&'a dyn Fn() -> String>,
    /// A new instance of the backend on the same hardware, as after a restart of the daemon. With it the testkit lets
    /// another instance verify and undo what the first one has prepared.
    pub restart: Option<&'a dyn Fn() -> Box<dyn Backend>>,
}

impl Default for Samples<'_> {
    fn default() -> Self {
        Self { configs: vec![Vec::new()], effect: Effect::None, observe: None, restart: None }
    }
}

impl fmt::Debug for Samples<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").field("configs", &self.configs).field("effect", &self.effect).finish_non_exhaustive()
    }
}

/// Whether a prepared device differs from one that is not prepared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Preparing changes nothing: `verify` succeeds for every device that works.
    None,
    /// Preparing changes the hardware: `verify` fails before it and after it was undone.
    Visible,
}

/// Checks every promise of a backend that can be checked from the outside.
///
/// # Panics
/// When a rule is broken, and when the backend has no device that the rules could be tried on.
pub fn conformance(backend: &dyn Backend, samples: &Samples<'_>) {
    let run = Run { backend, samples };
    let before = run.observe();
    let (sets, devices) = describe::check(&run);
    for device in &devices {
        cycle::check(&run, device);
    }
    together::check(&run, &devices, &sets);
    cycle::check_gone(&run, &devices);
    run.same_state("everything is undone at the end", None, &before);
}

/// One run of the conformance tests.
struct Run<'a> {
    backend: &'a dyn Backend,
    samples: &'a Samples<'a>,
}

impl Run<'_> {
    fn enumerate(&self) -> Enumeration {
        match self.backend.enumerate() {
            Ok(enumeration) => enumeration,
            Err(error) => self.broken("enumerate describes the hardware", None, Chain(&error).to_string()),
        }
    }

    /// The backend as the next process sees it: a new instance where the samples can make one.
    fn restarted(&self) -> Restarted<'_> {
        self.samples.restart.map_or(Restarted::Same(self.backend), |restart| Restarted::New(restart()))
    }

    fn observe(&self) -> Option<String> {
        self.samples.observe.map(|observe| observe())
    }

    fn same_state(&self, rule: &str, device: Option<&DeviceName>, before: &Option<String>) {
        let now = self.observe();
        if now != *before {
            let text = |state: &Option<String>| state.clone().unwrap_or_default();
            self.broken(rule, device, format!("the hardware was\n{}\nand is\n{}", text(before), text(&now)));
        }
    }

    /// Fails the test.
    fn broken(&self, rule: &str, device: Option<&DeviceName>, seen: impl Display) -> ! {
        let device = device.map(|device| format!(", device {device}")).unwrap_or_default();
        panic!("backend {}{device} breaks the rule \"{rule}\": {seen}", self.backend.name());
    }

    fn must<T>(&self, rule: &str, device: &Device, result: Result<T, crate::BackendError>) -> T {
        match result {
            Ok(value) => value,
            Err(error) => self.broken(rule, Some(&device.name), Chain(&error).to_string()),
        }
    }
}

/// See [`Run::restarted`].
enum Restarted<'a> {
    Same(&'a dyn Backend),
    New(Box<dyn Backend>),
}

impl std::ops::Deref for Restarted<'_> {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Same(backend) => *backend,
            Self::New(backend) => &**backend,
        }
    }
}
