//! The hosts that fabric managers know nodes as.

use hostler_api::fabric::SystemUuid;

use super::board::FabricReadings;
use crate::{config::FabricConfig, view::ClusterView};

/// Returns the host of a node.
///
/// # Errors
/// When the node has none that the manager knows; in a sentence for people.
pub(crate) fn host_of(
    view: &ClusterView,
    _config: &FabricConfig,
    readings: &FabricReadings,
    manager: &str,
    node: &str,
) -> Result<SystemUuid, String> {
    let uuids = &view.fabric.system_uuids;
    let uuid = uuids.get(node).ok_or_else(|| {
        format!("the UUID of node {node} is not known: its NodeHardware has no systemUUID; see the log of its daemon")
    })?;
    if let Some((other, _)) = uuids.iter().find(|(other, its)| *its == uuid && *other != node) {
        return Err(format!("nodes {node} and {other} have the same UUID {uuid}: correct it in their firmware"));
    }
    let inventory = readings.managers.get(manager).and_then(|reading| reading.inventory.as_ref());
    match inventory.and_then(|inventory| inventory.host(uuid)) {
        Some(_) => Ok(uuid.clone()),
        None => Err(format!("manager {manager} knows no host {uuid}, which is node {node}")),
    }
}
