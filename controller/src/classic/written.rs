//! Outcomes of writes.

use std::collections::BTreeMap;

use hostler_api::{ObjectKey, hardware::NodeGrant};
use hostler_reconcile::WriteOutcome;

use super::{
    core::ClassicCore,
    event::{ClassicWrite, EventReason, WriteTarget},
};
use crate::claim_write::ClaimVersion;

impl ClassicCore {
    /// Returns true if an allocation is being written into the claim.
    pub(super) fn is_allocating(&self, key: &ObjectKey) -> bool {
        matches!(self.writes.of(&WriteTarget::Claim(key.clone())), Some(ClassicWrite::Allocation(..)))
    }

    pub(super) fn written(&mut self, target: WriteTarget, outcome: WriteOutcome) {
        let write = self.writes.ended(&target, self.queue.now, &outcome, outcome == WriteOutcome::Done);
        self.queue.now(target.into());
        match write {
            Some(ClassicWrite::Grants { source, version, grants }) => {
                self.grants_written(source, &version, &grants, outcome);
            }
            Some(write) => {
                if let Some(claim) = write.claim() {
                    self.claim_written(claim, &write, outcome);
                }
            }
            None => {}
        }
    }

    fn claim_written(&mut self, claim: &ClaimVersion, write: &ClassicWrite, outcome: WriteOutcome) {
        let ClaimVersion { key, uid, version } = claim;
        // Another claim may have this name by now.
        let Some(state) = self.claims.get(key).filter(|state| state.claim.uid == *uid) else { return };
        let is_newer_known = state.claim.version != *version;
        let target = WriteTarget::Claim(key.clone());
        match (outcome, write) {
            (WriteOutcome::Done, _) => {}
            (WriteOutcome::Gone, _) => self.claim_gone(key, uid),
            (WriteOutcome::Conflict, _) => {
                if is_newer_known {
                    self.writes.object_changed(&target);
                }
            }
            (WriteOutcome::Dropped(fields), _) => {
                self.writes.object_changed(&target);
                self.has_vanished(key, &fields);
            }
            (WriteOutcome::Refused(message), ClassicWrite::Allocation(_, new)) => {
                self.writes.object_changed(&target);
                self.refuse(key, &new.node, &message);
            }
            (WriteOutcome::Refused(message), _) => {
                let message = format!("the API server refused a change of the claim: {message}");
                self.record(key, EventReason::Failed, message);
            }
            (WriteOutcome::Failed(message) | WriteOutcome::Forbidden(message), _) => {
                self.record(key, EventReason::Failed, format!("failed to change the claim: {message}"));
            }
        }
    }

    fn has_vanished(&mut self, key: &ObjectKey, fields: &str) {
        let Some(state) = self.claims.get_mut(key) else { return };
        state.has_vanished = true;
        state.pending = None;
        let message = format!(
            "the API server let {fields} fall: classic allocation by a controller is switched off there; turn on the \
             feature gate DRAControlPlaneController, then make the claim anew"
        );
        self.record(key, EventReason::Failed, message);
        self.claim_changed(key);
    }

    fn grants_written(
        &mut self,
        source: String,
        version: &str,
        grants: &BTreeMap<String, Option<NodeGrant>>,
        outcome: WriteOutcome,
    ) {
        match outcome {
            WriteOutcome::Conflict if self.inventory.source_version(&source).is_none_or(|known| known != version) => {
                self.writes.object_changed(&WriteTarget::Source(source));
            }
            WriteOutcome::Refused(error) | WriteOutcome::Forbidden(error) | WriteOutcome::Failed(error) => {
                let claims = grants.keys().filter_map(|uid| self.claims.with_uid(uid));
                let claims: Vec<ObjectKey> = claims.map(|state| state.claim.key.clone()).collect();
                // These claims wait for their grants.
                for claim in claims {
                    let message =
                        format!("failed to write into NodeHardware {source} what the claim is given: {error}");
                    self.record(&claim, EventReason::Failed, message);
                }
            }
            _ => {}
        }
    }
}
