//! The grid: one short row of numbers for every node, of all of its devices or of those that a filter selects. Five
//! thousand nodes have a quarter of a megabyte.
//!
//! A shared device is free as long as a part of it is free, so counts alone would show a node as empty that is almost
//! full: the amount that is taken in part has a number of its own.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    ExactQuantity,
    hardware::{DeviceState, DeviceTotals},
};
use hostler_cli::output::API_VERSION;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeSeq};

use super::{access::Visitor, labels::LabelTerms, problem::ApiProblem, read_right::ReadRight, revisions::NewEntries};
use crate::{
    reports::ReportFreshness,
    stock::{NodeSummary, Tally},
    view::ClusterView,
};

/// The order of counts in a row.
const STATES: [DeviceState; 7] = [
    DeviceState::Free,
    DeviceState::Allocated,
    DeviceState::Held,
    DeviceState::Unhealthy,
    DeviceState::Drained,
    DeviceState::Unknown,
    DeviceState::Blocked,
];
/// Index of the devices that are not of the namespace in the query: behind the states.
const OTHERS: usize = STATES.len();

/// Flags of a node's number beside the freshness of its report.
const NOT_READY: u8 = 8;
const CORDONED: u8 = 16;

/// Selection of nodes, and of their devices.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GridQuery {
    /// Only devices of this class, and nodes that have some.
    class: Option<String>,
    /// Only devices that claims of this namespace have, and nodes with some.
    namespace: Option<String>,
    /// Only nodes with these labels: `zone=a,!old`.
    label: Option<String>,
}

/// A query that was understood.
#[derive(Clone, Debug, Default)]
pub(crate) struct GridFilter {
    class: Option<String>,
    namespace: Option<String>,
    labels: LabelTerms,
}

/// All nodes that a filter selects.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GridAnswer {
    api_version: &'static str,
    kind: &'static str,
    /// The revision at which changes go on.
    revision: String,
    nodes: Vec<GridRow>,
}

/// Changes of the grid.
#[derive(Debug, Serialize)]
pub(crate) struct GridNews {
    /// Nodes that came or changed.
    pub(crate) nodes: Vec<GridRow>,
    /// Names of nodes that went, or that the filter no longer selects.
    pub(crate) gone: Vec<Arc<str>>,
}

/// A node: `["n1", 0, [0, 4, 2], [1, 6]]`. The second number is the node's state; each list is a NUMA node (-1: none)
/// with its counts and then its parts; zeros at the end are left out.
#[derive(Debug, PartialEq)]
pub(crate) struct GridRow {
    name: Arc<str>,
    status: u8,
    zones: BTreeMap<ZoneKey, ZoneCounts>,
}

/// The devices of a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ZoneCounts {
    /// Number of devices in each state, and of other devices.
    states: [u32; OTHERS + 1],
    /// Amount that is taken of shared devices beside those that count as allocated, in thousandths of a device.
    /// Negative where the filter names a namespace, whose devices all count as allocated.
    parts: i64,
}

/// NUMA nodes in their order, and then devices on none.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ZoneKey {
    Numa(u32),
    Nowhere,
}

impl GridQuery {
    /// Parses the query, if the visitor has the right to it.
    pub(crate) fn understood(self, visitor: &Visitor) -> Result<GridFilter, ApiProblem> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let namespace = given(self.namespace);
        if namespace.is_some() {
            visitor.must(ReadRight::Holders)?;
        }
        let labels = self.label.unwrap_or_default().parse().map_err(ApiProblem::BadQuestion)?;
        Ok(GridFilter { class: given(self.class), namespace, labels })
    }
}

impl GridFilter {
    /// True if the filter's answer tells anything about holders.
    pub(crate) fn is_of_holders(&self) -> bool {
        self.namespace.is_some()
    }

    /// Returns all nodes that the filter selects.
    pub(crate) fn all(&self, entries: &NewEntries<NodeSummary>, view: &ClusterView, revision: String) -> GridAnswer {
        let rows = entries.changed.iter().filter_map(|(name, summary)| self.row(name, summary, view));
        GridAnswer { api_version: API_VERSION, kind: "NodeGrid", revision, nodes: rows.collect() }
    }

    /// Returns the news for a follower with this filter.
    pub(crate) fn news(&self, entries: NewEntries<NodeSummary>, view: &ClusterView) -> GridNews {
        let mut news = GridNews { nodes: Vec::new(), gone: entries.gone };
        for (name, summary) in entries.changed {
            match self.row(&name, &summary, view) {
                Some(row) => news.nodes.push(row),
                None => news.gone.push(name),
            }
        }
        news
    }

    fn row(&self, name: &Arc<str>, summary: &NodeSummary, view: &ClusterView) -> Option<GridRow> {
        let labels = view.facts.node(name).map(|node| &node.metadata.labels);
        if !self.labels.is_empty() && !labels.is_some_and(|labels| self.labels.match_all(labels)) {
            return None;
        }
        let zones = match &self.namespace {
            None => self.zones(summary),
            Some(namespace) => self.zones_of(namespace, summary),
        };
        let is_filtered = self.class.is_some() || self.namespace.is_some();
        (!is_filtered || !zones.is_empty()).then(|| GridRow { name: name.clone(), status: status(summary), zones })
    }

    fn means(&self, classes: &[Arc<str>]) -> bool {
        self.class.as_deref().is_none_or(|wanted| classes.iter().any(|class| &**class == wanted))
    }

