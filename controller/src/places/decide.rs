//! The next writes for the places of a Reservation. Pure: everything was read anew, and one step follows from it alone,
//! so a controller that takes over goes on with the same writes.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::{
    ExactQuantity, ObjectKey,
    core::ResourceList,
    reservation::{
        PlaceOwner, RESERVATION_FINALIZER, ReservationMode, ReservationStatus, ReservedDeviceState, ReservedPlace,
        ReservedPlaceState as State,
    },
};
use hostler_cluster::{ObjectVersion, since_1970};

use super::{
    context::{PlacePod, PlacesContext, PlacesStatus, PlacesStep, PlacesWrite},
    holder::{holder, holder_name, known_holders, name_problem},
};
use crate::{reservation_object::ReservationObject, unscheduled_pods::PodGates};

/// Time for which the scheduler may refuse a place holder before the devices are looked for on another node.
const REFUSED_AFTER: Duration = Duration::from_secs(10);
/// Time for which a place on a full node is refused before it is asked for there again.
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// Pause before a place is handed over on a node where another one is.
const HAND_OVER_AGAIN: Duration = Duration::from_millis(200);

/// Characters of a message in the status.
const LONGEST_MESSAGE: usize = 1024;
/// Characters of all messages of a status: its object must fit into the API server's store.
const ALL_MESSAGES: usize = 256 * 1024;
/// Places that are written for after what was read once. Others wait meanwhile, and what was read grows old.
const MOST_CHAINS: usize = 64;

/// Decides the next step.
pub(super) fn decide(cx: &PlacesContext) -> PlacesStep {
    let Some(reservation) = &cx.reservation else {
        // Nothing of it is left but place holders.
        return writes(cx.holders.values().filter_map(delete)).unwrap_or(PlacesStep::Rest);
    };
    let known = known_holders(reservation);
    let strays = cx.holders.values().filter(|pod| !pod.is_of(reservation) || !known.contains(&pod.metadata.name));
    if let Some(step) = writes(strays.filter_map(delete)) {
        return step;
    }
    if reservation.is_deleting || reservation.status.phase.is_over() {
        return cx.release(reservation);
    }
    let is_kept = reservation.finalizers.iter().any(|it| it == RESERVATION_FINALIZER);
    if !is_kept || !is_for_places(reservation) {
        return PlacesStep::Rest;
    }
    cx.step_of_open(reservation)
}

/// True if places are kept for the Reservation.
pub(super) fn is_for_places(reservation: &ReservationObject) -> bool {
    use hostler_api::reservation::PLACED_POD_LABEL;
    reservation.spec.mode() == ReservationMode::Fence
        && !reservation.labels.contains_key(PLACED_POD_LABEL)
        && reservation.spec.pod_template().is_ok()
        && reservation.spec.asks_for_place()
}

/// Deletes a pod, unless it is going already.
fn delete(pod: &PlacePod) -> Option<PlacesWrite> {
    let is_going = pod.metadata.deletion_timestamp.is_some();
    (!is_going).then(|| PlacesWrite::Delete(pod.metadata.name.clone(), pod.version()))
}

/// Returns the first of these writes, none of which depends on another; none if there are none.
fn writes(all: impl Iterator<Item = PlacesWrite>) -> Option<PlacesStep> {
    chains(all.map(|write| vec![write]))
}

/// Returns the first of these chains; none if there are none.
fn chains(all: impl Iterator<Item = Vec<PlacesWrite>>) -> Option<PlacesStep> {
    let first: Vec<Vec<PlacesWrite>> = all.take(MOST_CHAINS).collect();
    (!first.is_empty()).then_some(PlacesStep::Write(first))
}

fn status(reservation: &ReservationObject, places: Vec<ReservedPlace>) -> PlacesStep {
    let status = ReservationStatus { places, ..reservation.status.clone() };
    let version = ObjectVersion { uid: reservation.uid.clone(), resource_version: reservation.version.clone() };
    PlacesStep::Status(Box::new(PlacesStatus { name: reservation.name.clone(), version, status }))
}

