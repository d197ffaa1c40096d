//! Table of all claims, for readers.

use std::{collections::BTreeSet, sync::Arc};

use hostler_api::{ClaimRef, ClaimState, ClaimUid, DeviceName, SharedMap, resource::ResourceClaimConsumerReference};

use super::{BusyClaim, ClaimOperation, recover, store};

/// Everything that is known about claims, at one moment. Readers keep it as long as they like: a change copies a part.
#[derive(Clone, Debug, Default)]
pub struct ClaimTable {
    /// Claims by UID.
    pub claims: SharedMap<ClaimUid, ClaimView>,
    /// Claims that a start has not made right yet. Callers that wait for them look at every table of that time.
    recovering: BTreeSet<ClaimUid>,
}

/// A claim, for readers.
#[derive(Clone, Debug)]
pub enum ClaimView {
    /// Known from a record.
    Recorded {
        /// The record.
        record: Arc<store::ClaimRecord>,
        /// Problem of the claim now, if any: a failed undo, a reboot since.
        problem: Option<String>,
        /// The work that is under way on it.
        busy: Option<BusyClaim>,
    },
    /// The record cannot be understood.
    Quarantined(Arc<recover::QuarantinedClaim>),
}

impl ClaimView {
    /// State of the claim. A claim with a problem is not ready, whatever its record says.
    pub fn state(&self) -> ClaimState {
        match self {
            Self::Quarantined(_) => ClaimState::Quarantined,
            Self::Recorded { record, problem: None, .. } if record.state == store::RecordState::Prepared => {
                ClaimState::Prepared
            }
            Self::Recorded { .. } => ClaimState::Preparing,
        }
    }

    /// The work that is under way on it.
    pub fn busy(&self) -> Option<BusyClaim> {
        match self {
            Self::Recorded { busy, .. } => *busy,
            Self::Quarantined(_) => None,
        }
    }

    /// True if a start has not made the claim right yet.
    fn is_recovering(&self) -> bool {
        self.busy().is_some_and(|busy| busy.operation == ClaimOperation::Recover)
    }

    /// Namespace, name and UID, where known.
    pub fn claim(&self) -> Option<&ClaimRef> {
        match self {
            Self::Recorded { record, .. } => Some(&record.claim),
            Self::Quarantined(quarantined) => quarantined.claim.as_ref(),
        }
    }

    /// Consumers that might use the claim when it came onto record, where they are known.
    pub fn reserved_for(&self) -> &[ResourceClaimConsumerReference] {
        match self {
            Self::Recorded { record, .. } => &record.reserved_for,
            Self::Quarantined(_) => &[],
        }
    }

    /// Devices that the claim holds, as far as known.
    pub fn devices(&self) -> &[store::RecordDevice] {
        match self {
            Self::Recorded { record, .. } => &record.devices,
            Self::Quarantined(quarantined) => &quarantined.devices,
        }
    }

    /// True if both are the same view, and not merely equal ones: records are compared by address.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Recorded { record, problem, busy },
                Self::Recorded { record: other_record, problem: other_problem, busy: other_busy },
            ) => Arc::ptr_eq(record, other_record) && problem == other_problem && busy == other_busy,
            (Self::Quarantined(found), Self::Quarantined(other)) => Arc::ptr_eq(found, other),
            _ => false,
        }
    }
}

impl FromIterator<(ClaimUid, ClaimView)> for ClaimTable {
    fn from_iter<T: IntoIterator<Item = (ClaimUid, ClaimView)>>(claims: T) -> Self {
        let mut table = Self::default();
        claims.into_iter().for_each(|(uid, view)| table.show(uid, Some(view)));
        table
    }
}

impl ClaimTable {
    /// True if `view` shows readers nothing new of the claim.
    pub(super) fn shows(&self, uid: &ClaimUid, view: Option<&ClaimView>) -> bool {
        match (self.claims.get(uid), view) {
            (None, None) => true,
            (Some(shown), Some(view)) => shown.is_same(view),
            _ => false,
        }
    }

    /// Takes in the present view of a claim.
    pub(super) fn show(&mut self, uid: ClaimUid, view: Option<ClaimView>) {
        if view.as_ref().is_some_and(ClaimView::is_recovering) {
            self.recovering.insert(uid.clone());
        } else {
            self.recovering.remove(&uid);
        }
        match view {
            Some(view) => self.claims.insert(uid, view),
            None => self.claims.remove(&uid),
        };
    }

    /// The claims that a start has not made right yet.
    pub(super) fn recovering(&self) -> impl Iterator<Item = &ClaimView> {
        self.recovering.iter().filter_map(|uid| self.claims.get(uid))
    }

    /// Pool, device and holder of everything that is held.
    pub fn held_devices(&self) -> impl Iterator<Item = (&str, &DeviceName, &ClaimUid)> {
        self.claims.iter().flat_map(|(uid, view)| {
            view.devices().iter().map(move |device| (device.grant.pool.as_str(), &device.grant.device, uid))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::claims::testing::{record, uid};

    fn view(operation: Option<ClaimOperation>) -> ClaimView {
        let busy = operation.map(|operation| BusyClaim { operation, since: SystemTime::UNIX_EPOCH });
        ClaimView::Recorded { record: Arc::new(record("a", store::RecordState::Prepared, "now")), problem: None, busy }
    }

    #[test]
    fn a_table_shows_the_last_that_it_was_told_of_a_claim() {
        let mut table = ClaimTable::default();
        assert!(table.shows(&uid("a"), None));
        let recovering = view(Some(ClaimOperation::Recover));
        assert!(!table.shows(&uid("a"), Some(&recovering)));
        table.show(uid("a"), Some(recovering.clone()));
        assert!(table.shows(&uid("a"), Some(&recovering)));
        assert_eq!(table.recovering().count(), 1);
        let ready = view(None);
        assert!(!table.shows(&uid("a"), Some(&ready)), "the record is another one");
        table.show(uid("a"), Some(ready));
        assert_eq!((table.recovering().count(), table.claims.len()), (0, 1));
        table.show(uid("a"), None);
        assert!(table.claims.is_empty() && table.shows(&uid("a"), None));
    }
}
