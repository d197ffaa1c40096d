//! The errors of calls: refusals, failures before anything was changed, and a manager that did something else.

use crate::{AttachKey, AttachRefusal, redfish::RedfishError};

/// The reason why a call gave no outcome.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The request is refused; nothing was changed.
    #[error(transparent)]
    Refused(#[from] AttachRefusal),
    /// The manager made something else than was asked for.
    #[error("{service} made {found} under key {key}, but {asked} was asked for; detach the key and report the manager")]
    Mismatch {
        /// The manager.
        service: String,
        /// The key.
        key: AttachKey,
        /// The devices and the host of the connection, or the chunk.
        found: String,
        /// The device and the host of the request, or the size.
        asked: String,
    },
    /// The manager offers no way to do it.
    #[error("{service} offers no way to {step}: {reason}")]
    Unsupported {
        /// The manager.
        service: String,
        /// The thing to do.
        step: &'static str,
        /// The manager's answer and the fix.
        reason: String,
    },
    /// The manager does not answer.
    #[error("{service} is unavailable: {reason}")]
    Unavailable {
        /// The manager.
        service: String,
        /// The reason.
        reason: String,
    },
    /// A call to a Redfish service failed.
    #[error(transparent)]
    Redfish(#[from] RedfishError),
}
