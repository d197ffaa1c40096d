//! List of drained devices, and its changes: on disk first, then in the inventory.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use hostler_api::{BackendName, DeviceName};
use tracing::{error, info, warn};

use super::{Drain, DrainCommand, DrainError, Drains, LostDrains, store::DrainStore};
use crate::{inventory::Pool, tasks::Tasks};

/// The drains as they are on disk. Part of the inventory task.
#[derive(Debug)]
pub(in crate::inventory) struct DrainList {
    store: Arc<DrainStore>,
    listed: Drains,
    lost: Option<LostDrains>,
    tasks: Tasks,
}

impl DrainList {
    /// Starts without drains, until the list in the folder `state` is read.
    pub(in crate::inventory) fn new(state: PathBuf, tasks: Tasks) -> Self {
        Self { store: Arc::new(DrainStore::new(state)), listed: Drains::new(), lost: None, tasks }
    }

    /// The list that cannot be understood, if there is one.
    pub(in crate::inventory) fn lost(&self) -> Option<&LostDrains> {
        self.lost.as_ref()
    }

    /// Returns what counts as drained: the list, and every device of `pools` if another list is lost.
    pub(in crate::inventory) fn drains(&self, pools: &BTreeMap<BackendName, Arc<Pool>>) -> Drains {
        let Some(lost) = &self.lost else { return self.listed.clone() };
        let unsure = Drain { since: lost.since, reason: Some(lost.explain()), evict: false };
        let all = pools.iter().flat_map(|(backend, pool)| {
            pool.devices.iter().map(|device| ((backend.clone(), device.name.clone()), unsure.clone()))
        });
        let mut drains: Drains = all.collect();
        drains.extend(self.listed.clone());
        drains
    }

    /// Carries a command out; returns the drain that the device then has or no longer has.
    pub(in crate::inventory) async fn carry_out(&mut self, command: DrainCommand) -> Result<Option<Drain>, DrainError> {
        match command {
            DrainCommand::Load => self.load().await.map(|()| None),
            DrainCommand::Drain(backend, device, drain) => self.drain(backend, device, drain).await.map(Some),
            DrainCommand::Undrain(backend, device) => self.undrain(backend, device).await,
            DrainCommand::Forget => self.forget().await.map(|()| None),
        }
    }

    async fn load(&mut self) -> Result<(), DrainError> {
        (self.listed, self.lost) = self.on_disk(DrainStore::load).await?;
        if let Some(lost) = &self.lost {
            error!(path = %lost.path.display(), error = lost.reason, "the list of drained devices is lost: all devices count as drained");
        }
        if !self.listed.is_empty() {
            info!(devices = self.listed.len(), "devices are drained");
        }
        Ok(())
    }

    async fn drain(&mut self, backend: BackendName, device: DeviceName, drain: Drain) -> Result<Drain, DrainError> {
        let mut listed = self.listed.clone();
        let key = (backend, device);
        let since = listed.get(&key).map_or(drain.since, |before| before.since);
        let drain = Drain { since, ..drain };
        if listed.insert(key.clone(), drain.clone()).as_ref() != Some(&drain) {
            self.write(listed).await?;
            let (backend, device) = key;
            info!(backend = %backend, device = %device, reason = drain.reason, evict = drain.evict, "device drained");
        }
        Ok(drain)
    }

    async fn undrain(&mut self, backend: BackendName, device: DeviceName) -> Result<Option<Drain>, DrainError> {
        let mut listed = self.listed.clone();
        let key = (backend, device);
        match (listed.remove(&key), &self.lost) {
            (None, Some(lost)) => Err(DrainError::Lost(lost.clone())),
            (None, None) => Ok(None),
            (Some(before), _) => {
                self.write(listed).await?;
                let (backend, device) = key;
                info!(backend = %backend, device = %device, "device back in service");
                Ok(Some(before))
            }
        }
    }

    async fn forget(&mut self) -> Result<(), DrainError> {
        let Some(lost) = self.lost.clone() else { return Ok(()) };
        let path = lost.path.clone();
        self.on_disk(move |store| store.forget(&path)).await??;
        self.lost = None;
        warn!(path = %lost.path.display(), "lost list of drained devices forgotten");
        Ok(())
    }

    /// Writes the list: nothing is drained or put back before that is on disk.
    async fn write(&mut self, listed: Drains) -> Result<(), DrainError> {
        if let Some(lost) = self.lost.as_mut().filter(|lost| self.store.is_current(&lost.path)) {
            // The lost list could not be moved before, and must not be overwritten.
            let store = self.store.clone();
            lost.path = on_disk(&self.tasks, move || store.set_aside()).await??;
        }
        let written = listed.clone();
        self.on_disk(move |store| store.write(&written)).await??;
        self.listed = listed;
        Ok(())
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&DrainStore) -> T + Send + 'static,
    ) -> Result<T, DrainError> {
        let store = self.store.clone();
        on_disk(&self.tasks, move || work(&store)).await
    }
}

async fn on_disk<T: Send + 'static>(tasks: &Tasks, work: impl FnOnce() -> T + Send + 'static) -> Result<T, DrainError> {
    // Blocking work is cut off only by the end of the process.
    tasks.blocking(work).await.map_err(|_| DrainError::Stopping)
}
