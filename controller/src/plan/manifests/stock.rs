//! The stock of devices of a cluster that was read once.

use std::time::{Duration, Instant, SystemTime};

use hostler_cluster::from_rfc3339;

use super::Manifests;
use crate::{
    reports::NodeReports,
    stock::{ClusterStock, StockAccount},
};

impl Manifests {
    /// Counts the devices. The age of a report is that of its own time: nothing was watched.
    pub(crate) fn stock(&self, now: SystemTime) -> ClusterStock {
        let (moment, mut reports) = (Instant::now(), NodeReports::default());
        for report in &self.reports {
            let written = report.status.last_report_time.as_deref().and_then(from_rfc3339);
            let age = written.and_then(|written| now.duration_since(written).ok()).unwrap_or(Duration::ZERO);
            reports.see(moment.checked_sub(age).unwrap_or(moment), report);
        }
        reports.pass(moment);
        StockAccount::default().update(&mut self.facts.clone(), &mut reports).clone()
    }
}
