//! Kinds that are watched for claims of classic DRA, and where they are.

use hostler_api::{
    classic::{CLAIM_PARAMETERS_KIND, CLASS_PARAMETERS_KIND, ClassicVersion},
    hardware,
    resource::GROUP,
};
use hostler_cluster::Collection;

use crate::observed::ObservedKind;

/// A kind that is watched.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum ClassicKind {
    Node,
    /// NodeHardware.
    Source,
    /// ResourceClass, or DeviceClass in 1.31.
    Class,
    ClaimParameters,
    ClassParameters,
    /// ResourceClaimParameters of 1.30.
    GeneratedClaimParameters,
    /// ResourceClassParameters of 1.30.
    GeneratedClassParameters,
    Claim,
    /// PodSchedulingContext, or PodScheduling in 1.26.
    Context,
}

impl ClassicKind {
    /// Returns the kinds that a version has.
    pub(super) fn of(version: ClassicVersion) -> &'static [Self] {
        use ClassicKind::{
            Claim, ClaimParameters, Class, ClassParameters, Context, GeneratedClaimParameters,
            GeneratedClassParameters, Node, Source,
        };
        match version {
            ClassicVersion::V1Alpha1 => &[Node, Source, Class, ClaimParameters, ClassParameters, Claim, Context],
            ClassicVersion::V1Alpha2 => &[
                Node,
                Source,
                Class,
                ClaimParameters,
                ClassParameters,
                GeneratedClaimParameters,
                GeneratedClassParameters,
                Claim,
                Context,
            ],
            ClassicVersion::V1Alpha3 => &[Node, Source, Class, Claim, Context],
        }
    }

    /// Returns the kind as the shared watches name it, if they have it.
    pub(super) fn observed(self) -> Option<ObservedKind> {
        match self {
            Self::Node => Some(ObservedKind::Node),
            Self::Source => Some(ObservedKind::NodeHardware),
            _ => None,
        }
    }

    /// Returns true if allocation works on a server without the kind. 1.30's own parameters came late, and hostler's
    /// kinds of parameters are needed only by claims and classes that name them.
    pub(super) fn is_optional(self) -> bool {
        matches!(
            self,
            Self::ClaimParameters
                | Self::ClassParameters
                | Self::GeneratedClaimParameters
                | Self::GeneratedClassParameters
        )
    }

    /// Returns the `kind` of the objects.
    pub(super) fn name(self, version: ClassicVersion) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Source => hardware::NODE_HARDWARE_KIND,
            Self::Class => version.class_kind(),
            Self::ClaimParameters => CLAIM_PARAMETERS_KIND,
            Self::ClassParameters => CLASS_PARAMETERS_KIND,
            Self::GeneratedClaimParameters => "ResourceClaimParameters",
            Self::GeneratedClassParameters => "ResourceClassParameters",
            Self::Claim => "ResourceClaim",
            Self::Context => version.scheduling_kind(),
        }
    }

    /// Returns the plural of the kind in paths.
    pub(super) fn plural(self, version: ClassicVersion) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Source => hardware::NODE_HARDWARE,
            Self::Class if version == ClassicVersion::V1Alpha3 => "deviceclasses",
            Self::Class => "resourceclasses",
            Self::ClaimParameters => "claimparameters",
            Self::ClassParameters => "classparameters",
            Self::GeneratedClaimParameters => "resourceclaimparameters",
            Self::GeneratedClassParameters => "resourceclassparameters",
            Self::Claim => "resourceclaims",
            Self::Context => version.scheduling_resource(),
        }
    }

    /// Returns the collection of all objects of the kind.
    pub(super) fn collection(self, version: ClassicVersion) -> Collection {
        let (kind, plural) = (self.name(version), self.plural(version));
        match self {
            Self::Node => Collection::core(kind, plural),
            Self::Source | Self::ClaimParameters | Self::ClassParameters => {
                Collection::custom(hardware::GROUP, hardware::VERSION, kind, plural)
            }
            _ => Collection::custom(GROUP, version.as_str(), kind, plural),
        }
    }
}
