//! A call on one claim: one value from the caller, through every wait, to the answer.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use hostler_api::{Allocation, ClaimRef, ClaimUid};
use tokio::sync::mpsc;

use super::{ClaimError, ClaimResult, PreparedDevice, ReadResult};

/// The answer to a call: the devices of a claim that is prepared, nothing for one that is taken back or forgotten.
pub(super) type CallResult = ClaimResult<Vec<PreparedDevice>>;

/// Request of a call on a claim.
#[derive(Debug)]
pub(super) enum CallKind {
    /// A claim to be made ready. The allocation is not needed of a claim that is on record.
    Prepare { claim: ClaimRef, allocation: Option<Allocation> },
    /// A claim to be taken back.
    Unprepare,
    /// A claim to be taken back as not needed at `seen`, unless it has been asked for since.
    Release { seen: Instant },
    /// A claim to be let go of, as its record cannot be understood.
    Forget,
}

/// A call on a claim, with the channel for the answer.
#[derive(Debug)]
pub(super) struct ClaimCall {
    pub(super) uid: ClaimUid,
    pub(super) kind: CallKind,
    answers_tx: mpsc::UnboundedSender<CallAnswer>,
}

#[derive(Debug)]
struct CallAnswer {
    uid: ClaimUid,
    result: CallResult,
}

impl ClaimCall {
    pub(super) fn is_prepare(&self) -> bool {
        matches!(self.kind, CallKind::Prepare { .. })
    }

    /// Answers the caller, which may have stopped waiting; the work was done all the same.
    pub(super) fn answer(self, result: CallResult) {
        let _ = self.answers_tx.send(CallAnswer { uid: self.uid, result });
    }

    /// The call with the allocation that was read; a call whose allocation could not be read is answered.
    pub(super) fn with_allocation(mut self, read: ReadResult) -> Option<Self> {
        if let CallKind::Prepare { claim, allocation } = &mut self.kind {
            match read {
                Ok(read) => *allocation = Some(read),
                Err(source) => {
                    let error = ClaimError::Read { claim: claim.clone(), source };
                    self.answer(Err(Arc::new(error)));
                    return None;
                }
            }
        }
        Some(self)
    }
}

/// Collector of the answers to the calls of one request.
#[derive(Debug)]
pub(super) struct CallAnswers {
    results: BTreeMap<ClaimUid, CallResult>,
    answers_tx: mpsc::UnboundedSender<CallAnswer>,
    answers_rx: mpsc::UnboundedReceiver<CallAnswer>,
}

impl CallAnswers {
    pub(super) fn new() -> Self {
        let (answers_tx, answers_rx) = mpsc::unbounded_channel();
        Self { results: BTreeMap::new(), answers_tx, answers_rx }
    }

    /// A call whose answer arrives here.
    pub(super) fn call(&mut self, uid: ClaimUid, kind: CallKind) -> ClaimCall {
        // The answer if the daemon stops and drops the call.
        self.results.insert(uid.clone(), Err(Arc::new(ClaimError::Stopping)));
        ClaimCall { uid, kind, answers_tx: self.answers_tx.clone() }
    }

    /// A call to prepare a claim that is on record, or whose allocation is still to be read.
    pub(super) fn prepare(&mut self, claim: &ClaimRef) -> ClaimCall {
        self.call(claim.uid.clone(), CallKind::Prepare { claim: claim.clone(), allocation: None })
    }

    /// Waits for all answers; one for each UID that was called for.
    pub(super) async fn collect(mut self) -> BTreeMap<ClaimUid, CallResult> {
        // Only the calls can answer: the channel ends with the last of them.
        drop(self.answers_tx);
        while let Some(CallAnswer { uid, result }) = self.answers_rx.recv().await {
            self.results.insert(uid, result);
        }
        self.results
    }
}
