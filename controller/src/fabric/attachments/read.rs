//! Reads everything about an attachment from the API server, the latest view and the latest readings of managers.
//!
//! From the server comes what a late view would get wrong: the attachment, since each write names its version; claims,
//! since one that has just let go of the device is not given it, and one that has it keeps it; nodes, since a device is
//! taken from one that is gone without asking it; and attachments of the same serial number, since a node cannot tell the
//! devices apart. What does not depend on each other is read at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{SystemTime, UNIX_EPOCH},
};

use hostler_api::{
    ObjectKey,
    core::Node,
    fabric::{AttachmentPhase, DeviceIdentity, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS, FABRIC_TAINT, SystemUuid},
    hardware,
    resource::ApiVersion,
};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use hostler_fabric::{FabricConnection, WatchedInventory};
use hostler_reconcile::ReconcileMoment;
use serde_json::Value;

use super::{
    claim::ClaimOfDevice,
    context::{
        AttachmentContext, AttachmentLimits, AttachmentNode, BoardDevice, HostFact, OtherConnection, SeenAttachment,
        ShownConnection, TwinAttachment, place_of,
    },
};
use crate::{
    config::FabricConfig,
    fabric::{
        board::FabricReadings,
        keepers::device_keeper,
        nodes::{BoardNodes, host_of},
    },
    view::ClusterView,
};

/// The taint by which an operator says that the machine of a node is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Reads attachments and what they depend on.
#[derive(Clone, Debug)]
pub(super) struct AttachmentReader {
    pub(super) client: ApiClient,
    pub(super) version: ApiVersion,
    pub(super) driver: String,
    pub(super) config: FabricConfig,
    pub(super) limits: AttachmentLimits,
}

pub(super) fn attachments() -> Collection {
    Collection::custom(hardware::GROUP, hardware::VERSION, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS)
}

impl AttachmentReader {
    pub(super) fn claims(&self, namespace: &str) -> Collection {
        Collection::resource(self.version, "ResourceClaim", "resourceclaims").of(namespace)
    }

    /// Reads everything that decides the next step of a device's attachment.
    pub(super) async fn read(
        &self,
        device: DeviceIdentity,
        readings: &FabricReadings,
        moment: &ReconcileMoment<ClusterView>,
    ) -> Result<AttachmentContext, ApiFailure> {
        let view = &*moment.view;
        let name = device.device_name();
        let of_device = view.fabric.claims.get(&name).into_iter().flatten();
        let known: BTreeSet<ObjectKey> = of_device.map(|claim| claim.key.clone()).collect();
        let (seen, mut claims) = tokio::try_join!(self.read_attachment(&name), self.read_claims(&name, &known))?;
        let named = seen.as_ref().and_then(|seen| seen.spec().claim.as_ref());
        let named = named.map(|claim| ObjectKey::new(&claim.namespace, &claim.name));
        let unknown = named.into_iter().filter(|key| !known.contains(key)).collect();
        claims.extend(self.read_claims(&name, &unknown).await?);
        claims.sort_by_key(|claim| claim.allocated);
        let kept = device_keeper(view, &self.driver, &name);
        let (manager, pool) = place_of(seen.as_ref(), &claims, kept.as_ref()).unwrap_or_default();
        let mut nodes: BTreeSet<String> = claims.iter().filter_map(|claim| claim.node.clone()).collect();
        nodes.extend(seen.as_ref().map(|seen| seen.spec().node_name.clone()));
        nodes.extend(kept.as_ref().map(|kept| kept.node.clone()));
        let (nodes, twins) = tokio::try_join!(
            self.read_nodes(nodes, &manager, readings, view),
            self.read_twins(device, &manager, readings, view)
        )?;
        let settings = self.config.managers.iter().find(|it| it.name == manager);
        let board_nodes = settings.map(|settings| BoardNodes::of(view, settings)).unwrap_or_default();
        let inventory = readings.inventory(&manager);
        let board = seen.as_ref().zip(inventory).filter(|_| readings.error(&manager).is_none());
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(AttachmentContext {
            device,
            claims,
            kept,
            nodes,
            twins,
            shown: seen.as_ref().zip(inventory).map(|(seen, it)| shown(seen, it, &board_nodes)).unwrap_or_default(),
            board: board.map(|(seen, inventory)| on_board(seen, inventory, &board_nodes)),
            made_memory: inventory.and_then(|it| it.device(device)?.memory.made_for),
            is_tainted: view.facts.is_closed_by([&self.driver, &pool, &name], FABRIC_TAINT),
            limits: self.limits,
            // Times of allocations are the server's.
            now: moment.server_time().unwrap_or(wall),
            seen,
        })
    }

    async fn read_attachment(&self, name: &str) -> Result<Option<SeenAttachment>, ApiFailure> {
        let found: Option<Value> = self.client.find(&attachments(), name).await?;
        let unusable = |error| ApiFailure::unusable(format!("read FabricAttachment {name}"), error);
        found.map(SeenAttachment::of).transpose().map_err(unusable)
    }

