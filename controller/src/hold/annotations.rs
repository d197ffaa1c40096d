//! Pods say themselves from which Reservation they have devices, where the controller may write that. Nothing depends on it.

use hostler_api::ObjectKey;
use hostler_api::reservation::{RESERVATION_ALLOCATED, RESERVATION_FINALIZER};
use hostler_reconcile::WriteOutcome;
use serde_json::json;

use super::{
    agenda::Topic,
    core::{Hold, HoldCore},
    event::PodWrite,
    refusals::Refusals,
    seen::PodKnowledge,
};

impl HoldCore {
    /// Pods that have devices of a Reservation, and may not say so yet.
    pub(super) fn owners_to_annotate(&self, hold: &Hold) -> impl Iterator<Item = ObjectKey> {
        // Once it is let go nobody looks at it any more.
        let is_kept = hold.object.finalizers.iter().any(|finalizer| finalizer == RESERVATION_FINALIZER);
        let is_looked_at = self.annotating.are_over(self.agenda.now) && is_kept && !hold.object.is_deleting;
        let owners =
            hold.object.status.current_owners.iter().filter(move |owner| is_looked_at && !owner.uid.is_empty());
        owners.map(|owner| ObjectKey::new(&owner.namespace, &owner.name)).filter(|pod| match self.seen.pods.get(pod) {
            Some(PodKnowledge::Known(known)) => {
                known.as_ref().is_some_and(|known| !known.annotations.contains_key(RESERVATION_ALLOCATED))
            }
            _ => true,
        })
    }

    /// What is written to a pod, if one of these Reservations gave it devices and it says nothing of any.
    pub(super) fn annotation(&mut self, names: &[String], pod: &ObjectKey) -> Option<PodWrite> {
        let is_owner = |name: &&String| {
            self.holds.get(*name).is_some_and(|hold| self.owners_to_annotate(hold).any(|it| it == *pod))
        };
        let name = names.iter().find(is_owner)?.clone();
        self.ask_for(pod);
        let Some(PodKnowledge::Known(Some(known))) = self.seen.pods.get(pod) else { return None };
        let object = &self.holds.get(&name)?.object;
        let owner = object.status.current_owners.iter().find(|it| it.uid == known.uid);
        owner.filter(|_| !known.is_deleting).map(|owner| PodWrite::Annotate {
            pod: pod.clone(),
            uid: owner.uid.clone(),
            value: json!({"name": name, "uid": object.uid}).to_string(),
        })
    }

    pub(super) fn annotation_answered(&mut self, pod: &ObjectKey, value: String, outcome: &WriteOutcome) {
        match outcome {
            WriteOutcome::Failed(_) | WriteOutcome::Dropped(_) => return,
            // The role may come, or a server that has just started has not read it.
            WriteOutcome::Refused(_) | WriteOutcome::Forbidden(_) => {
                let pause = self.annotating.again(self.agenda.now);
                for name in self.pods.get(pod).into_iter().flatten() {
                    self.agenda.after(pause, Topic::Reservation(name.clone()));
                }
                return;
            }
            WriteOutcome::Done | WriteOutcome::Conflict | WriteOutcome::Gone => self.annotating = Refusals::default(),
        }
        // Also what came to nothing is not tried again before something is heard of the pod.
        if let Some(PodKnowledge::Known(Some(known))) = self.seen.pods.get_mut(pod) {
            known.annotations.insert(RESERVATION_ALLOCATED.to_owned(), value);
        }
    }
}
