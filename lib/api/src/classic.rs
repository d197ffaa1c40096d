//! Classic DRA: the versions of `resource.k8s.io` in which a controller of the driver allocates (Kubernetes 1.26 to
//! 1.31), and hostler's own kinds that go with them.
//!
//! Types have the names of Kubernetes' own, with the version behind those that differ between versions. Only what
//! hostler uses is in them, and fields that are not known are let through. What is written is patches, so nothing of
//! them is lost.

mod generated;
mod handle;
mod metadata;
mod parameters;
mod pod;
mod request_config;
mod scheduling;
mod source;
mod v1alpha1;
mod v1alpha2;
mod v1alpha3;

pub use generated::{
    DriverRequests, NamedResourcesRequest, ResourceClaimParameters, ResourceClassParameters, ResourceFilter,
    ResourceRequestTerms, VendorParameters,
};
pub use handle::{HANDLE_KIND, HandleData, HandleError, MAX_HANDLE_BYTES};
pub use metadata::{ClassicMeta, ControllerReference};
pub use parameters::{
    CLAIM_PARAMETERS_KIND, CLASS_PARAMETERS_KIND, ClaimParameters, ClaimParametersSpec, ClassParameters,
    ClassParametersSpec, ParameterRequest, ParametersMistake, check_config, check_configs,
};
pub use pod::{ClassicPod, ClassicPodClaim, ClassicPodSpec};
pub use request_config::{REQUEST_CONFIG_KIND, RequestConfig};
pub use scheduling::{
    ClaimSchedulingStatus, PodSchedulingContext, PodSchedulingContextSpec, PodSchedulingContextStatus,
};
pub use source::{NodeHardwareJournal, NodeHardwareJournalSpec, NodeHardwareJournalStatus};
pub use v1alpha1::{AllocationResultV1Alpha1, ResourceClaimStatusV1Alpha1, ResourceClaimV1Alpha1};
pub use v1alpha2::{
    AllocationMode, AllocationResultV1Alpha2, ClassicConsumer, ClassicParametersReference, ResourceClaimSpecV1Alpha2,
    ResourceClaimStatusV1Alpha2, ResourceClaimV1Alpha2, ResourceClass, ResourceHandle,
};
pub use v1alpha3::{
    AllocationResultV1Alpha3, DeviceClassSpecV1Alpha3, DeviceClassV1Alpha3, ResourceClaimSpecV1Alpha3,
    ResourceClaimStatusV1Alpha3, ResourceClaimV1Alpha3,
};

/// Nodes in one list of a PodSchedulingContext.
pub const MAX_SCHEDULING_NODES: usize = 128;

/// A version of the API in which a controller allocates.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ClassicVersion {
    /// Kubernetes 1.26.
    V1Alpha1,
    /// Kubernetes 1.27 to 1.30.
    V1Alpha2,
    /// Kubernetes 1.31.
    V1Alpha3,
}

impl ClassicVersion {
    /// All versions, the best first.
    pub const ALL: [Self; 3] = [Self::V1Alpha3, Self::V1Alpha2, Self::V1Alpha1];

    /// Returns the version as in `apiVersion`, behind the group.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Alpha2 => "v1alpha2",
            Self::V1Alpha3 => "v1alpha3",
        }
    }

    /// `resource.k8s.io/<version>`.
    pub fn group_version(self) -> String {
        format!("{}/{}", crate::resource::GROUP, self.as_str())
    }

    /// The kind with which scheduler and drivers negotiate.
    pub fn scheduling_kind(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "PodScheduling",
            Self::V1Alpha2 | Self::V1Alpha3 => "PodSchedulingContext",
        }
    }

    /// Name of that kind in paths.
    pub fn scheduling_resource(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "podschedulings",
            Self::V1Alpha2 | Self::V1Alpha3 => "podschedulingcontexts",
        }
    }

    /// The kind of the classes that claims name.
    pub fn class_kind(self) -> &'static str {
        match self {
            Self::V1Alpha1 | Self::V1Alpha2 => "ResourceClass",
            Self::V1Alpha3 => "DeviceClass",
        }
    }
}

/// The finalizer with which a driver's controller keeps claims that it allocates.
pub fn deletion_protection(driver: &str) -> String {
    format!("{driver}/deletion-protection")
}
