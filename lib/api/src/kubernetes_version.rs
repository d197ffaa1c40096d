//! Releases of Kubernetes whose scheduler is known to the allocator.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A minor version of Kubernetes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum KubernetesVersion {
    /// 1.34.
    #[serde(rename = "1.34")]
    V1_34,
    /// 1.35.
    #[serde(rename = "1.35")]
    V1_35,
    /// 1.36.
    #[default]
    #[serde(rename = "1.36")]
    V1_36,
    /// 1.37.
    #[serde(rename = "1.37")]
    V1_37,
}

impl KubernetesVersion {
    /// All versions, the oldest first.
    pub const ALL: [Self; 4] = [Self::V1_34, Self::V1_35, Self::V1_36, Self::V1_37];

    /// Returns the version as people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1_34 => "1.34",
            Self::V1_35 => "1.35",
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
