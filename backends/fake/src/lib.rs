//! Scripted devices, for tests, demos and rehearsals of failure.
//!
//! A script in TOML says which devices there are and what goes wrong with them. It is read anew on every call, so
//! devices appear, change and go when the file changes. The fake's hardware is a folder: [`Backend::prepare`] puts
//! one file per claim, device and share there, [`Backend::verify`] looks at it, [`Backend::unprepare`] removes it.
//! Removing the folder is what a reboot does.
//!
//! ```toml
//! seed = 7                               # for faults with a probability
//!
//! [latency_ms]                           # how long each step takes: enumerate, plan, prepare, verify, unprepare
//! prepare = 20
//!
//! [[device]]
//! name = "gpu"                           # with `count`, "-{n}" is added where no {n} stands in the name
//! count = 4                              # every text of a device may hold {n} (0, 1, …) and {x} (00, 01, … in hex)
//! sharing = "shared"                     # or "exclusive", the default
//! numa_node = 0                          # the three standard attributes
//! pci_root = "pci0000:16"
//! pci_bus_id = "0000:{x}:00.0"
//! attributes = { model = "x100", cores = 64, ecc = true, firmware = { version = "1.2.3" } }
//! capacity.memory = { value = "16Gi", min = "1Gi", step = "1Gi", default = "2Gi" }
//! capacity.engines = 4                   # no policy: only the whole
//! health = "healthy"                     # or "unhealthy", "unknown"; then with `reason`
//! health_change = [{ enumerations = 3, health = "unhealthy", reason = "overheats" }]   # from the fourth one on
//! edits = { env = ["GPU={n}"], deviceNodes = [{ path = "/dev/null" }] }                 # as in a CDI file
//!
//! # What devices share: a card, wholly or in parts that exclude each other.
//! [[counter_set]]
//! name = "card"                          # with `count`, several, as with devices
//! counters = { slots = 4, memory = "16Gi" }
//!
//! [[device]]
//! name = "half"
//! count = 2
//! consumes = [{ set = "card", counters = { slots = 2, memory = "8Gi" } }]    # as long as anyone holds the device
//! attributes = { models = ["x100", "x200"], nodes = [0, 1] }                 # lists of texts or of whole numbers
//! capacity.cpus = 8
//! node_allocatable.cpu = { capacity = "cpus", factor = 1 }                   # what it stands for of the node's own,
//! node_allocatable.memory = { device = "1Gi" }                               # per capacity or per device
//! binding = {binds_to_node = true, conditions = ["example.com/Attached"], failure_conditions = ["example.com/Failed"]}
//!
//! [[fault]]
//! step = "prepare"                       # enumerate, plan, prepare, verify or unprepare
//! device = "gpu-1"                       # any device where absent
//! at = "after"                           # after the step's effect; "before", the default, is before it
//! skip = 1                               # let the first call pass
//! times = 2                              # strike twice, then never again
//! probability = 0.5                      # strike every other time, as the seed decides
//! delay_ms = 100                         # wait, but not beyond the next change of the script, and then …
//! until = "/run/go-on"                    # … hang until there is such a file, and then …
//! error = "the power supply is gone"     # … fail,
//! kill = false                           # … or end the process, with KILL_EXIT_CODE
//!
//! [[warning]]                            # what `enumerate` warns of
//! path = "/sys/bus/pci/devices/0000:16:00.0"
//! reason = "the firmware is old"
//! ```
//!
//! `skip` and `times` count the calls of this process that the fault could strike, since the script got its present
//! content: a new script begins to count anew, and so does a daemon that was restarted.

mod config;
mod enumerate;
mod hardware;
mod prepare;
mod script;
mod script_file;
#[cfg(test)]
mod tests;

use std::path::Path;

use hostler_api::{BackendName, Grant};
use hostler_backend::{
    Backend, BackendError, ContainerEdits, DevicePlan, EditScope, Enumeration, ForeignEdits, PlanWork, PrepareOutcome,
    PrepareWork, UnprepareWork, VerifyWork,
};

pub use config::FakeBackendConfig;
pub use script::ScriptError;

use hardware::FakeHardware;
use script::{BackendMethod, FakeScript};
use script_file::ScriptFile;

/// Exit code of a process that a fault has killed: none of the codes that the daemon or a shell uses.
pub const KILL_EXIT_CODE: i32 = 86;

/// Reads a script's `text` as the backend would; `path` stands in messages only.
///
/// # Errors
/// The first mistake, with its line, field and fix.
pub fn check_script(path: &Path, text: &str) -> Result<(), ScriptError> {
    FakeScript::parse(path, text).map(drop)
}

/// The devices of a script.
#[derive(Debug)]
pub struct FakeBackend {
    script: ScriptFile,
    hardware: FakeHardware,
}

impl FakeBackend {
    /// A backend for the script that `config` names. The script is first read by [`Backend::enumerate`].
    pub fn new(config: FakeBackendConfig) -> Self {
        Self { hardware: FakeHardware::new(config.state_dir()), script: ScriptFile::new(config.script) }
    }

    /// Runs one method for the grant's device. A script that is gone or wrong leaves the last one in force
    /// (`enumerate` reports the mistake). Without any script no fault strikes: what is prepared can be taken back
    /// without a script.
    fn rehearse<T>(
        &self,
        method: BackendMethod,
        grant: &Grant,
        effect: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let _ = self.script.refresh();
        self.script.rehearse(method, Some(&grant.device), effect)
    }
}

impl Backend for FakeBackend {
    #[expect(clippy::expect_used, reason = "the literal is a DNS label")]
    fn name(&self) -> BackendName {
        BackendName::new("fake").expect("a DNS label")
    }

    /// No subsystem: a changed script is noticed by the daemon's timed scan, or by a scan on request.
    fn subsystems(&self) -> &[&'static str] {
        &[]
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let script = self.script.read().map_err(enumerate::failed)?;
        self.script
            .rehearse(BackendMethod::Enumerate, None, || Ok(enumerate::enumeration(&script, self.script.enumerated())))
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        self.rehearse(BackendMethod::Plan, work.grant, || prepare::plan(work))
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        self.rehearse(BackendMethod::Prepare, work.grant, || {
            self.hardware.write(work.claim, work.grant, work.plan)?;
            Ok(PrepareOutcome::giving(work.device.edits.clone()))
        })
    }

    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        self.rehearse(BackendMethod::Unprepare, work.grant, || self.hardware.remove(work.claim, work.grant))
    }

    /// Accepts the script's edits, and variables of any name: the script's edits change with it, and records stay.
    fn check_edits(&self, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        let any = EditScope::default().with_env();
        if any.check(edits).is_ok() {
            return Ok(());
        }
        let script = self.script.read().ok();
        let devices = script.into_iter().flat_map(|script| script.devices);
        let mut scripted = devices.map(|scripted| scripted.device).filter(|device| device.name == work.grant.device);
        let scope = scripted.next().map(|device| EditScope::exactly(device.edits)).unwrap_or_default();
        scope.with_env().check(edits)
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        self.rehearse(BackendMethod::Verify, work.grant, || {
            self.hardware.check(work.claim, work.grant, work.plan)?;
            match self.script.last() {
                Some((script, enumerations)) => enumerate::usable(&script, enumerations, &work.grant.device),
                None => Ok(()),
            }
        })
    }
}