    fn zones(&self, summary: &NodeSummary) -> BTreeMap<ZoneKey, ZoneCounts> {
        let mut zones = BTreeMap::new();
        for cell in summary.cells.iter().filter(|cell| self.means(&cell.kind.classes)) {
            let zone: &mut ZoneCounts = zones.entry(ZoneKey::from(cell.kind.numa_node)).or_default();
            zone.add(&cell.tally.totals);
            zone.parts += parts(&cell.tally).clamp(0, thousandths(cell.tally.totals.free));
        }
        zones
    }

    /// Counts the devices that a namespace has, and the other devices.
    fn zones_of(&self, namespace: &str, summary: &NodeSummary) -> BTreeMap<ZoneKey, ZoneCounts> {
        let mut zones = BTreeMap::new();
        let given = summary.given.iter().filter(|cell| &*cell.namespace == namespace && self.means(&cell.kind.classes));
        for cell in given {
            let zone: &mut ZoneCounts = zones.entry(ZoneKey::from(cell.kind.numa_node)).or_default();
            zone.add(&cell.tally.totals);
            // The namespace's share of a device is measured by all devices of the kind.
            let all = summary.cells.iter().find(|all| all.kind == cell.kind);
            let whole = |all: &Tally| {
                let share = share_taken(&cell.tally, all)?;
                Some(scaled(share, all.totals.capacity) - thousandths(cell.tally.totals.allocated))
            };
            let parts = all.and_then(|all| whole(&all.tally)).unwrap_or_default();
            zone.parts += parts.clamp(-thousandths(cell.tally.totals.allocated), 0);
        }
        if !zones.is_empty() {
            for (key, all) in self.zones(summary) {
                let zone: &mut ZoneCounts = zones.entry(key).or_default();
                zone.states[OTHERS] = all.states.iter().sum::<u32>().saturating_sub(zone.states.iter().sum());
            }
        }
        zones
    }
}

impl From<Option<u32>> for ZoneKey {
    fn from(numa: Option<u32>) -> Self {
        numa.map_or(Self::Nowhere, Self::Numa)
    }
}

impl ZoneCounts {
    fn add(&mut self, totals: &DeviceTotals) {
        for (count, state) in self.states.iter_mut().zip(STATES) {
            *count += totals.in_state(state);
        }
    }
}

/// Amount that is taken of devices beside those that count as allocated, in thousandths of a device.
fn parts(tally: &Tally) -> i64 {
    let share = share_taken(tally, tally);
    share.map_or(0, |share| scaled(share, tally.totals.capacity) - thousandths(tally.totals.allocated))
}

/// The greatest share, over all capacities, that `taken` has of `all`; `None` where nothing is shared.
fn share_taken(taken: &Tally, all: &Tally) -> Option<f64> {
    let number = |amount: hostler_api::Quantity| ExactQuantity::from(amount).as_approximate_float();
    let share = |(name, of): (&Arc<str>, &hostler_api::hardware::AmountCounts)| {
        Some(number(taken.amounts.get(name)?.allocated) / number(of.capacity))
    };
    all.amounts.iter().filter_map(share).filter(|share| share.is_finite()).reduce(f64::max)
}

/// A share of a number of devices, in thousandths of a device.
#[expect(clippy::cast_possible_truncation, reason = "a node has fewer devices than a mantissa has numbers")]
fn scaled(share: f64, devices: u32) -> i64 {
    (share.min(1.0) * f64::from(devices) * 1000.0).round() as i64
}

fn thousandths(devices: u32) -> i64 {
    i64::from(devices) * 1000
}

/// Returns a number: freshness of the report (0 fresh, 1 stale, 2 unknown, 3 none, 4 node does not exist), and flags.
fn status(summary: &NodeSummary) -> u8 {
    let report = match (summary.is_there, summary.report) {
        (false, _) => return 4,
        (true, Some(ReportFreshness::Fresh)) => 0,
        (true, Some(ReportFreshness::Stale)) => 1,
        (true, Some(ReportFreshness::Unknown)) => 2,
        (true, None) => 3,
    };
    let ready = if summary.is_ready { 0 } else { NOT_READY };
    let schedulable = if summary.is_schedulable { 0 } else { CORDONED };
    report + ready + schedulable
}

impl Serialize for GridRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_seq(Some(2 + self.zones.len()))?;
        row.serialize_element(&self.name)?;
        row.serialize_element(&self.status)?;
        for (key, counts) in &self.zones {
            let numa = if let ZoneKey::Numa(number) = key { i64::from(*number) } else { -1 };
            let mut zone: Vec<i64> = [numa].into_iter().chain(counts.states.map(i64::from)).collect();
            zone.push(counts.parts);
            let used = zone.iter().skip(1).rposition(|count| *count != 0).map_or(1, |last| last + 2);
            zone.truncate(used);
            row.serialize_element(&zone)?;
        }
        row.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_no_number_more_than_it_needs() {
        let zones = BTreeMap::from([
            (ZoneKey::Nowhere, ZoneCounts::default()),
            (ZoneKey::Numa(1), ZoneCounts { states: [4, 0, 2, 0, 0, 0, 0, 0], parts: 0 }),
            (ZoneKey::Numa(0), ZoneCounts { states: [1, 0, 0, 0, 0, 0, 0, 9], parts: -250 }),
        ]);
        let row = GridRow { name: "n\"1".into(), status: 1, zones };
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(text, r#"["n\"1",1,[0,1,0,0,0,0,0,0,9,-250],[1,4,0,2],[-1]]"#);
    }
}
