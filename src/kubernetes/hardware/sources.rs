//! Sources of the reports, and their changes.

use std::sync::Arc;

use tokio::sync::watch;

use super::HardwareReportParts;
use crate::{
    claims::ClaimTable,
    inventory::Inventory,
    kubernetes::{
        claim_access::ClaimAccessReader,
        holds::{HoldsInForce, HoldsReader},
        publisher::Publication,
    },
};

/// Receivers of everything that a report is made of.
pub(super) struct ReportSources {
    inventory_rx: watch::Receiver<Arc<Inventory>>,
    table_rx: watch::Receiver<Arc<ClaimTable>>,
    holds_rx: HoldsReader,
    publication_rx: watch::Receiver<Publication>,
    claim_access: ClaimAccessReader,
    gone_rx: watch::Receiver<()>,
}

/// The reason for a report.
pub(super) enum ReportNews {
    /// Something is other than it was.
    Changed,
    /// The object is not there.
    Gone,
}

/// Content of a report.
pub(super) struct ReportContent {
    pub(super) inventory: Arc<Inventory>,
    pub(super) claims: Arc<ClaimTable>,
    pub(super) holds: HoldsInForce,
    /// Of the spec whose holds are published.
    pub(super) holds_generation: Option<i64>,
    /// Why claims cannot be read.
    pub(super) unreadable_claims: Option<String>,
}

impl ReportSources {
    pub(super) fn of(parts: &HardwareReportParts) -> Self {
        Self {
            inventory_rx: parts.inventory.subscribe(),
            table_rx: parts.table_rx.clone(),
            holds_rx: parts.holds.word_rx.clone(),
            publication_rx: parts.publication_rx.clone(),
            claim_access: parts.cluster.claim_access().subscribe(),
            gone_rx: parts.holds.gone_rx.clone(),
        }
    }

    /// Waits for the first word on holds, or that there is none for now: the first report shall not take back what the
    /// last one before a restart said of them.
    pub(super) async fn holds_heard(&mut self) {
        // A sender that is gone has said all.
        let _ = self.holds_rx.changed().await;
        // The first report begins with a look, and makes an object that is not there yet.
        self.gone_rx.mark_unchanged();
    }

    /// Comes back when anything has changed, or the object is gone.
    pub(super) async fn changed(&mut self) -> ReportNews {
        // All arms are cancel safe: a change that was not taken is still seen as one.
        tokio::select! {
            Ok(()) = self.gone_rx.changed() => ReportNews::Gone,
            Ok(()) = self.inventory_rx.changed() => ReportNews::Changed,
            Ok(()) = self.table_rx.changed() => ReportNews::Changed,
            Ok(()) = self.holds_rx.changed() => ReportNews::Changed,
            Ok(()) = self.publication_rx.changed() => ReportNews::Changed,
            () = self.claim_access.changed() => ReportNews::Changed,
        }
    }

    pub(super) fn latest(&mut self) -> ReportContent {
        let inventory = self.inventory_rx.borrow_and_update().clone();
        let held = self.holds_rx.borrow_and_update().known().cloned().unwrap_or_default();
        ReportContent {
            claims: self.table_rx.borrow_and_update().clone(),
            holds: held.in_force(&inventory),
            holds_generation: self.publication_rx.borrow_and_update().holds_generation,
            unreadable_claims: self.claim_access.latest_fault(),
            inventory,
        }
    }
}
