//! Limit of the threads that work on claims of a backend at once. Hardware that hangs keeps its threads; with all
//! that the process may have, it would leave no other backend working, and nothing could be read or written any more.
//!
//! ```text
//!   claims of one request ── by the backends that they touch ──► batch ── room at each of them? ──► thread
//!                                                                 └── no: waits, others overtake it ──┘
//! ```
//!
//! Claims that touch different backends never share a batch: none of them waits for another's hardware.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use hostler_api::BackendName;
use tracing::warn;

use super::{ClaimsOwner, FinishedWork};
use crate::claims::{
    ClaimOperation,
    executor::{ClaimExecutor, ClaimOutcome},
    store::ClaimRecord,
};

/// Most threads that work on claims of one backend. Far below the 512 that the process may have, with room for every
/// backend and for what reads and writes files; more than a machine has of hardware that takes its time.
pub(super) const MOST_THREADS: usize = 32;

/// The backends of some claims.
type Backends = BTreeSet<BackendName>;

/// Claims that go through the same operation together.
pub(super) struct ClaimBatch {
    backends: Backends,
    operation: ClaimOperation,
    records: Vec<Arc<ClaimRecord>>,
}

impl ClaimBatch {
    /// One batch for each set of backends that claims touch.
    fn apart(operation: ClaimOperation, records: Vec<Arc<ClaimRecord>>) -> impl Iterator<Item = Self> {
        let mut batches: BTreeMap<Backends, Vec<Arc<ClaimRecord>>> = BTreeMap::new();
        for record in records {
            let backends = record.devices.iter().map(|device| device.backend.clone()).collect();
            batches.entry(backends).or_default().push(record);
        }
        batches.into_iter().map(move |(backends, records)| Self { backends, operation, records })
    }

    fn work(self, executor: &ClaimExecutor) -> Vec<ClaimOutcome> {
        match self.operation {
            ClaimOperation::Prepare => executor.prepare(self.records),
            ClaimOperation::Unprepare => executor.unprepare(self.records),
            // The one needs no backend, and comes with what it writes; the other has lanes of its own.
            ClaimOperation::Describe | ClaimOperation::Recover => Vec::new(),
        }
    }
}

/// The threads at work for each backend, and the batches that wait for one.
#[derive(Default)]
pub(super) struct BackendLanes {
    threads: BTreeMap<BackendName, usize>,
    waiting: VecDeque<ClaimBatch>,
}

impl BackendLanes {
    /// Gives a batch back if it can begin.
    fn enter(&mut self, batch: ClaimBatch) -> Option<ClaimBatch> {
        if batch.backends.iter().any(|backend| self.is_full(backend)) {
            self.waiting.push_back(batch);
            return None;
        }
        for backend in &batch.backends {
            *self.threads.entry(backend.clone()).or_default() += 1;
        }
        Some(batch)
    }

    /// The backend that a batch would be the first to wait for.
    fn newly_full(&self, batch: &ClaimBatch) -> Option<&BackendName> {
        let full = self.threads.keys().find(|backend| batch.backends.contains(*backend) && self.is_full(backend))?;
        (!self.waiting.iter().any(|waiting| waiting.backends.contains(full))).then_some(full)
    }

    /// Ends a batch, and returns the batches that can begin now, in the order in which they came.
    fn leave(&mut self, backends: &Backends) -> Vec<ClaimBatch> {
        for backend in backends {
            if let Some(threads) = self.threads.get_mut(backend) {
                *threads = threads.saturating_sub(1);
            }
        }
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().filter_map(|batch| self.enter(batch)).collect()
    }

    fn is_full(&self, backend: &BackendName) -> bool {
        self.threads.get(backend).is_some_and(|threads| *threads >= MOST_THREADS)
    }
}

impl ClaimsOwner {
    /// Has claims worked on, as soon as their backends have threads for them. They count as worked on from now on.
    pub(super) fn work(&mut self, operation: ClaimOperation, records: Vec<Arc<ClaimRecord>>) {
        for batch in ClaimBatch::apart(operation, records) {
            if let Some(backend) = self.lanes.newly_full(&batch) {
                let threads = MOST_THREADS;
                warn!(backend = %backend, threads, "all threads of the backend are at work: further claims of it wait");
            }
            if let Some(batch) = self.lanes.enter(batch) {
                self.start_batch(batch);
            }
        }
    }

