//! Hardware × holders × health: every device with what is free of it, who has the rest, and whether it works.
//!
//! Everything that shows the machine is made of this one view: lists, drawings, figures. It goes over the admin socket as
//! it is; a field may be added, none changes its meaning.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{Access, BackendName, ClaimRef, ClaimState, ClaimUid, DeviceName, Quantity};
use hostler_backend::{AttributeValue, CounterUse, Device, Health, Sharing};
use hostler_linux::IdSet;
use serde::{Deserialize, Serialize};

use super::{counters::blocked, layout::MachineLayout};
use crate::{
    claims::{ClaimTable, store::RecordDevice},
    inventory::{Inventory, Pool, lookup::DeviceKey, view::DeviceShares},
};

/// Where devices say on which NUMA node they are.
const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";

/// A machine, who holds what of it, and how it is: `GET /v1/usage`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct MachineUsage {
    /// Name of the node.
    pub node: String,
    /// What it looks like.
    pub machine: MachineLayout,
    /// The claims on record, by namespace, name and UID. Others name them by their place here.
    pub holders: Vec<UsageHolder>,
    /// Every device that is there, drained or held, by backend and name.
    pub devices: Vec<DeviceUsage>,
    /// What is not known for certain, in words.
    pub doubts: Vec<String>,
}

/// A claim that holds something.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UsageHolder {
    /// Its UID.
    pub uid: String,
    /// Its namespace; empty if it is not known.
    pub namespace: String,
    /// Its name; empty if it is not known.
    pub name: String,
    /// How far it is.
    pub state: ClaimState,
}

/// A device with its holders.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DeviceUsage {
    /// Its backend.
    pub backend: String,
    /// Its pool; empty if that is not known any more.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// The NUMA node that it is on, where it says so.
    pub numa_node: Option<u32>,
    /// How it is.
    pub health: DeviceHealth,
    /// Why it is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_reason: Option<String>,
    /// Its drain, if it is out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<DeviceDrain>,
    /// Whether all of this is as of an earlier scan than the last.
    #[serde(default)]
    pub stale: bool,
    /// Whether nobody holds it and it cannot be had all the same, for what others hold.
    #[serde(default)]
    pub blocked: bool,
    /// Whether several claims may hold parts of it; absent for one that is not there.
    pub shared: Option<bool>,
    /// What there is of each of its capacities.
    pub amounts: BTreeMap<String, HeldAmount>,
    /// The CPUs that it gives, where it gives some.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub cpus: IdSet,
    /// Who has what of it, one entry for each grant.
    pub holds: Vec<DeviceHold>,
}

/// How a device is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum DeviceHealth {
    /// It works.
    Healthy,
    /// It does not.
    Unhealthy,
    /// It could not be checked.
    Unknown,
    /// It is not there.
    Absent,
}

/// Why and since when a device is out of service.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DeviceDrain {
    /// When it began, seconds since 1970.
    pub since: u64,
    /// The operator's words.
    pub reason: Option<String>,
    /// Whether pods that use the device shall go.
    pub evict: bool,
}

/// Amounts of one capacity.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct HeldAmount {
    /// All of it; nothing for a device that is not there.
    pub capacity: Quantity,
    /// What claims hold.
    pub held: Quantity,
    /// What could still be had, if the device is in service. Less than what is not held where a claim keeps CPUs idle.
    pub free: Quantity,
}

/// What one grant has of a device.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DeviceHold {
    /// Place of the claim among the holders.
    pub holder: usize,
    /// Whether it only looks after the device: others may hold it.
    #[serde(default)]
    pub is_admin: bool,
    /// How much it takes of each capacity.
    #[serde(default)]
    pub amounts: BTreeMap<String, Quantity>,
    /// The CPUs that containers are bound to.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub cpus: IdSet,
    /// CPUs that stay idle for it.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub kept: IdSet,
}

