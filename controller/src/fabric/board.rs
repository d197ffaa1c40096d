//! The latest reading of each fabric manager. One task for each manager writes its own entry, while this process leads:
//! managers are small computers, and one reader of a cluster is enough.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{Chain, fabric::SystemUuid};
use hostler_cluster::rfc3339;
use hostler_fabric::{
    FabricHint, FabricProvider, Provider, WatchedInventory,
    fake::{FabricFault, FakeFabric},
    redfish::RedfishProvider,
};
use hostler_reconcile::{ControllerParts, Leadership, lead_ended, wait_to_lead};
use tokio::{
    sync::{Semaphore, watch},
    time::sleep,
};
use tracing::{info, warn};

use super::figures::{FabricFigures, ManagerFigures, foreign};
use crate::{
    config::{FabricConfig, FabricManagerConfig, FakeManagerConfig},
    view::ClusterView,
};

/// The most managers that are read at once: a new reading of a manager is in memory beside the last one until it is
/// compared. Eight at once take an eighth of what 64 take, and let seven others go on beside a slow one.
const MOST_READ_AT_ONCE: usize = 8;

/// The latest readings of all managers.
#[derive(Clone, Debug, Default)]
pub(crate) struct FabricReadings {
    /// Managers that are read, by name. Empty while another process leads.
    pub(crate) managers: BTreeMap<String, ManagerReading>,
    /// Managers that cannot even be asked, since a certificate or a file of theirs cannot be used, and why.
    pub(crate) unusable: BTreeMap<String, String>,
}

/// The latest reading of a manager.
#[derive(Clone, Debug)]
pub(crate) struct ManagerReading {
    /// The way to the manager.
    pub(crate) provider: Arc<Provider>,
    /// The last inventory that could be read; `None`: none was read since this process leads.
    pub(crate) inventory: Option<Arc<WatchedInventory>>,
    /// The reason why the manager cannot be read now, and since when; `None`: the inventory is the latest.
    pub(crate) error: Option<String>,
}

/// Starts a task for each manager.
pub(crate) fn start(
    config: &FabricConfig,
    figures_tx: &watch::Sender<FabricFigures>,
    parts: &ControllerParts<ClusterView>,
) -> watch::Receiver<Arc<FabricReadings>> {
    let (readings_tx, readings_rx) = watch::channel(Arc::default());
    let pause = Duration::from_secs(config.poll_seconds.into());
    let turns = Arc::new(Semaphore::new(MOST_READ_AT_ONCE));
    for manager in &config.managers {
        let (readings_tx, figures_tx, turns) = (readings_tx.clone(), figures_tx.clone(), turns.clone());
        let reader = ManagerReader { config: manager.clone(), pause, turns, readings_tx, figures_tx };
        let (leadership_rx, view_rx) = (parts.leadership_rx.clone(), parts.view_rx.clone());
        let stop = parts.tasks.stop_token();
        parts.tasks.service("fabric manager", async move {
            tokio::select! {
                // Dropped at the end only: reading changes nothing.
                () = reader.run(leadership_rx, view_rx) => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => {}
            }
            Ok(())
        });
    }
    readings_rx
}

struct ManagerReader {
    config: FabricManagerConfig,
    pause: Duration,
    turns: Arc<Semaphore>,
    readings_tx: watch::Sender<Arc<FabricReadings>>,
    figures_tx: watch::Sender<FabricFigures>,
}

impl ManagerReader {
    async fn run(self, mut leadership_rx: watch::Receiver<Leadership>, mut view_rx: watch::Receiver<Arc<ClusterView>>) {
        // Kept over terms: a fabric in memory is in it.
        let mut provider = None;
        loop {
            wait_to_lead(&mut leadership_rx, &mut view_rx, || self.clear()).await;
            tokio::select! {
                // Dropped in the middle of a read, which changes nothing.
                () = self.read(&mut provider) => {}
                // Cancel safe: see there.
                () = lead_ended(&mut leadership_rx) => self.clear(),
            }
        }
    }

    /// Reads the manager, for ever.
    async fn read(&self, provider: &mut Option<Arc<Provider>>) {
        let provider = match provider {
            Some(provider) => provider,
            None => provider.insert(self.set_up().await),
        };
        let mut reading = ManagerReading { provider: provider.clone(), inventory: None, error: None };
        self.put(&reading);
        let mut watch = provider.watch(self.pause, self.turns.clone());
        let mut since = None;
        loop {
            match watch.next().await {
                FabricHint::Changed(inventory) => {
                    self.tell_read(&reading, &inventory);
                    self.count(ManagerFigures { unread_since: None, foreign: foreign(&inventory) });
                    (reading.inventory, reading.error, since) = (Some(inventory), None, None);
                }
                FabricHint::Unread(error) => {
                    let since = *since.get_or_insert_with(SystemTime::now);
                    let error = Chain(&error).to_string();
                    let text = format!("{error} (since {})", rfc3339(since));
                    if reading.error.as_ref() != Some(&text) {
                        warn!(manager = self.config.name, error, "a fabric manager cannot be read");
                    }
                    reading.error = Some(text);
                    self.count_unread(since);
                }
            }
            self.put(&reading);
        }
    }

