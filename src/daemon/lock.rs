//! One live daemon per node: the others wait for the lock. The kernel drops it with the process, however that ends.

use std::{sync::Arc, time::Duration};

use hostler_api::Chain;
use hostler_files::{InstanceLock, LockError};
use tokio::time::sleep;
use tracing::{error, warn};

use super::notify;
use crate::tasks::{Outcome, Tasks};

/// Time between two checks of an idle daemon's lock. Work on claims checks it more often: see
/// [`ClaimsParts::lock`](crate::claims::ClaimsParts).
const PERIOD: Duration = Duration::from_secs(2);

/// Ends the daemon when its lock is not its own any more. Its service manager starts it again, into the line of those
/// that wait for the lock. From here on the lock is let go with the process and not before: threads that a second
/// signal leaves behind may still be at work.
pub(super) fn watch(lock: Arc<InstanceLock>, tasks: &Tasks) {
    std::mem::forget(lock.clone());
    let stop = tasks.stop_token();
    tasks.service("lock", async move {
        tokio::select! {
            // Dropped at the end only.
            lost = until_lost(&lock) => Err(lost.into()),
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => Outcome::Ok(()),
        }
    });
}

async fn until_lost(lock: &InstanceLock) -> LockError {
    loop {
        // One look at a folder that is in memory: no work for another thread.
        match lock.check() {
            Ok(()) => {}
            Err(lost @ LockError::Lost { .. }) => {
                error!(error = %Chain(&lost), "another daemon may be live");
                notify::failing(&lost.to_string());
                return lost;
            }
            Err(unknown) => warn!(error = %Chain(&unknown), "lock not seen"),
        }
        sleep(PERIOD).await;
    }
}
