//! Metadata of claims' devices, which containers read, after a change of the inventory.

use std::collections::BTreeSet;

use hostler_api::ClaimUid;

use super::{ClaimWork, ClaimsOwner, FinishedWork};
use crate::claims::{ClaimOperation, executor::RedescribedClaim, metadata};

impl ClaimsOwner {
    /// The claims whose containers can read about their devices.
    pub(super) fn described(&self) -> Vec<ClaimUid> {
        let described = self.entries.iter().filter(|(_, entry)| entry.record().metadata.is_some());
        described.map(|(uid, _)| uid.clone()).collect()
    }

    /// Compares what containers of these claims can read with the inventory; of those on which work is under way, after
    /// that.
    pub(super) fn describe(&mut self, uids: &[ClaimUid]) {
        let inventory = self.parts.executor.inventory.latest();
        let mut redescribed = Vec::new();
        for uid in uids {
            let Some(entry) = self.entries.get(uid) else { continue };
            if entry.work.is_some() {
                self.describe_again.insert(uid.clone());
            } else if self.parts.executor.is_ready(entry.record())
                && let Some(metadata) = metadata::described_anew(entry.record(), &inventory)
                && let Some(entry) = self.entries.get_mut(uid)
            {
                entry.work = Some(ClaimWork::begin(ClaimOperation::Describe, Vec::new()));
                redescribed.push(RedescribedClaim { before: entry.record().clone(), metadata });
            }
        }
        if !redescribed.is_empty() {
            // No hardware is touched.
            let backends = BTreeSet::new();
            self.begin_work(move |executor| FinishedWork::Claims {
                backends,
                outcomes: executor.describe(redescribed),
            });
        }
    }
}
