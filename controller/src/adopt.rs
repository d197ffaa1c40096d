//! Connections of devices behind switches that no FabricAttachment knows, and the FabricAttachments by which they are taken
//! over: the answer of `hostler-controller fabric adopt`. A pure function of what the cluster says.
//!
//! ```text
//!   slices (taint in-use.<host>), NodeHardware, claims, FabricAttachments ──► planned: a row, and a write, for each device
//! ```
//!
//! What is written is consent and nothing more: the controller compares it with what the manager shows before it counts.

mod command;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    fabric::{
        AttachedClaim, AttachmentPhase, DeviceIdentity, FABRIC_TAINT, FabricAttachment, FabricAttachmentSpec,
        SystemUuid, host_in_use, of_fabric_pool,
    },
    few,
    resource::{ResourceSlice, SliceDevice, SliceQuantity},
};
use hostler_cli::output::API_VERSION;
use serde::Serialize;

pub(crate) use self::command::{AdoptArgs, run};

/// The reason against a device of which nothing is known.
const NOT_SHOWN: &str = "no slice shows it: the condition FabricManagers of the controller says which managers it cannot \
                         read, and which devices it leaves out, and why";

/// The state of the cluster, as far as connections and their devices are concerned.
#[derive(Debug, Default)]
struct AdoptionScene {
    /// Devices that others hold, by name.
    held: BTreeMap<String, ForeignDevice>,
    /// FabricAttachments by name.
    attachments: BTreeMap<String, FabricAttachment>,
    /// Nodes by the UUID of their board.
    nodes: BTreeMap<SystemUuid, BTreeSet<String>>,
    /// Claims that have one of the devices by their allocation, by the name of the device.
    claims: BTreeMap<String, Vec<HolderClaim>>,
}

/// A device that a connection holds which no FabricAttachment explains, by its slice.
#[derive(Clone, Debug)]
struct ForeignDevice {
    driver: String,
    pool: String,
    generation: i64,
    host: Option<SystemUuid>,
    capacity: BTreeMap<String, String>,
}

/// A claim that has such a device.
#[derive(Clone, Debug)]
struct HolderClaim {
    named: AttachedClaim,
    pool: String,
    node: Option<String>,
    /// True if the claim was told that the device is attached: a container may use it.
    is_in_use: bool,
}

/// The devices that a user means.
#[derive(Clone, Debug, Default)]
struct AdoptionChoice {
    /// These devices; none: all.
    devices: Vec<DeviceIdentity>,
    manager: Option<String>,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AdoptionAnswer {
    /// `output.hostler.dev/v1`.
    api_version: &'static str,
    /// `FabricAdoption`.
    kind: &'static str,
    /// True if nothing was written.
    dry_run: bool,
    devices: Vec<AdoptionRow>,
}

/// A device, and what becomes of its connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct AdoptionRow {
    /// Name of the device.
    name: String,
    /// Serial number and logical device (GCXLID).
    identity: String,
    /// `fabric/<manager>/<domain>`.
    pool: String,
    /// Capacities, as the slice has them.
    capacity: BTreeMap<String, String>,
    /// UUID of the host that has the device.
    host: Option<String>,
    /// Node that is the host.
    node_name: Option<String>,
    /// `namespace/name` of the claim that has the device by its allocation.
    claim: Option<String>,
    state: AdoptionState,
    /// The next steps, or the reason against them and the fix.
    message: String,
}

/// The result for a device.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
enum AdoptionState {
    /// The connection would be taken over.
    Adoptable,
    /// The FabricAttachment is written: the controller takes the connection over.
    Adopted,
    /// Nothing was written.
    #[default]
    Refused,
}

/// The answer about a device, and the object to write.
#[derive(Debug, PartialEq)]
struct PlannedAdoption {
    row: AdoptionRow,
    /// The spec to write; `None`: the connection is not taken over.
    spec: Option<FabricAttachmentSpec>,
}

impl AdoptionAnswer {
    fn new(dry_run: bool, devices: Vec<AdoptionRow>) -> Self {
        Self { api_version: API_VERSION, kind: "FabricAdoption", dry_run, devices }
    }

    fn has_refusals(&self) -> bool {
        self.devices.iter().any(|row| row.state == AdoptionState::Refused)
    }
}

impl AdoptionScene {
    /// Takes in the devices of a slice that others hold. An older generation of a pool does not count.
    fn see_slice(&mut self, slice: &ResourceSlice) {
        let pool = &slice.spec.pool;
        if of_fabric_pool(&pool.name).is_none() {
            return;
        }
        for device in &slice.spec.devices {
            let is_newer = |known: &ForeignDevice| known.pool != pool.name || known.generation <= pool.generation;
            if self.held.get(&*device.name).is_none_or(is_newer) {
                let held = ForeignDevice {
                    driver: slice.spec.driver.clone(),
                    pool: pool.name.clone(),
                    generation: pool.generation,
                    host: host_of(device),
                    capacity: device.capacity.iter().map(|(name, it)| (name.to_string(), text(&it.value))).collect(),
                };
                self.held.insert(device.name.to_string(), held);
            }
        }
    }

