//! The grid: of every node one short row of numbers, of all of its devices or of those that a filter means. Five thousand
//! nodes have a quarter of a megabyte.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::hardware::{DeviceState, DeviceTotals};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeSeq};

use super::{
    access::{ReadRight, Visitor},
    labels::LabelTerms,
    problem::ApiProblem,
    revisions::NewEntries,
};
use crate::{plan::ANSWER_VERSION, reports::ReportFreshness, stock::NodeSummary, view::ClusterView};

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
/// After them: devices that are not of the namespace that was asked for.
const OTHERS: usize = STATES.len();

/// What a node's number says beside how fresh its report is.
const NOT_READY: u8 = 8;
const CORDONED: u8 = 16;

/// Which nodes, and which of their devices.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GridQuery {
    /// Devices of this class, and nodes that have some.
    class: Option<String>,
    /// Devices that claims of this namespace have, and nodes with some.
    namespace: Option<String>,
    /// Nodes with these labels: `zone=a,!old`.
    label: Option<String>,
}

/// The same, understood.
#[derive(Clone, Debug, Default)]
pub(crate) struct GridFilter {
    class: Option<String>,
    namespace: Option<String>,
    labels: LabelTerms,
}

/// All nodes that pass a filter.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GridAnswer {
    api_version: &'static str,
    kind: &'static str,
    /// Where changes go on from here.
    revision: String,
    nodes: Vec<GridRow>,
}

/// What changed.
#[derive(Debug, Serialize)]
pub(crate) struct GridNews {
    /// Nodes that came or changed.
    pub(crate) nodes: Vec<GridRow>,
    /// Names of those that went, or do not pass any more.
    pub(crate) gone: Vec<Arc<str>>,
}

/// A node: `["n1", 0, [0, 4, 2], [1, 6]]`. The second number tells of the node; each list is a NUMA node (-1: none) with
/// its counts, of which zeros at the end are left out.
#[derive(Debug, PartialEq)]
pub(crate) struct GridRow {
    name: Arc<str>,
    status: u8,
    zones: BTreeMap<ZoneKey, [u32; OTHERS + 1]>,
}

/// NUMA nodes in their order, and then what is on none.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum ZoneKey {
    Numa(u32),
    Nowhere,
}

impl GridQuery {
    /// What is meant, if this visitor may ask for it.
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
    /// Whether it tells anything of who holds what.
    pub(crate) fn is_of_holders(&self) -> bool {
        self.namespace.is_some()
    }

    /// All nodes that pass.
    pub(crate) fn all(&self, entries: &NewEntries<NodeSummary>, view: &ClusterView, revision: String) -> GridAnswer {
        let rows = entries.changed.iter().filter_map(|(name, summary)| self.row(name, summary, view));
        GridAnswer { api_version: ANSWER_VERSION, kind: "NodeGrid", revision, nodes: rows.collect() }
    }

    /// What is news to somebody with this filter.
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

    fn zones(&self, summary: &NodeSummary) -> BTreeMap<ZoneKey, [u32; OTHERS + 1]> {
        let mut zones = BTreeMap::new();
        for cell in summary.cells.iter().filter(|cell| self.means(&cell.kind.classes)) {
            add(&mut zones, cell.kind.numa_node, &cell.tally.totals);
        }
        zones
    }

    /// What a namespace has, and how many devices there are beside.
    fn zones_of(&self, namespace: &str, summary: &NodeSummary) -> BTreeMap<ZoneKey, [u32; OTHERS + 1]> {
        let mut zones = BTreeMap::new();
        let given = summary.given.iter().filter(|cell| &*cell.namespace == namespace && self.means(&cell.kind.classes));
        given.for_each(|cell| add(&mut zones, cell.kind.numa_node, &cell.tally.totals));
        if !zones.is_empty() {
            for (key, all) in self.zones(summary) {
                let counts: &mut [u32; OTHERS + 1] = zones.entry(key).or_default();
                counts[OTHERS] = all.iter().sum::<u32>().saturating_sub(counts.iter().sum());
            }
        }
        zones
    }
}

fn add(zones: &mut BTreeMap<ZoneKey, [u32; OTHERS + 1]>, numa: Option<u32>, totals: &DeviceTotals) {
    let counts = zones.entry(numa.map_or(ZoneKey::Nowhere, ZoneKey::Numa)).or_default();
    for (count, state) in counts.iter_mut().zip(STATES) {
        *count += totals.in_state(state);
    }
}

/// How fresh its report is: 0 fresh, 1 stale, 2 unknown, 3 none, 4 there is no such node any more; and what else there is.
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
            let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
            let zone: Vec<i64> =
                [numa].into_iter().chain(counts[..used].iter().map(|count| i64::from(*count))).collect();
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
            (ZoneKey::Nowhere, [0; 8]),
            (ZoneKey::Numa(1), [4, 0, 2, 0, 0, 0, 0, 0]),
            (ZoneKey::Numa(0), [0, 0, 0, 0, 0, 0, 0, 9]),
        ]);
        let row = GridRow { name: "n\"1".into(), status: 1, zones };
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(text, r#"["n\"1",1,[0,0,0,0,0,0,0,0,9],[1,4,0,2],[-1]]"#);
    }
}