    /// Notes that a thread has come back from claims of these backends.
    pub(super) fn leave_lanes(&mut self, backends: &Backends) {
        self.lanes.leave(backends).into_iter().for_each(|batch| self.start_batch(batch));
    }

    fn start_batch(&mut self, batch: ClaimBatch) {
        self.begin_work(move |executor| {
            let backends = batch.backends.clone();
            FinishedWork::Claims { backends, outcomes: batch.work(executor) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{
        store::RecordState,
        testing::{grant, record},
    };

    fn name(text: &str) -> BackendName {
        BackendName::new(text).unwrap()
    }

    fn claim(uid: &str, backends: &[&str]) -> Arc<ClaimRecord> {
        let mut claim = record(uid, RecordState::Preparing, "now");
        let device = claim.devices.remove(0);
        let held = |backend: &&str| crate::claims::store::RecordDevice {
            local: None,
            backend: name(backend),
            grant: grant("one"),
            ..device.clone()
        };
        claim.devices = backends.iter().map(held).collect();
        Arc::new(claim)
    }

    fn batch(uid: &str, backends: &[&str]) -> ClaimBatch {
        ClaimBatch::apart(ClaimOperation::Prepare, vec![claim(uid, backends)]).next().unwrap()
    }

    fn uids(batches: &[ClaimBatch]) -> Vec<&str> {
        batches.iter().flat_map(|batch| &batch.records).map(|record| record.claim.uid.as_str()).collect()
    }

    #[test]
    fn claims_of_one_request_share_a_batch_as_far_as_they_touch_the_same_backends() {
        let claims = [("a", &["cpu"][..]), ("b", &["fpga"]), ("c", &["cpu"]), ("d", &["cpu", "fpga"])];
        let records = claims.iter().map(|(uid, backends)| claim(uid, backends)).collect();
        let batches: Vec<ClaimBatch> = ClaimBatch::apart(ClaimOperation::Prepare, records).collect();
        let apart: Vec<Vec<&str>> = batches.iter().map(|batch| uids(std::slice::from_ref(batch))).collect();
        assert_eq!(apart, [vec!["a", "c"], vec!["d"], vec!["b"]]);
    }

    #[test]
    fn a_backend_whose_threads_are_all_at_work_holds_up_only_what_touches_it() {
        let mut lanes = BackendLanes::default();
        for _ in 0..MOST_THREADS {
            assert_eq!(lanes.newly_full(&batch("hangs", &["fpga"])), None);
            assert!(lanes.enter(batch("hangs", &["fpga"])).is_some());
        }
        assert_eq!(lanes.newly_full(&batch("late", &["fpga"])), Some(&name("fpga")), "worth a word");
        assert!(lanes.enter(batch("late", &["fpga"])).is_none());
        assert_eq!(lanes.newly_full(&batch("both", &["cpu", "fpga"])), None, "that was said");
        assert!(lanes.enter(batch("both", &["cpu", "fpga"])).is_none());
        assert!(lanes.enter(batch("last", &["fpga"])).is_none());
        assert!(lanes.enter(batch("other", &["cpu"])).is_some(), "it is not behind what waits for the other backend");
        assert_eq!(lanes.threads[&name("cpu")], 1, "what waits takes no thread");
        assert_eq!(uids(&lanes.leave(&[name("fpga")].into())), ["late"], "in the order in which they came");
        assert_eq!(uids(&lanes.leave(&[name("cpu")].into())), [""; 0], "nothing there waits for it");
        assert_eq!(uids(&lanes.leave(&[name("fpga")].into())), ["both"]);
        assert_eq!(uids(&lanes.leave(&[name("fpga")].into())), ["last"]);
        assert_eq!(uids(&lanes.leave(&[name("fpga")].into())), [""; 0]);
        assert_eq!(lanes.threads[&name("fpga")], MOST_THREADS - 1);
    }
}
