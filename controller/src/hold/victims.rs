//! Pods whose devices are kept while they have them.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::ObjectKey;
use hostler_api::reservation::{DeviceOwner, OwnerCandidate, ReservedDevice};

use super::{
    asking::MOST_ASKED,
    budgets::VictimBudget,
    closing::Closing,
    core::{HoldCore, device_key, owner_of},
    event::{AllocatedClaim, DeviceKey},
    seen::PodKnowledge,
};

/// Pods whose devices may be kept while they have them, that are tried for one Reservation at a time.
const MOST_VICTIMS: usize = 16;

/// A pod that has devices, and what it has.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    pub(super) pod: ObjectKey,
    pub(super) claims: Vec<AllocatedClaim>,
    pub(super) priority: i32,
    /// Budgets that it counts for, where it is to be evicted.
    pub(super) budgets: Vec<VictimBudget>,
}

impl HoldCore {
    /// Pods of the owners that have devices, by name. Who is not known is asked for, and looked at another time.
    pub(super) fn victims(&mut self, name: &str) -> Vec<Victim> {
        let (mut found, mut unknown) = (BTreeMap::<ObjectKey, Victim>::new(), BTreeSet::new());
        let claims: Vec<AllocatedClaim> =
            self.seen.claims.values().filter(|it| !it.devices.is_empty()).cloned().collect();
        for claim in claims {
            // What several pods share does not get free with one of them.
            let [pod] = &claim.pods[..] else { continue };
            let key = ObjectKey::new(&claim.key.namespace, &pod.name);
            let known = match self.seen.pods.get(&key) {
                Some(PodKnowledge::Known(Some(known))) => known,
                Some(_) => continue,
                None => {
                    unknown.insert(key);
                    continue;
                }
            };
            let candidate: OwnerCandidate<'_> = known.candidate(&key);
            if self.holds.get(name).is_some_and(|hold| hold.object.spec.is_owned_by(&candidate)) {
                // They go when they want to.
                let budgets = Vec::new();
                let victim = Victim { pod: key.clone(), claims: Vec::new(), priority: known.priority, budgets };
                found.entry(key).or_insert(victim).claims.push(claim);
            }
        }
        unknown.iter().take(MOST_ASKED).for_each(|pod| self.ask_for(pod));
        found.into_values().take(MOST_VICTIMS).collect()
    }
}

impl Closing {
    /// The devices, with those of them that the pods have marked so, and with all else that those pods have.
    pub(super) fn with_all_of(
        &self,
        victims: &[Victim],
        mut devices: Vec<ReservedDevice>,
        replica: u32,
    ) -> Option<Vec<ReservedDevice>> {
        for victim in victims {
            let has = |claim: &AllocatedClaim| devices.iter().any(|device| claim.devices.contains(&device_key(device)));
            if !victim.claims.iter().any(has) {
                continue;
            }
            for claim in &victim.claims {
                let owner = owner_of(claim, &victim.pod.name);
                for key in &claim.devices {
                    let mut known = devices.iter_mut().filter(|device| device_key(device) == *key).peekable();
                    if known.peek().is_some() {
                        known.for_each(|device| device.owner = Some(owner.clone()));
                    } else {
                        drop(known);
                        devices.push(self.beside(key, &owner, replica)?);
                    }
                }
            }
        }
        Some(devices)
    }

    /// Whether everything that a pod has can be closed to others.
    pub(super) fn can_close_all_of(&self, victim: &Victim) -> bool {
        let can_close = |claim: &AllocatedClaim| {
            let owner = owner_of(claim, &victim.pod.name);
            claim.devices.iter().all(|key| self.beside(key, &owner, 0).is_some())
        };
        victim.claims.iter().all(can_close)
    }

    /// A device that goes with a pod whose other devices are kept.
    fn beside(&self, key: &DeviceKey, owner: &DeviceOwner, replica: u32) -> Option<ReservedDevice> {
        let (slice, _) = self.published.device(key)?;
        let device = ReservedDevice {
            replica,
            driver: key.driver.clone(),
            pool: key.pool.clone(),
            device: key.device.clone(),
            node_name: slice.node.clone(),
            owner: Some(owner.clone()),
            ..ReservedDevice::default()
        };
        self.can_close(key, &device).ok().map(|()| device)
    }
}
