//! Requests: which host is to be given which device.

use hostler_api::fabric::{DeviceIdentity, SystemUuid};
use serde::{Deserialize, Serialize};

use crate::AttachKey;

/// A request to attach a device to a host. A request that is repeated with its key is the same request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AttachRequest {
    /// The caller's key. A key is used for one request only, also after the attachment has ended.
    pub key: AttachKey,
    /// The host.
    pub host: SystemUuid,
    /// The device. It is attached with all chunks that no other device shows.
    pub device: DeviceIdentity,
    /// The size in bytes of the memory that is made for a device that has none. `None`: all that is free.
    pub memory: Option<u64>,
}
