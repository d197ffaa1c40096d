//! What can happen to the core, and what it wants done.

use std::time::Duration;

use hostler_allocator::plan::ObjectKey;
use hostler_api::provisioning::ProvisioningRequestStatus;
use hostler_cluster::ObjectVersion;

use super::check::{CheckAnswer, CheckBatch};

/// Something that happened.
#[derive(Debug)]
pub(crate) enum ProvisionEvent {
    /// Time has passed, or objects are others than before.
    Changed,
    /// A check has its answer.
    Checked(CheckAnswer),
    /// What came of the write of the request with this UID.
    Written(String, StatusOutcome),
}

/// What came of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum StatusOutcome {
    /// It is written, and this is the object's version now.
    Done(ObjectVersion),
    /// Somebody else has written before.
    Conflict,
    /// The request is gone.
    Gone,
    /// It is not known whether it is written, or the server does not want it so.
    Failed,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum ProvisionCommand {
    /// Write the status of a request.
    Write(StatusWrite),
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
