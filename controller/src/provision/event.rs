//! Events that the core receives, and commands that it returns.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{ObjectKey, provisioning::ProvisioningRequestStatus, reservation::ReservationSpec};
use hostler_cluster::ObjectVersion;
use hostler_reconcile::WriteOutcome;

use super::check::{CheckAnswer, CheckBatch};
use crate::hold::WrittenReservation;

/// An event.
#[derive(Debug)]
pub(crate) enum ProvisionEvent {
    /// Time has passed, or objects have changed.
    Changed,
    /// The planner's answer.
    Checked(CheckAnswer),
    /// The outcome of a write of the request with this UID.
    Written(String, WriteResult),
    /// The outcome of a write of the Reservation with this name.
    Kept(String, WriteResult),
}

/// The version of the object after a write, or the outcome of a write that did not succeed.
pub(crate) type WriteResult = Result<ObjectVersion, WriteOutcome>;

/// A command of the core.
#[derive(Debug)]
pub(crate) enum ProvisionCommand {
    /// Writes the status of a request.
    Write(StatusWrite),
    /// Creates, shrinks or deletes a Reservation.
    Keep(ReservationWrite),
    /// Deletes a request, if it is this one in this version.
    Delete(ObjectKey, ObjectVersion),
    /// Records an Event.
    Tell(ProvisionEventNote),
    /// Asks the planner. At most one question is in flight.
    Check(CheckBatch),
    /// Asks to be woken at this time, if no event comes before.
    WakeAt(Duration),
}

/// This controller's part of a request's status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusWrite {
    /// The request.
    pub(crate) key: ObjectKey,
    /// The version that the write replaces.
    pub(crate) version: ObjectVersion,
    /// All conditions and details of this controller.
    pub(crate) status: ProvisioningRequestStatus,
}

/// A write of a Reservation that keeps devices for a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReservationWrite {
    /// Creates a Reservation. One that exists under the name is a conflict.
    Create(Box<NewReservation>),
    /// Sets the number of pods, if the Reservation is this one in this version.
    Shrink(WrittenReservation, u32),
    /// Deletes the Reservation, if it is this one in this version.
    Delete(WrittenReservation),
}

/// A Reservation to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewReservation {
    /// The name, which follows from the request.
    pub(crate) name: String,
    /// Labels, by which it is found.
    pub(crate) labels: BTreeMap<String, String>,
    /// The devices to keep, and their owners.
    pub(crate) spec: ReservationSpec,
}

impl ReservationWrite {
    /// Returns the name of the Reservation.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Create(new) => &new.name,
            Self::Shrink(of, _) | Self::Delete(of) => &of.name,
        }
    }
}

/// A message about a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ProvisionEventNote {
    /// The request.
    pub(crate) key: ObjectKey,
    /// The request's UID.
    pub(crate) uid: String,
    /// True for a warning: a user should act.
    pub(crate) is_warning: bool,
    /// The reason, in one word.
    pub(crate) reason: &'static str,
    /// The message.
    pub(crate) message: String,
}
