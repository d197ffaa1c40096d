//! Versions of the group, and the fields that differ between them.

/// The API group of dynamic resource allocation.
pub const GROUP: &str = "resource.k8s.io";

/// The versions of `resource.k8s.io` that are spoken, the best first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ApiVersion {
    /// Kubernetes 1.34 and later.
    V1,
    /// Kubernetes 1.33; same shape as v1.
    V1Beta2,
    /// Kubernetes 1.32; device fields are wrapped in `basic`.
    V1Beta1,
}

impl ApiVersion {
    /// All versions, the best first.
    pub const ALL: [Self; 3] = [Self::V1, Self::V1Beta2, Self::V1Beta1];

    /// Returns the version as in `apiVersion`, behind the group.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta2 => "v1beta2",
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// `resource.k8s.io/<version>`.
    pub fn group_version(self) -> String {
        format!("{GROUP}/{}", self.as_str())
    }
}
