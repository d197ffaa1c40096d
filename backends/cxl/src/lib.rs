//! CXL accelerators and the memory of CXL devices as devices.

mod attributes;
pub mod cdat;
mod config;
mod detach;
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
pub mod target;
#[cfg(test)]
mod tests;
mod trend;
mod watch;
mod write;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hostler_api::BackendName;
use hostler_backend::{
    Backend, BackendError, Enumeration, OperateWork, Plan, PlanWork, PrepareWork, Prepared, UnprepareWork, VerifyWork,
};
use hostler_linux::{SysRoot, ioctl::cxl::Mailbox};
use prepare::Workbench;
use watch::Watch;
use write::Pace;

pub use config::Config;

/// The CXLs of the machine under a root.
#[derive(Clone, Debug)]
pub struct CxlBackend {
    root: SysRoot,
    config: Config,
    pace: Pace,
    regions: Arc<Mutex<()>>,
    watch: Watch,
}

impl CxlBackend {
    /// A backend for the machine under `root`.
    pub fn new(root: SysRoot, config: Config) -> Self {
        let watch = Watch::new(&root);
        Self { root, config, pace: Pace::default(), regions: Arc::default(), watch }
    }

    /// Asks other mailboxes than the machine's how cards are.
    #[must_use]
    pub fn with_mailbox(mut self, mailbox: Arc<dyn Mailbox>) -> Self {
        self.watch = Watch::asking(mailbox);
        self
    }

    fn workbench(&self) -> Workbench<'_> {
        Workbench { root: &self.root, pace: &self.pace, regions: &self.regions }
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
        Ok(enumerate::Scene::read(&self.root, &self.config, &self.watch).enumeration())
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<Plan, BackendError> {
        plan::plan(work)
    }

    fn free(&self, work: &PlanWork<'_>) -> Option<u64> {
        plan::free(work)
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<Prepared, BackendError> {
        self.workbench().prepare(work)
    }

    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        self.workbench().unprepare(work)
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        self.workbench().verify(work)
    }

    fn operate(&self, work: &OperateWork<'_>) -> Result<String, BackendError> {
        let workbench = self.workbench();
        let _alone = workbench.alone();
        operate::operate(&self.root, work, &self.pace)
    }
}
