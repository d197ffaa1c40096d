//! The machine that the daemon looks after, and that no other daemon looks after.

use std::sync::Arc;

use hostler_api::fabric::{SystemUuid, UuidError};
use hostler_files::InstanceLock;
use hostler_linux::{SysRoot, boot};
use tracing::debug;
use uuid::Uuid;

use super::{DaemonError, lock};
use crate::{
    config::DaemonConfig,
    kubernetes::{hardware::ReportingDaemon, slices::SliceSettings},
    tasks::Tasks,
};

/// The machine that the daemon looks after.
#[derive(Debug)]
pub struct RunningMachine {
    pub(super) root: SysRoot,
    boot_id: String,
    kernel: String,
    system_uuid: Option<SystemUuid>,
}

impl RunningMachine {
    /// Describes the machine under `root`, which has been running since some boot.
    ///
    /// # Errors
    /// When the machine does not tell since which.
    pub fn running(root: SysRoot) -> Result<Self, DaemonError> {
        let boot_id = boot::boot_id(&root).map_err(DaemonError::BootId)?;
        Ok(Self::of(root, boot_id))
    }

    /// Describes a captured machine. No record is older than the rehearsal, so any boot id will do where it has none.
    pub fn captured(root: SysRoot) -> Self {
        let boot_id = boot::boot_id(&root).unwrap_or_else(|_| Uuid::new_v4().to_string());
        Self::of(root, boot_id)
    }

    fn of(root: SysRoot, boot_id: String) -> Self {
        Self { kernel: kernel(&root), system_uuid: system_uuid(&root), root, boot_id }
    }
}

/// Returns the release of the machine's kernel. A report without it is still one.
fn kernel(root: &SysRoot) -> String {
    boot::kernel_release(root).ok().flatten().unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the UUID of the board, where it has one that no other board has. Many boards have none, and only root may
/// read it.
fn system_uuid(root: &SysRoot) -> Option<SystemUuid> {
    let text = boot::system_uuid(root)
        .inspect_err(|failure| debug!(error = %failure, "the system board's UUID cannot be read"));
    let text = text.ok().flatten()?;
    text.parse().inspect_err(|error: &UuidError| debug!(%error, "the system board has no UUID of its own")).ok()
}

/// A machine that no other daemon looks after.
pub(super) struct HeldMachine {
    pub(super) machine: RunningMachine,
    pub(super) lock: Arc<InstanceLock>,
}

impl HeldMachine {
    /// Holds the machine; the daemon ends when it does not hold it any more.
    pub(super) fn watched(machine: RunningMachine, lock: InstanceLock, tasks: &Tasks) -> Self {
        let lock = Arc::new(lock);
        lock::watch(lock.clone(), tasks);
        Self { machine, lock }
    }

    pub(super) fn boot_id(&self) -> &str {
        &self.machine.boot_id
    }

    pub(super) fn reporting(&self, config: &DaemonConfig) -> ReportingDaemon {
        ReportingDaemon {
            settings: SliceSettings::of(config),
            version: env!("CARGO_PKG_VERSION"),
            kernel: self.machine.kernel.clone(),
            boot_id: self.machine.boot_id.clone(),
            system_uuid: self.machine.system_uuid.clone(),
        }
    }
}