    /// Makes the way to the manager. Files that it needs may come later.
    async fn set_up(&self) -> Arc<Provider> {
        loop {
            let why = match provider_of(&self.config) {
                Ok(provider) => return Arc::new(provider),
                Err(why) => why,
            };
            let name = &self.config.name;
            let is_news =
                self.change(|readings| readings.unusable.insert(name.clone(), why.clone()).as_ref() != Some(&why));
            if is_news {
                warn!(manager = name, error = why, "a fabric manager cannot be asked");
            }
            self.count_unread(SystemTime::now());
            sleep(self.pause).await;
        }
    }

    fn tell_read(&self, before: &ManagerReading, inventory: &WatchedInventory) {
        if before.inventory.is_none() || before.error.is_some() {
            let (devices, hosts) = (inventory.identities().count() + inventory.astray.len(), inventory.hosts.len());
            info!(manager = self.config.name, devices, hosts, "a fabric manager is read");
        }
    }

    fn put(&self, reading: &ManagerReading) {
        let name = &self.config.name;
        self.change(|readings| {
            readings.unusable.remove(name);
            readings.managers.insert(name.clone(), reading.clone());
            true
        });
    }

    fn count(&self, figures: ManagerFigures) {
        self.figures_tx.send_modify(|all| drop(all.managers.insert(self.config.name.clone(), figures)));
    }

    /// Counts the manager as unread since a time, unless it was before.
    fn count_unread(&self, since: SystemTime) {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.figures_tx.send_modify(|all| {
            let figures = all.managers.entry(self.config.name.clone()).or_default();
            figures.unread_since.get_or_insert(since);
        });
    }

    /// Forgets the manager: another process reads it.
    fn clear(&self) {
        let name = &self.config.name;
        self.figures_tx.send_if_modified(|all| all.managers.remove(name).is_some());
        if self.readings_tx.borrow().has(name) {
            self.change(|readings| {
                readings.managers.remove(name);
                readings.unusable.remove(name);
                true
            });
        }
    }

    fn change(&self, change: impl FnOnce(&mut FabricReadings) -> bool) -> bool {
        self.readings_tx.send_if_modified(|readings| change(Arc::make_mut(readings)))
    }
}

impl FabricReadings {
    fn has(&self, name: &str) -> bool {
        self.managers.contains_key(name) || self.unusable.contains_key(name)
    }

    /// The last inventory of a manager.
    pub(crate) fn inventory(&self, manager: &str) -> Option<&Arc<WatchedInventory>> {
        self.managers.get(manager)?.inventory.as_ref()
    }

    /// The reason why a manager cannot be read now.
    pub(crate) fn error(&self, manager: &str) -> Option<&str> {
        let reading = self.managers.get(manager).and_then(|reading| reading.error.as_deref());
        reading.or_else(|| self.unusable.get(manager).map(String::as_str))
    }
}

/// Makes the way to a manager.
fn provider_of(config: &FabricManagerConfig) -> Result<Provider, String> {
    match (&config.redfish, &config.fake) {
        (Some(settings), _) => {
            RedfishProvider::new(settings).map(Provider::Redfish).map_err(|error| Chain(&error).to_string())
        }
        (None, Some(fake)) => Ok(Provider::Fake(fabric_in_memory(fake))),
        // Refused when the configuration is read.
        (None, None) => Err("no address of the manager is configured".to_owned()),
    }
}

/// A rack with the hosts and devices of the configuration.
fn fabric_in_memory(config: &FakeManagerConfig) -> FakeFabric {
    let hosts = u32::try_from(config.hosts.len()).unwrap_or(u32::MAX);
    let shared = u64::from(config.shared_gib) << 30;
    let fabric = match shared {
        0 => FakeFabric::rack(hosts, config.devices),
        shared => FakeFabric::shared(hosts, config.devices, shared),
    };
    let bytes = (shared == 0).then_some(u64::from(config.gib) << 30);
    fabric.change(|parts| {
        for (host, uuid) in parts.hosts.iter_mut().zip(&config.hosts) {
            host.uuid = uuid.parse::<SystemUuid>().ok();
        }
        for device in &mut parts.devices {
            device.size_bytes = bytes;
            device.identity.iter_mut().for_each(|identity| identity.serial += u64::from(config.first));
        }
        for domain in parts.memory_domains.iter_mut().filter(|_| bytes.is_some()) {
            domain.size_bytes = bytes;
            domain.chunks.iter_mut().for_each(|chunk| chunk.size_bytes = bytes);
        }
    });
    if config.answer_ms > 0 {
        fabric.inject(FabricFault::Slow(Duration::from_millis(config.answer_ms.into())));
    }
    fabric
}

#[cfg(test)]
mod tests;
