//! Reasons of Events: the failures that a user can mend, and their names. Pure.

use hostler_api::{Chain, resource::AllocationError};
use hostler_backend::BackendError;
use hostler_cluster::events::EventNote;

use crate::{claims::ClaimError, kubernetes::claim_reader::ClaimReadError};

/// Why a claim failed, in one word. Rules and dashboards match on these: they do not change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum PrepareFailureReason {
    /// Another claim holds the device.
    DeviceHeld,
    /// The rest of the device is too small.
    NoCapacity,
    /// The device was unplugged, or is another node's.
    DeviceGone,
    /// The device is there and does not work.
    DeviceNotUsable,
    /// The device cannot be given in the way that is asked for.
    DeviceRefused,
    /// A step on the hardware failed.
    DeviceFailed,
    /// The configuration in the claim or in its class is wrong.
    InvalidConfig,
    /// The allocation is not one that this driver can follow.
    InvalidAllocation,
    /// Nothing was given to the claim, or nothing of this node.
    NotAllocated,
    /// The backend of the device is switched off.
    BackendDisabled,
    /// The node's disk does not take what has to be kept.
    StorageFailed,
    /// The claim's record has to be looked at by an operator.
    Quarantined,
    /// The remains of an earlier try could not be undone.
    CleanUpFailed,
}

impl PrepareFailureReason {
    /// The word.
    fn as_str(self) -> &'static str {
        match self {
            Self::DeviceHeld => "DeviceHeld",
            Self::NoCapacity => "NoCapacity",
            Self::DeviceGone => "DeviceGone",
            Self::DeviceNotUsable => "DeviceNotUsable",
            Self::DeviceRefused => "DeviceRefused",
            Self::DeviceFailed => "DeviceFailed",
            Self::InvalidConfig => "InvalidConfig",
            Self::InvalidAllocation => "InvalidAllocation",
            Self::NotAllocated => "NotAllocated",
            Self::BackendDisabled => "BackendDisabled",
            Self::StorageFailed => "StorageFailed",
            Self::Quarantined => "Quarantined",
            Self::CleanUpFailed => "CleanUpFailed",
        }
    }
}

/// Returns the Event for a failure; none for one that passes by itself, or that no user can mend.
pub fn note(error: &ClaimError) -> Option<EventNote> {
    Some(EventNote::new(reason(error)?.as_str(), Chain(error).to_string()))
}

fn reason(error: &ClaimError) -> Option<PrepareFailureReason> {
    match error {
        ClaimError::Read { source, .. } => source.downcast_ref().and_then(read_reason),
        ClaimError::NoSuchDevice { .. } | ClaimError::NotAttached { .. } => Some(PrepareFailureReason::DeviceGone),
        ClaimError::Held { .. } => Some(PrepareFailureReason::DeviceHeld),
        ClaimError::NoCapacity { .. } | ClaimError::NoCounter { .. } => Some(PrepareFailureReason::NoCapacity),
        ClaimError::Placement { .. } | ClaimError::AmbiguousCard { .. } => Some(PrepareFailureReason::DeviceRefused),
        ClaimError::UnknownCapacity { .. } | ClaimError::NothingTaken { .. } => {
            Some(PrepareFailureReason::InvalidAllocation)
        }
        ClaimError::Backend { source, .. } => Some(backend_reason(source)),
        ClaimError::NoBackend { .. } => Some(PrepareFailureReason::BackendDisabled),
        ClaimError::Store { .. } | ClaimError::Cdi { .. } | ClaimError::Metadata { .. } => {
            Some(PrepareFailureReason::StorageFailed)
        }
        ClaimError::Contested { refusal } => reason(refusal),
        ClaimError::RollBack { .. } => Some(PrepareFailureReason::CleanUpFailed),
        ClaimError::Quarantined { .. } | ClaimError::Edits { .. } => Some(PrepareFailureReason::Quarantined),
        // Two daemons may tell different things of one claim: the other one tells.
        ClaimError::NotQuarantined(_)
        | ClaimError::Gone(_)
        | ClaimError::NeededAgain(_)
        | ClaimError::UnknownPool { .. }
        | ClaimError::Recovering { .. }
        | ClaimError::Lock(_)
        | ClaimError::OrderTimedOut { .. }
        | ClaimError::OrderWithdrawn
        | ClaimError::Stopping => None,
    }
}

