//! Allocations that came along with the call that needs them.

use std::sync::{Mutex, PoisonError};

use hostler_api::ClaimRef;

use super::{GivenAllocations, ReadClaims, ReadContinuation, ReadResult};
use crate::tasks::Tasks;

/// Reader that gives each allocation once: a call reads a claim no more often.
#[derive(Debug)]
pub(super) struct GivenReader {
    given: Mutex<GivenAllocations>,
    tasks: Tasks,
}

impl GivenReader {
    pub(super) fn new(given: GivenAllocations, tasks: Tasks) -> Self {
        Self { given: Mutex::new(given), tasks }
    }
}

impl ReadClaims for GivenReader {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let absent = || Err("the call does not say what was allocated".into());
        let read: Vec<ReadResult> = {
            let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
            claims.iter().map(|claim| given.remove(&claim.uid).unwrap_or_else(absent)).collect()
        };
        self.tasks.blocking(move || then(read));
    }
}
