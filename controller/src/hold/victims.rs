//! Pods whose devices are kept for a Reservation while the pods still have them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use hostler_api::ObjectKey;
use hostler_api::reservation::{
    DeviceOwner, PRE_ALLOCATABLE_PRIORITY, PreAllocationMode, ReservedDevice, ReservedDeviceState as State,
};

use super::{
    closing::Closing,
    context::HoldContext,
    known::PodReading,
    objects::{AllocatedClaim, DeviceKey, OwnerPod, device_key, owner_of},
    reservation::Reservation,
};

/// The most such pods that are tried for one Reservation at a time.
const MOST_VICTIMS: usize = 16;

/// The most pods that are read at once for one Reservation. Calls that close devices wait behind these.
pub(super) const MOST_READ: usize = 1024;

/// A budget that counts a pod which may have to go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct VictimBudget {
    pub(super) key: ObjectKey,
    pub(super) allowed: u64,
}

/// A pod that has devices, and its claims.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    pub(super) pod: ObjectKey,
    pub(super) claims: Vec<AllocatedClaim>,
    pub(super) priority: i32,
    /// Budgets that count the pod, where the pod is to be evicted.
    pub(super) budgets: Vec<VictimBudget>,
}

/// Returns the pods that have devices which may be kept: pods of the owners by name; with mode Cluster pods whose labels
/// permit it, those with the greatest number in their annotation first. Pods that are not known are read, and considered
/// another time.
pub(super) fn victims(cx: &mut HoldContext<'_>, reservation: &Reservation) -> Vec<Victim> {
    let waits_in_order = reservation.object.spec.pre_allocation_mode() == PreAllocationMode::Cluster;
    let (mut found, mut unknown) = (BTreeMap::<_, Victim>::new(), BTreeSet::new());
    // Devices that a pod has of this Reservation are promised to it already, by another replica.
    let own = reservation.object.status.devices.iter().filter(|device| device.state == State::HandedOver);
    let promised: BTreeSet<DeviceKey> = own.map(device_key).chain(kept_by_others(cx, reservation)).collect();
    let is_promised = |claim: &&AllocatedClaim| claim.devices.iter().any(|device| promised.contains(device));
    for claim in cx.cluster.claims.values().filter(|it| !it.devices.is_empty() && !is_promised(it)) {
        // Devices that several pods share do not become free with one of them.
        let [pod] = &claim.pods[..] else { continue };
        let key = ObjectKey::new(&claim.key.namespace, &pod.name);
        let known = match cx.cluster.pods.get(&key) {
            Some(PodReading::Known(Some(known))) => known,
            Some(_) => continue,
            None => {
                unknown.insert(key);
                continue;
            }
        };
        if reservation.object.spec.may_wait_for(&known.candidate(&key)) {
            let order = Reverse(waits_in_order.then(|| pre_allocatable_priority(known)));
            // These pods go by themselves: no budget counts.
            let budgets = Vec::new();
            let victim = Victim { pod: key.clone(), claims: Vec::new(), priority: known.priority, budgets };
            found.entry((order, key)).or_insert(victim).claims.push(claim.clone());
        }
    }
    unknown.iter().take(MOST_READ).for_each(|pod| cx.read_pod(pod));
    found.into_values().take(MOST_VICTIMS).collect()
}

/// The number by which a pod of mode Cluster is chosen.
fn pre_allocatable_priority(pod: &OwnerPod) -> i64 {
    pod.annotations.get(PRE_ALLOCATABLE_PRIORITY).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns the devices that other Reservations keep, including those that owners have: they come back.
pub(super) fn kept_by_others(cx: &HoldContext<'_>, reservation: &Reservation) -> BTreeSet<DeviceKey> {
    let others = cx.reservations.iter().filter(|it| it.object.name != reservation.object.name && it.is_open());
    others.flat_map(Reservation::devices_and_proposal).map(device_key).collect()
}

/// Returns the pods that have some of these devices.
pub(super) fn who_goes(victims: &[Victim], devices: &[ReservedDevice]) -> Vec<Victim> {
    let goes = |victim: &&Victim| {
        let has = |device: &ReservedDevice| {
            device.owner.as_ref().is_some_and(|it| it.namespace == victim.pod.namespace && it.pod == victim.pod.name)
        };
        devices.iter().any(has)
    };
    victims.iter().filter(goes).cloned().collect()
}

impl Closing {
    /// Returns the devices, with their owners where they are the pods', and with all other devices of those pods.
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

    /// True if all devices of a pod can be closed to others.
    pub(super) fn can_close_all_of(&self, victim: &Victim) -> bool {
        let can_close = |claim: &AllocatedClaim| {
            let owner = owner_of(claim, &victim.pod.name);
            claim.devices.iter().all(|key| self.beside(key, &owner, 0).is_some())
        };
        victim.claims.iter().all(can_close)
    }

    /// A further device of a pod whose devices are kept: it goes with the pod.
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