impl PlacesContext {
    fn holder(&self, reservation: &ReservationObject, place: &ReservedPlace, number: u32) -> Option<&PlacePod> {
        self.holders.get(&holder_name(reservation, place.replica, number))
    }

    /// Deletes all place holders of a Reservation that is over or deleted, and withdraws the nominations of owners that
    /// are not bound: one would be counted in what another Reservation keeps there. Then its status has no places.
    fn release(&self, reservation: &ReservationObject) -> PlacesStep {
        let withdrawn = reservation.status.places.iter().flat_map(|place| self.withdrawals(place));
        if let Some(step) = writes(self.holders.values().filter_map(delete).chain(withdrawn)) {
            return step;
        }
        match self.holders.is_empty() && !reservation.status.places.is_empty() {
            true => status(reservation, Vec::new()),
            false => PlacesStep::Rest,
        }
    }

    fn withdrawals(&self, place: &ReservedPlace) -> impl Iterator<Item = PlacesWrite> {
        place.owners.iter().filter(|owner| !owner.bound).filter_map(|owner| {
            let pod = self.owners.get(&ObjectKey::new(&owner.namespace, &owner.name))?;
            let is_nominated = pod.metadata.uid == owner.uid
                && pod.node().is_none()
                && !pod.is_ending()
                && pod.status.nominated_node_name == place.node_name;
            is_nominated.then(|| PlacesWrite::Nominate(pod.key(), pod.version(), String::new()))
        })
    }

    /// True if another place on the node of this one is being handed over, and its owner is on the way.
    fn is_fresh(&self, reservation: &ReservationObject, place: &ReservedPlace) -> bool {
        self.handing_over.fresh.iter().any(|((name, replica), node)| {
            *node == place.node_name && (name, *replica) != (&reservation.name, place.replica)
        })
    }

    fn step_of_open(&self, reservation: &ReservationObject) -> PlacesStep {
        let mut places = reservation.status.places.clone();
        let requests = reservation.spec.place_requests();
        let known = places.len();
        for replica in (0..reservation.spec.replicas()).skip(known) {
            places.push(ReservedPlace { replica, requests: requests.clone(), ..ReservedPlace::default() });
        }
        if let Some(problem) = name_problem(reservation) {
            places.iter_mut().for_each(|place| place.message.clone_from(&problem));
            return if places == reservation.status.places { PlacesStep::Rest } else { status(reservation, places) };
        }
        let places: Vec<ReservedPlace> =
            places.into_iter().map(|place| PlaceNow { cx: self, reservation }.of(place)).collect();
        // The status names what may be written before it is.
        if places != reservation.status.places {
            return status(reservation, places);
        }
        let (mut found, mut waits, mut begun) = (Vec::new(), Vec::new(), BTreeSet::new());
        for place in &places {
            match (PlaceNow { cx: self, reservation }).step(place) {
                PlaceStep::Write(chain) => {
                    let is_hand_over = chain.iter().any(|write| matches!(write, PlacesWrite::HandOver { .. }));
                    // Schedulers count a nominated pod beside the place holder that still stands. Another owner that
                    // comes to the node meanwhile would find no room there.
                    if is_hand_over && (self.is_fresh(reservation, place) || !begun.insert(&*place.node_name)) {
                        waits.push(HAND_OVER_AGAIN);
                    } else {
                        found.push(chain);
                    }
                }
                PlaceStep::Wait(time) => waits.push(time),
                PlaceStep::Rest => {}
            }
        }
        let wait = waits.into_iter().min();
        chains(found.into_iter()).unwrap_or_else(|| wait.map_or(PlacesStep::Rest, PlacesStep::Wait))
    }
}

/// The next step for one place.
enum PlaceStep {
    Rest,
    Wait(Duration),
    /// One after the other.
    Write(Vec<PlacesWrite>),
}

/// A place of a Reservation, as it is now.
struct PlaceNow<'a> {
    cx: &'a PlacesContext,
    reservation: &'a ReservationObject,
}

