//! Keeps up to date what the controller can do and what it cannot, and has the log say what changes.

use std::sync::Arc;

use hostler_api::hardware::ConditionStatus;
use hostler_process::Tasks;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    classic::adapter::ClassicStatus,
    conditions::{ClusterFinding, SumsOutcome, findings},
    config::CapabilitiesConfig,
    view::ClusterView,
};

/// What readers see.
pub(super) type FindingsReader = watch::Receiver<Arc<[ClusterFinding]>>;

/// Looks whenever something changes, until the process stops.
pub(super) fn start(
    modes: CapabilitiesConfig,
    mut view_rx: watch::Receiver<Arc<ClusterView>>,
    mut outcome_rx: watch::Receiver<SumsOutcome>,
    mut classic_rx: watch::Receiver<ClassicStatus>,
    tasks: &Tasks,
) -> FindingsReader {
    let look = move |view: &ClusterView, outcome: &SumsOutcome, classic: &ClassicStatus| -> Arc<[ClusterFinding]> {
        findings(modes, &view.kinds, outcome, classic).into()
    };
    let first = look(&view_rx.borrow(), &outcome_rx.borrow(), &classic_rx.borrow());
    // Whatever else is not so yet may be so in a moment.
    let off: Vec<ClusterFinding> = first.iter().filter(|finding| finding.reason == "Off").cloned().collect();
    tell(&[], &off);
    let (findings_tx, findings_rx) = watch::channel(first);
    let stop = tasks.stop_token();
    tasks.service("findings", async move {
        loop {
            tokio::select! {
                // All are cancel safe: what has changed is still other than what was seen.
                changed = view_rx.changed() => if changed.is_err() { return Ok(()) },
                // Where nobody writes, nobody tells.
                Ok(()) = outcome_rx.changed() => {}
                Ok(()) = classic_rx.changed() => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => return Ok(()),
            }
            let found =
                look(&view_rx.borrow_and_update(), &outcome_rx.borrow_and_update(), &classic_rx.borrow_and_update());
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
            ConditionStatus::False if reason == "NotNeeded" => {}
            ConditionStatus::False => warn!(condition, reason, message, "a condition is not met"),
            ConditionStatus::True => info!(condition, reason, "a condition is met"),
            ConditionStatus::Unknown => {}
        }
    }
}
