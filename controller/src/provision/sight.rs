//! What the core is shown: everything that is there, at one moment.

use std::{collections::BTreeMap, sync::Arc};

use hostler_allocator::plan::ClusterFacts;

use super::objects::ProvisionObjects;
use crate::hold::ReservationObject;

/// All Reservations, by name.
pub(crate) type Reservations = BTreeMap<String, Arc<ReservationObject>>;

/// Everything that is there, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProvisionSight<'a> {
    /// Requests, and what belongs to them.
    pub(crate) objects: &'a ProvisionObjects,
    /// What is kept for whom.
    pub(crate) reservations: &'a Reservations,
    /// Templates of claims, and what claims have.
    pub(crate) facts: &'a ClusterFacts,
    /// Whether devices can be kept for requests.
    pub(crate) keeping: &'a Keeping,
}

/// Whether somebody keeps what Reservations ask for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Keeping {
    /// Nobody can say yet.
    #[default]
    Unknown,
    /// Devices are kept.
    Kept,
    /// They are not, and why.
    NotKept(String),
}
