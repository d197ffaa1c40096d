//! Rows of the answer, made from the stock.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::hardware::DeviceTotals;

use super::{AvailabilityBy, AvailabilityCounts, AvailabilityRow, NodeAvailability};
use crate::stock::{ClusterStock, NodeCell, NodeSummary, Tally};

pub(super) fn rows(stock: &ClusterStock, by: AvailabilityBy) -> Vec<AvailabilityRow> {
    match by {
        AvailabilityBy::Class => classes(stock),
        AvailabilityBy::Node => nodes(stock),
        AvailabilityBy::Numa => numa_nodes(stock),
        AvailabilityBy::Namespace => namespaces(stock),
    }
}

fn classes(stock: &ClusterStock) -> Vec<AvailabilityRow> {
    let named = stock.sums.classes.iter().map(|(class, tally)| AvailabilityRow {
        class: Some(class.to_string()),
        counts: tally.into(),
        ..AvailabilityRow::default()
    });
    let rest = &stock.sums.of_no_class;
    let rest =
        (rest.totals.capacity > 0).then(|| AvailabilityRow { counts: rest.into(), ..AvailabilityRow::default() });
    named.chain(rest).collect()
}

/// Returns the nodes, and after them the devices that belong to no node.
fn places(stock: &ClusterStock) -> impl Iterator<Item = (Option<&Arc<str>>, &NodeSummary)> {
    let nodes = stock.nodes.iter().map(|(name, node)| (Some(name), &**node));
    nodes.chain(Some((None, &*stock.elsewhere)).filter(|(_, elsewhere)| !elsewhere.cells.is_empty()))
}

fn nodes(stock: &ClusterStock) -> Vec<AvailabilityRow> {
    let row = |(name, node): (Option<&Arc<str>>, &NodeSummary)| AvailabilityRow {
        node: name.map(ToString::to_string),
        status: name.map(|_| NodeAvailability::from(node)),
        ..of_cells(node.cells.iter())
    };
    places(stock).map(row).collect()
}

fn numa_nodes(stock: &ClusterStock) -> Vec<AvailabilityRow> {
    let rows = places(stock).flat_map(|(name, node)| {
        let mut numbers: Vec<Option<u32>> = node.cells.iter().map(|cell| cell.kind.numa_node).collect();
        // Devices on no single NUMA node come last.
        numbers.sort_unstable_by_key(|number| number.unwrap_or(u32::MAX));
        numbers.dedup();
        numbers.into_iter().map(move |numa_node| AvailabilityRow {
            node: name.map(ToString::to_string),
            numa_node,
            status: name.map(|_| NodeAvailability::from(node)),
            ..of_cells(node.cells.iter().filter(|cell| cell.kind.numa_node == numa_node))
        })
    });
    rows.collect()
}

fn namespaces(stock: &ClusterStock) -> Vec<AvailabilityRow> {
    let mut classes: BTreeMap<&Arc<str>, BTreeMap<Arc<str>, Tally>> = BTreeMap::new();
    for cell in places(stock).flat_map(|(_, node)| &node.given) {
        let of_namespace = classes.entry(&cell.namespace).or_default();
        for class in cell.kind.classes.iter() {
            of_namespace.entry(class.clone()).or_default().add(&cell.tally);
        }
    }
    let named = stock.sums.namespaces.iter().map(|(namespace, tally)| AvailabilityRow {
        namespace: Some(namespace.to_string()),
        counts: tally.into(),
        classes: totals(classes.remove(namespace).unwrap_or_default()),
        ..AvailabilityRow::default()
    });
    let mut rows: Vec<AvailabilityRow> = named.collect();
    let rest = stock.sums.of_nobody;
    if rest.capacity > 0 {
        rows.push(AvailabilityRow { counts: rest.into(), ..AvailabilityRow::default() });
    }
    rows
}

fn of_cells<'c>(cells: impl Iterator<Item = &'c NodeCell>) -> AvailabilityRow {
    let (mut all, mut classes) = (Tally::default(), BTreeMap::<Arc<str>, Tally>::new());
    for cell in cells {
        all.add(&cell.tally);
        for class in cell.kind.classes.iter() {
            classes.entry(class.clone()).or_default().add(&cell.tally);
        }
    }
    let counts = AvailabilityCounts::from(&all);
    AvailabilityRow { counts, classes: totals(classes), ..AvailabilityRow::default() }
}

fn totals(classes: BTreeMap<Arc<str>, Tally>) -> BTreeMap<String, DeviceTotals> {
    classes.into_iter().map(|(class, tally)| (class.to_string(), tally.totals)).collect()
}

impl From<&NodeSummary> for NodeAvailability {
    fn from(node: &NodeSummary) -> Self {
        let NodeSummary { is_there, is_ready, is_schedulable, report, .. } = *node;
        Self { is_there, is_ready, is_schedulable, report }
    }
}
