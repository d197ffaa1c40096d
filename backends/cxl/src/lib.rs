//! CXL accelerators and the memory of CXL devices as devices.

mod accelerator;
mod attributes;
pub mod cdat;
mod config;
mod detach;
pub mod device;
pub mod dvsec;
mod enumerate;
mod erase;
mod events;
mod gate;
pub mod health;
mod known;
mod memory;
pub mod objects;
mod operate;
mod plan;
mod prepare;
mod region;
mod rehearse;
mod scope;
#[cfg(test)]
mod tests;
mod trend;
mod watch;
mod write;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use hostler_api::BackendName;
use hostler_backend::{
    Backend, BackendError, BackendWarning, ContainerEdits, DevicePlan, Enumeration, ForeignEdits, OperateWork,
    OperationOutcome, PlanWork, PrepareOutcome, PrepareWork, UnprepareWork, VerifyWork,
};
use hostler_linux::{LookMemory, ReadFailure, SysRoot, TreeReading, TreeWarning, ioctl::cxl::Mailbox};
use prepare::CxlHardware;
use watch::HealthWatch;
use write::WaitLimits;

pub use config::CxlBackendConfig;

/// The CXLs of the machine under a root.
#[derive(Clone, Debug)]
pub struct CxlBackend {
    root: SysRoot,
    config: CxlBackendConfig,
    waits: WaitLimits,
    regions: Arc<Mutex<()>>,
    watch: HealthWatch,
    seen: Arc<LookMemory>,
}

impl CxlBackend {
    /// A backend for the machine under `root`.
    pub fn new(root: SysRoot, config: CxlBackendConfig) -> Self {
        let watch = HealthWatch::new(&root);
        Self { root, config, waits: WaitLimits::default(), regions: Arc::default(), watch, seen: Arc::default() }
    }

    /// Asks other mailboxes than the machine's how cards are.
    #[must_use]
    pub fn with_mailbox(mut self, mailbox: Arc<dyn Mailbox>) -> Self {
        self.watch = HealthWatch::asking(mailbox);
        self
    }

    fn look(&self, tree: &TreeReading<'_>) -> Enumeration {
        enumerate::CxlScan::read(tree, &self.config, &self.watch).enumeration()
    }

    fn hardware(&self) -> CxlHardware<'_> {
        CxlHardware { root: &self.root, waits: &self.waits, regions: &self.regions }
    }
}

impl Backend for CxlBackend {
    #[expect(clippy::expect_used, reason = "the literal is a DNS label")]
    fn name(&self) -> BackendName {
        BackendName::new("cxl").expect("a DNS label")
    }

    fn subsystems(&self) -> &[&'static str] {
        &["cxl", "dax", "memory", "node", "memory_tiering", "pci", "vfio", "vfio-dev"]
    }

    fn poll(&self) -> Option<Duration> {
        (!self.config.poll.is_zero()).then_some(self.config.poll)
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        warned(self.root.look_remembering(&self.seen, |tree| self.look(tree)))
    }

    fn enumerate_after_removal(&self, removed: &BTreeSet<String>) -> Result<Enumeration, BackendError> {
        warned(self.root.look_after_removal(&self.seen, removed, |tree| self.look(tree)))
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        plan::plan(work)
    }

    fn free(&self, work: &PlanWork<'_>) -> Option<u64> {
        plan::free(work)
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        self.hardware().prepare(work)
    }

    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        self.hardware().unprepare(work)
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        self.hardware().verify(work)
    }

    fn check_edits(&self, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        scope::check(&self.root, work, edits)
    }

    fn takes_orders(&self) -> bool {
        true
    }

    fn operate(&self, work: &OperateWork<'_>) -> Result<OperationOutcome, BackendError> {
        let hardware = self.hardware();
        let _alone = hardware.alone();
        operate::operate(&self.root, work, &self.waits)
    }

    fn rehearse(&self, work: &OperateWork<'_>) -> Result<OperationOutcome, BackendError> {
        rehearse::rehearse(&self.root, work)
    }
}

/// The devices of a look that has ended, with its warnings.
fn warned(look: Result<(Enumeration, Vec<TreeWarning>), ReadFailure>) -> Result<Enumeration, BackendError> {
    let (mut found, warnings) = look.map_err(BackendError::unread)?;
    let warnings = warnings.into_iter().map(|TreeWarning { path, reason }| BackendWarning { path, reason });
    found.warnings.extend(warnings);
    Ok(found)
}
