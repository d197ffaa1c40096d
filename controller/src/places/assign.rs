//! Decides which waiting pod is to get which place. Pure: one pod gets one place, and a place that is being handed over
//! gets no other pod.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::plan::QUOTA_OF_DEVICES;
use hostler_api::{
    ObjectKey,
    core::ResourceList,
    reservation::{PlaceOwner, RESERVATION_ORDER, ReservationPhase, ReservedPlace, ReservedPlaceState},
};

use crate::{
    reservation_affinity::{ReservationAffinity, ignores_reservations},
    reservation_object::ReservationObject,
    unscheduled_pods::UnscheduledPod,
    view::ClusterView,
};

/// Pods that are to get places: by Reservation and replica.
pub(super) type PlaceCandidates = BTreeMap<String, BTreeMap<u32, ObjectKey>>;

/// Pods that have a place to wait for, with the Reservation of each.
pub(crate) type ExpectedPlaces = BTreeMap<ObjectKey, String>;

/// Steps in which the part of a node's places is told: there are fewer places than these.
const SPREAD_STEPS: usize = 1 << 20;

/// Returns the pods that are to get places now, the oldest pod first. Of several Reservations a pod gets the one with the
/// lowest order that is not 0, then the oldest.
pub(super) fn assign(view: &ClusterView) -> PlaceCandidates {
    let mut assigned = PlaceCandidates::new();
    distribute(view, None, |given| {
        if given.is_open {
            let of_reservation = assigned.entry(given.reservation.to_owned()).or_default();
            of_reservation.insert(given.replica, given.pod.clone());
        }
    });
    assigned
}

/// Returns the pods for which a place is open or will be soon, by the rules by which places are assigned. `newcomer` is a
/// pod that is being made: it is the youngest.
pub(crate) fn expected_places(view: &ClusterView, newcomer: Option<(&ObjectKey, &UnscheduledPod)>) -> ExpectedPlaces {
    let mut expected = ExpectedPlaces::new();
    // Most pods of a cluster are no owners: for them nothing is distributed.
    if newcomer.is_some_and(|(key, pod)| !offers(view).iter_mut().any(|it| it.find(key, pod, false).is_some())) {
        return expected;
    }
    distribute(view, newcomer, |given| drop(expected.insert(given.pod.clone(), given.reservation.to_owned())));
    for OwnerOnTheWay { reservation, owner, .. } in owners_on_the_way(view) {
        expected.insert(ObjectKey::new(&owner.namespace, &owner.name), reservation.name.clone());
    }
    expected
}

/// A place that a pod gets, or will get.
struct GivenPlace<'a> {
    pod: &'a ObjectKey,
    reservation: &'a str,
    replica: u32,
    /// True if the pod is to get the place now.
    is_open: bool,
}

/// A Reservation with places that pods can get.
struct OpenReservation<'a> {
    view: &'a ClusterView,
    reservation: &'a ReservationObject,
    places: Vec<PlaceOffer<'a>>,
}

/// A place that a pod can get, or will be able to.
struct PlaceOffer<'a> {
    place: &'a ReservedPlace,
    /// Amounts of pods that are to get parts of the place.
    promised: Vec<&'a ResourceList>,
    /// True if a pod can be given the place now.
    is_open: bool,
}

fn distribute<'a>(
    view: &'a ClusterView,
    newcomer: Option<(&'a ObjectKey, &'a UnscheduledPod)>,
    mut note: impl FnMut(GivenPlace<'_>),
) {
    let mut offers = offers(view);
    if offers.is_empty() {
        return;
    }
    let taken = view.reservations.values().flat_map(|it| &it.status.places).flat_map(|place| &place.owners);
    let taken: BTreeSet<&str> = taken.map(|owner| &*owner.uid).collect();
    let mut pods: Vec<(&ObjectKey, &UnscheduledPod)> =
        view.unscheduled_pods.iter().map(|(key, pod)| (key, &**pod)).collect();
    pods.retain(|(_, pod)| !taken.contains(&*pod.owner.uid));
    // Pods that other gates hold back come last: these gates may stay for long.
    pods.sort_by_key(|(key, pod)| (!pod.gates.let_a_place(), &pod.created, *key));
    for (key, pod) in pods.into_iter().chain(newcomer) {
        let may_have = pod.gates.let_a_place();
        let open = may_have.then(|| offers.iter_mut().find_map(|it| it.give(key, pod, true))).flatten();
        if let Some(given) = open.or_else(|| offers.iter_mut().find_map(|it| it.give(key, pod, false))) {
            note(given);
        }
    }
}

/// Returns the places that pods can get now or soon, in the order in which they are given.
fn offers(view: &ClusterView) -> Vec<OpenReservation<'_>> {
    let of = |reservation| OpenReservation { view, reservation, places: places(reservation) };
    let mut offers: Vec<OpenReservation<'_>> =
        view.reservations.values().map(|it| of(&**it)).filter(|it| !it.places.is_empty()).collect();
    offers.sort_by_cached_key(|OpenReservation { reservation, .. }| {
        let order = reservation.labels.get(RESERVATION_ORDER).and_then(|text| text.parse::<i64>().ok());
        let order = order.filter(|order| *order != 0);
        (order.is_none(), order, reservation.created, reservation.name.clone())
    });
    offers
}

