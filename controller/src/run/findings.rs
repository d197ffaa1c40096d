//! Findings about the work that the controller can do and that it cannot. Keeps them up to date, and logs their
//! changes.

use std::sync::Arc;

use hostler_api::hardware::ConditionStatus;
use hostler_process::Tasks;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    classic::adapter::ClassicStatus,
    conditions::{ClusterFinding, SumsOutcome, fabric_finding, findings},
    config::CapabilitiesConfig,
    fabric::FabricStatus,
    hold::adapter::HoldStatus,
    pod_gates::GatesPhase,
    provision::adapter::ProvisionStatus,
    view::ClusterView,
    webhook_status::WebhookStatus,
};

/// Reader of the findings.
pub(super) type FindingsReader = watch::Receiver<Arc<[ClusterFinding]>>;

/// Sources of findings.
#[derive(Debug)]
pub(super) struct FindingSources {
    pub(super) modes: CapabilitiesConfig,
    pub(super) view_rx: watch::Receiver<Arc<ClusterView>>,
    pub(super) outcome_rx: watch::Receiver<SumsOutcome>,
    pub(super) classic_rx: watch::Receiver<ClassicStatus>,
    pub(super) provision_rx: watch::Receiver<ProvisionStatus>,
    pub(super) holds_rx: watch::Receiver<HoldStatus>,
    pub(super) fabric_rx: watch::Receiver<FabricStatus>,
    /// Status of the webhook; absent where there is none.
    pub(super) webhook_rx: Option<watch::Receiver<WebhookStatus>>,
    /// State of the switch that has pods gated.
    pub(super) gates_rx: watch::Receiver<GatesPhase>,
}

impl FindingSources {
    fn look(&mut self) -> Arc<[ClusterFinding]> {
        let view = self.view_rx.borrow_and_update();
        let (outcome, classic) = (self.outcome_rx.borrow_and_update(), self.classic_rx.borrow_and_update());
        let (provision, holds) = (self.provision_rx.borrow_and_update(), self.holds_rx.borrow_and_update());
        let webhook = self.webhook_rx.as_mut().map(|webhook_rx| webhook_rx.borrow_and_update().phase.clone());
        let gates = *self.gates_rx.borrow_and_update();
        let webhook = webhook.as_ref().map(|phase| (phase, gates));
        let mut all = findings(self.modes, &view.kinds, &outcome, &classic, &provision, &holds, webhook);
        all.extend(fabric_finding(self.modes.fabric, &self.fabric_rx.borrow_and_update()));
        all.into()
    }

    /// Waits until the webhook's status changes.
    async fn webhook_changed(webhook_rx: &mut Option<watch::Receiver<WebhookStatus>>) {
        // Without a writer no change comes.
        if let Some(webhook_rx) = webhook_rx
            && webhook_rx.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Makes the findings anew whenever a source changes, until the process stops.
pub(super) fn start(mut sources: FindingSources, tasks: &Tasks) -> FindingsReader {
    let first = sources.look();
    // Other findings may change within a moment: they are not logged yet.
    let off: Vec<ClusterFinding> = first.iter().filter(|finding| finding.reason == "Off").cloned().collect();
    tell(&[], &off);
    let (findings_tx, findings_rx) = watch::channel(first);
    let stop = tasks.stop_token();
    tasks.service("findings", async move {
        loop {
            tokio::select! {
                // All are cancel safe: a changed value still differs from the one that was read.
                changed = sources.view_rx.changed() => if changed.is_err() { return Ok(()) },
                // Without a writer no change comes.
                Ok(()) = sources.outcome_rx.changed() => {}
                Ok(()) = sources.classic_rx.changed() => {}
                Ok(()) = sources.provision_rx.changed() => {}
                Ok(()) = sources.holds_rx.changed() => {}
                Ok(()) = sources.fabric_rx.changed() => {}
                Ok(()) = sources.gates_rx.changed() => {}
                () = FindingSources::webhook_changed(&mut sources.webhook_rx) => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => return Ok(()),
            }
            let found = sources.look();
            findings_tx.send_if_modified(|last| {
                tell(last, &found);
                let is_other = *last != found;
                *last = found;
                is_other
            });
        }
    });
    findings_rx
}

fn tell(before: &[ClusterFinding], now: &[ClusterFinding]) {
    for finding in now {
        let last = before.iter().find(|last| last.kind == finding.kind);
        if last.is_some_and(|last| (last.status, last.reason) == (finding.status, finding.reason)) {
            continue;
        }
        let (condition, reason, message) = (finding.kind.as_str(), finding.reason, &finding.message);
        match finding.status {
            ConditionStatus::False if reason == "Off" => info!(condition, reason, message, "switched off"),
            ConditionStatus::False if matches!(reason, "NotNeeded" | "NotInstalled") => {}
            ConditionStatus::False => warn!(condition, reason, message, "a condition is not met"),
            ConditionStatus::True => info!(condition, reason, "a condition is met"),
            ConditionStatus::Unknown => {}
        }
    }
}
