//! Tells waiting callers that something has changed: `GET /v1/changes?after=VERSION&timeout=30s`.
//!
//! A version can only be compared with another. It is made on request: a daemon without watchers keeps no count of
//! its changes.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
};
use hostler_backend::duration;
use serde::Deserialize;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{AdminFailure, AdminService, types::AdminChange};
use crate::{claims::ClaimTable, inventory::Inventory, tasks::Tasks};

/// Requests that may wait at once: a quarter of the connections to the admin socket, so that watchers lock no caller
/// out.
const MOST_WAITING: usize = 16;
/// Longest wait of a request. A caller that still cares asks again.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// Time in which most of a burst of changes is over: the whole burst gets one answer.
const SETTLE: Duration = Duration::from_millis(50);

/// Callers that wait for changes, and the state that was last seen.
#[derive(Debug)]
pub struct ChangeWatchers {
    places: Semaphore,
    stop: CancellationToken,
    /// Random number of this daemon: another one's versions are no versions here.
    daemon: u64,
    seen: Mutex<SeenState>,
}

/// State that the latest version stands for. Compared by address, and not kept alive.
#[derive(Debug, Default)]
struct SeenState {
    version: u64,
    inventory: Weak<Inventory>,
    claims: Weak<ClaimTable>,
}

impl ChangeWatchers {
    /// Starts without watchers.
    pub fn new(tasks: &Tasks) -> Self {
        Self {
            places: Semaphore::new(MOST_WAITING),
            stop: tasks.stop_token(),
            daemon: fastrand::u64(..),
            seen: Mutex::default(),
        }
    }

    /// Returns a place to wait in, if one is free.
    pub(super) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Returns when the daemon stops.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// The version of a state.
    fn version(&self, inventory: &Arc<Inventory>, claims: &Arc<ClaimTable>) -> String {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (inventory, claims) = (Arc::downgrade(inventory), Arc::downgrade(claims));
        if !seen.inventory.ptr_eq(&inventory) || !seen.claims.ptr_eq(&claims) {
            *seen = SeenState { version: seen.version.wrapping_add(1), inventory, claims };
        }
        format!("{:016x}-{}", self.daemon, seen.version)
    }
}

/// `?after=VERSION&timeout=30s`; without a version the answer comes at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangesQuery {
    after: Option<String>,
    #[serde(default = "longest", with = "duration")]
    timeout: Duration,
}

fn longest() -> Duration {
    LONGEST
}

/// Returns the version of the present state: as soon as it differs from the one that was seen, or when the time is
/// over.
pub(super) async fn changes(
    State(admin): State<AdminService>,
    Query(ChangesQuery { after, timeout: patience }): Query<ChangesQuery>,
) -> Result<Json<AdminChange>, AdminFailure> {
    let now = admin.version();
    if after.as_deref() != Some(&*now) {
        return Ok(Json(AdminChange { version: now }));
    }
    let Some(_place) = admin.0.watchers.place() else {
        let error = format!("{MOST_WAITING} others wait for changes already: ask again in some seconds");
        return Err(AdminFailure(StatusCode::SERVICE_UNAVAILABLE, error));
    };
    // A wait that ends without a change, or with the daemon, is answered with the present version.
    let _ = timeout(patience.min(LONGEST), admin.changed(&now)).await;
    Ok(Json(AdminChange { version: admin.version() }))
}

impl AdminService {
    fn version(&self) -> String {
        let inventory = self.0.inventory.reader().latest();
        let claims = self.0.claims.table().borrow().clone();
        self.0.watchers.version(&inventory, &claims)
    }

    /// Returns when the version has changed, or the daemon stops.
    async fn changed(&self, after: &str) {
        let mut inventory_rx = self.0.inventory.reader().subscribe();
        let mut claims_rx = self.0.claims.table();
        let mut faults_rx = self.0.necessities_rx.clone();
        inventory_rx.mark_unchanged();
        claims_rx.mark_unchanged();
        faults_rx.mark_unchanged();
        // Changes between the question and the three lines above.
        while self.version() == after {
            tokio::select! {
                // All are cancel safe: what was not seen is still unseen.
                Ok(()) = inventory_rx.changed() => {}
                Ok(()) = claims_rx.changed() => {}
                // Manifests are files: what is wrong with them is no part of a version.
                Ok(()) = faults_rx.changed() => return,
                () = self.0.watchers.stopped() => return,
                else => return,
            }
        }
        tokio::time::sleep(SETTLE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_state_has_one_version_and_another_state_another() {
        let (tasks, _ended_rx) = Tasks::new();
        let watchers = ChangeWatchers::new(&tasks);
        let (inventory, claims): (Arc<Inventory>, Arc<ClaimTable>) = Default::default();
        let first = watchers.version(&inventory, &claims);
        assert_eq!(watchers.version(&inventory, &claims), first);
        let other = Arc::new(ClaimTable::default());
        let second = watchers.version(&inventory, &other);
        assert_ne!(second, first);
        drop(other);
        // It may be put where the one before was.
        assert_ne!(watchers.version(&inventory, &Arc::new(ClaimTable::default())), second);
        assert_ne!(ChangeWatchers::new(&tasks).version(&inventory, &claims), first, "another daemon");
    }
}
