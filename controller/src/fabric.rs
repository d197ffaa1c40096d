//! Devices behind switches: the readings of their managers, the slices in which they are offered, and the attachments of
//! those that nodes have.
//!
//! ```text
//!   managers ──► board: latest readings ──► publish: one pool for each switch domain ──► ResourceSlices
//!                           ▲                  ▲
//!            nodes: which node is which host   └── FabricAttachments, claims ──► attachments: attach, detach
//! ```

mod attachments;
pub(crate) mod board;
mod figures;
mod keepers;
pub(crate) mod nodes;
mod publish;
mod status;

use std::sync::Arc;

use hostler_reconcile::ControllerParts;
use tokio::sync::watch;

use self::{
    attachments::AttachmentParts,
    publish::{PublishParts, publish},
};
pub(crate) use self::{
    attachments::{ClaimOfDevice, FABRIC_FINALIZER},
    figures::{AttachmentSums, FabricFigures},
    status::{FabricPhase, FabricStatus},
};
use crate::{config::FabricConfig, view::ClusterView};

/// Reads the managers, offers their devices, and attaches those that claims are given, as long as this process leads.
pub(crate) fn start(
    config: &FabricConfig,
    driver: &str,
    (status_tx, figures_tx): (watch::Sender<FabricStatus>, watch::Sender<FabricFigures>),
    parts: impl Fn() -> ControllerParts<ClusterView>,
) {
    let config = Arc::new(config.clone());
    let readings_rx = board::start(&config, &figures_tx, &parts());
    let attaching = AttachmentParts::new((*config).clone(), driver.to_owned(), readings_rx.clone());
    attachments::start(AttachmentParts { figures_tx, ..attaching }, parts());
    publish(PublishParts { config, driver: driver.to_owned(), readings_rx, status_tx }, parts());
}
