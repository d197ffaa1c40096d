//! Writes: never more than one for an object at a time, and none too soon after one that came to nothing.

use std::time::Duration;

use hostler_api::ObjectKey;

use super::{
    core::ClassicCore,
    event::{ClassicCommand, ClassicWrite, WriteOutcome, WriteTarget},
    topic::Topic,
};

/// The first pause after a write that came to nothing; it doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is being written to an object.
#[derive(Debug, Default)]
pub(super) struct WriteState {
    under_way: Option<ClassicWrite>,
    not_before: Option<Duration>,
    failures: u32,
}

impl ClassicCore {
    /// Whether the object can be written now.
    pub(super) fn can_write(&mut self, target: &WriteTarget, topic: Topic) -> bool {
        let Some(state) = self.writes.get(target) else { return true };
        let pause = state.not_before.map(|at| at.saturating_sub(self.agenda.now)).filter(|pause| !pause.is_zero());
        if let Some(pause) = pause {
            self.agenda.after(pause, topic);
        }
        state.under_way.is_none() && pause.is_none()
    }

    /// Writes. Whoever calls has asked whether it can be.
    pub(super) fn write(&mut self, write: ClassicWrite) {
        let state = self.writes.entry(write.target()).or_default();
        state.not_before = None;
        state.under_way = Some(write.clone());
        self.commands.push(ClassicCommand::Write(write));
    }

    /// Whether an allocation is being written into the claim.
    pub(super) fn is_allocating(&self, key: &ObjectKey) -> bool {
        let state = self.writes.get(&WriteTarget::Claim(key.clone()));
        matches!(state.and_then(|state| state.under_way.as_ref()), Some(ClassicWrite::Allocation(..)))
    }

    /// The object is another one than before: a write that lost against somebody may win now.
    pub(super) fn came_anew(&mut self, target: &WriteTarget) {
        if let Some(state) = self.writes.get_mut(target) {
            state.not_before = None;
        }
    }

    /// The object is gone: nothing is written to it any more.
    pub(super) fn forget_writes(&mut self, target: &WriteTarget) {
        self.writes.remove(target);
    }

    pub(super) fn written(&mut self, target: WriteTarget, outcome: WriteOutcome) {
        let Some(state) = self.writes.get_mut(&target) else { return };
        let write = state.under_way.take();
        if outcome == WriteOutcome::Done {
            self.writes.remove(&target);
        } else {
            let pause = SHORTEST_PAUSE * 2u32.saturating_pow(state.failures);
            state.failures = (state.failures + 1).min(16);
            state.not_before = Some(self.agenda.now + pause.min(LONGEST_PAUSE));
        }
        self.look_at(&target);
        match (target, outcome) {
            (WriteTarget::Claim(key), WriteOutcome::Gone) => {
                if let Some(uid) = self.claims.get(&key).map(|state| state.claim.uid.clone()) {
                    self.claim_gone(&key, &uid);
                }
            }
            (WriteTarget::Claim(key), outcome) => self.claim_written(&key, write, outcome),
            (target, WriteOutcome::Conflict) => self.try_again_if_newer(&target, write.as_ref()),
            (WriteTarget::Source(name), WriteOutcome::Refused(message) | WriteOutcome::Failed(message)) => {
                self.grants_failed(&name, write, &message);
            }
            _ => {}
        }
    }

    fn look_at(&mut self, target: &WriteTarget) {
        self.agenda.now(match target.clone() {
            WriteTarget::Claim(key) => Topic::Claim(key),
            WriteTarget::Context(key) => Topic::Context(key),
            WriteTarget::Source(name) => Topic::Source(name),
            WriteTarget::Node(name) => Topic::Node(name),
        });
    }

    /// A write that lost need not wait where the object that it lost against is there already.
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
            self.came_anew(target);
        }
    }
}