    /// Reads those of the claims that have the device.
    async fn read_claims(&self, name: &str, keys: &BTreeSet<ObjectKey>) -> Result<Vec<ClaimOfDevice>, ApiFailure> {
        let mut claims = Vec::new();
        for key in keys {
            let Some(found) = self.client.find::<Value>(&self.claims(&key.namespace), &key.name).await? else {
                continue;
            };
            let read = ClaimOfDevice::of(&found, &self.driver, name);
            claims.extend(read.map_err(|error| ApiFailure::unusable(format!("read ResourceClaim {key}"), error))?);
        }
        Ok(claims)
    }

    async fn read_nodes(
        &self,
        names: BTreeSet<String>,
        manager: &str,
        readings: &FabricReadings,
        view: &ClusterView,
    ) -> Result<BTreeMap<String, AttachmentNode>, ApiFailure> {
        let mut nodes = BTreeMap::new();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            let node = self.read_node(&name, manager, readings, view).await?;
            nodes.insert(name, node);
        }
        Ok(nodes)
    }

    async fn read_node(
        &self,
        name: &str,
        manager: &str,
        readings: &FabricReadings,
        view: &ClusterView,
    ) -> Result<AttachmentNode, ApiFailure> {
        let found: Option<Node> = self.client.find(&Collection::core("Node", "nodes"), name).await?;
        let is_out_of_service =
            found.as_ref().is_some_and(|node| node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE));
        let host = match readings.managers.get(manager) {
            Some(reading) if reading.inventory.is_none() => {
                let why = reading.error.as_deref().unwrap_or("it has not answered yet");
                HostFact::Unread(format!("fabric manager {manager} was not read: {why}"))
            }
            None => HostFact::Unread(format!("fabric manager {manager} is not configured, or was not read yet")),
            Some(_) => {
                host_of(view, &self.config, readings, manager, name).map_or_else(HostFact::Unknown, HostFact::Known)
            }
        };
        Ok(AttachmentNode { exists: found.is_some(), is_out_of_service, host })
    }

    /// Reads attachments of other logical devices of the same serial number, from the server: a view may be late.
    async fn read_twins(
        &self,
        device: DeviceIdentity,
        manager: &str,
        readings: &FabricReadings,
        view: &ClusterView,
    ) -> Result<Vec<TwinAttachment>, ApiFailure> {
        let inventory = readings.managers.get(manager).and_then(|reading| reading.inventory.as_ref());
        let shown = inventory.into_iter().flat_map(|it| it.identities());
        let known = view.fabric.attachments.keys().filter_map(|name| DeviceIdentity::of_device_name(name));
        let is_twin = |it: &DeviceIdentity| it.serial == device.serial && *it != device;
        let mut twins = Vec::new();
        for twin in shown.chain(known).filter(is_twin).collect::<BTreeSet<DeviceIdentity>>() {
            let name = twin.device_name();
            twins.extend(self.read_attachment(&name).await?.map(|seen| TwinAttachment {
                name,
                node: seen.spec().node_name.clone(),
                may_be_attached: seen.was_asked() && seen.status().phase != AttachmentPhase::Detached,
            }));
        }
        Ok(twins)
    }
}

/// Connections under keys of the attachment, as the manager showed them last.
fn shown(seen: &SeenAttachment, inventory: &WatchedInventory, nodes: &BoardNodes) -> Vec<ShownConnection> {
    let own = inventory.connections.iter().filter(|it| is_own(seen, it));
    let node = |host: &Option<SystemUuid>| host.as_ref().and_then(|host| nodes.node(host).ok()?).map(str::to_owned);
    own.filter_map(|it| Some(ShownConnection { key: it.key.clone()?, node: node(&it.host) })).collect()
}

fn is_own(seen: &SeenAttachment, connection: &FabricConnection) -> bool {
    let own = format!("{}-", seen.version.uid);
    connection.key.as_ref().is_some_and(|key| key.as_str().starts_with(&own))
}

/// The device of an attachment, as the manager showed it last.
fn on_board(seen: &SeenAttachment, inventory: &WatchedInventory, nodes: &BoardNodes) -> BoardDevice {
    let spec = seen.spec();
    let others = inventory.connections_of(spec.device).filter(|it| !is_own(seen, it)).map(|it| OtherConnection {
        path: it.path.clone(),
        host: it.host.clone(),
        node: it.host.as_ref().and_then(|host| nodes.node(host).ok()?).map(str::to_owned),
    });
    let trouble = match inventory.device(spec.device) {
        None => Some(format!("fabric manager {} shows no device {}", spec.manager, spec.device)),
        Some(device) => device.unusable.clone().or_else(|| {
            let domain = device.domain.as_ref().map(|path| path.name().to_ascii_lowercase()).unwrap_or_default();
            let elsewhere = (domain != spec.domain).then(|| format!("the device is in switch domain {domain:?}"));
            let broken = device.broken().map(|state| format!("the manager says that the device is {state}"));
            elsewhere.or(broken)
        }),
    };
    BoardDevice { trouble, others: others.collect() }
}
