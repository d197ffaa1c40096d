//! Memory that its manager has said to be gone, while the inventory that was read before still shows it. Pure.

use std::sync::{Arc, Weak};

use hostler_fabric::{AttachKey, WatchedInventory};
use tokio::time::Instant;

use super::context::{AttachmentContext, ManagerCall};
use crate::fabric::board::FabricReadings;

/// The answer to a release of memory.
#[derive(Clone, Debug)]
pub(super) struct FreedMemory {
    key: AttachKey,
    /// The inventory that showed the memory when the manager answered.
    shown: Weak<WatchedInventory>,
    answered: Instant,
}

impl FreedMemory {
    /// The memory that a call has freed, as its manager says now; `None`: the call was another one.
    pub(super) fn of(call: &ManagerCall, cx: &AttachmentContext, readings: &FabricReadings) -> Option<Self> {
        let ManagerCall::Free { key, .. } = call else { return None };
        let shown = Arc::downgrade(inventory_of(cx, readings)?);
        Some(Self { key: key.clone(), shown, answered: Instant::now() })
    }

    /// True if the memory that the manager showed last is gone. An inventory that is read later counts for itself. It is
    /// the same one where it says the same: so a call that is late, and made the memory again, is met once no such call
    /// can come any more.
    pub(super) fn is_gone(&self, cx: &AttachmentContext, readings: &FabricReadings) -> bool {
        let is_same = |shown| Weak::ptr_eq(&self.shown, &Arc::downgrade(shown));
        cx.made_memory.as_ref() == Some(&self.key)
            && inventory_of(cx, readings).is_some_and(is_same)
            && self.answered.elapsed() < cx.limits.late_call
    }
}

/// The last inventory of the manager of an attachment.
fn inventory_of<'a>(cx: &AttachmentContext, readings: &'a FabricReadings) -> Option<&'a Arc<WatchedInventory>> {
    readings.inventory(&cx.seen.as_ref()?.spec().manager)
}
