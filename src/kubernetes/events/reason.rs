//! Which failures a user can mend, and what they are called. Pure.

use hostler_api::{Chain, limits::MAX_EVENT_MESSAGE_BYTES, resource::AllocationError};
use hostler_backend::BackendError;

use crate::{claims::ClaimError, kubernetes::claim_reader::ClaimReadError};

/// Why a claim failed, in one word. Rules and dashboards match on these: they do not change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// Another claim holds the device.
    DeviceHeld,
    /// What is left of the device is too little.
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
    /// What an earlier try left could not be undone.
    CleanUpFailed,
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
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

/// What is told of a failure.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Notice {
    /// In one word.
    pub reason: Reason,
    /// In all words.
    pub message: String,
}

/// What to tell of a failure; nothing of one that passes by itself, or that is no user's to mend.
pub fn notice(error: &ClaimError) -> Option<Notice> {
    let reason = reason(error)?;
    let mut message = Chain(error).to_string();
    if message.len() > MAX_EVENT_MESSAGE_BYTES {
        const CUT: &str = "…";
        let end = (0..=MAX_EVENT_MESSAGE_BYTES - CUT.len()).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        message.push_str(CUT);
    }
    Some(Notice { reason, message })
}

fn reason(error: &ClaimError) -> Option<Reason> {
    match error {
        ClaimError::Read { source, .. } => source.downcast_ref().and_then(read_reason),
        ClaimError::NoSuchDevice { .. } => Some(Reason::DeviceGone),
        ClaimError::Held { .. } => Some(Reason::DeviceHeld),
        ClaimError::NoCapacity { .. } | ClaimError::NoCounter { .. } => Some(Reason::NoCapacity),
        ClaimError::Placement { .. } => Some(Reason::DeviceRefused),
        ClaimError::UnknownCapacity { .. } => Some(Reason::InvalidAllocation),
        ClaimError::Backend { source, .. } => Some(backend_reason(source)),
        ClaimError::NoBackend { .. } => Some(Reason::BackendDisabled),
        ClaimError::Store { .. } | ClaimError::Cdi { .. } | ClaimError::Metadata { .. } => Some(Reason::StorageFailed),
        ClaimError::RollBack { .. } => Some(Reason::CleanUpFailed),
        ClaimError::Quarantined { .. } => Some(Reason::Quarantined),
        ClaimError::NotQuarantined(_) | ClaimError::Gone(_) | ClaimError::Stopping => None,
    }
}

/// A claim that is gone has no place for an Event, and an API server that says no would say it to the Event as well.
fn read_reason(error: &ClaimReadError) -> Option<Reason> {
    match error {
        ClaimReadError::Allocation { source: AllocationError::Field { .. }, .. } => Some(Reason::InvalidAllocation),
        ClaimReadError::Allocation { .. } => Some(Reason::NotAllocated),
        _ => None,
    }
}

fn backend_reason(error: &BackendError) -> Reason {
    match error {
        BackendError::Config { .. } => Reason::InvalidConfig,
        BackendError::Refused { .. } => Reason::DeviceRefused,
        BackendError::NotUsable { .. } => Reason::DeviceNotUsable,
        BackendError::Step { .. } | BackendError::Enumerate { .. } => Reason::DeviceFailed,
    }
}

#[cfg(test)]
mod tests {
    use hostler_api::{ClaimRef, ClaimUid, DeviceName};
    use hostler_backend::ConfigProblem;

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
            let notice = notice(&error).unwrap();
            assert_eq!(notice.reason.as_str(), reason);
            assert!(notice.message.contains(message), "{}", notice.message);
        }
    }

    #[test]
    fn what_passes_by_itself_is_not_told() {
        let gone = ClaimReadError::Missing { name: "ml/train".to_owned() };
        let away = ClaimReadError::Unavailable(crate::kubernetes::ApiFailure::NoResourceApi);
        for error in [ClaimError::Stopping, ClaimError::Gone(claim()), read(gone), read(away)] {
            assert_eq!(notice(&error), None, "{error:?}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let error = ClaimError::Held { device: device(), holder: "é".repeat(2000) };
        let message = notice(&error).unwrap().message;
        assert!(
            (1000..=MAX_EVENT_MESSAGE_BYTES).contains(&message.len()) && message.ends_with('…'),
            "{}",
            message.len()
        );
    }
}
