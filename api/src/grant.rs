//! What a claim was given: identifiers and grants, as they stand in claim records.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{DeviceName, QualifiedName, Quantity};

/// The UID of a claim. It becomes part of file and CDI names, so its characters are restricted.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClaimUid(String);

/// Why a text cannot be a claim UID.
#[derive(Debug, thiserror::Error)]
#[error("claim uid {0:?} is not valid: 1 to 63 characters of a-z, A-Z, 0-9 and '-', beginning with a letter or digit")]
pub struct ClaimUidError(String);

impl ClaimUid {
    /// Checks `value` and wraps it.
    ///
    /// # Errors
    /// When it is empty, too long, or holds characters that have no place in a file name.
    pub fn new(value: impl Into<String>) -> Result<Self, ClaimUidError> {
        let value = value.into();
        let ok = (1..=63).contains(&value.len())
            && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !value.starts_with('-')
            && !value.ends_with('-');
        if ok { Ok(Self(value)) } else { Err(ClaimUidError(value)) }
    }

    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClaimUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ClaimUid {
    type Error = ClaimUidError;

    fn try_from(value: String) -> Result<Self, ClaimUidError> {
        Self::new(value)
    }
}

impl From<ClaimUid> for String {
    fn from(uid: ClaimUid) -> String {
        uid.0
    }
}

/// Tells apart the shares that one claim holds of one shared device.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ShareId(pub String);

/// Whether a grant takes the device or only looks after it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Access {
    /// The grant uses the device, or its part of it.
    #[default]
    Use,
    /// Administrative access: others may hold the device, nothing is reserved and nothing may be reset.
    Admin,
}

/// One device, or a part of one, given to a claim.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// Name of the request in the claim, `request` or `request/subrequest`.
    pub request: String,
    /// Name of the pool.
    pub pool: String,
    /// Name of the device in the pool.
    pub device: DeviceName,
    /// Which share of the device, where it is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<ShareId>,
    /// Use or administration.
    #[serde(default)]
    pub access: Access,
    /// The parts of the device's capacities that the grant takes. A capacity that is absent is taken whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed: BTreeMap<QualifiedName, Quantity>,
    /// Opaque configuration for this request, classes before claims; the last one wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<serde_json::Value>,
}

impl Grant {
    /// The top-level request: what the kubelet knows.
    pub fn top_level_request(&self) -> &str {
        self.request.split_once('/').map_or(&*self.request, |(request, _)| request)
    }
}
