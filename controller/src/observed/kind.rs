//! The kinds of objects that are watched.

use hostler_api::{
    fabric, hardware, provisioning, reservation,
    resource::{ApiVersion, GROUP},
};
use hostler_cluster::Collection;

/// A kind of objects that is watched.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum ObservedKind {
    /// Nodes.
    Node,
    /// ResourceSlices, of all drivers.
    ResourceSlice,
    /// DeviceClasses.
    DeviceClass,
    /// ResourceClaims.
    ResourceClaim,
    /// ResourceClaimTemplates.
    ResourceClaimTemplate,
    /// DeviceTaintRules.
    DeviceTaintRule,
    /// Pods.
    Pod,
    /// Reports of hostler's daemons. Absent where the kind is not installed.
    NodeHardware,
    /// Templates of pods, for requests. Absent where they may not be read.
    PodTemplate,
    /// Quotas of namespaces, which promises are counted against. Absent where they may not be read: then none is
    /// counted.
    ResourceQuota,
    /// Namespaces, whose labels terms about pods can select. Absent where they may not be read: then such terms are not
    /// judged.
    Namespace,
    /// Requests for capacity. Absent where the kind is not installed, or may not be read.
    ProvisioningRequest,
    /// Reservations. Absent where the kind is not installed, or may not be read.
    Reservation,
    /// Reservations of Koordinator. Absent where the kind is not installed, or may not be read.
    KoordinatorReservation,
    /// Devices behind switches that nodes have. Absent where the kind is not installed, or may not be read.
    FabricAttachment,
}

/// The versions in which rules were served, the best first. They are absent where their gate is off.
const RULE_VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];

impl ObservedKind {
    /// All kinds, in the order in which they are of use to each other.
    pub(crate) const ALL: [Self; 15] = [
        Self::Node,
        Self::DeviceClass,
        Self::ResourceSlice,
        Self::ResourceClaim,
        Self::ResourceClaimTemplate,
        Self::DeviceTaintRule,
        Self::NodeHardware,
        Self::Pod,
        Self::PodTemplate,
        Self::ResourceQuota,
        Self::Namespace,
        Self::ProvisioningRequest,
        Self::Reservation,
        Self::KoordinatorReservation,
        Self::FabricAttachment,
    ];

    /// Returns the name in messages and labels: `resourceslices`.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::ResourceSlice => "resourceslices",
            Self::DeviceClass => "deviceclasses",
            Self::ResourceClaim => "resourceclaims",
            Self::ResourceClaimTemplate => "resourceclaimtemplates",
            Self::DeviceTaintRule => "devicetaintrules",
            Self::Pod => "pods",
            Self::NodeHardware => hardware::NODE_HARDWARE,
            Self::PodTemplate => "podtemplates",
            Self::ResourceQuota => "resourcequotas",
            Self::Namespace => "namespaces",
            Self::ProvisioningRequest => provisioning::PROVISIONING_REQUESTS,
            Self::Reservation => reservation::RESERVATIONS,
            Self::KoordinatorReservation => "reservations.scheduling.koordinator.sh",
            Self::FabricAttachment => fabric::FABRIC_ATTACHMENTS,
        }
    }

    /// Returns the name in objects: `ResourceSlice`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::ResourceSlice => "ResourceSlice",
            Self::DeviceClass => "DeviceClass",
            Self::ResourceClaim => "ResourceClaim",
            Self::ResourceClaimTemplate => "ResourceClaimTemplate",
            Self::DeviceTaintRule => "DeviceTaintRule",
            Self::Pod => "Pod",
            Self::NodeHardware => hardware::NODE_HARDWARE_KIND,
            Self::PodTemplate => "PodTemplate",
            Self::ResourceQuota => "ResourceQuota",
            Self::Namespace => "Namespace",
            Self::ProvisioningRequest => provisioning::PROVISIONING_REQUEST_KIND,
            Self::Reservation | Self::KoordinatorReservation => reservation::RESERVATION_KIND,
            Self::FabricAttachment => fabric::FABRIC_ATTACHMENT_KIND,
        }
    }

    /// True if there is as good as none where it may not be read: its readers see less, and nothing wrong.
    pub(crate) fn is_optional(self) -> bool {
        use ObservedKind as Kind;
        matches!(
            self,
            Kind::Reservation
                | Kind::KoordinatorReservation
                | Kind::FabricAttachment
                | Kind::ProvisioningRequest
                | Kind::PodTemplate
                | Kind::ResourceQuota
                | Kind::Namespace
        )
    }

    /// Returns the collections of its objects in a cluster with this version of `resource.k8s.io`, or none of today's;
    /// the best one first.
    pub(crate) fn collections(self, version: Option<ApiVersion>) -> Vec<Collection> {
        match self {
            Self::Node | Self::Pod | Self::PodTemplate | Self::ResourceQuota | Self::Namespace => {
                vec![Collection::core(self.name(), self.plural())]
            }
            Self::DeviceTaintRule => {
                RULE_VERSIONS.map(|version| Collection::custom(GROUP, version, self.name(), self.plural())).into()
            }
            Self::NodeHardware | Self::Reservation | Self::FabricAttachment => {
                vec![Collection::custom(hardware::GROUP, hardware::VERSION, self.name(), self.plural())]
            }
            Self::KoordinatorReservation => {
                vec![Collection::custom(
                    reservation::KOORDINATOR_GROUP,
                    reservation::KOORDINATOR_VERSION,
                    self.name(),
                    reservation::RESERVATIONS,
                )]
            }
            Self::ProvisioningRequest => provisioning::VERSIONS
                .map(|version| Collection::custom(provisioning::GROUP, version, self.name(), self.plural()))
                .into(),
            _ => version.map(|version| Collection::resource(version, self.name(), self.plural())).into_iter().collect(),
        }
    }
}
