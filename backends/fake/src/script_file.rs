//! The script as it is now, and the faults that strike.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use hostler_api::DeviceName;
use hostler_backend::BackendError;
use hostler_files::{FileError, read_text};

use crate::{
    KILL_EXIT_CODE,
    script::{BackendMethod, FakeScript, FaultTiming, ScriptError, ScriptedFault},
};

/// Interval at which a fault that takes its time looks whether the script has changed.
const LINGER: Duration = Duration::from_millis(20);
/// Interval at which a call that hangs looks whether it may go on.
const HANG_POLL: Duration = Duration::from_millis(10);
/// Thousands of devices, each with all that a device can have.
const MOST_BYTES: u64 = 64 << 20;

/// A script's file and the state that was made of it.
#[derive(Debug)]
pub(crate) struct ScriptFile {
    path: PathBuf,
    progress: Mutex<Option<ScriptProgress>>,
}

/// The last script that could be read, and the calls since it has this content.
#[derive(Debug)]
struct ScriptProgress {
    text: Arc<str>,
    /// The script without devices: a thousand of them are worth megabytes, and are made from the text when they are
    /// needed.
    script: Arc<FakeScript>,
    enumerations: u64,
    /// Number of calls that each fault could strike.
    calls: Vec<u64>,
    /// Number of strikes of each fault.
    strikes: Vec<u64>,
}

impl ScriptFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, progress: Mutex::new(None) }
    }

    /// The script as it is now.
    pub(crate) fn read(&self) -> Result<FakeScript, ScriptError> {
        let text = self.text()?;
        let script = FakeScript::parse(&self.path, &text)?;
        self.remember(text, &script);
        Ok(script)
    }

    /// Puts the present script in force, as far as it can be read.
    pub(crate) fn refresh(&self) -> Result<(), ScriptError> {
        let text = self.text()?;
        let is_known = self.lock().as_ref().is_some_and(|progress| *progress.text == *text);
        if is_known { Ok(()) } else { self.read().map(drop) }
    }

    fn text(&self) -> Result<String, ScriptError> {
        read_text(&self.path, MOST_BYTES).map_err(|FileError { path, source, .. }| ScriptError::Read { path, source })
    }

    fn remember(&self, text: String, script: &FakeScript) {
        let mut progress = self.lock();
        if progress.as_ref().is_some_and(|progress| *progress.text == *text) {
            return;
        }
        let none = vec![0; script.faults.len()];
        let script = Arc::new(script.without_devices());
        let text = text.into();
        *progress = Some(ScriptProgress { text, script, enumerations: 0, calls: none.clone(), strikes: none });
    }

    /// The last script that could be read, and the number of its enumerations.
    pub(crate) fn last(&self) -> Option<(FakeScript, u64)> {
        let (text, enumerations) =
            self.lock().as_ref().map(|progress| (progress.text.clone(), progress.enumerations))?;
        FakeScript::parse(&self.path, &text).ok().map(|script| (script, enumerations))
    }

    /// Counts an enumeration; returns the number of earlier ones.
    pub(crate) fn enumerated(&self) -> u64 {
        self.lock().as_mut().map_or(0, |progress| {
            progress.enumerations += 1;
            progress.enumerations - 1
        })
    }

    /// Takes as long as the last script says, and runs `effect` between the faults that strike before and after it.
    pub(crate) fn rehearse<T>(
        &self,
        method: BackendMethod,
        device: Option<&DeviceName>,
        effect: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let (latency, faults, text) = self.strikes(method, device);
        thread::sleep(latency);
        faults
            .iter()
            .filter(|fault| fault.at == FaultTiming::Before)
            .try_for_each(|fault| self.strike(method, fault, &text))?;
        let result = effect()?;
        faults
            .iter()
            .filter(|fault| fault.at == FaultTiming::After)
            .try_for_each(|fault| self.strike(method, fault, &text))?;
        Ok(result)
    }

    /// Duration of a call, the faults that strike it, and the text of the script that says so.
    fn strikes(&self, method: BackendMethod, device: Option<&DeviceName>) -> (Duration, Vec<ScriptedFault>, Arc<str>) {
        let mut progress = self.lock();
        let Some(progress) = progress.as_mut() else { return (Duration::ZERO, Vec::new(), Arc::from("")) };
        let script = Arc::clone(&progress.script);
        let faults = script.faults.iter().enumerate();
        let struck =
            faults.filter(|(index, fault)| fault.concerns(method, device) && progress.is_struck(*index, fault));
        let struck = struck.map(|(_, fault)| fault.clone()).collect();
        (script.latency(method), struck, progress.text.clone())
    }

    fn strike(&self, method: BackendMethod, fault: &ScriptedFault, text: &str) -> Result<(), BackendError> {
        self.linger(Duration::from_millis(fault.delay_ms), text);
        strike(method, fault)
    }

    /// Waits for `delay`, or until the script is another one than `text`: in that way hardware that hangs recovers.
    fn linger(&self, delay: Duration, text: &str) {
        let began = Instant::now();
        loop {
            let left = delay.saturating_sub(began.elapsed());
            if left.is_zero() || self.text().ok().as_deref() != Some(text) {
                return;
            }
            thread::sleep(left.min(LINGER));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ScriptProgress>> {
        // Nothing under the lock can leave a half-made value behind.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScriptProgress {
    /// Counts a call that fault number `index` could strike, and returns true if the fault does.
    fn is_struck(&mut self, index: usize, fault: &ScriptedFault) -> bool {
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
fn strike(method: BackendMethod, fault: &ScriptedFault) -> Result<(), BackendError> {
    while fault.until.as_ref().is_some_and(|file| !file.exists()) {
        thread::sleep(HANG_POLL);
    }
    if fault.kill {
        std::process::exit(KILL_EXIT_CODE);
    }
    let Some(error) = fault.error.clone() else { return Ok(()) };
    Err(match method {
        BackendMethod::Enumerate => BackendError::Enumerate { reason: error, source: None },
        BackendMethod::Plan => BackendError::refused(error),
        BackendMethod::Verify => BackendError::NotUsable { reason: error },
        BackendMethod::Prepare => BackendError::step("prepare a scripted device", error),
        BackendMethod::Unprepare => BackendError::step("unprepare a scripted device", error),
    })
}
