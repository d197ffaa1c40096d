//! Reservations for which devices are held, by the taints that hold them.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::reservation::toleration_value;
use serde::{Deserialize, Serialize};

use super::{Lasting, owner_words};
use crate::{hold::DeviceKey, reservation_object::ReservationObject};

/// Facts about a Reservation, for people who see its devices.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct KeptReservation {
    /// Name of the Reservation.
    pub(crate) name: String,
    /// `Pending`, `Waiting`, `Available`, `Succeeded` or `Failed`.
    pub(crate) phase: String,
    /// Owners of the devices, one line for each.
    pub(crate) owners: Vec<String>,
    /// `until` a time, `for ever`, or `over`.
    pub(crate) lasts: String,
}

/// Reservations, by the taint or the attribute that holds their devices.
#[derive(Debug)]
pub(crate) struct KeptBy<'a> {
    all: &'a BTreeMap<String, Arc<ReservationObject>>,
    by_value: BTreeMap<String, &'a ReservationObject>,
}

impl<'a> KeptBy<'a> {
    /// Makes the index of all Reservations.
    pub(crate) fn new(all: &'a BTreeMap<String, Arc<ReservationObject>>) -> Self {
        let by_value = all.values().map(|it| (toleration_value(&it.uid), &**it)).collect();
        Self { all, by_value }
    }

    /// Returns the Reservation whose devices have this value in their taint.
    pub(crate) fn of_value(&self, value: &str) -> Option<&'a ReservationObject> {
        self.by_value.get(value).copied()
    }

    /// Returns the Reservation that keeps a device. Where only an attribute says that a device is held, the statuses of
    /// the Reservations tell which one keeps it.
    pub(crate) fn of_device(&self, value: &str, device: &DeviceKey) -> Option<&'a ReservationObject> {
        let is_it = |it: &hostler_api::reservation::ReservedDevice| {
            it.key() == (&*device.driver, &*device.pool, &*device.device)
        };
        let of_status = || self.all.values().find(|it| it.status.devices.iter().any(is_it)).map(|it| &**it);
        self.of_value(value).or_else(|| value.is_empty().then(of_status).flatten())
    }
}

impl From<&ReservationObject> for KeptReservation {
    fn from(reservation: &ReservationObject) -> Self {
        Self {
            name: reservation.name.clone(),
            phase: reservation.status.phase.as_str().to_owned(),
            owners: reservation.spec.owners.iter().map(owner_words).collect(),
            lasts: match reservation.status.phase.is_over() {
                true => "over".to_owned(),
                false => Lasting::of(&reservation.spec, reservation.created).to_string(),
            },
        }
    }
}
