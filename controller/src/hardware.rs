//! ClusterHardware: the sums of the cluster in one small object, written by the controller that leads, on change.
//!
//! ```text
//!   view, findings ──► status that the object is to have ─┐
//!   API server ──► object ────────────────────────────────┴─► decide ──► create, or replace the version that was read
//! ```
//!
//! A write names the version that it replaces: a late write of a controller that does not lead any more is refused.

mod decision;

use std::{
    collections::BTreeMap,
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
use hostler_reconcile::{Controller, ControllerParts, Fingerprint, ReconcileMoment, Reconciler, Requeue};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    conditions::{ClusterFinding, FindingKind, SumsOutcome},
    view::ClusterView,
};

pub(crate) use self::decision::{HardwareStep, StoredHardware, decide};

/// The least time between two writes: readers who need the sums sooner ask the controller.
const BETWEEN_WRITES: Duration = Duration::from_secs(10);
/// Pause between two reads that find whether the object was changed or deleted.
const LOOK: Duration = Duration::from_secs(300);
/// Pause between two searches for the kind: an operator who has just read that it is missing can install it at any
/// moment.
const LOOK_FOR_KIND: Duration = Duration::from_secs(10);

/// Keeps the object as long as this process leads.
#[derive(Debug)]
pub(crate) struct HardwareController {
    /// Findings about the controller's capabilities.
    pub(crate) findings_rx: watch::Receiver<Arc<[ClusterFinding]>>,
    /// Tells whether writing succeeds.
    pub(crate) outcome_tx: watch::Sender<SumsOutcome>,
}

impl HardwareController {
    /// Writes as long as this process leads.
    pub(crate) fn run(self, parts: ControllerParts<ClusterView>) {
        self.start("cluster-hardware", parts);
    }
}

impl Controller for HardwareController {
    type Reconciler = HardwareReconciler;

    async fn begin(&self, parts: &ControllerParts<ClusterView>) -> Result<HardwareReconciler, String> {
        let (findings_rx, outcome_tx) = (self.findings_rx.clone(), self.outcome_tx.clone());
        let writer = HardwareWriter {
            client: parts.client.clone(),
            all: Collection::custom(GROUP, VERSION, CLUSTER_HARDWARE_KIND, CLUSTER_HARDWARE),
        };
        Ok(HardwareReconciler {
            writer,
            findings_rx,
            outcome_tx,
            pause: WritePause::default(),
            elapsed: Duration::ZERO,
        })
    }
}

/// Reconciles the one object, for one term.
pub(crate) struct HardwareReconciler {
    writer: HardwareWriter,
    findings_rx: watch::Receiver<Arc<[ClusterFinding]>>,
    outcome_tx: watch::Sender<SumsOutcome>,
    pause: WritePause,
    /// Time at which the last reconciliation began.
    elapsed: Duration,
}

/// End of the pause after a write.
#[derive(Debug, Default)]
struct WritePause(Duration);

/// Result of one reconciliation.
#[derive(Debug)]
pub(crate) enum HardwareAnswer {
    /// Nothing was to be written.
    Kept,
    /// The status was written.
    Done,
    /// The object was created.
    Created,
    /// The last write was a moment ago: this pause is left.
    Early(Duration),
    /// The API server does not serve the kind.
    NotServed,
    /// The object was not written; the error is missing if another writer was faster.
    Failed(Option<String>),
}

impl Reconciler for HardwareReconciler {
    type View = ClusterView;
    type Answer = HardwareAnswer;

    fn keys(&mut self, view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        let Some(mut wanted) = self.wanted(view) else { return BTreeMap::new() };
        // A condition of the wanted status has the present time: without it, two equal statuses have one fingerprint.
        wanted.conditions.iter_mut().for_each(|it| it.last_transition_time.clear());
        let mut fingerprint = Fingerprint::default();
        fingerprint.add(json!(wanted).to_string());
        BTreeMap::from([(CLUSTER_HARDWARE_NAME.to_owned(), fingerprint)])
    }

