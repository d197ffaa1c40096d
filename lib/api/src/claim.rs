//! References to claims, and the devices that a claim was given.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ClaimUid, Grant, resource::ResourceClaimConsumerReference};

/// Reference to a claim, as the kubelet and people name it.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ClaimRef {
    /// Namespace.
    pub namespace: String,
    /// Name in the namespace; may come back later with another UID.
    pub name: String,
    /// Identity.
    pub uid: ClaimUid,
}

impl ClaimRef {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}/{})", self.uid, self.namespace, self.name)
    }
}

/// Devices that the scheduler, or an operator, gave to a claim from one driver.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Allocation {
    /// The results, in the order of the claim's status.
    pub grants: Vec<Grant>,
    /// Name of the claim in the pod, where the claim was made from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim_name: Option<String>,
    /// Consumers that could use the claim when it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<ResourceClaimConsumerReference>,
}

/// Progress of a claim that a node has on record.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimState {
    /// Ready.
    Prepared,
    /// On the way, or stuck on the way.
    Preparing,
    /// The record of the claim cannot be understood.
    Quarantined,
}

impl ClaimState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Prepared, Self::Preparing, Self::Quarantined];

    /// Returns the state as one word, as in figures and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Preparing => "preparing",
            Self::Quarantined => "quarantined",
        }
    }
}

impl fmt::Display for ClaimState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
