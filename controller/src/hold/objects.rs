//! Objects of the cluster, as far as Reservations depend on them.

mod pods;

use std::{collections::BTreeMap, fmt, time::Duration};

use hostler_api::{
    ObjectKey, Quantity,
    fabric::AttachmentPhase,
    reservation::{DeviceOwner, ReservedDevice},
};

pub(crate) use self::pods::{PodBudget, PodRef, PriorityClasses};
pub(crate) use crate::owner_pod::OwnerPod;

/// Amounts of capacities, by name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Driver, pool and name of a device.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct DeviceKey {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
}

/// The time by two clocks: one never jumps, the other one is compared with times in objects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldTime {
    /// Time since a moment before the core began.
    pub(crate) elapsed: Duration,
    /// Time since 1970 by this machine.
    pub(crate) wall: Duration,
}

/// A ResourceSlice.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PublishedSlice {
    /// Name of the slice.
    pub(crate) name: String,
    /// The slice's resourceVersion.
    pub(crate) version: String,
    pub(crate) driver: String,
    pub(crate) pool: String,
    /// Node of the devices; empty where they are not one node's.
    pub(crate) node: String,
    pub(crate) devices: Vec<PublishedDevice>,
}

/// A device of a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PublishedDevice {
    pub(crate) name: String,
    /// Value of the device's taint `hostler.dev/held`, as the driver publishes it.
    pub(crate) held_for: Option<String>,
    /// True if the device's attribute `hostler.dev/held` says that it is held, where taints are not served. Only the
    /// fences of its node tell the value.
    pub(crate) is_held: bool,
    /// True if the device works and is in service: no other taint keeps claims away.
    pub(crate) is_usable: bool,
    /// True if several claims can have parts of the device at once.
    pub(crate) is_shareable: bool,
    /// Capacities of a shared device.
    pub(crate) capacity: Amounts,
    /// True if the device consumes counters that other devices consume as well.
    pub(crate) is_partition: bool,
    /// True if a pod that was given the device is bound only after conditions become true.
    pub(crate) has_binding_conditions: bool,
}

/// The devices of a node that are closed, as its NodeHardware says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeFences {
    /// Name of the object, and of the node.
    pub(crate) node: String,
    /// The resourceVersion.
    pub(crate) version: String,
    /// All of `spec.holds`.
    pub(crate) fences: Vec<Fence>,
}

/// A device of a node that is closed to all claims that do not tolerate the value.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fence {
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) value: String,
}

/// A DeviceTaintRule that closes one device of a driver that is not ours.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FenceRule {
    /// `hold-` and 16 hexadecimal digits, which follow from the device: two writers cannot both make the rule.
    pub(crate) name: String,
    pub(crate) device: DeviceKey,
    pub(crate) value: String,
}

/// A FabricAttachment, as far as Reservations depend on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KnownAttachment {
    /// Name of the device, and of the object.
    pub(crate) name: String,
    /// The resourceVersion.
    pub(crate) version: String,
    pub(crate) pool: String,
    pub(crate) node: String,
    /// UID of the Reservation that the device is attached for.
    pub(crate) keeper: Option<String>,
    /// True if the node is to let go of the device.
    pub(crate) is_released: bool,
    pub(crate) phase: AttachmentPhase,
    pub(crate) message: String,
    /// Time before which the device is not attached again, since 1970.
    pub(crate) retry_at: Option<Duration>,
}

/// A claim, and the devices that it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AllocatedClaim {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    /// The resourceVersion.
    pub(crate) version: String,
    /// Devices of the claim, without those that it only looks after (adminAccess).
    pub(crate) devices: Vec<DeviceKey>,
    /// Devices of the claim that are parts of shared devices.
    pub(crate) parts: Vec<ClaimPart>,
    /// Pods of the claim, with name and UID: the pod whose template made it, and its consumers that are pods.
    pub(crate) pods: Vec<PodRef>,
    /// Values of the taint `hostler.dev/held` that requests of the claim tolerate by name.
    pub(crate) tolerates: Vec<String>,
    /// Set if the claim stands for a part that a Reservation keeps.
    pub(crate) placeholder: Option<PlaceholderMark>,
}

/// A part of a device that a claim has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClaimPart {
    pub(crate) device: DeviceKey,
    pub(crate) share_id: String,
    pub(crate) amounts: Amounts,
}

/// The mark of a claim that stands for a part of a device. Such claims are in the namespace of the controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlaceholderMark {
    pub(crate) reservation_uid: String,
    pub(crate) finalizers: Vec<String>,
    pub(crate) is_deleting: bool,
}

impl DeviceKey {
    pub(crate) fn new(driver: &str, pool: &str, device: &str) -> Self {
        Self { driver: driver.to_owned(), pool: pool.to_owned(), device: device.to_owned() }
    }
}

/// The device that a Reservation keeps.
pub(super) fn device_key(device: &ReservedDevice) -> DeviceKey {
    DeviceKey::new(&device.driver, &device.pool, &device.device)
}

/// A claim as the owner of a device, for the pod with this name.
pub(super) fn owner_of(claim: &AllocatedClaim, pod: &str) -> DeviceOwner {
    DeviceOwner {
        namespace: claim.key.namespace.clone(),
        pod: pod.to_owned(),
        claim: claim.key.name.clone(),
        uid: claim.uid.clone(),
    }
}

/// A claim as the owner of a device, for the first of its pods.
pub(super) fn owner_of_first_pod(claim: &AllocatedClaim) -> DeviceOwner {
    owner_of(claim, claim.pods.first().map_or("", |pod| &pod.name))
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}
