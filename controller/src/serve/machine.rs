//! One node as a machine: its devices, the state of each, and its holders.

use std::{collections::BTreeMap, sync::Arc};

use hostler_allocator::plan::StockDevice;
use hostler_api::ObjectKey;
use hostler_api::hardware::{AmountCounts, DeviceState};
use hostler_cli::output::API_VERSION;
use serde::Serialize;

use super::{access::Visitor, problem::ApiProblem};
use crate::{
    held::{KeptBy, KeptReservation},
    hold::DeviceKey,
    reports::ReportFreshness,
    reservation_object::ReservationObject,
    view::ClusterView,
};

/// A node with its devices.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineAnswer {
    api_version: &'static str,
    kind: &'static str,
    pub(crate) name: String,
    /// True if the node exists.
    pub(crate) is_there: bool,
    /// True if the node's kubelet says that it is ready.
    pub(crate) is_ready: bool,
    /// True if new pods can be scheduled to the node.
    pub(crate) is_schedulable: bool,
    /// Freshness of the report of the node's daemon, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<ReportFreshness>,
    /// Troubles that the node's daemon reports.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) troubles: Box<[Arc<str>]>,
    labels: BTreeMap<String, String>,
    /// True if the visitor may see the holders; if not, no holder is named anywhere.
    holders_shown: bool,
    /// Claims, by namespace and name. Devices refer to them by their index here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) holders: Vec<HolderAnswer>,
    /// True if the visitor may see for whom devices are held; if not, no Reservation is named.
    reservations_shown: bool,
    /// The Reservations that keep devices of the node, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) reservations: Vec<KeptReservation>,
    pub(crate) devices: Vec<DeviceAnswer>,
}

/// A claim that has devices of the node.
#[derive(Debug, Serialize)]
pub(crate) struct HolderAnswer {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Pods that may use the claim.
    pub(crate) pods: Vec<String>,
}

/// A device.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeviceAnswer {
    pub(crate) driver: Arc<str>,
    pub(crate) pool: Arc<str>,
    pub(crate) name: String,
    /// The NUMA node of the device, where the device has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) numa_node: Option<u32>,
    pub(crate) state: DeviceState,
    /// The classes that select the device.
    pub(crate) classes: Arc<[Arc<str>]>,
    /// Amounts of each capacity that several claims can share.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    amounts: BTreeMap<Arc<str>, AmountCounts>,
    /// Claims that have the device or parts of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) holds: Vec<DeviceHold>,
    /// The Reservation that the device is kept for, also while a claim has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept_for: Option<String>,
}

/// The part of a device that a claim has.
#[derive(Debug, Serialize)]
pub(crate) struct DeviceHold {
    /// Index of the claim among the holders.
    pub(crate) holder: usize,
    /// Amount of each capacity.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    amounts: BTreeMap<Arc<str>, String>,
}

/// Describes a node, for a user who has read the cluster with rights of the user's own; `None` where there is no such node.
pub(crate) fn machine_of(view: &ClusterView, name: &str) -> Option<MachineAnswer> {
    let all = Visitor { nodes: true, holders: true, fits: true, reservations: true, ..Visitor::default() };
    machine(view, name, &all).ok()
}

/// Describes a node, as far as this visitor has the rights.
pub(crate) fn machine(view: &ClusterView, name: &str, visitor: &Visitor) -> Result<MachineAnswer, ApiProblem> {
    let summary = view.stock.nodes.get(name);
    let summary = summary.ok_or_else(|| ApiProblem::NotFound(format!("there is no node {name}")))?;
    let devices = view.devices(name);
    let holders = if visitor.holders { holders(&devices) } else { BTreeMap::new() };
    let places: BTreeMap<&ObjectKey, usize> = holders.keys().enumerate().map(|(place, key)| (*key, place)).collect();
    let kept = visitor.reservations.then(|| KeptBy::new(&view.reservations));
    let kept_for = |device: &StockDevice| {
        let key = DeviceKey::new(&device.kind.driver, &device.pool, &device.name);
        kept.as_ref()?.of_device(device.held_for.as_deref()?, &key)
    };
    let reservations: BTreeMap<&str, &ReservationObject> =
        devices.iter().filter_map(kept_for).map(|it| (&*it.name, it)).collect();
    Ok(MachineAnswer {
        api_version: API_VERSION,
        kind: "Machine",
        name: name.to_owned(),
        is_there: summary.is_there,
        is_ready: summary.is_ready,
        is_schedulable: summary.is_schedulable,
        report: summary.report,
        troubles: summary.troubles.clone(),
        labels: view.facts.node(name).map(|node| node.metadata.labels.clone()).unwrap_or_default(),
        holders_shown: visitor.holders,
        reservations_shown: visitor.reservations,
        reservations: reservations.into_values().map(KeptReservation::from).collect(),
        devices: devices.iter().map(|device| DeviceAnswer::new(device, &places, kept_for(device))).collect(),
        holders: holders.into_iter().map(|(key, pods)| HolderAnswer::new(key, pods)).collect(),
    })
}

/// Claims with their pods, by name.
fn holders(devices: &[StockDevice]) -> BTreeMap<&ObjectKey, &[String]> {
    let all = devices.iter().flat_map(|device| &device.holders);
    all.map(|holder| (&*holder.claim, &*holder.pods)).collect()
}

impl HolderAnswer {
    fn new(key: &ObjectKey, pods: &[String]) -> Self {
        Self { namespace: key.namespace.clone(), name: key.name.clone(), pods: pods.to_vec() }
    }
}

impl DeviceAnswer {
    fn new(device: &StockDevice, places: &BTreeMap<&ObjectKey, usize>, kept_for: Option<&ReservationObject>) -> Self {
        let StockDevice { name, pool, kind, state, holders, amounts, .. } = device;
        let hold = |holder: &hostler_allocator::plan::DeviceHolder| {
            let amounts = holder.amounts.iter().map(|(name, amount)| (name.clone(), amount.human()));
            Some(DeviceHold { holder: *places.get(&*holder.claim)?, amounts: amounts.collect() })
        };
        Self {
            driver: kind.driver.clone(),
            pool: pool.clone(),
            name: name.clone(),
            numa_node: kind.numa_node,
            state: *state,
            classes: kind.classes.clone(),
            amounts: amounts.iter().cloned().collect(),
            holds: holders.iter().filter_map(hold).collect(),
            kept_for: kept_for.map(|it| it.name.clone()),
        }
    }
}
