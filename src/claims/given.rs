//! Allocations that came along with the call that needs them.

use std::sync::{Mutex, PoisonError};

use hostler_api::ClaimRef;

use super::{GivenAllocations, ReadClaims, ReadContinuation};

/// Reader that gives each allocation once: a call reads a claim no more often.
#[derive(Debug)]
pub(super) struct GivenReader(Mutex<GivenAllocations>);

impl GivenReader {
    pub(super) fn new(given: GivenAllocations) -> Self {
        Self(Mutex::new(given))
    }
}

impl ReadClaims for GivenReader {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let absent = || Err("the call does not say what was allocated".into());
        let read = {
            let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            claims.iter().map(|claim| given.remove(&claim.uid).unwrap_or_else(absent)).collect()
        };
        then(read);
    }
}
