//! Reports of the daemons of nodes, and their freshness. Pure: time comes in as a value.
//!
//! ```text
//!   seen ──► fresh ──[STALE_AFTER without a change]──► stale ──[UNKNOWN_AFTER]──► unknown
//!              ▲───────────────── another report ─────────────────┴────────────────┘
//! ```
//!
//! Freshness counts from the moment at which this process last saw a report change, by its own monotonic clock: clocks
//! of nodes may be wrong, and a list that repeats a known report is no sign of life. A process that starts anew takes
//! every report for fresh at first.

mod pack;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use hostler_api::hardware::{ClusterNodeCounts, NodeHardware, STALE_AFTER, UNKNOWN_AFTER};
use serde::{Deserialize, Serialize};

pub(crate) use pack::{ReportedHardware, ReportedPool, ReportedRow};

use pack::{ReportWords, report_mark};

/// Freshness of a report.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ReportFreshness {
    /// The node gives signs of life.
    Fresh,
    /// The node missed two reports; its last report still counts.
    Stale,
    /// The node missed three reports: the state of its devices is unknown.
    Unknown,
}

/// The report of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    /// Freshness of the report.
    pub(crate) freshness: ReportFreshness,
    /// Content of the report.
    pub(crate) hardware: Arc<ReportedHardware>,
    /// The time at which the report was last seen to change.
    seen: Instant,
    /// A number that differs in every report of a node, even if the content is the same.
    mark: u64,
}

/// The reports of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeReports {
    /// Reports by name of the node.
    reports: BTreeMap<Arc<str>, NodeReport>,
    /// The time at which each report gets less fresh, the next one first.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// Nodes with a change that readers count.
    changed: BTreeSet<Arc<str>>,
    words: ReportWords,
}

impl ReportFreshness {
    fn after(silence: Duration) -> Self {
        match silence {
            silence if silence > UNKNOWN_AFTER => Self::Unknown,
            silence if silence > STALE_AFTER => Self::Stale,
            _ => Self::Fresh,
        }
    }

    /// Returns the time without a change after which a report of this freshness gets less fresh.
    fn ends(self) -> Option<Duration> {
        match self {
            Self::Fresh => Some(STALE_AFTER),
            Self::Stale => Some(UNKNOWN_AFTER),
            Self::Unknown => None,
        }
    }

    /// Returns the freshness in one word, for people.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
        }
    }
}

impl NodeReports {
    /// Takes a report that the watch has seen.
    pub(crate) fn see(&mut self, now: Instant, report: &NodeHardware) {
        let mark = report_mark(report);
        let name: Arc<str> = report.metadata.name.as_str().into();
        let known = self.reports.get(&name);
        if known.is_some_and(|known| known.mark == mark) {
            return;
        }
        let hardware = Arc::new(ReportedHardware::pack(report, &mut self.words));
        let is_news = known.is_none_or(|known| known.hardware != hardware || known.freshness != ReportFreshness::Fresh);
        if is_news {
            self.changed.insert(name.clone());
        }
        self.put(name, NodeReport { freshness: ReportFreshness::Fresh, hardware, seen: now, mark });
    }

    /// Forgets a deleted report: no freshness is known of the node any more, whatever deleted the report.
    pub(crate) fn forget(&mut self, node: &str) {
        if let Some((name, report)) = self.reports.remove_entry(node) {
            report.due().map(|due| self.due.remove(&(due, name.clone())));
            self.changed.insert(name);
        }
    }

    /// Ages the reports to a moment; returns true if the freshness of any has changed.
    pub(crate) fn pass(&mut self, now: Instant) -> bool {
        let mut is_other = false;
        while let Some((_, name)) = self.due.first().filter(|(due, _)| *due < now).cloned() {
            self.due.pop_first();
            let Some(report) = self.reports.get(&name).cloned() else { continue };
            let freshness = ReportFreshness::after(now.saturating_duration_since(report.seen));
            self.changed.insert(name.clone());
            self.put(name, NodeReport { freshness, ..report });
            is_other = true;
        }
        is_other
    }

    /// Returns the time at which [`pass`](Self::pass) next changes a report.
    pub(crate) fn next(&self) -> Option<Instant> {
        // One moment later: a report is stale once it is older than the limit.
        self.due.first().map(|(due, _)| *due + Duration::from_millis(1))
    }

    /// Returns the report of a node.
    pub(crate) fn get(&self, node: &str) -> Option<&NodeReport> {
        self.reports.get(node)
    }

    /// Returns the names of the nodes that have a report.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.reports.keys()
    }

    /// Counts the reports by freshness.
    pub(crate) fn counts(&self) -> ClusterNodeCounts {
        let mut counts = ClusterNodeCounts::default();
        for report in self.reports.values() {
            match report.freshness {
                ReportFreshness::Fresh => counts.reporting += 1,
                ReportFreshness::Stale => counts.stale += 1,
                ReportFreshness::Unknown => counts.unknown += 1,
            }
        }
        counts
    }

    /// Returns the nodes of which something changed since this was last called.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.changed)
    }

    fn put(&mut self, name: Arc<str>, report: NodeReport) {
        let new = report.due();
        let old = self.reports.insert(name.clone(), report).and_then(|old| old.due());
        old.map(|due| self.due.remove(&(due, name.clone())));
        new.map(|due| self.due.insert((due, name)));
    }
}

impl NodeReport {
    /// Returns the time at which the report gets less fresh.
    fn due(&self) -> Option<Instant> {
        Some(self.seen + self.freshness.ends()?)
    }
}

#[cfg(test)]
mod tests;