/// How a CPU is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum CpuState {
    /// Anybody can have it.
    Free,
    /// A claim has it: its place among the holders.
    Held(usize),
    /// It stays idle for a claim.
    Kept(usize),
    /// It would be free, and its device is out of service.
    Drained,
    /// It would be free, and its device does not work, or nobody knows.
    Unhealthy,
    /// It runs, and no device gives it: it stays with the system.
    Reserved,
    /// It does not run.
    Offline,
}

impl MachineUsage {
    /// Everything that inventory and records say of a machine.
    pub fn of(node: &str, machine: MachineLayout, inventory: &Inventory, claims: &ClaimTable) -> Self {
        let (holders, devices) = usage(inventory, claims);
        Self { node: node.to_owned(), machine, holders, devices, doubts: inventory.doubts() }
    }

    /// How every CPU is.
    pub fn cpu_states(&self) -> BTreeMap<u32, CpuState> {
        let mut states: BTreeMap<u32, CpuState> =
            self.machine.online().iter().map(|cpu| (cpu, CpuState::Reserved)).collect();
        states.extend(self.machine.offline.iter().map(|cpu| (cpu, CpuState::Offline)));
        for device in &self.devices {
            let idle = device.idle_cpu();
            states.extend(device.cpus.iter().map(|cpu| (cpu, idle)));
        }
        let holds = || self.devices.iter().flat_map(|device| &device.holds);
        for hold in holds() {
            states.extend(hold.kept.iter().map(|cpu| (cpu, CpuState::Kept(hold.holder))));
        }
        // A cache that a claim has to itself is kept with its own CPUs.
        for hold in holds() {
            states.extend(hold.cpus.iter().map(|cpu| (cpu, CpuState::Held(hold.holder))));
        }
        states
    }

    /// Who has what of each device, by backend and name.
    pub fn shares(&self) -> BTreeMap<(String, String), DeviceShares> {
        shares(&self.holders, &self.devices)
    }
}