    /// Decides about the devices that a user means: those that others hold, or each that is named.
    fn planned(&self, choice: &AdoptionChoice) -> Vec<PlannedAdoption> {
        let is_meant = |held: &ForeignDevice| {
            let manager = of_fabric_pool(&held.pool).map(|(manager, _)| manager);
            choice.manager.is_none() || manager == choice.manager.as_deref()
        };
        if choice.devices.is_empty() {
            let held = self.held.iter().filter(|(_, held)| held.host.is_some() && is_meant(held));
            return held.map(|(name, held)| self.planned_for(name, held)).collect();
        }
        let named = choice.devices.iter().map(|device| {
            let name = device.device_name();
            match self.held.get(&name).filter(|held| is_meant(held)) {
                Some(held) => self.planned_for(&name, held),
                None => refused(AdoptionRow::of(&name), NOT_SHOWN),
            }
        });
        named.collect()
    }

    /// The node that a host is; otherwise the reason why none is, and the fix.
    fn node_of(&self, host: &SystemUuid) -> Result<String, String> {
        let nodes = self.nodes.get(host).cloned().unwrap_or_default();
        match nodes.iter().collect::<Vec<_>>()[..] {
            [node] => Ok(node.clone()),
            [] => Err(format!(
                "host {host} is no node: no NodeHardware has this systemUUID; install hostler there, or remove the \
                 connection at the manager"
            )),
            _ => Err(format!("the nodes {} all have the UUID {host}: give each board its own", few(&nodes))),
        }
    }

    fn planned_for(&self, name: &str, held: &ForeignDevice) -> PlannedAdoption {
        let ForeignDevice { pool, capacity, host, .. } = held.clone();
        let mut row =
            AdoptionRow { pool, capacity, host: host.as_ref().map(ToString::to_string), ..AdoptionRow::of(name) };
        let known = self.attachments.get(name);
        let is_here = |node: &str| {
            let nodes = held.host.as_ref().and_then(|host| self.nodes.get(host));
            nodes.is_some_and(|nodes| nodes.contains(node))
        };
        // One that waits for a connection to another node than there is by now is begun anew.
        let is_astray = |it: &FabricAttachment| {
            let is_open = it.spec.adopted && it.status.phase == AttachmentPhase::Pending;
            // A slice that shows no connection of others any more knows of the attempt.
            is_open && held.host.is_some() && !is_here(&it.spec.node_name)
        };
        if let Some(known) = known.filter(|it| it.status.phase.is_under_way() && !is_astray(it)) {
            let (phase, node) = (known.status.phase.as_str(), &known.spec.node_name);
            row.node_name = Some(node.clone());
            return refused(
                row,
                format!("its FabricAttachment is {phase} on node {node}: kubectl describe fabricattachment {name}"),
            );
        }
        let Some(host) = &host else {
            return refused(
                row,
                "no connection of others has it, as far as its manager was read: nothing is to be taken over",
            );
        };
        let node = match self.node_of(host) {
            Ok(node) => node,
            Err(why) => return refused(row, why),
        };
        let claims = self.claims.get(name).into_iter().flatten();
        let mut here = claims.filter(|claim| claim.pool == held.pool && claim.node.as_ref() == Some(&node));
        let claim = here.clone().find(|claim| claim.is_in_use).or_else(|| here.next());
        row.claim = claim.map(|claim| format!("{}/{}", claim.named.namespace, claim.named.name));
        row.node_name = Some(node.clone());
        row.state = AdoptionState::Adoptable;
        row.message = consequence(&node, claim);
        let (manager, domain) = of_fabric_pool(&held.pool).unwrap_or_default();
        let spec = FabricAttachmentSpec {
            manager: manager.to_owned(),
            domain: domain.to_owned(),
            device: DeviceIdentity::of_device_name(name).unwrap_or_default(),
            node_name: node,
            claim: claim.filter(|claim| claim.is_in_use).map(|claim| claim.named.clone()),
            attempt: known.map_or(0, |known| known.spec.attempt.saturating_add(1)),
            adopted: true,
            ..FabricAttachmentSpec::default()
        };
        PlannedAdoption { row, spec: Some(spec) }
    }
}

impl AdoptionRow {
    fn of(name: &str) -> Self {
        let identity = DeviceIdentity::of_device_name(name).map(|it| it.to_string()).unwrap_or_default();
        Self { name: name.to_owned(), identity, ..Self::default() }
    }
}

fn refused(row: AdoptionRow, message: impl Into<String>) -> PlannedAdoption {
    PlannedAdoption { row: AdoptionRow { state: AdoptionState::Refused, message: message.into(), ..row }, spec: None }
}

/// Says where the device goes after its connection is taken over.
fn consequence(node: &str, claim: Option<&HolderClaim>) -> String {
    let end = format!("node {node} lets go of it and erases it, the connection is ended, and the device is offered");
    match claim {
        Some(HolderClaim { named, is_in_use: true, .. }) => {
            format!("claim {}/{} uses it and keeps it; afterwards {end}", named.namespace, named.name)
        }
        Some(HolderClaim { named, .. }) => {
            format!("claim {}/{} waits for it, and was never given it: {end}", named.namespace, named.name)
        }
        None => end,
    }
}

fn host_of(device: &SliceDevice) -> Option<SystemUuid> {
    let mut taints = device.taints.iter().filter(|taint| &*taint.key == FABRIC_TAINT);
    taints.find_map(|taint| host_in_use(taint.value.as_deref()?))
}

fn text(amount: &SliceQuantity) -> String {
    match amount {
        SliceQuantity::Exact(amount) => amount.to_string(),
        SliceQuantity::Unreadable(text) => text.to_string(),
    }
}

#[cfg(test)]
mod tests;
