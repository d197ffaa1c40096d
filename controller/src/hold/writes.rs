//! Writes of the core, and what follows from their outcomes.

use hostler_api::reservation::RESERVATION_UID;
use hostler_reconcile::{WriteOutcome, WriteReadiness};

use super::{
    agenda::Topic,
    core::HoldCore,
    event::{HoldCommand, HoldNotice, HoldTarget, HoldWrite},
};
use crate::claim_write::ClaimWrite;

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
    /// True if the object can be written now; else it is looked at again once it can.
    pub(super) fn can_write(&mut self, target: &HoldTarget) -> bool {
        let readiness = self.writes.readiness(target, self.agenda.now);
        if let WriteReadiness::After(pause) = readiness {
            self.agenda.after(pause, target.topic());
        }
        readiness == WriteReadiness::Ready
    }

    /// Writes. The caller has asked whether the object can be written.
    pub(super) fn write(&mut self, write: HoldWrite) {
        self.writes.begin(write.target(), write.clone());
        self.commands.push(HoldCommand::Write(write));
    }

    /// Whether a write is on its way that closes something with this value.
    pub(super) fn is_closing(&self, value: &str) -> bool {
        self.writes.in_flight().any(|write| match write {
            HoldWrite::NodeFences { fences, .. } => fences.iter().any(|fence| fence.value == value),
            HoldWrite::CreateRule(rule) => rule.value == value,
            _ => false,
        })
    }

    /// Whether a claim is being made that stands for a part that this Reservation keeps.
    pub(super) fn is_making_placeholders(&self, uid: &str) -> bool {
        self.writes.in_flight().any(|write| match write {
            HoldWrite::Claim(write) => matches!(write.as_ref(), ClaimWrite::Create(claim) if claim.labels.get(RESERVATION_UID).is_some_and(|it| it == uid)),
            _ => false,
        })
    }

    pub(super) fn written(&mut self, target: HoldTarget, outcome: WriteOutcome) {
        // Of what is gone nobody hears again.
        let is_over = match &target {
            HoldTarget::Pod(_) | HoldTarget::Claim(_) => outcome == WriteOutcome::Gone,
            HoldTarget::Reservation(_) | HoldTarget::NodeFences(_) => false,
            HoldTarget::Rule(name) => outcome == WriteOutcome::Gone && !self.seen.rules.contains_key(name),
        };
        let write = self.writes.ended(&target, self.agenda.now, outcome == WriteOutcome::Done || is_over);
        self.agenda.now(target.topic());
        match (target, outcome) {
            (HoldTarget::Reservation(name), WriteOutcome::Gone) => {
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

    fn reservation_written(&mut self, name: &str, write: Option<HoldWrite>, outcome: &WriteOutcome) {
        let Some(hold) = self.holds.get_mut(name) else { return };
        match (outcome, write) {
            (WriteOutcome::Done, _) => self.tell_of(name),
            (WriteOutcome::Refused(message) | WriteOutcome::Forbidden(message), _) => {
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
