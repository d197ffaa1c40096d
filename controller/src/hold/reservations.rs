//! All Reservations, with an index from objects of the cluster to the Reservations that depend on them.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    ObjectKey,
    reservation::{ReservedDevice, toleration_value},
};
use hostler_cluster::is_older;

use super::{objects::DeviceKey, placeholder::placeholder_name, published::PoolName, reservation::Reservation};
use crate::reservation_object::ReservationObject;

/// An object that a Reservation depends on.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Related {
    /// The pool of one of the Reservation's devices.
    Pool(PoolName),
    /// The node of one of the Reservation's devices or places.
    Node(String),
    /// A pod that the Reservation evicts, or that has devices of it.
    Pod(ObjectKey),
    /// The claim with this name, which stands for one of the Reservation's parts.
    Placeholder(String),
}

/// The Reservations, by name.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    all: BTreeMap<String, Reservation>,
    /// Names by toleration value.
    names: BTreeMap<String, String>,
    related: BTreeMap<Related, BTreeSet<String>>,
    /// UIDs of Reservations that cannot be understood, by toleration value.
    unreadable: BTreeMap<String, String>,
}

/// A change of one Reservation.
#[derive(Debug, Default)]
pub(super) struct ReservationChange {
    /// Devices that the Reservation had or has.
    pub(super) devices: Vec<ReservedDevice>,
    /// Devices that the Reservation no longer has.
    pub(super) dropped: Vec<ReservedDevice>,
    /// True if the Reservation was not known.
    pub(super) is_new: bool,
}

impl Reservations {
    pub(super) fn get(&self, name: &str) -> Option<&Reservation> {
        self.all.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Reservation> {
        self.all.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Reservation> {
        self.all.values()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.all.keys().cloned().collect()
    }

    /// The Reservation that closes devices with this value.
    pub(super) fn with_value(&self, value: &str) -> Option<&Reservation> {
        self.names.get(value).and_then(|name| self.all.get(name))
    }

    /// The Reservations that depend on an object.
    pub(super) fn related_to<'a>(&'a self, related: &Related) -> impl Iterator<Item = &'a Reservation> + use<'a> {
        self.related.get(related).into_iter().flatten().filter_map(|name| self.all.get(name))
    }

    /// The Reservations that have devices of the pool of this device.
    pub(super) fn with_pool_of<'a>(&'a self, device: &DeviceKey) -> impl Iterator<Item = &'a Reservation> + use<'a> {
        self.related_to(&Related::Pool((device.driver.clone(), device.pool.clone())))
    }

    /// Takes a Reservation; returns the change where it is news. The caller has dropped one with another UID before.
    pub(super) fn insert(&mut self, object: ReservationObject) -> Option<ReservationChange> {
        let mut change = ReservationChange { devices: object.status.devices.clone(), ..ReservationChange::default() };
        let name = object.name.clone();
        match self.all.remove(&name) {
            Some(known) if is_older(&object.version, &known.object.version) => {
                self.all.insert(name, known);
                return None;
            }
            Some(mut known) => {
                self.relate(&known.object, false);
                let stays = |part: &ReservedDevice| object.status.devices.iter().any(|it| it.share_id == part.share_id);
                let before = &known.object.status.devices;
                change.dropped = before.iter().filter(|part| !stays(part)).cloned().collect();
                change.devices.extend(before.iter().cloned());
                self.relate(&object, true);
                known.update(object);
                self.all.insert(name, known);
            }
            None => {
                change.is_new = true;
                self.relate(&object, true);
                let reservation = Reservation::new(object);
                self.names.insert(reservation.value.clone(), name.clone());
                self.all.insert(name, reservation);
            }
        }
        Some(change)
    }

    /// Takes the deletion of the Reservation with this name and UID; returns it if it was known.
    pub(super) fn remove(&mut self, name: &str, uid: &str) -> Option<Reservation> {
        if self.all.get(name).is_none_or(|known| known.object.uid != uid) {
            return None;
        }
        let gone = self.all.remove(name)?;
        self.names.remove(&gone.value);
        self.relate(&gone.object, false);
        Some(gone)
    }

    fn relate(&mut self, object: &ReservationObject, is_there: bool) {
        for related in related(object) {
            let names = self.related.entry(related.clone()).or_default();
            if is_there {
                names.insert(object.name.clone())
            } else {
                names.remove(&object.name)
            };
            if names.is_empty() {
                self.related.remove(&related);
            }
        }
    }

    /// Takes a Reservation that cannot be understood: one of a newer release, or with numbers that do not fit. All
    /// devices that are closed with its value, and the claims that stand for its parts, stay as they are.
    pub(super) fn insert_unreadable(&mut self, uid: String) {
        self.unreadable.insert(toleration_value(&uid), uid);
    }

    /// The Reservation with this UID can be understood now, or is gone; returns its value if it could not be understood
    /// before.
    pub(super) fn remove_unreadable(&mut self, uid: &str) -> Option<String> {
        let value = toleration_value(uid);
        self.unreadable.remove(&value).map(|_| value)
    }

    /// True if no Reservation that is understood may open what is closed with this value.
    pub(super) fn is_unreadable(&self, value: &str) -> bool {
        self.unreadable.contains_key(value)
    }
}

/// The objects that a Reservation depends on.
fn related(object: &ReservationObject) -> BTreeSet<Related> {
    let status = &object.status;
    let mut related = BTreeSet::new();
    for device in &status.devices {
        related.insert(Related::Pool((device.driver.clone(), device.pool.clone())));
        related.insert(Related::Node(device.node_name.clone()));
        if device.is_part() {
            related.insert(Related::Placeholder(placeholder_name(&device.share_id)));
        }
    }
    let places = status.places.iter().filter(|place| !place.node_name.is_empty());
    related.extend(places.map(|place| Related::Node(place.node_name.clone())));
    let evicted = status.evictions.iter().map(|it| ObjectKey::new(&it.namespace, &it.name));
    let owners = status.current_owners.iter().map(|it| ObjectKey::new(&it.namespace, &it.name));
    let replaced = object.spec.replaces.iter().map(|it| ObjectKey::new(&it.namespace, &it.name));
    related.extend(evicted.chain(owners).chain(replaced).map(Related::Pod));
    related
}
