//! Hints that a fabric has changed, by reading it again and again.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{FabricError, FabricProvider, WatchedInventory};

/// A manager that is slow, or hangs, delays reads of others by no more than this.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A watch of a manager. It runs only while [`next`](Self::next) is awaited.
#[derive(Debug)]
pub struct FabricWatch<'a, P> {
    provider: &'a P,
    pause: Duration,
    turns: Arc<Semaphore>,
    last: Option<Arc<WatchedInventory>>,
    is_first: bool,
}

/// A hint of a watch. It tells that reading is worth while, and promises nothing: changes between two reads are one hint
/// or none.
#[derive(Debug)]
pub enum FabricHint {
    /// The inventory differs from the last one. The first read is such a change, and so is the first after failures.
    Changed(Arc<WatchedInventory>),
    /// The inventory could not be read. Nothing is known to have changed.
    Unread(FabricError),
}

impl<'a, P: FabricProvider> FabricWatch<'a, P> {
    pub(crate) fn new(provider: &'a P, pause: Duration, turns: Arc<Semaphore>) -> Self {
        Self { provider, pause, turns, last: None, is_first: true }
    }

    /// Waits for the next hint. The first read has no pause before it. A call that is dropped loses no change: the next
    /// one compares with the last inventory that was returned.
    pub async fn next(&mut self) -> FabricHint {
        loop {
            if !std::mem::take(&mut self.is_first) {
                sleep(self.pause).await;
            }
            match self.read().await {
                Err(error) => {
                    // The next inventory is news, even one that says the same: the manager answers again.
                    self.last = None;
                    return FabricHint::Unread(error);
                }
                Ok(inventory) => {
                    if self.last.as_deref() != Some(&inventory) {
                        let inventory = Arc::new(inventory);
                        self.last = Some(Arc::clone(&inventory));
                        return FabricHint::Changed(inventory);
                    }
                }
            }
        }
    }

    /// Reads the manager in its turn: what is read is beside the last inventory in memory until it is compared.
    async fn read(&self) -> Result<WatchedInventory, FabricError> {
        let _turn = timeout(LONGEST_WAIT, self.turns.acquire()).await;
        Ok(self.provider.inventory().await?.watched())
    }
}
