//! The holders of devices: claims of a Reservation's owners, and claims of others.

use std::collections::BTreeSet;

use hostler_api::{
    ObjectKey,
    reservation::{DeviceOwner, ObjectReference, ReservedDevice, ReservedDeviceState as State},
};

use super::{
    context::HoldContext,
    known::PodReading,
    objects::{AllocatedClaim, owner_of, owner_of_first_pod},
    places::place_owners,
    reservation::Reservation,
};

/// The relation of a claim to a Reservation.
pub(super) enum ClaimOwnership {
    Owner(DeviceOwner),
    Stranger(DeviceOwner),
    /// The pods of the claim are being read.
    Unknown,
}

/// Decides if a claim is one of the Reservation's owners. Pods that are not known are read.
pub(super) fn ownership(cx: &mut HoldContext<'_>, reservation: &Reservation, claim: &AllocatedClaim) -> ClaimOwnership {
    let mut is_known = true;
    for pod in &claim.pods {
        let key = ObjectKey::new(&claim.key.namespace, &pod.name);
        cx.read_pod(&key);
        match cx.cluster.pods.get(&key) {
            Some(PodReading::Known(Some(known))) if known.uid == pod.uid => {
                if reservation.object.spec.is_owned_by(&known.candidate(&key)) {
                    return ClaimOwnership::Owner(owner_of(claim, &pod.name));
                }
            }
            Some(PodReading::Known(_)) => {}
            _ => is_known = false,
        }
    }
    match is_known {
        true => ClaimOwnership::Stranger(owner_of_first_pod(claim)),
        false => ClaimOwnership::Unknown,
    }
}

/// Returns the pods that have devices of a Reservation. If each pod takes devices from the Reservation once, also the
/// pods that had some.
pub(super) fn current_owners(
    cx: &HoldContext<'_>,
    reservation: &Reservation,
    devices: &[ReservedDevice],
) -> Vec<ObjectReference> {
    let of_device = |device: &ReservedDevice| {
        let owner = device.owner.as_ref().filter(|_| device.state == State::HandedOver)?;
        let claim = cx.cluster.claims.get(&ObjectKey::new(&owner.namespace, &owner.claim));
        let pod = claim.and_then(|claim| claim.pods.iter().find(|pod| pod.name == owner.pod));
        Some(ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: owner.namespace.clone(),
            name: owner.pod.clone(),
            uid: pod.map(|pod| pod.uid.clone()).unwrap_or_default(),
        })
    };
    let known = &reservation.object.status.current_owners;
    let stay = known.iter().filter(|_| reservation.object.spec.is_once());
    let mut owners: BTreeSet<ObjectReference> = stay.cloned().collect();
    for owner in devices.iter().filter_map(of_device) {
        let is_same = |it: &&ObjectReference| it.namespace == owner.namespace && it.name == owner.name;
        let before = known.iter().find(is_same).filter(|_| owner.uid.is_empty());
        owners.insert(before.cloned().unwrap_or(owner));
    }
    owners.extend(place_owners(cx.settings, reservation));
    owners.into_iter().collect()
}
