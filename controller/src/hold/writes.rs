//! Writes: never more than one for an object at a time, and none too soon after one that came to nothing.

use std::time::Duration;

use hostler_api::reservation::RESERVATION_UID;

use super::{
    agenda::Topic,
    core::HoldCore,
    event::{HoldCommand, HoldNotice, HoldOutcome, HoldTarget, HoldWrite},
};
use crate::claim_write::ClaimWrite;

/// The first pause after a write that came to nothing; it doubles up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is being written to an object.
#[derive(Debug, Default)]
pub(super) struct WriteState {
    under_way: Option<HoldWrite>,
    not_before: Option<Duration>,
    failures: u32,
}

impl HoldTarget {
    fn topic(&self) -> Topic {
        match self.clone() {
            Self::Reservation(name) => Topic::Reservation(name),
            Self::NodeFences(node) => Topic::NodeFences(node),
            Self::Rule(name) => Topic::Rule(name),
            Self::Pod(pod) => Topic::Pod(pod),
            Self::Claim(key) => Topic::Placeholder(key.name),
        }
    }
}

impl HoldCore {
    /// Whether the object can be written now; else it is looked at again once it can.
    pub(super) fn can_write(&mut self, target: &HoldTarget) -> bool {
        let Some(state) = self.writes.get(target) else { return true };
        let pause = state.not_before.map(|at| at.saturating_sub(self.agenda.now)).filter(|pause| !pause.is_zero());
        if let Some(pause) = pause {
            self.agenda.after(pause, target.topic());
        }
        state.under_way.is_none() && pause.is_none()
    }

    /// Writes. Whoever calls has asked whether it can be.
    pub(super) fn write(&mut self, write: HoldWrite) {
        let state = self.writes.entry(write.target()).or_default();
        state.not_before = None;
        state.under_way = Some(write.clone());
        self.commands.push(HoldCommand::Write(write));
    }

    /// Whether a write is on its way that closes something with this value.
    pub(super) fn is_closing(&self, value: &str) -> bool {
        let under_way = self.writes.values().filter_map(|state| state.under_way.as_ref());
        under_way.into_iter().any(|write| match write {
            HoldWrite::NodeFences { fences, .. } => fences.iter().any(|fence| fence.value == value),
            HoldWrite::CreateRule(rule) => rule.value == value,
            _ => false,
        })
    }

    /// Whether a claim is being made that stands for a part that this Reservation keeps.
    pub(super) fn is_making_placeholders(&self, uid: &str) -> bool {
        let under_way = self.writes.values().filter_map(|state| state.under_way.as_ref());
        under_way.into_iter().any(|write| match write {
            HoldWrite::Claim(write) => matches!(&**write, ClaimWrite::Create(claim) if claim.labels.get(RESERVATION_UID).is_some_and(|it| it == uid)),
            _ => false,
        })
    }

    /// The object is gone. An answer that is still to come is not one to a write of another object of its name.
    pub(super) fn forget_write(&mut self, target: &HoldTarget) {
        if self.writes.get(target).is_some_and(|state| state.under_way.is_none()) {
            self.writes.remove(target);
        }
    }

    /// The object is another one than before: a write that lost against somebody may win now.
    pub(super) fn came_anew(&mut self, target: &HoldTarget) {
        if let Some(state) = self.writes.get_mut(target) {
            state.not_before = None;
        }
    }

    pub(super) fn written(&mut self, target: HoldTarget, outcome: HoldOutcome) {
        let Some(state) = self.writes.get_mut(&target) else { return };
        let write = state.under_way.take();
        // Of what is gone nobody hears again.
        let is_over = match &target {
            HoldTarget::Reservation(name) => !self.holds.contains_key(name),
            HoldTarget::Pod(_) | HoldTarget::Claim(_) => outcome == HoldOutcome::Gone,
            HoldTarget::NodeFences(node) => !self.seen.node_fences.contains_key(node),
            HoldTarget::Rule(name) => outcome == HoldOutcome::Gone && !self.seen.rules.contains_key(name),
        };
        if outcome == HoldOutcome::Done || is_over {
            self.writes.remove(&target);
        } else {
            let pause = SHORTEST_PAUSE * 2u32.saturating_pow(state.failures);
            state.failures = (state.failures + 1).min(16);
            state.not_before = Some(self.agenda.now + pause.min(LONGEST_PAUSE));
        }
        self.agenda.now(target.topic());
        match (target, outcome) {
            (HoldTarget::Reservation(name), HoldOutcome::Gone) => {
                // Another one may have its name by now.
                if let Some(uid) = write.as_ref().and_then(HoldWrite::reservation_uid) {
                    self.reservation_gone(&name, uid);
                }
            }
            (HoldTarget::Reservation(name), outcome) => self.reservation_written(&name, write, &outcome),
            (HoldTarget::Pod(pod), outcome) => self.pod_written(&pod, write, &outcome),
            // Who waits until nothing is closed any more may have waited for this.
            (HoldTarget::NodeFences(_) | HoldTarget::Rule(_) | HoldTarget::Claim(_), _) => self.look_at_those_that_go(),
        }
    }

    fn reservation_written(&mut self, name: &str, write: Option<HoldWrite>, outcome: &HoldOutcome) {
        let Some(hold) = self.holds.get_mut(name) else { return };
        match (outcome, write) {
            (HoldOutcome::Done, _) => self.tell_of(name),
            (HoldOutcome::Refused(message), _) => {
                hold.proposal = None;
                let (uid, message) =
                    (hold.object.uid.clone(), format!("the API server refused a change of the Reservation: {message}"));
                let name = name.to_owned();
                let notice = HoldNotice { name, uid, is_warning: true, reason: "Failed", message };
                self.commands.push(HoldCommand::Tell(notice));
            }
            _ => hold.proposal = None,
        }
    }
}
