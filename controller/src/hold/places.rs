//! Places of a Reservation (CPU, memory, ports), as far as they decide its state. The controller of places
//! (`crate::places`) keeps them and writes them into the status; here they are read.

use std::collections::BTreeMap;

use hostler_api::{
    Quantity,
    core::ResourceList,
    reservation::{ObjectReference, ReservedDevice, ReservedPlace, ReservedPlaceState},
};

use super::{reservation::Reservation, settings::HoldSettings};

/// The error of a Reservation without devices where places are not kept.
pub(super) const NO_PLACES: &str = "no device is asked for, and this controller keeps no CPU, memory or ports of nodes; apply \
                                    deploy/holds/places, or name a ResourceClaimTemplate in spec.template.spec.resourceClaims";

/// State of the places of a Reservation.
pub(super) enum PlaceStand {
    /// The Reservation keeps devices only.
    NotAsked,
    /// A place is missing; the message is empty as long as the scheduler has not answered.
    Missing(String),
    /// Number of places, all of which are kept or handed over.
    Kept(usize),
}

/// Returns the state of the places that a Reservation asks for.
pub(super) fn place_stand(settings: &HoldSettings, reservation: &Reservation) -> PlaceStand {
    if settings.keeps_places != Some(true) || !reservation.asks_for_place {
        return PlaceStand::NotAsked;
    }
    let (places, wanted) = (&reservation.object.status.places, reservation.object.spec.replicas() as usize);
    let kept = places.iter().filter(|place| place.is_kept()).count();
    if kept >= wanted {
        return PlaceStand::Kept(kept);
    }
    let said = places.iter().find(|place| !place.is_kept() && !place.message.is_empty());
    PlaceStand::Missing(said.map(|place| place.message.clone()).unwrap_or_default())
}

/// True if pods of the controller's still stand in places of the Reservation, or may.
pub(super) fn has_places(settings: &HoldSettings, reservation: &Reservation) -> bool {
    settings.keeps_places != Some(false) && !reservation.object.status.places.is_empty()
}

/// True if the node of a device has no room for the pod that the device is for.
pub(super) fn is_without_room(settings: &HoldSettings, reservation: &Reservation, device: &ReservedDevice) -> bool {
    let is_here = |place: &&ReservedPlace| place.replica == device.replica && place.node_name == device.node_name;
    let place = reservation.object.status.places.iter().find(is_here);
    settings.keeps_places == Some(true) && place.is_some_and(|place| place.state == ReservedPlaceState::Refused)
}

/// Returns the pods that have places of the Reservation.
pub(super) fn place_owners(settings: &HoldSettings, reservation: &Reservation) -> Vec<ObjectReference> {
    let owners = reservation.object.status.place_owners().filter(|_| settings.keeps_places == Some(true));
    let reference = owners.map(|owner| ObjectReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: owner.namespace.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    });
    reference.collect()
}

/// Adds the amounts of places that are kept to those of devices, and to the part that owners have.
pub(super) fn add_amounts(
    places: &[ReservedPlace],
    allocatable: &mut BTreeMap<String, Quantity>,
    allocated: &mut BTreeMap<String, Quantity>,
) {
    for place in places.iter().filter(|place| place.is_kept()) {
        add(allocatable, &place.requests);
        place.owners.iter().filter(|owner| owner.bound).for_each(|owner| add(allocated, &owner.requests));
    }
}

fn add(sums: &mut BTreeMap<String, Quantity>, amounts: &ResourceList) {
    for (name, amount) in amounts {
        // Amounts of pods are no finer than thousandths.
        if let Ok(amount) = amount.to_string().parse::<Quantity>() {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.plus(amount);
        }
    }
}
