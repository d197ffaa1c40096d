//! Keeps readers of memory tiers and takers of memory apart, in this process.
//!
//! When the last memory of a tier goes offline, the kernel removes the tier with `memory_tier_lock` held, and waits for all readers
//! of its `nodelist`. A reader that has begun by then waits for that lock. Neither ends before the machine starts anew, and
//! every later reader joins them. Offlining sends uevents, and a scan follows them: hence both are usual at the same moment.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TIERS: RwLock<()> = RwLock::new(());

/// To be held while the `nodelist` of a tier is read. Waits as long as memory goes offline.
pub fn reading() -> RwLockReadGuard<'static, ()> {
    TIERS.read().unwrap_or_else(PoisonError::into_inner)
}

/// To be held while memory goes offline. Waits for readers.
pub fn going_offline() -> RwLockWriteGuard<'static, ()> {
    TIERS.write().unwrap_or_else(PoisonError::into_inner)
}
