//! What a pod says of Reservations itself: in its annotation `hostler.dev/reservation-affinity`, as JSON, and in its label
//! `hostler.dev/reservation-ignored`.

use std::collections::BTreeMap;

use hostler_api::{
    core::Toleration,
    reservation::{RESERVATION_AFFINITY, RESERVATION_IGNORED},
};
use serde::Deserialize;

use crate::hold::{OwnerPod, ReservationObject};

/// To which Reservations a pod wants to be led.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ReservationAffinity {
    /// To this one, and no other.
    pub(super) name: Option<String>,
    /// To those with these labels.
    pub(super) reservation_selector: BTreeMap<String, String>,
    /// Taints of Reservations that it bears.
    pub(super) tolerations: Vec<Toleration>,
}

/// Why nobody knows where a pod wants to be led.
#[derive(Debug, thiserror::Error)]
#[error(
    "the pod's annotation {RESERVATION_AFFINITY} cannot be understood, so that it is led to no Reservation: {0}; write \
     {{\"name\": …}}, {{\"reservationSelector\": {{label: value}}}} or {{\"tolerations\": […]}}"
)]
pub(super) struct AffinityError(serde_json::Error);

impl ReservationAffinity {
    /// What a pod says; nothing where it says nothing.
    pub(super) fn of(pod: &OwnerPod) -> Result<Self, AffinityError> {
        let Some(text) = pod.annotations.get(RESERVATION_AFFINITY) else { return Ok(Self::default()) };
        serde_json::from_str(text).map_err(AffinityError)
    }

    /// Whether the pod wants to be led to this one.
    pub(super) fn wants(&self, reservation: &ReservationObject) -> bool {
        self.name.as_ref().is_none_or(|name| *name == reservation.name)
            && self.reservation_selector.iter().all(|(key, value)| reservation.labels.get(key) == Some(value))
    }
}

/// Whether a pod wants to be led nowhere.
pub(super) fn ignores_reservations(pod: &OwnerPod) -> bool {
    pod.labels.get(RESERVATION_IGNORED).is_some_and(|value| value == "true")
}
