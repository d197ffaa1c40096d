//! Numbers of all and of free devices: rows by class, node, NUMA node or namespace, for the command, the page and
//! metrics.

mod command;
mod figures;
mod rows;
mod table;

use std::{collections::BTreeMap, fmt, sync::Arc};

use clap::ValueEnum;
use hostler_api::{
    hardware::{AmountCounts, ClusterNodeCounts, DeviceTotals},
    well_known::HELD_TAINT,
};
use hostler_cli::output::API_VERSION;
use serde::{Deserialize, Serialize};

use crate::{
    held::{KeptBy, KeptReservation},
    reports::ReportFreshness,
    reservation_object::ReservationObject,
    stock::{ClusterStock, Tally},
};

pub(crate) use command::{AvailabilityArgs, run};
pub(crate) use figures::class_figures;

/// The subject of rows.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AvailabilityBy {
    /// A DeviceClass: what claims ask for
    #[default]
    Class,
    /// A node
    Node,
    /// A NUMA node of a node
    Numa,
    /// A namespace: whose claims have devices
    Namespace,
}

/// Numbers of all and of free devices.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Availability {
    /// `output.hostler.dev/v1`.
    pub(crate) api_version: String,
    /// `Availability`.
    pub(crate) kind: String,
    /// The subject of rows.
    pub(crate) by: AvailabilityBy,
    /// Rows in order of their names. Devices without a name come last: those of no class, of no single node or NUMA
    /// node, or of no namespace.
    pub(crate) rows: Vec<AvailabilityRow>,
    /// All devices, each counted once.
    pub(crate) total: AvailabilityCounts,
    /// Numbers of nodes by the state of their reports.
    pub(crate) nodes: ClusterNodeCounts,
    /// The Reservations for which devices of this answer are held, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reservations: Vec<KeptReservation>,
    /// Facts that make the answer less certain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Devices that have a name in common. Names that rows are not about are absent.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AvailabilityRow {
    /// Name of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// Number of the NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) numa_node: Option<u32>,
    /// Name of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// State of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<NodeAvailability>,
    /// Number of devices in each state.
    #[serde(flatten)]
    pub(crate) counts: AvailabilityCounts,
    /// The same counts by class, where rows are not about classes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) classes: BTreeMap<String, DeviceTotals>,
}

/// Number of devices in each state, and amounts of their shared capacities.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AvailabilityCounts {
    /// Number of all devices, and of those in each state. Each device is in one state.
    #[serde(flatten)]
    pub(crate) devices: DeviceTotals,
    /// Amounts of each capacity that several claims can share, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) amounts: BTreeMap<String, AmountCounts>,
    /// Number of held devices by Reservation. Where the Reservation is not known, the key is the taint.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) held_for: BTreeMap<String, u32>,
}

/// State of a node.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeAvailability {
    /// True if the node exists.
    pub(crate) is_there: bool,
    /// True if the node's kubelet says that it is ready.
    pub(crate) is_ready: bool,
    /// True if new pods can be scheduled to the node.
    pub(crate) is_schedulable: bool,
    /// Freshness of the report of hostler's daemon, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<ReportFreshness>,
}

impl AvailabilityBy {
    /// Returns the subject in one word, as addresses have it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Node => "node",
            Self::Numa => "numa",
            Self::Namespace => "namespace",
        }
    }
}

impl From<&Tally> for AvailabilityCounts {
    fn from(tally: &Tally) -> Self {
        let amounts = tally.amounts.iter().map(|(name, amounts)| (name.to_string(), *amounts)).collect();
        let held_for = tally.held_for.iter().map(|(value, count)| (taint(value), *count)).collect();
        Self { devices: tally.totals, amounts, held_for }
    }
}

impl From<DeviceTotals> for AvailabilityCounts {
    fn from(devices: DeviceTotals) -> Self {
        Self { devices, ..Self::default() }
    }
}

impl Availability {
    /// Makes the answer from the stock of a moment.
    pub(crate) fn of(stock: &ClusterStock, by: AvailabilityBy) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Availability".to_owned(),
            by,
            rows: rows::rows(stock, by),
            total: AvailabilityCounts::from(&stock.sums.all),
            nodes: stock.reports,
            reservations: Vec::new(),
            notes: notes(stock),
        }
    }

    /// Returns the answer with names of the Reservations for which devices are held.
    pub(crate) fn with_names(mut self, reservations: &BTreeMap<String, Arc<ReservationObject>>) -> Self {
        let kept = KeptBy::new(reservations);
        let found = |taint: &String| kept.of_value(value_of(taint)?);
        let mut named: Vec<&ReservationObject> = self.total.held_for.keys().filter_map(found).collect();
        named.sort_by_key(|it| &it.name);
        let nameless = self.total.held_for.iter().filter(|(taint, _)| found(taint).is_none());
        let nameless: Vec<String> = nameless.map(|(taint, count)| format!("{count} by {taint}")).collect();
        self.reservations = named.into_iter().map(KeptReservation::from).collect();
        if !nameless.is_empty() {
            let few = hostler_api::few(nameless);
            self.notes.push(format!("devices are held for somebody of whom no Reservation tells here: {few}"));
        }
        let rename = |counts: &mut AvailabilityCounts| {
            let name = |(taint, count)| (found(&taint).map_or(taint, |it| it.name.clone()), count);
            counts.held_for = std::mem::take(&mut counts.held_for).into_iter().map(name).collect();
        };
        self.rows.iter_mut().map(|row| &mut row.counts).chain([&mut self.total]).for_each(rename);
        self
    }
}

/// Returns the taint that holds devices, as people write it. No Reservation can have such a name.
fn taint(value: &str) -> String {
    format!("{HELD_TAINT}={value}")
}

fn value_of(taint: &str) -> Option<&str> {
    taint.strip_prefix(HELD_TAINT)?.strip_prefix('=')
}

fn notes(stock: &ClusterStock) -> Vec<String> {
    let count = |is_such: &dyn Fn(&crate::stock::NodeSummary) -> bool| {
        stock.nodes.iter().filter(|(_, node)| is_such(node)).map(|(name, _)| &**name).collect::<Vec<_>>()
    };
    let told =
        |names: Vec<&str>, what: &str| (!names.is_empty()).then(|| format!("{what}: {}", hostler_api::few(names)));
    let gone = count(&|node| !node.is_there && !node.cells.is_empty());
    let silent = count(&|node| node.report == Some(ReportFreshness::Unknown));
    let stale = count(&|node| node.report == Some(ReportFreshness::Stale));
    let asleep = count(&|node| node.is_there && !node.is_ready && !node.cells.is_empty());
    [
        told(gone, "slices tell of nodes that are not there; nothing is known of their devices"),
        told(silent, "nodes that missed three signs of life; nothing is known of hostler's devices there"),
        told(stale, "nodes that missed two signs of life; what they said last is shown"),
        told(asleep, "nodes that are not ready, whose free devices nobody can have now"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl fmt::Display for NodeAvailability {
    /// Writes the state in a few words, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kubelet = match (self.is_there, self.is_ready, self.is_schedulable) {
            (false, ..) => "gone",
            (true, false, _) => "not ready",
            (true, true, false) => "cordoned",
            (true, true, true) => "ready",
        };
        match self.report.filter(|report| *report != ReportFreshness::Fresh) {
            Some(report) => write!(f, "{kubelet}, {}", report.as_str()),
            None => f.write_str(kubelet),
        }
    }
}

#[cfg(test)]
mod tests;
