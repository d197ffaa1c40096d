//! The plugin of the container runtime, put together.

use hostler_linux::{IdSet, SysRoot};

use crate::{
    claims::{ClaimsHandle, naming::claim_kind},
    config::{DaemonConfig, NriConfig, NriMode},
    inventory::InventoryReader,
    metrics::Metrics,
    nri::{self, NriParts, NriSide},
    tasks::Tasks,
};

/// Starts the plugin. The claims are recovered: what their records give is known before any container is told of.
pub(super) fn start(
    config: &DaemonConfig,
    root: &SysRoot,
    claims: &ClaimsHandle,
    inventory: InventoryReader,
    metrics: &Metrics,
    tasks: &Tasks,
) -> NriSide {
    let socket = config.nri_socket();
    let enabled = if socket.is_some() { config.nri.enabled } else { NriMode::Off };
    let parts = NriParts {
        config: NriConfig { enabled, ..config.nri.clone() },
        socket: socket.unwrap_or_default(),
        kind: claim_kind(&config.driver),
        reserved: reserved(config),
        root: root.clone(),
        table_rx: claims.table(),
        inventory,
        metrics: metrics.clone(),
    };
    nri::start(parts, tasks)
}

/// CPUs that stay with the system. A list that cannot be parsed has been refused with the configuration.
fn reserved(config: &DaemonConfig) -> IdSet {
    config.backends.cpu.active().and_then(|cpu| cpu.reserved.parse().ok()).unwrap_or_default()
}
