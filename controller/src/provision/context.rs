//! The state of the cluster that the core is given, at one moment.

use std::{collections::BTreeMap, sync::Arc};

use hostler_allocator::plan::ClusterFacts;

use crate::{requests::ProvisionObjects, reservation_object::ReservationObject};

/// All Reservations, by name.
pub(crate) type SeenReservations = BTreeMap<String, Arc<ReservationObject>>;

/// The state of the cluster, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProvisionContext<'a> {
    /// Requests, their templates and pods.
    pub(crate) objects: &'a ProvisionObjects,
    /// Reservations.
    pub(crate) reservations: &'a SeenReservations,
    /// Claim templates, and devices of claims.
    pub(crate) facts: &'a ClusterFacts,
    /// State of keeping devices for Reservations.
    pub(crate) keeping: &'a Keeping,
    /// True if the webhook is installed. Its repair gives a waiting pod that it missed a claim that tolerates the kept
    /// devices.
    pub(crate) leads_pods: bool,
}

/// State of keeping devices for Reservations.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Keeping {
    /// The state is not known yet.
    #[default]
    Unknown,
    /// Devices are kept.
    Kept,
    /// Devices are not kept, and why.
    NotKept(String),
}