    fn reconcile(
        &mut self,
        _: &str,
        moment: ReconcileMoment<ClusterView>,
    ) -> impl Future<Output = HardwareAnswer> + Send + 'static {
        self.elapsed = moment.elapsed;
        let (left, wanted, writer) = (self.pause.left(moment.elapsed), self.wanted(&moment.view), self.writer.clone());
        async move {
            match wanted {
                Some(_) if !left.is_zero() => HardwareAnswer::Early(left),
                Some(wanted) => writer.reconcile(wanted, &moment).await,
                None => HardwareAnswer::Kept,
            }
        }
    }

    fn reconciled(&mut self, _: &str, answer: HardwareAnswer) -> Requeue {
        match &answer {
            HardwareAnswer::Done => {
                self.pause.wrote(self.elapsed);
                self.tell(SumsOutcome::Written);
            }
            HardwareAnswer::Kept | HardwareAnswer::Created => self.tell(SumsOutcome::Written),
            HardwareAnswer::NotServed => self.tell(SumsOutcome::NotServed),
            HardwareAnswer::Failed(Some(error)) => self.tell(SumsOutcome::Failed(error.clone())),
            HardwareAnswer::Failed(None) | HardwareAnswer::Early(_) => {}
        }
        requeue_after(&answer)
    }

    fn forget(&mut self, _: &str) {}

    async fn changed(&mut self) {
        // The channel of findings closes with the process.
        if self.findings_rx.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl HardwareReconciler {
    /// Returns the status that the object is to have; `None` until all lists are complete, since half a sum is no sum.
    fn wanted(&mut self, view: &ClusterView) -> Option<ClusterHardwareStatus> {
        if !view.missing().is_empty() {
            return None;
        }
        let classes = view.stock.sums.classes.iter();
        let classes = classes.map(|(name, tally)| ClusterClassCounts { name: name.to_string(), devices: tally.totals });
        let findings = self.findings_rx.borrow_and_update();
        // The finding about ClusterHardware itself is left out: a reader of the object sees that it is written.
        let others = findings.iter().filter(|finding| finding.kind != FindingKind::ClusterHardware);
        Some(ClusterHardwareStatus {
            conditions: others.map(ClusterFinding::condition).collect(),
            nodes: view.stock.reports,
            classes: classes.collect(),
            last_change_time: None,
        })
    }

    fn tell(&self, outcome: SumsOutcome) {
        self.outcome_tx.send_if_modified(|last| {
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

impl WritePause {
    fn left(&self, now: Duration) -> Duration {
        self.0.saturating_sub(now)
    }

    fn wrote(&mut self, now: Duration) {
        self.0 = now + BETWEEN_WRITES;
    }
}

fn requeue_after(answer: &HardwareAnswer) -> Requeue {
    match answer {
        HardwareAnswer::Kept | HardwareAnswer::Done => Requeue::After(LOOK),
        HardwareAnswer::Created => Requeue::Now,
        HardwareAnswer::Early(left) => Requeue::After(*left),
        HardwareAnswer::NotServed => Requeue::After(LOOK_FOR_KIND),
        HardwareAnswer::Failed(_) => Requeue::Failed,
    }
}

/// The edge to the API server.
#[derive(Clone, Debug)]
struct HardwareWriter {
    client: ApiClient,
    all: Collection,
}

impl HardwareWriter {
    async fn reconcile(&self, wanted: ClusterHardwareStatus, moment: &ReconcileMoment<ClusterView>) -> HardwareAnswer {
        match self.step(wanted, moment).await {
            Ok(answer) => answer,
            Err(failure) if failure.is_unknown_resource() => HardwareAnswer::NotServed,
            Err(failure) if matches!(failure.code(), Some(404 | 409)) => HardwareAnswer::Failed(None),
            Err(failure) => HardwareAnswer::Failed(Some(Chain(&failure).to_string())),
        }
    }

    async fn step(
        &self,
        wanted: ClusterHardwareStatus,
        moment: &ReconcileMoment<ClusterView>,
    ) -> Result<HardwareAnswer, ApiFailure> {
        let stored: Option<WrittenHardware> = self.client.find(&self.all, CLUSTER_HARDWARE_NAME).await?;
        let stored = stored.map(WrittenHardware::stored);
        match decide(wanted, stored.as_ref()) {
            HardwareStep::Rest => Ok(HardwareAnswer::Kept),
            // The term ended while the object was read.
            _ if !moment.may_write() => Ok(HardwareAnswer::Failed(None)),
            HardwareStep::Create => self.create().await,
            HardwareStep::Write { version, status } => self.write(&version, *status).await,
        }
    }

    async fn create(&self) -> Result<HardwareAnswer, ApiFailure> {
        let object = json!({
            "apiVersion": self.all.api_version(), "kind": CLUSTER_HARDWARE_KIND,
            "metadata": { "name": CLUSTER_HARDWARE_NAME },
        });
        let _: WrittenHardware = self.client.create(&self.all, CLUSTER_HARDWARE_NAME, &object).await?;
        info!("ClusterHardware is made");
        Ok(HardwareAnswer::Created)
    }

    async fn write(&self, version: &str, status: ClusterHardwareStatus) -> Result<HardwareAnswer, ApiFailure> {
        let status = ClusterHardwareStatus { last_change_time: Some(rfc3339(SystemTime::now())), ..status };
        let object = json!({
            "apiVersion": self.all.api_version(), "kind": CLUSTER_HARDWARE_KIND,
            "metadata": { "name": CLUSTER_HARDWARE_NAME, "resourceVersion": version }, "status": status,
        });
        let _: WrittenHardware = self
            .client
            .replace_part("status", &self.all, CLUSTER_HARDWARE_NAME, CONTROLLER_FIELD_MANAGER, &object)
            .await?;
        Ok(HardwareAnswer::Done)
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
