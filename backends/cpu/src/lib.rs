//! CPUs as devices: groups per NUMA node, L3 cache, socket or machine, or single physical cores.
//!
//! A group is a shared device with the capacity `cpus`; which CPUs a claim gets is chosen in [`Backend::plan`]:
//! within one L3 cache where one has room, in whole physical cores, with the least fragmentation, and never a CPU that
//! anyone holds. A `CpuConfig` of the claim may wish for another choice; what it keeps from others beside the CPUs that
//! its containers run on stands in its plan, where the plans of other claims find it. A grant with administrative access
//! gets no CPUs of its own: it is given an empty pinning, so that a monitor may look at devices that others hold.
//!
//! No hardware is changed but for claims that want no interrupts on their CPUs (`irqs`).

mod config;
mod enumerate;
mod group;
mod irqs;
mod names;
mod pick;
mod prepare;
mod requirements;
#[cfg(test)]
mod tests;
mod withheld;

use std::{collections::BTreeSet, path::PathBuf};

use hostler_api::BackendName;
use hostler_backend::{
    Backend, BackendError, Device, DevicePlan, Enumeration, PlanWork, PrepareOutcome, PrepareWork, UnprepareWork,
    VerifyWork,
};
use hostler_linux::{IdSet, SysRoot, topology::Topology};

pub use config::{CpuBackendConfig, CpuGrouping};
pub use enumerate::enumeration;
use irqs::IrqSteering;
use withheld::WithheldCpus;

/// The CPUs that a device of this backend can give; none for a device of another one.
pub fn offered_cpus(device: &Device) -> IdSet {
    prepare::offered(device)
}

/// The CPUs that a claim keeps from others beside those that its containers are bound to: idle threads, and whatever is
/// behind a cache that it has to itself.
pub fn kept_cpus(plan: &DevicePlan) -> IdSet {
    WithheldCpus::in_plan(plan).cpus()
}

/// The CPUs of the machine under a root.
#[derive(Clone, Debug)]
pub struct CpuBackend {
    root: SysRoot,
    config: CpuBackendConfig,
    irqs: IrqSteering,
}

impl CpuBackend {
    /// A backend for the machine under `root`. A `config` that does not [`validate`](CpuBackendConfig::validate) makes
    /// [`enumerate`](Backend::enumerate) fail: CPUs that were meant to be reserved must not be handed out.
    pub fn new(root: SysRoot, config: CpuBackendConfig) -> Self {
        let irqs = IrqSteering::new(root.clone(), None);
        Self { root, config, irqs }
    }

    /// Remembers in this folder where interrupts were that claims keep off their CPUs. Without it none is moved, and such
    /// claims cannot be prepared.
    #[must_use]
    pub fn remembering(self, folder: impl Into<PathBuf>) -> Self {
        let irqs = IrqSteering::new(self.root.clone(), Some(folder.into()));
        Self { irqs, ..self }
    }
}

impl Backend for CpuBackend {
    #[expect(clippy::expect_used, reason = "the literal is a DNS label")]
    fn name(&self) -> BackendName {
        BackendName::new("cpu").expect("a DNS label")
    }

    fn subsystems(&self) -> &[&'static str] {
        &["cpu"]
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let topology = Topology::read_processors(&self.root).map_err(BackendError::unread)?;
        enumeration(&topology, &self.config)
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        prepare::plan(work, &self.config)
    }

    fn nodes(&self, device: &Device) -> BTreeSet<u32> {
        prepare::nodes(device)
    }

    fn cpus(&self, device: &Device) -> BTreeSet<u32> {
        offered_cpus(device).iter().collect()
    }

    fn free(&self, work: &PlanWork<'_>) -> Option<u64> {
        prepare::free(work)
    }

    fn changes_hardware(&self, plan: &DevicePlan) -> bool {
        WithheldCpus::in_plan(plan).irqs
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        let unmet = prepare::keep_irqs_off(work, &self.irqs)?;
        Ok(PrepareOutcome { unmet, ..PrepareOutcome::giving(work.device.edits.clone()) })
    }

    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        prepare::let_irqs_on(work, &self.irqs)
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        prepare::verify(&self.root, work.plan)
    }
}
