//! Requests: which host is to be given which device or chunk.

use std::fmt;

use hostler_api::fabric::{DeviceIdentity, SystemUuid};
use serde::{Deserialize, Serialize};

use crate::{AttachKey, ObjectPath};

/// A request to attach something to a host. A request that is repeated with its key is the same request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AttachRequest {
    /// The caller's key. A key is used for one request only, also after the attachment has ended.
    pub key: AttachKey,
    /// The host.
    pub host: SystemUuid,
    /// The device, or a chunk of one.
    pub target: AttachTarget,
}

/// The object that is attached.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachTarget {
    /// A device, with all chunks that no other device shows.
    Device(DeviceIdentity),
    /// One chunk of a device, by its path.
    Chunk(ObjectPath),
}

impl fmt::Display for AttachTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(identity) => write!(f, "device {identity}"),
            Self::Chunk(path) => write!(f, "chunk {path}"),
        }
    }
}