/// A claim that is gone has no place for an Event, and an API server that says no would say it to the Event as well.
fn read_reason(error: &ClaimReadError) -> Option<PrepareFailureReason> {
    match error {
        ClaimReadError::Allocation { source: AllocationError::Field { .. }, .. } => {
            Some(PrepareFailureReason::InvalidAllocation)
        }
        ClaimReadError::Allocation { .. } => Some(PrepareFailureReason::NotAllocated),
        _ => None,
    }
}

fn backend_reason(error: &BackendError) -> PrepareFailureReason {
    match error {
        BackendError::Config { .. } => PrepareFailureReason::InvalidConfig,
        BackendError::Refused { .. } | BackendError::Operation(_) => PrepareFailureReason::DeviceRefused,
        BackendError::NotUsable { .. } => PrepareFailureReason::DeviceNotUsable,
        BackendError::Step { .. } | BackendError::Enumerate { .. } => PrepareFailureReason::DeviceFailed,
    }
}

#[cfg(test)]
mod tests {
    use hostler_api::{ClaimRef, ClaimUid, ConfigProblem, DeviceName};

    use super::*;

    fn device() -> DeviceName {
        DeviceName::new("a").unwrap()
    }

    fn claim() -> ClaimRef {
        ClaimRef { namespace: "ml".to_owned(), name: "train".to_owned(), uid: ClaimUid::new("u1").unwrap() }
    }

    fn backend(source: BackendError) -> ClaimError {
        ClaimError::Backend { step: "plan", device: device(), source }
    }

    fn read(source: ClaimReadError) -> ClaimError {
        ClaimError::Read { claim: claim(), source: source.into() }
    }

    fn allocation(source: AllocationError) -> ClaimError {
        read(ClaimReadError::Allocation { name: "ml/train".to_owned(), source })
    }

    #[test]
    fn what_a_user_can_mend_has_a_reason_and_says_what_it_is() {
        let config = BackendError::Config { problems: vec![ConfigProblem::new("fullCores", "write true")] };
        for (error, reason, message) in [
            (ClaimError::Held { device: device(), holder: "u2 (ml/eval)".to_owned() }, "DeviceHeld", "u2 (ml/eval)"),
            (backend(config), "InvalidConfig", "failed to plan device a: configuration is not valid: "),
            (backend(BackendError::NotUsable { reason: "hot".to_owned() }), "DeviceNotUsable", "hot"),
            (ClaimError::NoSuchDevice { pool: "n/x".to_owned(), device: device() }, "DeviceGone", "n/x"),
            (allocation(AllocationError::NotAllocated), "NotAllocated", "nothing has been given"),
            (allocation(AllocationError::field("a.b", "no")), "InvalidAllocation", "field a.b: no"),
        ] {
            let note = note(&error).unwrap();
            assert_eq!(note.reason, reason);
            assert!(note.message.contains(message), "{}", note.message);
        }
    }

    #[test]
    fn what_passes_by_itself_is_not_told() {
        let gone = ClaimReadError::Missing { name: "ml/train".to_owned() };
        let away = ClaimReadError::Unavailable(hostler_cluster::ApiFailure::NoResourceApi);
        for error in [ClaimError::Stopping, ClaimError::Gone(claim()), read(gone), read(away)] {
            assert_eq!(note(&error), None, "{error:?}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let error = ClaimError::Held { device: device(), holder: "é".repeat(2000) };
        let message = note(&error).unwrap().message;
        let fits = (1000..=hostler_api::limits::MAX_EVENT_MESSAGE_BYTES).contains(&message.len());
        assert!(fits && message.ends_with('…'), "{}", message.len());
    }
}
