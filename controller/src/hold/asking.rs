//! Who pods are is asked for when it matters, and known until something is heard of what they have.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::ObjectKey;

use super::{
    agenda::Topic,
    core::{Hold, HoldCore},
    event::{HoldCommand, OwnerPod},
    seen::PodKnowledge,
};

/// Pods that are asked for at once for one Reservation. What closes devices and says so waits behind these.
pub(super) const MOST_ASKED: usize = 1024;
/// When a pod of which nobody knows is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl HoldCore {
    pub(super) fn pod_seen(&mut self, key: ObjectKey, pod: Result<Option<Box<OwnerPod>>, String>) {
        self.fetching = self.fetching.saturating_sub(1);
        match pod {
            Ok(pod) => {
                let names = self.pods.get(&key).into_iter().flatten().cloned().collect::<Vec<_>>();
                if !names.is_empty() {
                    self.agenda.now(Topic::Pod(key.clone()));
                }
                names.into_iter().for_each(|name| self.agenda.now(Topic::Reservation(name)));
                if self.holds.values().any(|hold| hold.replaced().as_ref() == Some(&key)) {
                    self.plan_soon();
                }
                self.look_at_claims_of(&key);
                self.seen.pods.insert(key, PodKnowledge::Known(pod));
                self.look_for_victims();
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

    /// To whom it matters who a pod is: whoever keeps a device that it has, or may have of its pool, and whose value it tolerates.
    fn look_at_claims_of(&mut self, pod: &ObjectKey) {
        let (mut pools, mut values) = (Vec::new(), BTreeSet::new());
        for claim in self.seen.claims_of_pod(pod) {
            pools.extend(claim.devices.iter().map(|device| (device.driver.clone(), device.pool.clone())));
            values.extend(claim.tolerates.iter().cloned());
        }
        self.look_at_pools(pools);
        self.look_at_values(&values);
    }

    fn look_for_victims(&mut self) {
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
