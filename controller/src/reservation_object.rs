//! Reservations, as the API server has them.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{
    ObjectKey,
    reservation::{PLACED_POD_LABEL, ReservationMode, ReservationSpec, ReservationStatus},
};

/// A Reservation as the API server has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReservationObject {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The resourceVersion of the Reservation.
    pub(crate) version: String,
    pub(crate) generation: i64,
    /// Time of the Reservation's creation, since 1970.
    pub(crate) created: Duration,
    pub(crate) is_deleting: bool,
    pub(crate) finalizers: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: ReservationSpec,
    pub(crate) status: ReservationStatus,
}

impl ReservationObject {
    /// The namespace of the Reservation's pods.
    pub(crate) fn namespace(&self) -> String {
        ObjectKey::new(self.spec.template["metadata"]["namespace"].as_str().unwrap_or_default(), "").namespace
    }

    /// True if claims are made only when the pods come. Claims of a gated pod, and claims that pods name, exist before.
    pub(crate) fn is_counted_by_quotas(&self) -> bool {
        self.spec.mode() == ReservationMode::Fence && !self.labels.contains_key(PLACED_POD_LABEL)
    }
}
