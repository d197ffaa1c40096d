//! Reports of the daemons of nodes, and how fresh they are. Pure: time comes in as a value.
//!
//! ```text
//!   seen ──► fresh ──[STALE_AFTER without a change]──► stale ──[UNKNOWN_AFTER]──► unknown
//!              ▲───────────────── another report ─────────────────┴────────────────┘
//! ```
//!
//! Freshness counts from when this process last saw a report change, by its own monotonic clock: clocks of nodes may be
//! wrong, and a list that says again what was known is no sign of life. A process that starts anew takes every report
//! for fresh at first.

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

/// How fresh a report is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ReportFreshness {
    /// The node gives signs of life.
    Fresh,
    /// The node missed two; its last report is still believed.
    Stale,
    /// The node missed three: nothing is known of its devices any more.
    Unknown,
}

/// The report of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    /// How fresh it is.
    pub(crate) freshness: ReportFreshness,
    /// Content of the report.
    pub(crate) hardware: Arc<ReportedHardware>,
    /// The time when it was last seen to change.
    seen: Instant,
    /// A number that is another one in every report of a node, whether or not it says something else.
    mark: u64,
}

/// The reports of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeReports {
    /// By name of the node.
    reports: BTreeMap<Arc<str>, NodeReport>,
    /// The time when each will be older than it is now, the next one first.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// Nodes of which something changed that readers count.
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

    /// Returns how long a report can be silent before it is the next thing.
    fn ends(self) -> Option<Duration> {
        match self {
            Self::Fresh => Some(STALE_AFTER),
            Self::Stale => Some(UNKNOWN_AFTER),
            Self::Unknown => None,
        }
    }

    /// Returns the freshness in one word, as people see it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
        }
    }
}

impl NodeReports {
    /// Takes a report that was seen.
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

    /// Forgets a removed report: nothing is said of the node any more, whatever removed it.
    pub(crate) fn forget(&mut self, node: &str) {
        if let Some((name, report)) = self.reports.remove_entry(node) {
            report.due().map(|due| self.due.remove(&(due, name.clone())));
            self.changed.insert(name);
        }
    }

    /// Makes reports as old as they are at a moment; returns true if any is another thing then.
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

    /// Returns when [`pass`](Self::pass) has something to do next.
    pub(crate) fn next(&self) -> Option<Instant> {
        // One moment later: a report is stale when it is older than that.
        self.due.first().map(|(due, _)| *due + Duration::from_millis(1))
    }

    /// Returns the report of a node.
    pub(crate) fn get(&self, node: &str) -> Option<&NodeReport> {
        self.reports.get(node)
    }

    /// Returns the names of the nodes that have one.
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
    /// Returns when the report will be older than it is.
    fn due(&self) -> Option<Instant> {
        Some(self.seen + self.freshness.ends()?)
    }
}

#[cfg(test)]
mod tests;
