//! A pod's preferences about Reservations: its annotation `hostler.dev/reservation-affinity`, as JSON, and its label
//! `hostler.dev/reservation-ignored`.

use std::collections::BTreeMap;

use hostler_api::{
    core::Toleration,
    reservation::{RESERVATION_AFFINITY, RESERVATION_IGNORED},
};
use serde::Deserialize;

use crate::{owner_pod::OwnerPod, reservation_object::ReservationObject};

/// Reservations whose devices a pod wants.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct ReservationAffinity {
    /// The name of the only Reservation that is wanted.
    pub(crate) name: Option<String>,
    /// Labels that the Reservation must have.
    pub(crate) reservation_selector: BTreeMap<String, String>,
    /// Taints of Reservations that the pod tolerates.
    pub(crate) tolerations: Vec<Toleration>,
}

/// A pod's annotation that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error(
    "the pod's annotation {RESERVATION_AFFINITY} cannot be understood, so that it is led to no Reservation: {0}; write \
     {{\"name\": …}}, {{\"reservationSelector\": {{label: value}}}} or {{\"tolerations\": […]}}"
)]
pub(crate) struct AffinityError(serde_json::Error);

impl ReservationAffinity {
    /// Reads the affinity of a pod; a pod without the annotation has no preferences.
    pub(crate) fn of(pod: &OwnerPod) -> Result<Self, AffinityError> {
        let Some(text) = pod.annotations.get(RESERVATION_AFFINITY) else { return Ok(Self::default()) };
        serde_json::from_str(text).map_err(AffinityError)
    }

    /// True if the pod wants devices of the Reservation.
    pub(crate) fn wants(&self, reservation: &ReservationObject) -> bool {
        self.name.as_ref().is_none_or(|name| *name == reservation.name)
            && self.reservation_selector.iter().all(|(key, value)| reservation.labels.get(key) == Some(value))
    }
}

/// True if a pod wants devices of no Reservation.
pub(crate) fn ignores_reservations(pod: &OwnerPod) -> bool {
    pod.labels.get(RESERVATION_IGNORED).is_some_and(|value| value == "true")
}
