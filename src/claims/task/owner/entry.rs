//! A claim in the owner's table, and the work that is under way on it.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Instant, SystemTime},
};

use hostler_api::BackendName;

use crate::{
    claims::{BusyClaim, ClaimOperation, ClaimView, call::ClaimCall, recover::QuarantinedClaim, store::ClaimRecord},
    metrics::{CountedOperation, Metrics},
};

/// Work that is under way on a claim.
pub(super) struct ClaimWork {
    pub(super) busy: BusyClaim,
    pub(super) began: Instant,
    /// Whoever gets the answer.
    pub(super) calls: Vec<ClaimCall>,
}

impl ClaimWork {
    pub(super) fn begin(operation: ClaimOperation, calls: Vec<ClaimCall>) -> Self {
        Self { busy: BusyClaim { operation, since: SystemTime::now() }, began: Instant::now(), calls }
    }

    pub(super) fn note_time(&self, metrics: &Metrics, ok: bool) {
        let operation = match self.busy.operation {
            ClaimOperation::Prepare => CountedOperation::Prepare,
            ClaimOperation::Unprepare => CountedOperation::Unprepare,
            ClaimOperation::Describe | ClaimOperation::Recover => return,
        };
        metrics.worked(operation, ok, self.began.elapsed());
    }
}

/// A claim in the table.
pub(super) struct ClaimEntry {
    pub(super) name: String,
    pub(super) record: Arc<ClaimRecord>,
    pub(super) problem: Option<String>,
    pub(super) work: Option<ClaimWork>,
    /// When somebody has asked for it to be prepared last; of a claim that was found at the start, when that was.
    pub(super) asked: Instant,
    /// What comes after the work.
    pub(super) waiting: VecDeque<ClaimCall>,
}

impl ClaimEntry {
    pub(super) fn new(record: Arc<ClaimRecord>, problem: Option<String>) -> Self {
        let (name, asked) = (record.claim.full_name(), Instant::now());
        Self { name, record, problem, work: None, asked, waiting: VecDeque::new() }
    }

    pub(super) fn uses(&self, backend: &BackendName) -> bool {
        self.record.devices.iter().any(|device| device.backend == *backend)
    }

    pub(super) fn view(&self) -> ClaimView {
        let busy = self.work.as_ref().map(|work| work.busy);
        ClaimView::Recorded { record: self.record.clone(), problem: self.problem.clone(), busy }
    }
}

/// A claim whose record cannot be understood.
pub(super) struct QuarantinedEntry {
    pub(super) name: String,
    pub(super) claim: Arc<QuarantinedClaim>,
}
