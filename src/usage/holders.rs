//! Hardware × holders × health: every device with its free amounts, its holders, and its health.
//!
//! Everything that shows the machine is made of this one view: lists, drawings, figures. The admin socket serves it
//! as it is; a field may be added, none changes its meaning.

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

/// The attribute for the NUMA node of a device.
const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";

/// A machine with its devices, their holders and their health: `GET /v1/usage`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct MachineUsage {
    /// Name of the node.
    pub node: String,
    /// Layout of the machine.
    pub machine: MachineLayout,
    /// The claims on record, by namespace, name and UID. Devices refer to them by their place here.
    pub holders: Vec<UsageHolder>,
    /// Every device that is present, drained or held, by backend and name.
    pub devices: Vec<DeviceUsage>,
    /// Facts that are not certain, in words.
    pub doubts: Vec<String>,
}

/// A claim that holds something.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UsageHolder {
    /// UID of the claim.
    pub uid: String,
    /// Namespace of the claim; empty if it is not known.
    pub namespace: String,
    /// Name of the claim; empty if it is not known.
    pub name: String,
    /// State of the claim.
    pub state: ClaimState,
}

/// A device with its holders.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DeviceUsage {
    /// Backend of the device.
    pub backend: String,
    /// Pool of the device; empty if that is not known any more.
    pub pool: String,
    /// Name of the device.
    pub name: String,
    /// The NUMA node that it is on, where an attribute names it.
    pub numa_node: Option<u32>,
    /// Health of the device.
    pub health: DeviceHealth,
    /// The reason why it is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_reason: Option<String>,
    /// Drain of the device, if it is out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<DeviceDrain>,
    /// True if all of this is from an earlier scan than the last.
    #[serde(default)]
    pub stale: bool,
    /// True if no claim holds it, and no claim can have it because of other held devices.
    #[serde(default)]
    pub blocked: bool,
    /// True if several claims may hold parts of it; absent for a device that is not there.
    pub shared: Option<bool>,
    /// Amounts of each of its capacities.
    pub amounts: BTreeMap<String, HeldAmount>,
    /// The CPUs that it offers, if it offers any.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub cpus: IdSet,
    /// Parts of it that claims hold, one entry for each grant.
    pub holds: Vec<DeviceHold>,
}

/// The health of a device.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum DeviceHealth {
    /// The device works.
    Healthy,
    /// The device does not work.
    Unhealthy,
    /// The device could not be checked.
    Unknown,
    /// The device is not there.
    Absent,
}

/// The drain of a device that is out of service.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DeviceDrain {
    /// Start of the drain, in seconds since 1970.
    pub since: u64,
    /// The operator's words.
    pub reason: Option<String>,
    /// True if pods that use the device shall be evicted.
    pub evict: bool,
}

/// Amounts of one capacity.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct HeldAmount {
    /// The whole capacity; zero for a device that is not there.
    pub capacity: Quantity,
    /// The amount that claims hold.
    pub held: Quantity,
    /// The amount that a claim can still have, if the device is in service. Less than the rest where a claim keeps
    /// CPUs idle.
    pub free: Quantity,
}

/// The part of a device that one grant holds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DeviceHold {
    /// Place of the claim among the holders.
    pub holder: usize,
    /// True if the grant has administrative access only: others may hold the device.
    #[serde(default)]
    pub is_admin: bool,
    /// Amounts that it takes of each capacity.
    #[serde(default)]
    pub amounts: BTreeMap<String, Quantity>,
    /// The CPUs that containers are bound to.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub cpus: IdSet,
    /// CPUs that stay idle for it.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub kept: IdSet,
}

/// The state of a CPU.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum CpuState {
    /// Free for any claim.
    Free,
    /// Held by the claim at this place among the holders.
    Held(usize),
    /// Kept idle for the claim at this place.
    Kept(usize),
    /// Not held, but its device is out of service.
    Drained,
    /// Not held, but its device does not work, or could not be checked.
    Unhealthy,
    /// Online, but no device offers it: it stays with the system.
    Reserved,
    /// Offline.
    Offline,
}

impl MachineUsage {
    /// Joins inventory and records of a machine.
    pub fn of(node: &str, machine: MachineLayout, inventory: &Inventory, claims: &ClaimTable) -> Self {
        let (holders, devices) = usage(inventory, claims);
        Self { node: node.to_owned(), machine, holders, devices, doubts: inventory.doubts() }
    }