impl UsageHolder {
    /// `namespace/name`; the UID where that is not known.
    pub fn full_name(&self) -> String {
        if self.name.is_empty() { self.uid.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

impl DeviceUsage {
    /// `backend/device`, as commands take it.
    pub fn path(&self) -> String {
        format!("{}/{}", self.backend, self.name)
    }

    /// `namespace/name` of each claim that has it; the UID where the name is not known.
    pub fn holder_names(&self, holders: &[UsageHolder]) -> BTreeSet<String> {
        self.holds.iter().filter_map(|hold| holders.get(hold.holder)).map(UsageHolder::full_name).collect()
    }

    /// Whether a claim has it, or a part of it.
    pub fn is_held(&self) -> bool {
        !self.holds.is_empty()
    }

    /// How a CPU of it is that nobody has.
    fn idle_cpu(&self) -> CpuState {
        match (&self.drained, self.health) {
            (Some(_), _) => CpuState::Drained,
            (None, DeviceHealth::Healthy) => CpuState::Free,
            (None, _) => CpuState::Unhealthy,
        }
    }
}

impl From<&Health> for DeviceHealth {
    fn from(health: &Health) -> Self {
        match health {
            Health::Healthy => Self::Healthy,
            Health::Unhealthy { .. } => Self::Unhealthy,
            Health::Unknown { .. } => Self::Unknown,
        }
    }
}

impl DeviceHealth {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
            Self::Absent => "Absent",
        }
    }
}

/// Who has what of each device, by backend and name.
pub fn shares(holders: &[UsageHolder], devices: &[DeviceUsage]) -> BTreeMap<(String, String), DeviceShares> {
    let shares = devices.iter().map(|device| {
        let part = |of: fn(&HeldAmount) -> Quantity| {
            device.amounts.iter().map(|(name, amount)| (name.clone(), of(amount))).collect()
        };
        let shares = DeviceShares {
            held: part(|amount| amount.held),
            free: part(|amount| amount.free),
            holders: device.holder_names(holders).into_iter().collect(),
        };
        ((device.backend.clone(), device.name.clone()), shares)
    });
    shares.collect()
}

/// A device, from the sides from which it can be known.
#[derive(Default)]
struct KnownDevice<'a> {
    pool: Option<&'a Pool>,
    device: Option<&'a Device>,
    held: Vec<(usize, &'a RecordDevice)>,
}

/// The claims on record, and every device that anybody knows of.
pub fn usage(inventory: &Inventory, claims: &ClaimTable) -> (Vec<UsageHolder>, Vec<DeviceUsage>) {
    let (holders, places) = holders(claims);
    let known = known(inventory, claims, &places);
    let blocked = blocked_devices(inventory, &known);
    let devices = known
        .iter()
        .map(|(key, known)| DeviceUsage { blocked: blocked.contains(key), ..device_usage(key, known, inventory) });
    (holders, devices.collect())
}

/// Backend and name of every device that anybody knows of.
pub fn known_devices(inventory: &Inventory, claims: &ClaimTable) -> BTreeSet<DeviceKey> {
    known(inventory, claims, &BTreeMap::new()).into_keys().collect()
}

/// By name, as people look for them; and the place of each.
fn holders(claims: &ClaimTable) -> (Vec<UsageHolder>, BTreeMap<&ClaimUid, usize>) {
    let mut all: Vec<(UsageHolder, &ClaimUid)> = claims
        .claims
        .iter()
        .map(|(uid, view)| {
            let claim = view.claim();
            let named = |part: fn(&ClaimRef) -> &String| claim.map(part).cloned().unwrap_or_default();
            let (namespace, name) = (named(|claim| &claim.namespace), named(|claim| &claim.name));
            (UsageHolder { uid: uid.to_string(), namespace, name, state: view.state() }, uid)
        })
        .collect();
    all.sort_by(|(one, _), (other, _)| {
        (&one.namespace, &one.name, &one.uid).cmp(&(&other.namespace, &other.name, &other.uid))
    });
    let places = all.iter().enumerate().map(|(place, (_, uid))| (*uid, place)).collect();
    (all.into_iter().map(|(holder, _)| holder).collect(), places)
}

fn known<'a>(
    inventory: &'a Inventory,
    claims: &'a ClaimTable,
    places: &BTreeMap<&ClaimUid, usize>,
) -> BTreeMap<DeviceKey, KnownDevice<'a>> {
    let mut all: BTreeMap<DeviceKey, KnownDevice<'a>> = BTreeMap::new();
    for (backend, pool) in &inventory.pools {
        for device in &pool.devices {
            let known = KnownDevice { pool: Some(pool), device: Some(device), held: Vec::new() };
            all.insert((backend.clone(), device.name.clone()), known);
        }
    }
    for key in inventory.drains.keys() {
        all.entry(key.clone()).or_default();
    }
    for (uid, view) in &claims.claims {
        for held in view.devices() {
            let known = all.entry((held.backend.clone(), held.grant.device.clone())).or_default();
            known.held.extend(places.get(uid).map(|place| (*place, held)));
        }
    }
    for known in all.values_mut() {
        known.held.sort_by_key(|(place, _)| *place);
    }
    all
}

fn blocked_devices(inventory: &Inventory, known: &BTreeMap<DeviceKey, KnownDevice<'_>>) -> BTreeSet<DeviceKey> {
    let mut all = BTreeSet::new();
    for (backend, pool) in &inventory.pools {
        let of_pool = known.iter().filter(|(key, _)| key.0 == *backend);
        let held: BTreeMap<&DeviceName, &[CounterUse]> = of_pool
            .filter_map(|(key, known)| {
                let mut using = known.held.iter().filter(|(_, held)| held.grant.access == Access::Use);
                using.next().map(|(_, held)| (&key.1, &*held.counters))
            })
            .collect();
        all.extend(blocked(pool, &held).into_iter().map(|name| (backend.clone(), name.clone())));
    }
    all
}

