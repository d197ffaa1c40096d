//! The hosts of a manager that nodes are: by the UUID of the system board, which both know. Pure.

use std::collections::BTreeMap;

use hostler_api::{fabric::SystemUuid, few};
use hostler_fabric::{FabricHost, ObjectPath, WatchedInventory};

use super::board::FabricReadings;
use crate::{
    config::{FabricConfig, FabricManagerConfig},
    view::ClusterView,
};

/// The nodes of the cluster by the UUIDs of their boards, as one manager is told of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoardNodes(BTreeMap<SystemUuid, Vec<String>>);

impl BoardNodes {
    /// Nodes of a view: the configuration of the manager counts before the reports of the nodes.
    pub(crate) fn of(view: &ClusterView, manager: &FabricManagerConfig) -> Self {
        let is_there = |node: &&String| view.facts.node(node).is_some();
        let reported = view.fabric.system_uuids.iter().filter(|(node, _)| !manager.nodes.contains_key(*node));
        let reported = reported.map(|(node, uuid)| (node, uuid.clone()));
        let configured = manager.nodes.keys().filter_map(|node| Some((node, manager.uuid_of(node)?)));
        let mut nodes = Self::default();
        for (node, uuid) in reported.chain(configured).filter(|(node, _)| is_there(node)) {
            nodes.0.entry(uuid).or_default().push(node.clone());
        }
        nodes
    }

    /// The node with a UUID; `None` where there is none.
    ///
    /// # Errors
    /// When several nodes have the UUID.
    pub(crate) fn node(&self, uuid: &SystemUuid) -> Result<Option<&str>, String> {
        match self.0.get(uuid).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([node]) => Ok(Some(node)),
            Some(nodes) => Err(format!(
                "the nodes {} all have the UUID {uuid}: nothing is attached to them; give each board its own UUID, or \
                 write `nodes` of the manager in the controller's configuration",
                few(nodes)
            )),
        }
    }
}

/// The hostnames of the nodes that hosts are, by the UUID of the host, or the reason why a host has none. Hosts that are
/// no nodes are not among them.
pub(crate) type Hostnames = BTreeMap<SystemUuid, Result<String, String>>;

/// The label by which slices name nodes: every node has it.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// The hostnames of the nodes that the hosts of a manager are.
pub(crate) fn hostnames(view: &ClusterView, manager: &FabricManagerConfig, inventory: &WatchedInventory) -> Hostnames {
    let nodes = BoardNodes::of(view, manager);
    let hostname = |node: &str| {
        let label = view.facts.node(node).and_then(|node| node.metadata.labels.get(HOSTNAME).cloned());
        label.ok_or_else(|| format!("node {node} has no label {HOSTNAME}; see that its kubelet sets it"))
    };
    let found = |uuid: &SystemUuid| match nodes.node(uuid) {
        Ok(None) => None,
        Ok(Some(node)) => Some((uuid.clone(), hostname(node))),
        Err(why) => Some((uuid.clone(), Err(why))),
    };
    inventory.hosts.iter().filter_map(|host| found(host.uuid.as_ref()?)).collect()
}

/// The host of a manager that a node is.
///
/// # Errors
/// When this cannot be told for certain: a sentence for people.
pub(crate) fn host_of(
    view: &ClusterView,
    config: &FabricConfig,
    readings: &FabricReadings,
    manager: &str,
    node: &str,
) -> Result<SystemUuid, String> {
    let Some(settings) = config.managers.iter().find(|it| it.name == manager) else {
        return Err(format!(
            "the controller's configuration has no fabric manager {manager}; add it to [[fabric.managers]]"
        ));
    };
    let uuid = settings.uuid_of(node).or_else(|| view.fabric.system_uuids.get(node).cloned()).ok_or_else(|| {
        format!(
            "node {node} tells no UUID of its board; see that hostler on it writes its NodeHardware with a systemUUID, or \
             write `nodes` of manager {manager} in the controller's configuration"
        )
    })?;
    BoardNodes::of(view, settings).node(&uuid)?;
    let Some(inventory) = readings.inventory(manager) else {
        let why = readings.error(manager).unwrap_or("it has not answered yet");
        return Err(format!("fabric manager {manager} was not read: {why}"));
    };
    attachable(inventory, &uuid).map_err(|why| format!("fabric manager {manager}: {why} (node {node})"))?;
    Ok(uuid)
}

/// The host with a UUID, if something can be attached to it.
fn attachable<'a>(inventory: &'a WatchedInventory, uuid: &SystemUuid) -> Result<&'a FabricHost, String> {
    let host = inventory
        .host(uuid)
        .ok_or_else(|| format!("it knows no host with the UUID {uuid}; see which UUID it shows for the host"))?;
    match &host.unusable {
        Some(why) => Err(format!("host {} cannot be used: {why}", host.path)),
        None if host.initiators.is_empty() => Err(format!(
            "host {} is at no switch: no endpoint leads to it; cable the host, or mend the endpoint",
            host.path
        )),
        None => Ok(host),
    }
}

/// Hosts of a switch domain to which something can be attached.
pub(crate) fn hosts_in<'a>(
    inventory: &'a WatchedInventory,
    domain: &'a ObjectPath,
) -> impl Iterator<Item = &'a SystemUuid> {
    let is_there = move |host: &&FabricHost| {
        host.unusable.is_none() && !host.initiators.is_empty() && host.domain.as_ref() == Some(domain)
    };
    inventory.hosts.iter().filter(is_there).filter_map(|host| host.uuid.as_ref())
}

#[cfg(test)]
mod tests;
