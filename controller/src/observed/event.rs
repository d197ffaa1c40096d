//! Events of the model.

use hostler_api::{
    ObjectKey,
    core::{Namespace, Node, Pod, ResourceQuota},
    fabric::FabricAttachment,
    hardware::NodeHardware,
    provisioning::PodTemplate,
    resource::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice},
};
use hostler_reconcile::ObjectStamp;

use super::ObservedKind;
use crate::{requests::SeenRequest, reservation_object::ReservationObject};

/// Something that was seen of the cluster.
#[derive(Debug)]
pub(crate) enum ClusterEvent {
    /// A list of a kind begins: what is not in it is gone. One that was under way is void.
    ListStarted(ObservedKind),
    /// An object is in the list, or is new, or another one than before.
    Seen(SeenObject),
    /// An object is gone.
    Gone(ObservedKind, ObjectKey, ObjectStamp),
    /// The list is complete.
    ListEnded(ObservedKind),
    /// There is nothing else to tell of a kind.
    UpToDate(ObservedKind),
    /// Time has passed: reports that were silent for long lose their worth.
    TimePassed,
    /// Nothing is heard of a kind any more, and why.
    Interrupted(ObservedKind, String),
    /// The server has no such kind.
    NotServed(ObservedKind),
}

/// An object in one of its versions.
#[derive(Debug)]
pub(crate) struct SeenObject {
    /// Kind of the object.
    pub(crate) kind: ObservedKind,
    /// Name of the object; without a namespace where its kind has none.
    pub(crate) key: ObjectKey,
    /// Version of the object.
    pub(crate) stamp: ObjectStamp,
    /// Content of the object, or why it cannot be understood.
    pub(crate) content: Result<ObservedObject, String>,
}

/// Content of an object.
#[derive(Debug)]
pub(crate) enum ObservedObject {
    /// A node.
    Node(Box<Node>),
    /// A slice.
    ResourceSlice(Box<ResourceSlice>),
    /// A class.
    DeviceClass(Box<DeviceClass>),
    /// A claim.
    ResourceClaim(Box<ResourceClaim>),
    /// A template of claims.
    ResourceClaimTemplate(Box<ResourceClaimTemplate>),
    /// A rule that taints devices.
    DeviceTaintRule(Box<DeviceTaintRule>),
    /// A pod.
    Pod(Box<Pod>),
    /// A report of a node's daemon.
    NodeHardware(Box<NodeHardware>),
    /// A template of pods.
    PodTemplate(Box<PodTemplate>),
    /// A quota.
    ResourceQuota(Box<ResourceQuota>),
    /// A namespace.
    Namespace(Box<Namespace>),
    /// A request for capacity.
    ProvisioningRequest(Box<SeenRequest>),
    /// A Reservation.
    Reservation(Box<ReservationObject>),
    /// A Reservation of Koordinator. It is read where it is served.
    KoordinatorReservation,
    /// A device behind a switch that a node has.
    FabricAttachment(Box<FabricAttachment>),
}
