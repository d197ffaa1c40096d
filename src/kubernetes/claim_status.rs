//! Tells in each prepared claim's `status.devices` how its devices are. One task writes, long after the pod has what it
//! needs; nothing depends on it.
//!
//! ```text
//!   claim table ┐
//!   inventory   ┴─(1 s of quiet)─► devices (pure) ─► compare with what the server has ─► write
//! ```
//!
//! Nothing is taken away here: the API server drops what belongs to a device when it deallocates it.

mod devices;
mod message;
mod store;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hostler_api::{Chain, ClaimRef, ClaimUid};
use hostler_cluster::{ApiFailure, RetryPauses};
use hostler_reconcile::WriteOutcome;
use tokio::{sync::watch, time::sleep};
use tracing::{debug, info, warn};

use self::{
    devices::{ClaimTrouble, StoredDevices},
    message::{ConditionTime, DeviceStatus},
};
use super::ClusterNode;
use crate::{
    audit::{AuditReader, AuditTable},
    claims::{ClaimTable, ClaimView},
    inventory::Inventory,
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// Changes come in bursts, and a claim that lives shorter than this is no news.
const SETTLE: Duration = Duration::from_secs(1);
/// After a failure that passes by itself: the first pause, which doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// Between looks whether a server that does not take the status takes it now.
const QUIET: Duration = Duration::from_secs(3600);

/// How often a claim is read anew that others write to at the same time: the scheduler, and drivers of its other
/// devices. Each of them has little to say.
const TRIES: usize = 5;
/// The HTTP status that says so.
const CONFLICT: u16 = 409;

/// The permission that is needed from Kubernetes 1.36 on beside the right to write the status. The API server calls the
/// claim invalid where the permission is missing.
const DRIVER_PERMISSION: &str = "resourceclaims/driver";

const DROPPED: &str = "the API server drops the field: switch its feature gate DRAResourceClaimDeviceStatus on, or cluster.claim_status off";
const FORBIDDEN: &str = "grant update on resourceclaims/status, and associated-node:update on \
                         resourceclaims/driver with the driver's name, or switch cluster.claim_status off";

/// Sources of the status.
#[derive(Clone, Debug)]
pub struct ClaimChanges {
    /// Claims.
    pub table_rx: watch::Receiver<Arc<ClaimTable>>,
    /// Containers that are not bound as their claims say.
    pub audit_rx: AuditReader,
    /// Their devices.
    pub inventory_rx: watch::Receiver<Arc<Inventory>>,
}

/// Starts the task.
pub fn start(cluster: ClusterNode, changes: ClaimChanges, metrics: Metrics, tasks: &Tasks) {
    let writer = StatusWriter {
        cluster,
        metrics,
        known: BTreeMap::new(),
        pauses: RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, QUIET),
        refused: false,
    };
    let stop = tasks.stop_token();
    tasks.service("claim status", async move {
        tokio::select! {
            // Dropped in the middle of a call: the next run reads what came of it.
            outcome = writer.run(changes) => outcome,
            () = stop.cancelled() => Ok(()),
        }
    });
}

struct StatusWriter {
    cluster: ClusterNode,
    metrics: Metrics,
    /// The status that the server has of each claim. A claim that is not known yet is read before it is written: an
    /// earlier run may have written it.
    known: BTreeMap<ClaimUid, StoredDevices>,
    pauses: RetryPauses,
    /// True if the server does not take the status, and the log says so.
    refused: bool,
}

/// How one pass over the claims ended.
enum PassOutcome {
    /// The server has all that it takes.
    Done,
    /// Something failed that passes by itself; it is tried again after this time.
    Again(Duration),
    /// A permission is missing.
    Forbidden(ApiFailure),
    /// The server takes nothing, for this reason.
    Refused(String),
}

