//! Writes of the core, and the effects of their outcomes.

use hostler_api::ObjectKey;
use hostler_reconcile::{WriteOutcome, WriteReadiness};

use super::{
    core::ClassicCore,
    event::{ClassicCommand, ClassicWrite, WriteTarget},
    topic::Topic,
};

impl ClassicCore {
    /// Returns true if the object can be written now; else `topic` is queued again for when it can.
    pub(super) fn can_write(&mut self, target: &WriteTarget, topic: Topic) -> bool {
        let readiness = self.writes.readiness(target, self.queue.now);
        if let WriteReadiness::After(pause) = readiness {
            self.queue.after(pause, topic);
        }
        readiness == WriteReadiness::Ready
    }

    /// Begins a write. The caller has asked whether the object can be written.
    pub(super) fn write(&mut self, write: ClassicWrite) {
        self.writes.begin(write.target(), write.clone());
        self.commands.push(ClassicCommand::Write(write));
    }

    /// Returns true if an allocation is being written into the claim.
    pub(super) fn is_allocating(&self, key: &ObjectKey) -> bool {
        matches!(self.writes.of(&WriteTarget::Claim(key.clone())), Some(ClassicWrite::Allocation(..)))
    }

    pub(super) fn written(&mut self, target: WriteTarget, outcome: WriteOutcome) {
        let write = self.writes.ended(&target, self.queue.now, &outcome, outcome == WriteOutcome::Done);
        self.look_at(&target);
        match (target, outcome) {
            // Another claim has this name by now.
            (WriteTarget::Claim(key), _) if !self.is_of(&key, write.as_ref()) => {}
            (WriteTarget::Claim(key), WriteOutcome::Gone) => {
                if let Some(uid) = self.claims.get(&key).map(|state| state.claim.uid.clone()) {
                    self.claim_gone(&key, &uid);
                }
            }
            (WriteTarget::Claim(key), outcome) => self.claim_written(&key, write, outcome),
            (target, WriteOutcome::Conflict) => self.try_again_if_newer(&target, write.as_ref()),
            (
                WriteTarget::Source(name),
                WriteOutcome::Refused(message) | WriteOutcome::Forbidden(message) | WriteOutcome::Failed(message),
            ) => {
                self.grants_failed(&name, write, &message);
            }
            _ => {}
        }
    }

    /// Returns true if the write was one of the claim that has this name now.
    fn is_of(&self, key: &ObjectKey, write: Option<&ClassicWrite>) -> bool {
        let Some(ClassicWrite::Finalizers(it, _) | ClassicWrite::Allocation(it, _) | ClassicWrite::Deallocation(it)) =
            write
        else {
            return false;
        };
        self.claims.get(key).is_some_and(|state| state.claim.uid == it.uid)
    }

    fn look_at(&mut self, target: &WriteTarget) {
        self.queue.now(match target.clone() {
            WriteTarget::Claim(key) => Topic::Claim(key),
            WriteTarget::Context(key) => Topic::Context(key),
            WriteTarget::Source(name) => Topic::Source(name),
            WriteTarget::Node(name) => Topic::Node(name),
        });
    }

    /// Retries a write that lost, at once if the newer object is known already.
    pub(super) fn try_again_if_newer(&mut self, target: &WriteTarget, write: Option<&ClassicWrite>) {
        let (wrote, known) = match write {
            Some(
                ClassicWrite::Finalizers(it, _) | ClassicWrite::Allocation(it, _) | ClassicWrite::Deallocation(it),
            ) => (Some(&it.version), self.claims.get(&it.key).map(|state| &state.claim.version)),
            Some(ClassicWrite::Grants { source, version, .. }) => {
                (Some(version), self.inventory.source_version(source))
            }
            _ => (None, None),
        };
        if wrote.is_some() && wrote != known {
            self.writes.object_changed(target);
        }
    }
}
