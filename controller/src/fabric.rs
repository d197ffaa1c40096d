//! Devices behind switches: the readings of their managers, and the slices in which they are offered.
//!
//! ```text
//!   managers ──► board: latest readings ──► publish: one pool for each switch domain ──► ResourceSlices
//!                           ▲                  ▲
//!            nodes: which node is which host   └── FabricAttachments, claims
//! ```

pub(crate) mod board;
pub(crate) mod nodes;
mod publish;
mod status;

use std::sync::Arc;

use hostler_reconcile::ControllerParts;
use tokio::sync::watch;

use self::publish::{PublishParts, publish};
pub(crate) use self::status::{FabricPhase, FabricStatus};
use crate::{config::FabricConfig, view::ClusterView};

/// Reads the managers, and offers their devices, as long as this process leads.
pub(crate) fn start(
    config: &FabricConfig,
    driver: &str,
    status_tx: watch::Sender<FabricStatus>,
    parts: impl Fn() -> ControllerParts<ClusterView>,
) {
    let config = Arc::new(config.clone());
    let readings_rx = board::start(&config, &parts());
    publish(PublishParts { config, driver: driver.to_owned(), readings_rx, status_tx }, parts());
}
