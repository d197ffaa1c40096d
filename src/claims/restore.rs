//! Makes ready again what a reboot undid, on hosts without an API server: containers there are started by units that
//! expect their devices, and nothing else asks. In a cluster the kubelet does, for every pod that is still wanted.
//!
//! Every claim is tried by itself at the start, so that a device that hangs holds up no other claim; and once more for
//! every later state of the inventory in which all of its devices are there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hostler_api::{ClaimRef, ClaimUid};
use tokio::{sync::watch, time::sleep};
use tracing::info;

use super::{ClaimTable, ClaimView, ClaimsHandle};
use crate::{
    inventory::{Inventory, InventoryReader},
    tasks::{Outcome, Tasks},
};

/// Time in which changes are collected: a claim that comes is no reason to look at all claims at once.
const SETTLE: Duration = Duration::from_millis(100);

/// Starts the task. Claims that can be prepared at once have been asked for when it first waits.
pub fn start(claims: ClaimsHandle, inventory: &InventoryReader, boot_id: String, tasks: &Tasks) {
    let restorer = ClaimRestorer { claims, boot_id, tried: BTreeMap::new(), tasks: tasks.clone() };
    let inventory_rx = inventory.subscribe();
    let stop = tasks.stop_token();
    tasks.service("restore", async move {
        tokio::select! {
            outcome = restorer.run(inventory_rx) => outcome,
            () = stop.cancelled() => Ok(()),
        }
    });
}

struct ClaimRestorer {
    claims: ClaimsHandle,
    boot_id: String,
    /// The inventory at the last try of a claim: a failure with it would only be repeated.
    tried: BTreeMap<ClaimUid, Arc<Inventory>>,
    tasks: Tasks,
}

impl ClaimRestorer {
    async fn run(mut self, mut inventory_rx: watch::Receiver<Arc<Inventory>>) -> Outcome {
        let mut table_rx = self.claims.table();
        loop {
            let (table, inventory) = (table_rx.borrow_and_update().clone(), inventory_rx.borrow_and_update().clone());
            self.try_all(&table, &inventory);
            tokio::select! {
                // Cancel safe: a change that was not taken is still seen as one.
                changed = table_rx.changed() => changed?,
                changed = inventory_rx.changed() => changed?,
            }
            sleep(SETTLE).await;
        }
    }

    fn try_all(&mut self, table: &ClaimTable, inventory: &Arc<Inventory>) {
        self.tried.retain(|uid, _| table.claims.contains_key(uid));
        let claims = restorable(table, inventory, &self.boot_id, &self.tried);
        if !claims.is_empty() {
            info!(claims = claims.len(), "preparing again what a reboot undid");
        }
        for claim in claims {
            self.tried.insert(claim.uid.clone(), inventory.clone());
            let handle = self.claims.clone();
            // Every failure is logged, and stands in the claim table.
            self.tasks.job(async move { handle.prepare(vec![claim]).await });
        }
    }
}

/// The claims that are to be tried now. A first try is made in any case: it says what is missing.
fn restorable(
    table: &ClaimTable,
    inventory: &Arc<Inventory>,
    boot_id: &str,
    tried: &BTreeMap<ClaimUid, Arc<Inventory>>,
) -> Vec<ClaimRef> {
    let is_there = |view: &ClaimView| {
        view.devices().iter().all(|held| inventory.find(&held.grant.pool, held.grant.device.as_str()).is_some())
    };
    let is_due = |uid: &ClaimUid, view: &ClaimView| match tried.get(uid) {
        None => true,
        Some(before) => !Arc::ptr_eq(before, inventory) && is_there(view),
    };
    let waiting = table.claims.iter().filter_map(|(uid, view)| match view {
        ClaimView::Recorded { record, busy: None, .. } if record.awaits_prepare(boot_id) => Some((uid, view, record)),
        _ => None,
    });
    waiting.filter(|(uid, view, _)| is_due(uid, view)).map(|(_, _, record)| record.claim.clone()).collect()
}

#[cfg(test)]
mod tests {
    use hostler_api::BackendName;
    use hostler_backend::Device;

    use super::{
        super::{
            BusyClaim, ClaimOperation,
            store::{ClaimRecord, RecordState},
            testing::*,
        },
        *,
    };
    use crate::inventory::Pool;

    fn table(record: ClaimRecord, busy: Option<BusyClaim>) -> ClaimTable {
        let uid = record.claim.uid.clone();
        let view = ClaimView::Recorded { record: Arc::new(record), problem: None, busy };
        let mut table = ClaimTable::default();
        table.show(uid, Some(view));
        table
    }

    /// What the devices of a record are found in.
    fn inventory(record: &ClaimRecord) -> Arc<Inventory> {
        let devices = record.devices.iter().map(|held| Device::new(held.grant.device.clone())).collect();
        let pool = Pool { name: record.devices[0].grant.pool.clone(), devices, ..Pool::default() };
        let pools = [(BackendName::new("fake").unwrap(), pool.into())].into();
        Arc::new(Inventory { pools, ..Inventory::default() })
    }

    #[test]
    fn what_was_ready_before_a_reboot_is_tried_once_and_again_when_all_of_its_devices_are_there() {
        let (none, busy) = (Arc::new(Inventory::default()), ClaimOperation::Prepare);
        let busy = BusyClaim { operation: busy, since: std::time::SystemTime::now() };
        for (state, boot) in [(RecordState::Prepared, "before"), (RecordState::Restoring, "now")] {
            let record = record("a", state, boot);
            let (there, uid) = (inventory(&record), record.claim.uid.clone());
            let due = |busy: Option<BusyClaim>, now: &Arc<Inventory>, before: Option<&Arc<Inventory>>| {
                let tried = before.map(|before| (uid.clone(), before.clone())).into_iter().collect();
                !restorable(&table(record.clone(), busy), now, "now", &tried).is_empty()
            };
            assert!(due(None, &none, None), "{state:?}: the first try says what is missing");
            assert!(!due(None, &none, Some(&none)), "{state:?}: nothing is other than at the last try");
            assert!(!due(None, &Arc::new(Inventory::default()), Some(&none)), "{state:?}: its devices are not there");
            assert!(due(None, &there, Some(&none)), "{state:?}: its devices have come");
            assert!(!due(None, &there, Some(&there)), "{state:?}: it has failed with them");
            assert!(!due(Some(busy), &there, Some(&none)), "{state:?}: it is being worked on");
        }
    }

    #[test]
    fn nothing_else_is_touched() {
        for (state, boot) in
            [(RecordState::Prepared, "now"), (RecordState::Preparing, "now"), (RecordState::Preparing, "before")]
        {
            let record = record("a", state, boot);
            let there = inventory(&record);
            assert_eq!(restorable(&table(record, None), &there, "now", &BTreeMap::new()), [], "{state:?} {boot}");
        }
    }
}
