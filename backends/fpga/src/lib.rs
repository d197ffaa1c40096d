//! FPGA cards, their regions and accelerator functions as devices.
//!
//! `docs/fpga.md` says for operators what is offered, under which names, and when it counts as broken.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hostler_api::{BackendName, NameError};
use hostler_backend::{
    Backend, BackendError, BackendWarning, ContainerEdits, DevicePlan, Enumeration, ForeignEdits, OperateWork,
    OperationOutcome, PlanWork, PrepareOutcome, PrepareWork, UnprepareWork, VerifyWork,
};
use hostler_linux::{
    LookMemory, ReadFailure, SysRoot, TreeReading, TreeWarning,
    ioctl::dfl::{Dfl, KernelDfl},
};

pub mod ami;
pub mod bitstream;
mod config;
mod detach;
mod device;
pub mod dfl;
mod enumerate;
mod health;
mod image;
mod known;
pub mod manager;
mod offer;
mod place;
mod plan;
mod prepare;
mod scope;
pub mod store;

#[cfg(test)]
mod tests;
pub mod xrt;

pub use config::FpgaBackendConfig;
pub use device::FpgaDevice;

use enumerate::{EnumeratedDevices, FpgaScan};
use health::SteadyHealth;
use place::FpgaHardware;
use plan::PlanSources;
use store::BitstreamStore;

/// Devices that a look finds, and warnings of parts that it could not understand.
type FpgaLook = (Result<EnumeratedDevices, NameError>, Vec<TreeWarning>);

/// The FPGAs of the machine under a root. Clones share what they remember of earlier looks.
#[derive(Clone, Debug)]
pub struct FpgaBackend {
    root: SysRoot,
    config: FpgaBackendConfig,
    steady: Arc<Mutex<SteadyHealth>>,
    seen: Arc<LookMemory>,
    store: BitstreamStore,
    dfl: Arc<dyn Dfl>,
}

impl FpgaBackend {
    /// A backend for the machine under `root`.
    pub fn new(root: SysRoot, config: FpgaBackendConfig) -> Self {
        let dfl = Arc::new(KernelDfl::new(root.clone()));
        Self::with_dfl(root, config, dfl)
    }

    /// A backend like that of [`FpgaBackend::new`], with ports and regions that `dfl` operates instead of the kernel.
    pub fn with_dfl(root: SysRoot, config: FpgaBackendConfig, dfl: Arc<dyn Dfl>) -> Self {
        let steady = Arc::new(Mutex::new(SteadyHealth::new(config.poll)));
        let (store, seen) = (BitstreamStore::new(&config.bitstreams), Arc::default());
        Self { root, config, steady, seen, store, dfl }
    }

    /// The devices of a look that has ended.
    fn judged(
        &self,
        look: Result<FpgaLook, ReadFailure>,
        counted: Option<Instant>,
    ) -> Result<Enumeration, BackendError> {
        let (devices, warnings) = look.map_err(BackendError::unread)?;
        let devices = devices
            .map_err(|error| BackendError::Enumerate { reason: "bad name".to_owned(), source: Some(error.into()) })?;
        let mut steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = devices.judged(&mut steady, counted);
        let warnings = warnings.into_iter().map(|TreeWarning { path, reason }| BackendWarning { path, reason });
        found.warnings.extend(warnings);
        Ok(found)
    }

    fn look(&self, tree: &TreeReading<'_>) -> Result<EnumeratedDevices, NameError> {
        FpgaScan::read(tree, &self.config).devices()
    }

    fn hardware(&self) -> FpgaHardware<'_> {
        FpgaHardware { root: &self.root, dfl: &*self.dfl, store: &self.store }
    }
}

impl Backend for FpgaBackend {
    #[expect(clippy::expect_used, reason = "the literal is a DNS label")]
    fn name(&self) -> BackendName {
        BackendName::new("fpga").expect("a DNS label")
    }

    fn subsystems(&self) -> &[&'static str] {
        // Of the platform's devices the ports and management engines; of graphics the nodes that programs open.
        &[
            "pci",
            "fpga_region",
            "fpga_manager",
            "fpga_bridge",
            "platform/dfl-",
            "dfl",
            "drm/renderD",
            "xrt_user",
            "hwmon",
            "vfio",
            "vfio-dev",
        ]
    }

    fn poll(&self) -> Option<Duration> {
        (!self.config.poll.is_zero()).then_some(self.config.poll)
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        self.judged(self.root.look_remembering(&self.seen, |tree| self.look(tree)), Some(Instant::now()))
    }

    fn enumerate_after_removal(&self, removed: &BTreeSet<String>) -> Result<Enumeration, BackendError> {
        self.judged(self.root.look_after_removal(&self.seen, removed, |tree| self.look(tree)), None)
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        plan::plan(&PlanSources { root: &self.root, store: &self.store, config: &self.config }, work)
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        self.hardware().prepare(work)
    }

    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        self.hardware().unprepare(work.plan)
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        self.hardware().verify(work.plan)
    }

    fn takes_orders(&self) -> bool {
        true
    }

    fn operate(&self, work: &OperateWork<'_>) -> Result<OperationOutcome, BackendError> {
        detach::operate(&self.hardware(), &self.config, work)
    }

    fn rehearse(&self, work: &OperateWork<'_>) -> Result<OperationOutcome, BackendError> {
        detach::rehearse(&self.hardware(), &self.config, work)
    }

    fn check_edits(&self, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        scope::check(work.plan, edits)
    }
}
