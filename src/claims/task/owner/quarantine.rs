//! Claims whose records cannot be understood, until an operator lets go of them.

use std::sync::Arc;

use hostler_api::ClaimUid;
use tracing::warn;

use super::{AnsweredCall, ClaimCall, ClaimsOwner, FinishedWork};
use crate::claims::{ClaimError, ClaimResult, recover::QuarantinedClaim};

/// A claim whose record cannot be understood.
pub(super) struct QuarantinedEntry {
    pub(super) name: String,
    pub(super) claim: Arc<QuarantinedClaim>,
    /// Calls that wait until the claim is forgotten. While there are any, a thread is at it.
    pub(super) forgetting: Vec<ClaimCall>,
}

impl ClaimsOwner {
    /// Has the files of a quarantined claim moved out of the way.
    pub(super) fn forget(&mut self, call: ClaimCall) {
        let uid = call.uid.clone();
        let Some(entry) = self.quarantined.get_mut(&uid) else {
            return self.answer(call, Err(ClaimError::NotQuarantined(uid)));
        };
        entry.forgetting.push(call);
        if entry.forgetting.len() == 1 {
            self.begin_work(move |executor| {
                let result = executor.set_aside(&uid).map_err(Arc::new);
                FinishedWork::Forgotten { uid, result }
            });
        }
    }

    /// Lets go of a claim whose files are out of the way, and answers.
    pub(super) fn finish_forgetting(&mut self, uid: &ClaimUid, result: &ClaimResult<()>) {
        let Some(entry) = self.quarantined.get_mut(uid) else { return };
        let calls = std::mem::take(&mut entry.forgetting);
        if result.is_ok() {
            self.quarantined.remove(uid);
            self.entries.touch(uid);
            warn!(claim.uid = %uid, "quarantined claim forgotten");
        }
        let answer = |call| AnsweredCall { call, result: result.clone().map(|()| Vec::new()) };
        self.answers.extend(calls.into_iter().map(answer));
    }
}
