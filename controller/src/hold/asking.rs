//! Who pods are is asked for when it matters, and known until something is heard of what they have.

use std::time::Duration;

use hostler_allocator::plan::ObjectKey;

use super::{
    agenda::Topic,
    core::{Hold, HoldCore},
    event::{HoldCommand, OwnerPod},
    seen::PodKnowledge,
};

/// When a pod of which nobody knows is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl HoldCore {
    pub(super) fn pod_seen(&mut self, key: ObjectKey, pod: Result<Option<Box<OwnerPod>>, String>) {
        self.fetching = self.fetching.saturating_sub(1);
        match pod {
            Ok(pod) => {
                if self.pods.contains_key(&key) {
                    self.agenda.now(Topic::Pod(key.clone()));
                }
                if self.holds.values().any(|hold| hold.replaced().as_ref() == Some(&key)) {
                    self.plan_soon();
                }
                self.seen.pods.insert(key, PodKnowledge::Known(pod));
                self.look_at_all_with_devices();
            }
            Err(_) => {
                self.agenda.after(ASK_AGAIN, Topic::Pod(key.clone()));
                self.seen.pods.remove(&key);
                self.agenda.after(ASK_AGAIN, Topic::Plan);
                let names: Vec<String> = self.holds.keys().cloned().collect();
                names.into_iter().for_each(|name| self.agenda.after(ASK_AGAIN, Topic::Reservation(name)));
            }
        }
    }

    fn look_at_all_with_devices(&mut self) {
        let waiting = self.holds.iter().filter(|(_, hold)| !hold.object.status.devices.is_empty());
        waiting.for_each(|(name, _)| self.agenda.now(Topic::Reservation(name.clone())));
        // Who may be asked to make room is chosen when all are known.
        let seeks = |hold: &Hold| hold.seeks_victims() && (hold.problem.is_some() || hold.is_without_free);
        if self.fetching == 0 && self.holds.values().any(seeks) {
            self.plan_soon();
        }
    }

    /// Asks who a pod is, if that is not known.
    pub(super) fn ask_for(&mut self, pod: &ObjectKey) {
        if !self.seen.pods.contains_key(pod) {
            self.seen.pods.insert(pod.clone(), PodKnowledge::Asked);
            self.fetching += 1;
            self.commands.push(HoldCommand::FetchPod(pod.clone()));
        }
    }
}
