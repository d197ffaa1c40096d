//! The nodes of a cluster, a row for each: devices by state, and who holds them.

use std::collections::BTreeMap;

use hostler_api::{hardware::DeviceTotals, well_known::HELD_TAINT};
use hostler_cli::output::API_VERSION;
use serde::Serialize;

use crate::{
    availability::NodeAvailability,
    held::KeptBy,
    stock::{NodeSummary, Tally},
    view::ClusterView,
};

/// All nodes with devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRows {
    api_version: &'static str,
    kind: &'static str,
    /// Nodes by name.
    pub(super) items: Vec<NodeRow>,
    /// Sum of all rows.
    pub(super) total: DeviceTotals,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRow {
    /// Name of the node.
    pub(super) name: String,
    /// State of the node.
    pub(super) status: NodeAvailability,
    /// Number of all devices, and of those in each state.
    #[serde(flatten)]
    pub(super) devices: DeviceTotals,
    /// Number of devices that claims of a namespace have, by namespace.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) holders: BTreeMap<String, u32>,
    /// Number of held devices, by Reservation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) held_for: BTreeMap<String, u32>,
}

impl NodeRows {
    /// Makes the rows, of the devices of one class or of all.
    pub(super) fn of(view: &ClusterView, class: Option<&str>) -> Self {
        let kept = KeptBy::new(&view.reservations);
        let nodes = view.stock.nodes.iter().map(|(name, node)| NodeRow::of(name, node, class, &kept));
        let items: Vec<NodeRow> = nodes.filter(|row| class.is_none() || row.devices.capacity > 0).collect();
        let mut total = Tally::default();
        items.iter().for_each(|row| crate::stock::add_totals(&mut total.totals, &row.devices));
        Self { api_version: API_VERSION, kind: "NodeList", items, total: total.totals }
    }
}

impl NodeRow {
    fn of(name: &str, node: &NodeSummary, class: Option<&str>, kept: &KeptBy<'_>) -> Self {
        let is_meant =
            |classes: &[std::sync::Arc<str>]| class.is_none_or(|class| classes.iter().any(|it| **it == *class));
        let mut tally = Tally::default();
        node.cells.iter().filter(|cell| is_meant(&cell.kind.classes)).for_each(|cell| tally.add(&cell.tally));
        let mut holders: BTreeMap<String, u32> = BTreeMap::new();
        for given in node.given.iter().filter(|given| is_meant(&given.kind.classes)) {
            *holders.entry(given.namespace.to_string()).or_default() += given.tally.totals.capacity;
        }
        let keeper =
            |value: &str| kept.of_value(value).map_or_else(|| format!("{HELD_TAINT}={value}"), |it| it.name.clone());
        let held_for = tally.held_for.iter().map(|(value, count)| (keeper(value), *count)).collect();
        Self { name: name.to_owned(), status: NodeAvailability::from(node), devices: tally.totals, holders, held_for }
    }
}