impl StatusWriter {
    async fn run(mut self, changes: ClaimChanges) -> Outcome {
        let ClaimChanges { mut table_rx, mut audit_rx, mut inventory_rx } = changes;
        loop {
            sleep(SETTLE).await;
            let (table, inventory) = (table_rx.borrow_and_update().clone(), inventory_rx.borrow_and_update().clone());
            let audit = audit_rx.borrow_and_update().clone();
            let pause = match self.pass(&table, &audit, &inventory).await {
                PassOutcome::Done => None,
                PassOutcome::Again(pause) => Some(pause),
                PassOutcome::Forbidden(failure) => {
                    let pause = self.pauses.after_refusal(&failure);
                    if self.pauses.is_refused_for_long() {
                        self.tell_refused(&format!("{}: {FORBIDDEN}", Chain(&failure)));
                    }
                    // What changes meanwhile would be refused as well.
                    sleep(pause).await;
                    continue;
                }
                PassOutcome::Refused(reason) => {
                    self.tell_refused(&reason);
                    // What changes meanwhile would be refused as well.
                    sleep(QUIET).await;
                    continue;
                }
            };
            tokio::select! {
                // Cancel safe: a change that was not seen here is still marked as one.
                changed = table_rx.changed() => changed?,
                changed = audit_rx.changed() => changed?,
                changed = inventory_rx.changed() => changed?,
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    fn tell_refused(&mut self, reason: &str) {
        if !self.refused {
            warn!(reason, "the status of claims is not written; looking again every hour at the latest");
        }
        self.refused = true;
    }

    async fn pass(&mut self, table: &ClaimTable, audit: &AuditTable, inventory: &Inventory) -> PassOutcome {
        self.known.retain(|uid, _| table.claims.contains_key(uid));
        let mut later: Option<Duration> = None;
        for view in table.claims.values() {
            let ClaimView::Recorded { record, problem, .. } = view else { continue };
            let (driver, now) = (self.cluster.driver(), ConditionTime::now());
            let degraded = audit.degraded(&record.claim.uid);
            let trouble = ClaimTrouble { problem: problem.as_deref(), degraded: degraded.as_deref() };
            let wanted = devices::claim_devices(record, trouble, inventory, driver, now);
            if wanted.is_empty() {
                continue;
            }
            match self.bring_up_to_date(&record.claim, wanted).await {
                Ok(WriteOutcome::Dropped(_)) => return PassOutcome::Refused(DROPPED.to_owned()),
                Ok(_) => {}
                Err(failure) if failure.lacks_permission(DRIVER_PERMISSION) => {
                    return PassOutcome::Forbidden(failure);
                }
                Err(failure @ ApiFailure::NoResourceApi) => {
                    return PassOutcome::Refused(Chain(&failure).to_string());
                }
                Err(failure) => {
                    if self.note(&record.claim, &failure) {
                        later.get_or_insert_with(|| self.pauses.after_outage(&failure));
                    }
                    if failure.is_outage() {
                        break;
                    }
                }
            }
        }
        if let Some(pause) = later {
            return PassOutcome::Again(pause);
        }
        self.pauses.reset();
        PassOutcome::Done
    }

    /// Tells of a failure; whether trying again may help.
    fn note(&self, claim: &ClaimRef, failure: &ApiFailure) -> bool {
        if failure.is_unknown_resource() {
            self.cluster.client().forget_version();
        }
        let passes = failure.is_transient() || failure.is_unknown_resource() || failure.code() == Some(CONFLICT);
        let (uid, name) = (&claim.uid, claim.full_name());
        if passes {
            self.metrics.api_retried("claim_status");
            debug!(claim.uid = %uid, claim.name = name, error = %Chain(failure), "writing the claim's status later");
        } else {
            warn!(claim.uid = %uid, claim.name = name, error = %Chain(failure), "the claim's status is not written");
        }
        passes
    }

    /// Writes what is not there yet.
    async fn bring_up_to_date(
        &mut self,
        claim: &ClaimRef,
        wanted: Vec<DeviceStatus>,
    ) -> Result<WriteOutcome, ApiFailure> {
        match self.known.get(&claim.uid) {
            Some(known) if known.gone => return Ok(WriteOutcome::Gone),
            Some(known) if known.says(&wanted) => return Ok(WriteOutcome::Done),
            _ => {}
        }
        let mut written = self.read_and_write(claim, wanted.clone()).await;
        for _ in 1..TRIES {
            if !matches!(&written, Err(failure) if failure.code() == Some(CONFLICT)) {
                break;
            }
            written = self.read_and_write(claim, wanted.clone()).await;
        }
        written
    }

    /// Decides on what the server has now, and writes on the condition that it has not changed since.
    async fn read_and_write(
        &mut self,
        claim: &ClaimRef,
        mut wanted: Vec<DeviceStatus>,
    ) -> Result<WriteOutcome, ApiFailure> {
        let Some(stored) = store::read(&self.cluster, claim).await? else {
            self.known.insert(claim.uid.clone(), StoredDevices::gone());
            return Ok(WriteOutcome::Gone);
        };
        let mut known = StoredDevices::new(stored.devices.clone(), stored.generation, self.cluster.driver());
        known.fit(&mut wanted);
        if known.ours == wanted {
            self.known.insert(claim.uid.clone(), known);
            return Ok(WriteOutcome::Done);
        }
        let written = store::write(&self.cluster, claim, &stored, &wanted).await;
        match &written {
            Ok(WriteOutcome::Done) => {
                debug!(claim.uid = %claim.uid, "wrote the status of the claim's devices");
                known.ours = wanted;
                if std::mem::take(&mut self.refused) {
                    info!("the status of claims is written again");
                }
            }
            Ok(WriteOutcome::Gone) => known.gone = true,
            // A permission may be granted.
            Err(failure) if failure.lacks_permission(DRIVER_PERMISSION) => return written,
            // What the server refuses for its content it would refuse again.
            Err(failure) if matches!(failure.code(), Some(400 | 422)) => known.ours = wanted,
            Ok(_) | Err(_) => return written,
        }
        self.known.insert(claim.uid.clone(), known);
        written
    }
}