/// Returns the places of a Reservation that are open, or will be soon as far as is known.
fn places(reservation: &ReservationObject) -> Vec<PlaceOffer<'_>> {
    if reservation.is_deleting || reservation.spec.unschedulable.unwrap_or(false) {
        return Vec::new();
    }
    let phase = reservation.status.phase;
    let is_available = phase == ReservationPhase::Available;
    // Devices may take long to come.
    let is_soon = is_available || phase == ReservationPhase::Pending && !reservation.spec.asks_for_devices();
    let is_once = reservation.spec.is_once();
    let offer = |place| PlaceOffer { place, promised: Vec::new(), is_open: is_available && is_open(place, is_once) };
    let is_offered = |offer: &PlaceOffer<'_>| offer.is_open || is_soon && is_coming(offer.place, is_once);
    let mut offers: Vec<PlaceOffer<'_>> = reservation.status.places.iter().map(offer).filter(is_offered).collect();
    if is_once {
        spread(&mut offers, &reservation.status.places);
    }
    offers
}

/// Puts places of different nodes first: those of one node are handed over one after the other. Nodes with many places
/// come more often, so that in the end not all places that are left are on one of them.
fn spread(offers: &mut [PlaceOffer<'_>], places: &[ReservedPlace]) {
    let (mut begun, mut left): (BTreeMap<&str, usize>, BTreeMap<&str, usize>) = Default::default();
    for place in places.iter().filter(|place| place.state == ReservedPlaceState::HandingOver) {
        *begun.entry(&place.node_name).or_default() += 1;
    }
    for offer in &*offers {
        *left.entry(&offer.place.node_name).or_default() += 1;
    }
    offers.sort_by_cached_key(|PlaceOffer { place, .. }| {
        let before = begun.entry(&place.node_name).or_default();
        *before += 1;
        (*before * SPREAD_STEPS / left.get(&*place.node_name).copied().unwrap_or(1).max(1), place.replica)
    });
}

/// True if a place can be given to a pod now.
fn is_open(place: &ReservedPlace, is_once: bool) -> bool {
    place.state == ReservedPlaceState::Held && (!is_once || place.owners.is_empty())
}

/// True if the place, or what is left of it, will be held soon: nothing is in the way as far as the scheduler has said.
fn is_coming(place: &ReservedPlace, is_once: bool) -> bool {
    let is_on_the_way =
        matches!(place.state, ReservedPlaceState::Held | ReservedPlaceState::Asking | ReservedPlaceState::HandingOver);
    is_on_the_way && place.message.is_empty() && (!is_once || place.owners.is_empty())
}

impl<'a> OpenReservation<'a> {
    /// Gives the pod a place, if there is one for it.
    fn give<'p>(&mut self, key: &'p ObjectKey, pod: &'a UnscheduledPod, is_open: bool) -> Option<GivenPlace<'p>>
    where
        'a: 'p,
    {
        let reservation = self.reservation;
        let offer = self.find(key, pod, is_open)?;
        offer.promised.push(&pod.requests);
        offer.is_open = false;
        Some(GivenPlace { pod: key, reservation: &reservation.name, replica: offer.place.replica, is_open })
    }

    /// Returns the first of the places that is for the pod; only one that is open, if that is asked for.
    fn find(&mut self, key: &ObjectKey, pod: &UnscheduledPod, is_open: bool) -> Option<&mut PlaceOffer<'a>> {
        let is_wanted = |offer: &PlaceOffer<'_>| offer.is_open || !is_open;
        if !self.places.iter().any(is_wanted) || !is_for(self.view, self.reservation, key, pod) {
            return None;
        }
        let is_once = self.reservation.spec.is_once();
        self.places.iter_mut().find(|it| is_wanted(it) && it.has_room(&pod.requests, is_once))
    }
}

impl PlaceOffer<'_> {
    fn has_room(&self, requests: &ResourceList, is_once: bool) -> bool {
        match &self.promised[..] {
            [] => self.place.has_room(requests),
            _ if is_once => false,
            promised => {
                let mut all = requests.clone();
                for (name, amount) in promised.iter().copied().flatten() {
                    let sum = all.entry(name.clone()).or_default();
                    *sum = sum.plus(*amount);
                }
                self.place.has_room(&all)
            }
        }
    }
}

/// True if the Reservation is for the pod.
fn is_for(view: &ClusterView, reservation: &ReservationObject, key: &ObjectKey, pod: &UnscheduledPod) -> bool {
    if !reservation.spec.is_owned_by(&pod.owner.candidate(key)) || ignores_reservations(&pod.owner) {
        return false;
    }
    ReservationAffinity::of(&pod.owner).is_ok_and(|affinity| {
        let is_borne =
            reservation.spec.taints.iter().all(|taint| affinity.tolerations.iter().any(|it| it.tolerates(taint)));
        // Of devices the webhook knows how many the pod asks for.
        let is_known = |name: &str| !name.ends_with(QUOTA_OF_DEVICES);
        let is_exact = affinity.is_exactly(&pod.requests, &reservation.spec.place_requests(), is_known);
        is_borne && is_exact && affinity.wants(reservation, view)
    })
}

/// A pod that is being given a place.
pub(crate) struct OwnerOnTheWay<'v> {
    pub(crate) reservation: &'v ReservationObject,
    pub(crate) place: &'v ReservedPlace,
    pub(crate) owner: &'v PlaceOwner,
}

/// Returns the pods that are being given places.
pub(crate) fn owners_on_the_way(view: &ClusterView) -> impl Iterator<Item = OwnerOnTheWay<'_>> {
    let open = view.reservations.values().filter(|it| !it.is_deleting && !it.status.phase.is_over());
    open.flat_map(|reservation| {
        reservation.status.places.iter().flat_map(move |place| {
            let owners = place.owners.iter().filter(|owner| !owner.bound);
            owners.map(move |owner| OwnerOnTheWay { reservation, place, owner })
        })
    })
}