fn device_usage((backend, name): &DeviceKey, known: &KnownDevice<'_>, inventory: &Inventory) -> DeviceUsage {
    let unknown = inventory.unknown.get(backend);
    let health = match (known.device, unknown) {
        (Some(device), _) => (&device.health).into(),
        (None, Some(_)) => DeviceHealth::Unknown,
        (None, None) => DeviceHealth::Absent,
    };
    let reason = match known.device {
        Some(device) => device.health.reason(),
        None => unknown.map(|unknown| unknown.reason.as_str()),
    };
    let cpus = known.device.filter(|_| backend.as_str() == "cpu").map(hostler_cpu::offered_cpus).unwrap_or_default();
    let holds: Vec<DeviceHold> = known.held.iter().map(|(place, held)| hold(*place, held, known.device)).collect();
    DeviceUsage {
        backend: backend.to_string(),
        pool: pool_name(backend, known, inventory),
        name: name.to_string(),
        numa_node: known.device.and_then(numa_node),
        health,
        health_reason: reason.map(str::to_owned),
        drained: inventory.drain(backend, name).map(|drain| DeviceDrain {
            since: drain.since_unix(),
            reason: drain.reason.clone(),
            evict: drain.evict,
        }),
        stale: known.pool.is_some_and(|pool| pool.stale.is_some()),
        blocked: false,
        shared: known.device.map(|device| device.sharing == Sharing::Shared),
        amounts: amounts(known.device, &holds, &cpus),
        cpus,
        holds,
    }
}

/// The pool of a device that is not there stands with whoever holds it.
fn pool_name(backend: &BackendName, known: &KnownDevice<'_>, inventory: &Inventory) -> String {
    let own = known.pool.map(|pool| &pool.name);
    let held = || known.held.first().map(|(_, held)| &held.grant.pool);
    let of_backend = || inventory.pools.get(backend).map(|pool| &pool.name);
    own.or_else(held).or_else(of_backend).cloned().unwrap_or_default()
}

/// The NUMA node of a device, where it has one.
pub fn numa_node(device: &Device) -> Option<u32> {
    let found = device.attributes.iter().find(|(name, _)| name.as_str() == NUMA_NODE);
    match found {
        Some((_, AttributeValue::Int(node))) => u32::try_from(*node).ok(),
        _ => None,
    }
}

/// What a grant has. A capacity that it does not name it takes whole; who looks after a device takes nothing.
fn hold(holder: usize, held: &RecordDevice, device: Option<&Device>) -> DeviceHold {
    if held.grant.access == Access::Admin {
        return DeviceHold { holder, is_admin: true, ..DeviceHold::default() };
    }
    let named = held.grant.consumed.iter().map(|(name, amount)| (name.to_string(), *amount));
    let whole = device.into_iter().flat_map(|device| &device.capacity);
    let whole = whole.map(|(name, capacity)| (name.to_string(), capacity.value));
    let kept = if held.backend.as_str() == "cpu" { hostler_cpu::kept_cpus(&held.plan) } else { IdSet::new() };
    let cpus: IdSet = held.plan.pinning.cpus.iter().copied().collect();
    // What is named comes last, and counts.
    DeviceHold { holder, is_admin: false, amounts: whole.chain(named).collect(), kept: kept.difference(&cpus), cpus }
}

fn amounts(device: Option<&Device>, holds: &[DeviceHold], cpus: &IdSet) -> BTreeMap<String, HeldAmount> {
    let mut all: BTreeMap<String, HeldAmount> = BTreeMap::new();
    for (name, capacity) in device.into_iter().flat_map(|device| &device.capacity) {
        all.entry(name.to_string()).or_default().capacity = capacity.value;
    }
    for (name, amount) in holds.iter().flat_map(|hold| &hold.amounts) {
        let known = all.entry(name.clone()).or_default();
        known.held = known.held.plus(*amount);
    }
    for (name, amount) in &mut all {
        amount.free = amount.capacity.minus(amount.held);
        if name == "cpus" && !cpus.is_empty() {
            amount.free = amount.free.min(free_cpus(cpus, holds));
        }
    }
    all
}

/// Those of a device that no claim has or keeps idle.
fn free_cpus(cpus: &IdSet, holds: &[DeviceHold]) -> Quantity {
    let taken = holds.iter().fold(IdSet::new(), |all, hold| all.union(&hold.cpus).union(&hold.kept));
    Quantity::whole(cpus.difference(&taken).len() as u64)
}

#[cfg(test)]
mod tests;
