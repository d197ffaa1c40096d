//! ClusterHardware: the sums of the cluster in one small object, written by the controller that leads, on change.
//!
//! ```text
//!   view ──► what shall stand there ─┐
//!   leadership ──────────────────────┴─► HardwareCore::step ──► read, create, write over the version that was seen
//! ```
//!
//! A write names the version that it goes over, so that a late one, of a controller that leads no more, is refused.

mod decision;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_api::{
    Chain,
    hardware::{
        CLUSTER_HARDWARE, CLUSTER_HARDWARE_KIND, CLUSTER_HARDWARE_NAME, ClusterClassCounts, ClusterHardwareStatus,
        GROUP, VERSION,
    },
    well_known::CONTROLLER_FIELD_MANAGER,
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, rfc3339};
use hostler_process::Tasks;
use hostler_reconcile::Leadership;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use crate::{
    conditions::{ClusterFinding, FindingKind, SumsOutcome},
    view::ClusterView,
};

pub(crate) use self::decision::{HardwareCommand, HardwareCore, HardwareEvent, StoredHardware};

/// The pause while nothing is due: an event will tell.
const LATER: Duration = Duration::from_secs(3600);

/// Parts that writing takes.
#[derive(Debug)]
pub(crate) struct HardwareParts {
    /// A connection that no watch can hold up.
    pub(crate) client: ApiClient,
    /// The current view of the cluster.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// Findings on what the controller can do, and what it cannot.
    pub(crate) findings_rx: watch::Receiver<Arc<[ClusterFinding]>>,
    /// Leadership of this process: only a leader may write.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// The outcome of writing, for readers.
    pub(crate) outcome_tx: watch::Sender<SumsOutcome>,
}

/// Writes as long as this process leads.
pub(crate) fn start(parts: HardwareParts, tasks: &Tasks) {
    let all = Collection::custom(GROUP, VERSION, CLUSTER_HARDWARE_KIND, CLUSTER_HARDWARE);
    let writer = HardwareWriter { parts, all, core: HardwareCore::new(Instant::now().into_std()) };
    let stop = tasks.stop_token();
    tasks.service("cluster-hardware", async move {
        tokio::select! {
            // Dropped at the end only; what was half written is written by the next leader.
            () = writer.run() => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

/// The edge between [`HardwareCore`] and the API server.
struct HardwareWriter {
    parts: HardwareParts,
    all: Collection,
    core: HardwareCore,
}

impl HardwareWriter {
    async fn run(mut self) {
        let mut event = HardwareEvent::Changed;
        loop {
            let now = Instant::now().into_std();
            let leads = self.parts.leadership_rx.borrow_and_update().is_ours(now);
            let wanted = self.wanted();
            event = match self.core.step(now, leads, wanted, event) {
                Some(command) => self.execute(command).await,
                None => self.wait().await,
            };
        }
    }

    /// Returns the status that shall stand in the object. Nothing, as long as not everything is known: half a sum is no
    /// sum.
    fn wanted(&mut self) -> Option<ClusterHardwareStatus> {
        let view = self.parts.view_rx.borrow_and_update();
        if !view.missing().is_empty() {
            return None;
        }
        let classes = view.stock.sums.classes.iter();
        let classes = classes.map(|(name, tally)| ClusterClassCounts { name: name.to_string(), devices: tally.totals });
        let findings = self.parts.findings_rx.borrow_and_update();
        // A reader of the sums sees here that they are written.
        let others = findings.iter().filter(|finding| finding.kind != FindingKind::ClusterHardware);
        Some(ClusterHardwareStatus {
            conditions: others.map(ClusterFinding::condition).collect(),
            nodes: view.stock.reports,
            classes: classes.collect(),
            last_change_time: None,
        })
    }

    async fn wait(&mut self) -> HardwareEvent {
        let due = self.core.due().map_or_else(|| Instant::now() + LATER, Instant::from_std);
        let HardwareParts { view_rx, findings_rx, leadership_rx, .. } = &mut self.parts;
        // All arms are cancel safe: what they would report is looked at again in the next round.
        tokio::select! {
            _ = view_rx.changed() => {}
            _ = findings_rx.changed() => {}
            _ = leadership_rx.changed() => {}
            () = sleep_until(due) => {}
        }
        HardwareEvent::Changed
    }

    async fn execute(&mut self, command: HardwareCommand) -> HardwareEvent {
        let done = match &command {
            HardwareCommand::Read => self.read().await,
            HardwareCommand::Create => self.create().await,
            HardwareCommand::Write { version, status } => self.write(version, status).await,
        };
        match done {
            Ok(event) => {
                self.tell(SumsOutcome::Written);
                event
            }
            Err(failure) if failure.is_unknown_resource() => {
                self.tell(SumsOutcome::NotServed);
                HardwareEvent::NotServed
            }
            // Another writer was faster.
            Err(failure) if matches!(failure.code(), Some(404 | 409)) => HardwareEvent::Refused,
            Err(failure) => {
                self.tell(SumsOutcome::Failed(Chain(&failure).to_string()));
                HardwareEvent::Failed
            }
        }
    }

    async fn read(&self) -> Result<HardwareEvent, ApiFailure> {
        let found = self.parts.client.find::<WrittenHardware>(&self.all, CLUSTER_HARDWARE_NAME).await?;
        Ok(HardwareEvent::Read(found.map(|found| found.stored())))
    }

    async fn create(&self) -> Result<HardwareEvent, ApiFailure> {
        let object = json!({
            "apiVersion": self.all.api_version(), "kind": CLUSTER_HARDWARE_KIND,
            "metadata": { "name": CLUSTER_HARDWARE_NAME },
        });
        let found: WrittenHardware = self.parts.client.create(&self.all, CLUSTER_HARDWARE_NAME, &object).await?;
        info!("ClusterHardware is made");
        Ok(HardwareEvent::Read(Some(found.stored())))
    }

    async fn write(&self, version: &str, status: &ClusterHardwareStatus) -> Result<HardwareEvent, ApiFailure> {
        let status = ClusterHardwareStatus { last_change_time: Some(rfc3339(SystemTime::now())), ..status.clone() };
        let object = json!({
            "apiVersion": self.all.api_version(), "kind": CLUSTER_HARDWARE_KIND,
            "metadata": { "name": CLUSTER_HARDWARE_NAME, "resourceVersion": version }, "status": status,
        });
        let client = &self.parts.client;
        let found: WrittenHardware =
            client.replace_part("status", &self.all, CLUSTER_HARDWARE_NAME, CONTROLLER_FIELD_MANAGER, &object).await?;
        Ok(HardwareEvent::Written(found.stored()))
    }

    fn tell(&self, outcome: SumsOutcome) {
        self.parts.outcome_tx.send_if_modified(|last| {
            let is_other = *last != outcome;
            if let SumsOutcome::Failed(error) = &outcome
                && is_other
            {
                warn!(error, "ClusterHardware cannot be written");
            }
            *last = outcome;
            is_other
        });
    }
}

/// An answer of the API server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WrittenHardware {
    metadata: WrittenMetadata,
    status: ClusterHardwareStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WrittenMetadata {
    resource_version: String,
}

impl WrittenHardware {
    fn stored(self) -> StoredHardware {
        StoredHardware { version: self.metadata.resource_version, status: self.status }
    }
}

#[cfg(test)]
mod tests;
