//! Outcomes of writes.

use hostler_api::{ObjectKey, reservation::RESERVATION_ALLOCATED};
use hostler_reconcile::WriteOutcome;

use super::{
    core::HoldCore,
    event::HoldCommand,
    evictions::{answer_of, take_answer},
    known::PodReading,
    refusals::RefusalPause,
    reservations::Related,
    topics::DecisionTopic,
    writes::{HoldEventNote, HoldTarget, HoldWrite, PodWrite},
};

impl HoldTarget {
    fn topic(&self) -> DecisionTopic {
        match self.clone() {
            Self::Reservation(name) => DecisionTopic::Reservation(name),
            Self::NodeFences(node) => DecisionTopic::NodeFences(node),
            Self::Rule(name) => DecisionTopic::Rule(name),
            Self::Pod(pod) => DecisionTopic::Pod(pod),
            Self::Claim(key) => DecisionTopic::Placeholder(key.name),
        }
    }
}

impl HoldCore {
    pub(super) fn written(&mut self, target: HoldTarget, outcome: &WriteOutcome) {
        // No news come of an object that is gone.
        let is_over = match &target {
            HoldTarget::Pod(_) | HoldTarget::Claim(_) => *outcome == WriteOutcome::Gone,
            HoldTarget::Reservation(_) | HoldTarget::NodeFences(_) => false,
            HoldTarget::Rule(name) => *outcome == WriteOutcome::Gone && !self.cluster.rules.contains_key(name),
        };
        let write = self.writes.ended(&target, self.queue.now, outcome, *outcome == WriteOutcome::Done || is_over);
        self.queue.now(target.topic());
        match (target, write) {
            (HoldTarget::Reservation(name), write) => self.reservation_written(&name, write.as_ref(), outcome),
            (HoldTarget::Pod(pod), Some(HoldWrite::Pod(PodWrite::Evict { uid, .. }))) => {
                self.eviction_answered(&pod, &uid, outcome);
            }
            (HoldTarget::Pod(pod), Some(HoldWrite::Pod(PodWrite::Annotate { value, .. }))) => {
                self.annotation_answered(&pod, value, outcome);
            }
            (HoldTarget::Pod(_), _) => {}
            // Reservations that wait until no device is closed may have waited for this write.
            (HoldTarget::NodeFences(_) | HoldTarget::Rule(_) | HoldTarget::Claim(_), _) => self.decide_about_closed(),
        }
    }

    fn reservation_written(&mut self, name: &str, write: Option<&HoldWrite>, outcome: &WriteOutcome) {
        if *outcome == WriteOutcome::Gone {
            // Another Reservation may have the name by now.
            if let Some(uid) = write.and_then(HoldWrite::reservation_uid) {
                self.reservation_gone(name, uid);
            }
            return;
        }
        let Some(reservation) = self.reservations.get_mut(name) else { return };
        if *outcome == WriteOutcome::Done {
            let news = reservation.recorded.news(&reservation.object);
            return self.commands.extend(news.into_iter().map(HoldCommand::Tell));
        }
        reservation.proposal = None;
        if let WriteOutcome::Refused(why) | WriteOutcome::Forbidden(why) = outcome {
            let message = format!("the API server refused a change of the Reservation: {why}");
            self.commands.push(HoldCommand::Tell(HoldEventNote::of(&reservation.object, true, "Failed", message)));
        }
    }

    fn eviction_answered(&mut self, pod: &ObjectKey, uid: &str, outcome: &WriteOutcome) {
        let Some(answer) = answer_of(outcome) else { return };
        let related = self.reservations.related_to(&Related::Pod(pod.clone()));
        let names: Vec<String> = related.map(|it| it.object.name.clone()).collect();
        for name in names {
            let Some(reservation) = self.reservations.get_mut(&name) else { continue };
            let notice = take_answer(reservation, pod, uid, &answer);
            self.commands.extend(notice.map(HoldCommand::Tell));
            self.queue.now(DecisionTopic::Reservation(name));
        }
    }

    fn annotation_answered(&mut self, pod: &ObjectKey, value: String, outcome: &WriteOutcome) {
        match outcome {
            WriteOutcome::Failed(_) | WriteOutcome::Dropped(_) => return,
            // The role may come, or a server that has just started may not have read it yet.
            WriteOutcome::Refused(_) | WriteOutcome::Forbidden(_) => {
                let pause = self.annotating.again(self.queue.now);
                for reservation in self.reservations.related_to(&Related::Pod(pod.clone())) {
                    self.queue.after(pause, DecisionTopic::Reservation(reservation.object.name.clone()));
                }
                return;
            }
            WriteOutcome::Done | WriteOutcome::Conflict | WriteOutcome::Gone => {
                self.annotating = RefusalPause::default()
            }
        }
        // A write without effect is not tried again before there is news of the pod.
        if let Some(PodReading::Known(Some(known))) = self.cluster.pods.get_mut(pod) {
            known.annotations.insert(RESERVATION_ALLOCATED.to_owned(), value);
        }
    }
}