    /// Returns the state of every CPU.
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
        // The kept CPUs of a claim with a cache to itself include its own CPUs.
        for hold in holds() {
            states.extend(hold.cpus.iter().map(|cpu| (cpu, CpuState::Held(hold.holder))));
        }
        states
    }

    /// Returns the held and free amounts and the holders of each device, by backend and name.
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

    /// Returns true if a claim has the device, or a part of it.
    pub fn is_held(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Returns the state of its CPUs that no claim holds.
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
    /// Returns the health in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
            Self::Absent => "Absent",
        }
    }
}

/// Returns the held and free amounts and the holders of each device, by backend and name.
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

/// A device, as inventory and records know it.
#[derive(Default)]
struct KnownDevice<'a> {
    pool: Option<&'a Pool>,
    device: Option<&'a Device>,
    held: Vec<(usize, &'a RecordDevice)>,
}

/// Returns the claims on record, and every device that inventory, drains or records know.
pub fn usage(inventory: &Inventory, claims: &ClaimTable) -> (Vec<UsageHolder>, Vec<DeviceUsage>) {
    let (holders, places) = holders(claims);
    let known = known(inventory, claims, &places);
    let blocked = blocked_devices(inventory, &known);
    let devices = known
        .iter()
        .map(|(key, known)| DeviceUsage { blocked: blocked.contains(key), ..device_usage(key, known, inventory) });
    (holders, devices.collect())
}

/// Returns backend and name of every device that inventory, drains or records know.
pub fn known_devices(inventory: &Inventory, claims: &ClaimTable) -> BTreeSet<DeviceKey> {
    known(inventory, claims, &BTreeMap::new()).into_keys().collect()
}

/// Returns the holders by name, as people look for them, and the place of each.
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
    for (uid, view) in claims.claims.iter() {
        for held in view.devices() {
            let known = all.entry((held.backend.clone(), held.local_name().clone())).or_default();
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

/// Returns the pool of a device; that of a device that is not there comes from the claim that holds it.
fn pool_name(backend: &BackendName, known: &KnownDevice<'_>, inventory: &Inventory) -> String {
    let own = known.pool.map(|pool| &pool.name);
    let held = || known.held.first().map(|(_, held)| &held.grant.pool);
    let of_backend = || inventory.pools.get(backend).map(|pool| &pool.name);
    own.or_else(held).or_else(of_backend).cloned().unwrap_or_default()
}

/// Returns the NUMA node of a device, where it has one.
pub fn numa_node(device: &Device) -> Option<u32> {
    match device.attributes.get(NUMA_NODE) {
        Some(AttributeValue::Int(node)) => u32::try_from(*node).ok(),
        _ => None,
    }
}

/// Returns the part of a device that a grant holds: all of a capacity that it does not name, and nothing with
/// administrative access.
fn hold(holder: usize, held: &RecordDevice, device: Option<&Device>) -> DeviceHold {
    if held.grant.access == Access::Admin {
        return DeviceHold { holder, is_admin: true, ..DeviceHold::default() };
    }
    let named = held.grant.consumed.iter().map(|(name, amount)| (name.to_string(), *amount));
    let whole = device.into_iter().flat_map(|device| device.capacity.iter());
    let whole = whole.map(|(name, capacity)| (name.to_string(), capacity.value));
    let kept = if held.backend.as_str() == "cpu" { hostler_cpu::kept_cpus(&held.plan) } else { IdSet::new() };
    let cpus: IdSet = held.plan.pinning.cpus.iter().copied().collect();
    // Named amounts come last, and replace whole capacities.
    DeviceHold { holder, is_admin: false, amounts: whole.chain(named).collect(), kept: kept.difference(&cpus), cpus }
}

fn amounts(device: Option<&Device>, holds: &[DeviceHold], cpus: &IdSet) -> BTreeMap<String, HeldAmount> {
    let mut all: BTreeMap<String, HeldAmount> = BTreeMap::new();
    for (name, capacity) in device.into_iter().flat_map(|device| device.capacity.iter()) {
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

/// Counts the CPUs of a device that no claim has or keeps idle.
fn free_cpus(cpus: &IdSet, holds: &[DeviceHold]) -> Quantity {
    let taken = holds.iter().fold(IdSet::new(), |all, hold| all.union(&hold.cpus).union(&hold.kept));
    Quantity::whole(cpus.difference(&taken).len() as u64)
}

#[cfg(test)]
mod tests;
