//! The latest failures of claims, for explanations. Writer: the task that [`RecentFailures::collect`] starts.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{claims::ClaimFailure, tasks::Tasks};

/// Failures that are kept: a node has tens of claims, and the last failure of each matters.
const KEPT: usize = 100;

/// The latest failures, one per claim and operation. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RecentFailures(Arc<Mutex<VecDeque<ClaimFailure>>>);

impl RecentFailures {
    /// Keeps the failures that arrive, until the daemon stops.
    pub fn collect(mut failures_rx: broadcast::Receiver<ClaimFailure>, tasks: &Tasks) -> Self {
        let recent = Self::default();
        let (kept, stop) = (recent.clone(), tasks.stop_token());
        let collect = async move {
            loop {
                match failures_rx.recv().await {
                    Ok(failure) => kept.keep(failure),
                    // The newest matter most.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        };
        tasks.job(async move {
            tokio::select! {
                // Dropped at the stop: no caller asks any more.
                () = collect => {}
                () = stop.cancelled() => {}
            }
        });
        recent
    }

    fn keep(&self, failure: ClaimFailure) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|known| (&known.claim.uid, known.operation) != (&failure.claim.uid, failure.operation));
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(failure);
    }

    /// Returns the last failure of a claim that `is_it`.
    pub(super) fn last(&self, is_it: impl Fn(&ClaimFailure) -> bool) -> Option<ClaimFailure> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().find(|failure| is_it(failure)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use hostler_api::{ClaimRef, ClaimUid};

    use super::*;
    use crate::claims::ClaimError;

    fn failure(uid: usize, operation: &'static str, at: SystemTime) -> ClaimFailure {
        let uid = ClaimUid::new(format!("u{uid}")).unwrap();
        let claim = ClaimRef { namespace: "ml".to_owned(), name: "train".to_owned(), uid };
        ClaimFailure { claim, operation, error: Arc::new(ClaimError::Stopping), at }
    }

    #[test]
    fn the_last_failure_of_each_claim_is_kept_and_the_oldest_go() {
        let recent = RecentFailures::default();
        let early = SystemTime::UNIX_EPOCH;
        for uid in 0..KEPT + 1 {
            recent.keep(failure(uid, "prepare", early));
        }
        let is = |uid: &'static str| move |failure: &ClaimFailure| failure.claim.uid.as_str() == uid;
        assert!(recent.last(is("u0")).is_none());
        recent.keep(failure(7, "prepare", early + std::time::Duration::from_secs(1)));
        assert_eq!(recent.last(is("u7")).unwrap().at, early + std::time::Duration::from_secs(1));
        assert!(recent.last(is("u1")).is_some(), "a claim's later failure takes the place of its earlier one");
    }
}
