//! What can happen to the core, and what it wants done.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{ObjectKey, provisioning::ProvisioningRequestStatus, reservation::ReservationSpec};
use hostler_cluster::ObjectVersion;

use super::{
    attach::{AttachCall, AttachFailure, AttachToken, AttachedDevice},
    check::{CheckAnswer, CheckBatch},
};
use crate::hold::WrittenReservation;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum ProvisionEvent {
    /// Time has passed, or objects are others than before.
    Changed,
    /// A check has its answer.
    Checked(CheckAnswer),
    /// What came of the write of the request with this UID.
    Written(String, WriteOutcome),
    /// What came of the write of the Reservation with this name.
    Kept(String, WriteOutcome),
    /// What is attached to nodes.
    Listed(Result<Vec<AttachedDevice>, AttachFailure>),
    /// What came of attaching or detaching.
    Called(AttachToken, Result<(), AttachFailure>),
}

/// What came of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WriteOutcome {
    /// It is written, and this is the object's version now.
    Done(ObjectVersion),
    /// Somebody else has written before.
    Conflict,
    /// The object is gone.
    Gone,
    /// It is not known whether it is written, or the server does not want it so.
    Failed,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum ProvisionCommand {
    /// Write the status of a request.
    Write(StatusWrite),
    /// Make, shrink or delete a Reservation.
    Keep(ReservationWrite),
    /// Write the finalizers of a request.
    Finalize(FinalizerWrite),
    /// Ask something of whoever attaches devices to nodes.
    Call(AttachCall),
    /// Tell people, in an Event.
    Tell(ProvisionNotice),
    /// Ask the planner. There is never more than one question under way.
    Check(CheckBatch),
    /// Come back at this time, if nothing happens before.
    WakeAt(Duration),
}

/// The status of a request, as far as it is this controller's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusWrite {
    /// The request.
    pub(crate) key: ObjectKey,
    /// The version that it goes over.
    pub(crate) version: ObjectVersion,
    /// Everything that this controller says of it.
    pub(crate) status: ProvisioningRequestStatus,
}

/// Who wants to do something before a request goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FinalizerWrite {
    /// The request.
    pub(crate) key: ObjectKey,
    /// The version that it goes over.
    pub(crate) version: ObjectVersion,
    /// All of them.
    pub(crate) finalizers: Vec<String>,
}

/// A write of a Reservation that keeps devices for a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReservationWrite {
    /// It is made. That there is one of its name is a conflict.
    Create(Box<NewReservation>),
    /// It keeps devices for so many pods from now on, if it is this one in this version.
    Shrink(WrittenReservation, u32),
    /// It goes, if it is this one in this version.
    Delete(WrittenReservation),
}

/// A Reservation that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewReservation {
    /// Its name, which follows from the request.
    pub(crate) name: String,
    /// By which it is found.
    pub(crate) labels: BTreeMap<String, String>,
    /// What it keeps, and for whom.
    pub(crate) spec: ReservationSpec,
}

impl ReservationWrite {
    /// The name of the Reservation.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Create(new) => &new.name,
            Self::Shrink(of, _) | Self::Delete(of) => &of.name,
        }
    }
}

/// A word about a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ProvisionNotice {
    /// The request.
    pub(crate) key: ObjectKey,
    /// Its identity.
    pub(crate) uid: String,
    /// Whether somebody should look at it.
    pub(crate) is_warning: bool,
    /// In one word.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
}
