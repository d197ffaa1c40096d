//! A claim in the owner's table, and the work that is under way on it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Deref,
    sync::Arc,
    time::{Instant, SystemTime},
};

use hostler_api::{BackendName, ClaimUid};

use crate::{
    claims::{BusyClaim, ClaimOperation, ClaimView, call::ClaimCall, store::ClaimRecord},
    metrics::{CountedOperation, Metrics},
};

/// Work that is under way on a claim.
pub(super) struct ClaimWork {
    pub(super) busy: BusyClaim,
    pub(super) began: Instant,
    /// Calls that get the answer.
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
    /// Set by [`ClaimEntries`] alone, which keeps an index of it.
    record: Arc<ClaimRecord>,
    pub(super) problem: Option<String>,
    pub(super) work: Option<ClaimWork>,
    /// Time of the last request to prepare the claim; the time of the start for a claim that was found at it.
    pub(super) asked: Instant,
    /// Calls that come after the work.
    pub(super) waiting: VecDeque<ClaimCall>,
}

impl ClaimEntry {
    pub(super) fn new(record: Arc<ClaimRecord>, problem: Option<String>) -> Self {
        let (name, asked) = (record.claim.full_name(), Instant::now());
        Self { name, record, problem, work: None, asked, waiting: VecDeque::new() }
    }

    pub(super) fn record(&self) -> &Arc<ClaimRecord> {
        &self.record
    }

    pub(super) fn uses(&self, backend: &BackendName) -> bool {
        self.record.devices.iter().any(|device| device.backend == *backend)
    }

    pub(super) fn view(&self) -> ClaimView {
        let busy = self.work.as_ref().map(|work| work.busy);
        ClaimView::Recorded { record: self.record.clone(), problem: self.problem.clone(), busy }
    }
}

/// The claims that have a record, by UID, and the ones of which readers may not have seen the latest. A change of a
/// claim notes that by itself: showing it costs what has changed, and not what there is.
#[derive(Default)]
pub(super) struct ClaimEntries {
    entries: BTreeMap<ClaimUid, ClaimEntry>,
    touched: BTreeSet<ClaimUid>,
    by_backend: BackendIndex,
}

/// The claims with devices of each backend.
#[derive(Default)]
struct BackendIndex(BTreeMap<BackendName, BTreeSet<ClaimUid>>);

impl BackendIndex {
    fn add(&mut self, uid: &ClaimUid, record: &ClaimRecord) {
        for device in &record.devices {
            self.0.entry(device.backend.clone()).or_default().insert(uid.clone());
        }
    }

    fn remove(&mut self, uid: &ClaimUid, record: &ClaimRecord) {
        for device in &record.devices {
            if let Some(claims) = self.0.get_mut(&device.backend) {
                claims.remove(uid);
            }
        }
    }
}

impl Deref for ClaimEntries {
    type Target = BTreeMap<ClaimUid, ClaimEntry>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl ClaimEntries {
    /// Notes that there may be news of a claim.
    pub(super) fn touch(&mut self, uid: &ClaimUid) {
        if !self.touched.contains(uid) {
            self.touched.insert(uid.clone());
        }
    }

    /// Returns the claims of which there may be news since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeSet<ClaimUid> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn get_mut(&mut self, uid: &ClaimUid) -> Option<&mut ClaimEntry> {
        self.touch(uid);
        self.entries.get_mut(uid)
    }

    /// The claims that have devices of a backend.
    pub(super) fn of_backend(&self, backend: &BackendName) -> impl Iterator<Item = (&ClaimUid, &ClaimEntry)> {
        let claims = self.by_backend.0.get(backend).into_iter().flatten();
        claims.filter_map(|uid| self.entries.get_key_value(uid))
    }

    pub(super) fn insert(&mut self, uid: &ClaimUid, entry: ClaimEntry) {
        self.remove(uid);
        self.get_or_insert(uid, || entry);
    }

    pub(super) fn remove(&mut self, uid: &ClaimUid) {
        self.touch(uid);
        if let Some(entry) = self.entries.remove(uid) {
            self.by_backend.remove(uid, &entry.record);
        }
    }

    /// Replaces the record of a claim that has one.
    pub(super) fn set_record(&mut self, uid: &ClaimUid, record: Arc<ClaimRecord>) {
        self.touch(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        self.by_backend.remove(uid, &entry.record);
        self.by_backend.add(uid, &record);
        entry.record = record;
    }

    /// Returns the entry of a claim, which is made where there is none.
    pub(super) fn get_or_insert(&mut self, uid: &ClaimUid, make: impl FnOnce() -> ClaimEntry) -> &mut ClaimEntry {
        self.touch(uid);
        self.entries.entry(uid.clone()).or_insert_with(|| {
            let entry = make();
            self.by_backend.add(uid, &entry.record);
            entry
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{
        store::RecordState,
        testing::{record, uid},
    };

    fn holders(entries: &ClaimEntries, backend: &BackendName) -> Vec<String> {
        entries.of_backend(backend).map(|(uid, _)| uid.to_string()).collect()
    }

    #[test]
    fn claims_are_found_by_the_backends_of_the_devices_that_they_have_now() {
        let first = record("a", RecordState::Prepared, "now");
        let (old, new) = (first.devices[0].backend.clone(), BackendName::new("other").unwrap());
        let mut moved = first.clone();
        moved.devices.iter_mut().for_each(|device| device.backend = new.clone());
        let mut entries = ClaimEntries::default();
        entries.insert(&uid("a"), ClaimEntry::new(first.clone().into(), None));
        entries.get_or_insert(&uid("b"), || ClaimEntry::new(first.clone().into(), None));
        assert_eq!((holders(&entries, &old), holders(&entries, &new)), (vec!["a".into(), "b".into()], vec![]));
        entries.set_record(&uid("a"), moved.clone().into());
        assert_eq!((holders(&entries, &old), holders(&entries, &new)), (vec!["b".into()], vec!["a".into()]));
        entries.insert(&uid("b"), ClaimEntry::new(moved.into(), None));
        entries.remove(&uid("a"));
        assert_eq!((holders(&entries, &old), holders(&entries, &new)), (vec![], vec!["b".into()]));
        entries.set_record(&uid("gone"), first.into());
        assert!(holders(&entries, &old).is_empty());
    }
}
