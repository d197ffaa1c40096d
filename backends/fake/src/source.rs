//! The script as it is now, and the faults that strike.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use hostler_api::DeviceName;
use hostler_backend::BackendError;

use crate::{
    KILL_EXIT_CODE,
    script::{Fault, Moment, Script, ScriptError, Step},
};

/// A script's file and what was made of it.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    memory: Mutex<Option<Memory>>,
}

/// The last script that could be read, and what has happened since it has this content.
#[derive(Debug)]
struct Memory {
    text: String,
    /// Without devices: a thousand of them are worth megabytes, and are made from the text when somebody looks at them.
    script: Arc<Script>,
    enumerations: u64,
    /// For each fault the calls that it could strike.
    calls: Vec<u64>,
    /// For each fault how often it struck.
    strikes: Vec<u64>,
}

impl Source {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, memory: Mutex::new(None) }
    }

    /// The script as it is now.
    pub(crate) fn read(&self) -> Result<Script, ScriptError> {
        let text = self.text()?;
        let script = Script::parse(&self.path, &text)?;
        self.remember(text, &script);
        Ok(script)
    }

    /// Has the script as it is now in force, as far as it can be read.
    pub(crate) fn refresh(&self) -> Result<(), ScriptError> {
        let text = self.text()?;
        let is_known = self.lock().as_ref().is_some_and(|memory| memory.text == text);
        if is_known { Ok(()) } else { self.read().map(drop) }
    }

    fn text(&self) -> Result<String, ScriptError> {
        let read = |source| ScriptError::Read { path: self.path.clone(), source };
        fs::read_to_string(&self.path).map_err(read)
    }

    fn remember(&self, text: String, script: &Script) {
        let mut memory = self.lock();
        if memory.as_ref().is_some_and(|memory| memory.text == text) {
            return;
        }
        let none = vec![0; script.faults.len()];
        let script = Arc::new(script.without_devices());
        *memory = Some(Memory { text, script, enumerations: 0, calls: none.clone(), strikes: none });
    }

    /// The last script that could be read, and how often it was enumerated.
    pub(crate) fn last(&self) -> Option<(Script, u64)> {
        let (text, enumerations) = self.lock().as_ref().map(|memory| (memory.text.clone(), memory.enumerations))?;
        Script::parse(&self.path, &text).ok().map(|script| (script, enumerations))
    }

    /// Counts an enumeration; returns how many there were before.
    pub(crate) fn enumerated(&self) -> u64 {
        self.lock().as_mut().map_or(0, |memory| {
            memory.enumerations += 1;
            memory.enumerations - 1
        })
    }

    /// Takes as long as the script last read says, and runs `effect` between the faults that strike before and after it.
    pub(crate) fn rehearse<T>(
        &self,
        step: Step,
        device: Option<&DeviceName>,
        effect: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let (latency, faults) = self.strikes(step, device);
        thread::sleep(latency);
        faults.iter().filter(|fault| fault.at == Moment::Before).try_for_each(|fault| strike(step, fault))?;
        let result = effect()?;
        faults.iter().filter(|fault| fault.at == Moment::After).try_for_each(|fault| strike(step, fault))?;
        Ok(result)
    }

    fn strikes(&self, step: Step, device: Option<&DeviceName>) -> (Duration, Vec<Fault>) {
        let mut memory = self.lock();
        let Some(memory) = memory.as_mut() else { return (Duration::ZERO, Vec::new()) };
        let script = Arc::clone(&memory.script);
        let faults = script.faults.iter().enumerate();
        let struck = faults.filter(|(index, fault)| fault.concerns(step, device) && memory.is_struck(*index, fault));
        let struck = struck.map(|(_, fault)| fault.clone()).collect();
        (script.latency(step), struck)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Memory>> {
        // Nothing under the lock can leave a half-made value behind.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Counts a call that fault number `index` could strike, and says whether it does.
    fn is_struck(&mut self, index: usize, fault: &Fault) -> bool {
        let (Some(calls), Some(strikes)) = (self.calls.get_mut(index), self.strikes.get_mut(index)) else {
            return false;
        };
        let call = *calls;
        *calls += 1;
        let struck = call >= fault.skip
            && fault.times.is_none_or(|times| *strikes < times)
            && fault.probability.is_none_or(|probability| chance(self.script.seed, index, call) < probability);
        *strikes += u64::from(struck);
        struck
    }
}

/// A number from 0 to 1, the same for the same arguments (one round of SplitMix64).
fn chance(seed: u64, fault: usize, call: u64) -> f64 {
    let stream = seed ^ (fault as u64).rotate_right(16);
    let mut bits = stream.wrapping_add(call.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    // 53 bits are what a double holds exactly.
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[expect(clippy::exit, reason = "ending the process without a word to anyone is the feature")]
fn strike(step: Step, fault: &Fault) -> Result<(), BackendError> {
    thread::sleep(Duration::from_millis(fault.delay_ms));
    if fault.kill {
        std::process::exit(KILL_EXIT_CODE);
    }
    let Some(error) = fault.error.clone() else { return Ok(()) };
    Err(match step {
        Step::Enumerate => BackendError::Enumerate { reason: error, source: None },
        Step::Plan => BackendError::refused(error),
        Step::Verify => BackendError::NotUsable { reason: error },
        Step::Prepare | Step::Unprepare => BackendError::step(format!("{} a scripted device", step.as_str()), error),
    })
}