impl PlaceNow<'_> {
    /// Returns the place as the pods show it.
    fn of(&self, mut place: ReservedPlace) -> ReservedPlace {
        self.follow_devices(&mut place);
        let before: Vec<PlaceOwner> = place.owners.clone();
        place.owners = before.iter().filter_map(|owner| self.owner_now(&place, owner)).collect();
        // While the former place holder stands, the next one is not there or can be made anew: no owner is added, and
        // two at most stand for one place.
        if self.former(&place).is_none() {
            let own = self.holder(&place, place.number);
            place.owners.extend(self.candidate(&place, own));
            let uids = |owners: &[PlaceOwner]| owners.iter().map(|it| it.uid.clone()).collect::<Vec<_>>();
            let is_too_small = own.is_some_and(|pod| pod.node().is_some() && !has_amounts(pod, &place.left()));
            if uids(&place.owners) != uids(&before) || is_too_small || own.is_some_and(PlacePod::is_ending) {
                place.number += 1;
            }
        }
        self.set_state(&mut place);
        place
    }

    /// Returns the place holder before the present one.
    fn former(&self, place: &ReservedPlace) -> Option<&PlacePod> {
        self.holder(place, place.number.checked_sub(1)?)
    }

    /// Sets the node of the place where that is the one of devices.
    fn follow_devices(&self, place: &mut ReservedPlace) {
        let devices = self.reservation.status.devices.iter();
        let mut of_replica = devices.filter(|it| {
            it.replica == place.replica
                && !matches!(it.state, ReservedDeviceState::Lost | ReservedDeviceState::Releasing)
                && !it.node_name.is_empty()
        });
        let Some(device) = of_replica.next() else { return };
        if device.node_name != place.node_name && place.owners.is_empty() {
            // The holder of another node goes; no pod stands in for it before the next one.
            place.number += u32::from(!place.node_name.is_empty());
            place.node_name.clone_from(&device.node_name);
            (place.state, place.message) = (State::Asking, String::new());
        }
    }

    /// Returns an owner as it is now; none if it does not take the place, or no longer.
    fn owner_now(&self, place: &ReservedPlace, owner: &PlaceOwner) -> Option<PlaceOwner> {
        let is_once = self.reservation.spec.is_once();
        if owner.bound && is_once {
            return Some(owner.clone());
        }
        let key = ObjectKey::new(&owner.namespace, &owner.name);
        let pod = self.cx.owners.get(&key).filter(|pod| pod.metadata.uid == owner.uid && !pod.is_over())?;
        let is_going = pod.metadata.deletion_timestamp.is_some();
        match pod.node() {
            Some(node) => (node == place.node_name).then(|| PlaceOwner { bound: true, ..owner.clone() }),
            None => (!is_going).then(|| owner.clone()),
        }
    }

    /// Returns the pod that is to be given the place or a part of it: only while a place holder stands there.
    fn candidate(&self, place: &ReservedPlace, own: Option<&PlacePod>) -> Option<PlaceOwner> {
        // The part of an owner that has just ended is kept for no pod until a larger place holder stands there.
        let is_whole = |pod: &PlacePod| has_amounts(pod, &place.left());
        let is_standing =
            own.is_some_and(|pod| pod.node() == Some(&place.node_name) && !pod.is_ending() && is_whole(pod));
        let is_taken = self.reservation.spec.is_once() && !place.owners.is_empty();
        if !is_standing || is_taken || place.owners.iter().any(|owner| !owner.bound) {
            return None;
        }
        let key = self.cx.candidates.get(&place.replica)?;
        let pod = self.cx.owners.get(key)?;
        let is_waiting =
            pod.node().is_none() && !pod.is_ending() && PodGates::of(&pod.spec.scheduling_gates).let_a_place();
        let owner = pod.owner();
        let requests: ResourceList = pod.spec.requests().into_iter().filter(|(_, it)| it.sign() > 0).collect();
        let is_fit =
            is_waiting && self.reservation.spec.is_owned_by(&owner.candidate(key)) && place.has_room(&requests);
        is_fit.then(|| PlaceOwner {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: owner.uid.clone(),
            requests,
            bound: false,
        })
    }

    fn set_state(&self, place: &mut ReservedPlace) {
        let own = self.holder(place, place.number).filter(|pod| !pod.is_ending());
        let node = own.and_then(PlacePod::node);
        if let Some(node) = node
            && place.owners.is_empty()
        {
            node.clone_into(&mut place.node_name);
        }
        let has_former = self.former(place).is_some_and(|pod| pod.node() == Some(&place.node_name));
        let is_waiting = place.owners.iter().any(|owner| !owner.bound);
        let is_whole = own.is_some_and(|pod| has_amounts(pod, &place.left()));
        let is_standing = node.is_some() && node == Some(&place.node_name) && is_whole;
        place.state = match (is_waiting, wants_holder(self.reservation, place), is_standing) {
            (true, ..) => State::HandingOver,
            (false, false, _) => State::HandedOver,
            (false, true, true) => State::Held,
            // The former place holder keeps the rest until the next one stands beside the owners.
            (false, true, false) if has_former && self.is_enough(place) => State::HandingOver,
            (false, true, false) if self.is_refused(place, own) => State::Refused,
            (false, true, false) => State::Asking,
        };
        let refusal = own.filter(|_| !is_standing).and_then(PlacePod::refusal).map(|(message, _)| message);
        let of_owner = || {
            let waiting = place.owners.iter().find(|owner| !owner.bound)?;
            let pod = self.cx.owners.get(&ObjectKey::new(&waiting.namespace, &waiting.name))?;
            let (message, _) = pod.refusal()?;
            Some(format!(
                "pod {}/{} is nominated for node {}: {message}",
                waiting.namespace, waiting.name, place.node_name
            ))
        };
        place.message = match place.state {
            State::Held | State::HandedOver => String::new(),
            State::HandingOver => of_owner().unwrap_or_default(),
            State::Asking | State::Refused => refusal.map(str::to_owned).unwrap_or_default(),
        };
        let longest = ALL_MESSAGES / self.reservation.spec.replicas().max(1) as usize;
        place.message = place.message.chars().take(longest.min(LONGEST_MESSAGE)).collect();
        // A place without devices can be on any node.
        let is_anywhere = place.owners.is_empty() && !has_former && !self.reservation.spec.asks_for_devices();
        if place.state == State::Asking && is_anywhere {
            place.node_name.clear();
        }
    }

    /// True if the former place holder sets aside all that no owner has.
    fn is_enough(&self, place: &ReservedPlace) -> bool {
        self.former(place).is_some_and(|pod| has_amounts(pod, &place.left()))
    }

    /// True if the node of the devices has no room: the scheduler has said so for a while.
    fn is_refused(&self, place: &ReservedPlace, own: Option<&PlacePod>) -> bool {
        self.reservation.spec.asks_for_devices()
            && own.is_some_and(|pod| pod.node().is_none())
            && self.refused_for(own).is_some_and(|time| time >= REFUSED_AFTER && time < ASK_AGAIN)
            && !place.node_name.is_empty()
    }

    fn refused_for(&self, own: Option<&PlacePod>) -> Option<Duration> {
        let since = own.and_then(PlacePod::refusal).and_then(|(_, since)| since_1970(since))?;
        Some(self.cx.now.saturating_sub(since))
    }

    fn holder(&self, place: &ReservedPlace, number: u32) -> Option<&PlacePod> {
        self.cx.holder(self.reservation, place, number)
    }

    /// Returns the next write for a place whose status says what is to be done.
    fn step(&self, place: &ReservedPlace) -> PlaceStep {
        if self.reservation.spec.asks_for_devices() && place.node_name.is_empty() {
            // Devices come first: they are on few nodes.
            return PlaceStep::Rest;
        }
        let own = self.holder(place, place.number);
        let former = self.former(place);
        let is_wanted = wants_holder(self.reservation, place);
        match own {
            // An owner went before it had its part, or the scheduler may have a node for it that was left out.
            Some(pod)
                if !is_wanted
                    || former.is_some() && !is_of_size(pod, &place.left())
                    || former.is_none() && self.leaves_out_too_much(pod) =>
            {
                return delete(pod).map_or(PlaceStep::Rest, |write| PlaceStep::Write(vec![write]));
            }
            None if is_wanted => {
                let left_out: BTreeSet<String> = match place.node_name.is_empty() {
                    true => self.cx.handing_over.nodes.clone(),
                    false => BTreeSet::new(),
                };
                let pod = Box::new(holder(self.reservation, place, &left_out, &self.cx.image));
                let name = holder_name(self.reservation, place.replica, place.number);
                return PlaceStep::Write(vec![PlacesWrite::Create { replica: place.replica, name, left_out, pod }]);
            }
            _ => {}
        }
        let mut chain = self.nominations(place, own, former);
        let leaving = former.filter(|pod| pod.metadata.deletion_timestamp.is_none());
        chain.extend(leaving.map(|pod| self.hand_over(place, pod)));
        if !chain.is_empty() {
            return PlaceStep::Write(chain);
        }
        // The state of the place depends on the time.
        match self.refused_for(own).filter(|_| !place.is_kept()) {
            Some(time) if time < REFUSED_AFTER => PlaceStep::Wait(REFUSED_AFTER - time),
            Some(time) if time < ASK_AGAIN => PlaceStep::Wait(ASK_AGAIN - time),
            _ => PlaceStep::Rest,
        }
    }

    /// True if the scheduler refused a place holder that leaves out nodes on which nothing is handed over any more.
    fn leaves_out_too_much(&self, pod: &PlacePod) -> bool {
        let is_refused = pod.node().is_none() && pod.refusal().is_some();
        is_refused && pod.left_out().iter().any(|node| !self.cx.handing_over.nodes.contains(node))
    }

    /// Returns the deletion of the former place holder.
    fn hand_over(&self, place: &ReservedPlace, former: &PlacePod) -> PlacesWrite {
        if former.node() != Some(&place.node_name) {
            return PlacesWrite::Delete(former.metadata.name.clone(), former.version());
        }
        PlacesWrite::HandOver {
            replica: place.replica,
            node: place.node_name.clone(),
            holder: former.metadata.name.clone(),
            version: former.version(),
            next: holder_name(self.reservation, place.replica, place.number),
        }
    }

    /// Returns the nominations of the pods that are to come into the place: of owners always, of a place holder where
    /// it takes over from another.
    fn nominations(
        &self,
        place: &ReservedPlace,
        own: Option<&PlacePod>,
        former: Option<&PlacePod>,
    ) -> Vec<PlacesWrite> {
        let node = &place.node_name;
        let owners = place.owners.iter().filter(|owner| !owner.bound);
        let owners = owners.filter_map(|owner| self.cx.owners.get(&ObjectKey::new(&owner.namespace, &owner.name)));
        let takes_over = former.is_some_and(|pod| pod.node() == Some(&place.node_name));
        let own = own.filter(|_| takes_over || !place.owners.is_empty());
        let pods = owners.chain(own).filter(|pod| pod.node().is_none() && !pod.is_ending());
        let pods = pods.filter(|pod| !node.is_empty() && pod.status.nominated_node_name != *node);
        pods.map(|pod| PlacesWrite::Nominate(pod.key(), pod.version(), node.clone())).collect()
    }
}

/// True if a place holder sets aside these amounts, or more: a runtime may add some.
fn has_amounts(pod: &PlacePod, amounts: &ResourceList) -> bool {
    let has = pod.spec.requests();
    let is_in = |(name, left): (&String, &ExactQuantity)| has.get(name).is_some_and(|it| it.minus(*left).sign() >= 0);
    amounts.iter().all(is_in)
}

/// True if a place holder was made for these amounts. The API server adds the overhead of a runtime class.
fn is_of_size(pod: &PlacePod, amounts: &ResourceList) -> bool {
    let mut spec = pod.spec.clone();
    spec.overhead.clear();
    let mut own = spec.requests();
    own.retain(|_, amount| amount.sign() > 0);
    own == *amounts
}

/// True if a place holder is to stand in the place: there are parts that no owner has. A place that goes to one owner
/// goes to it whole, and so do ports.
fn wants_holder(reservation: &ReservationObject, place: &ReservedPlace) -> bool {
    let is_free = place.owners.is_empty();
    is_free || !reservation.spec.is_once() && !place.left().is_empty()
}
