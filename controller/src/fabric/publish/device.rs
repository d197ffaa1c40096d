//! One device as it is offered: its entry in the slice, or the reason why it has none. Pure.

use std::time::Duration;

use hostler_api::{
    Quantity,
    fabric::{
        ATTACH_FAILED_CONDITION, ATTACHED_CONDITION, AttachmentPhase, DeviceIdentity, FABRIC_TAINT, MEMORY_CAPACITY,
        in_use_by,
    },
    limits::MAX_ATTRIBUTE_BYTES,
    resource::{DeviceAttribute, DeviceCapacity, DeviceTaint, SliceDevice},
    well_known::HELD_TAINT,
};
use hostler_cluster::since_1970;
use hostler_fabric::{DeviceKind, FabricConnection, FabricDevice, MemoryRoom, ObjectPath, WatchedInventory};

use crate::observed::AttachmentObject;

/// State of a device that is offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OfferState {
    /// The device is attached to no node.
    Free,
    /// The device is being attached.
    Attaching,
    /// A node has the device.
    Attached,
    /// A node has the device for a Reservation, and no claim has it yet.
    Kept,
    /// A node gives the device back.
    Releasing,
    /// The device could not be attached.
    Failed,
}

impl OfferState {
    /// The state that follows from the FabricAttachment of a device.
    pub(super) fn of(attachment: Option<&AttachmentObject>) -> Self {
        let Some(object) = attachment else { return Self::Free };
        let (spec, status) = (&object.attachment.spec, &object.attachment.status);
        match status.phase {
            AttachmentPhase::Detached => Self::Free,
            AttachmentPhase::Failed => Self::Failed,
            _ if spec.release || object.attachment.metadata.deletion_timestamp.is_some() => Self::Releasing,
            AttachmentPhase::Releasing | AttachmentPhase::Detaching => Self::Releasing,
            AttachmentPhase::Pending | AttachmentPhase::Attaching | AttachmentPhase::Attached => Self::Attaching,
            AttachmentPhase::Ready if spec.kept_for.is_some() && spec.claim.is_none() => Self::Kept,
            // What is not understood may be attached.
            AttachmentPhase::Ready | AttachmentPhase::Unknown => Self::Attached,
        }
    }

    /// Returns the state as one word: the value of the taint, and a label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Attaching => "attaching",
            Self::Attached => "attached",
            Self::Kept => "kept",
            Self::Releasing => "releasing",
            Self::Failed => "failed",
        }
    }

    /// The taints of a device in this state. One that a Reservation keeps has that taint as well: it stands between the
    /// device and all other claims once the node has the device.
    pub(super) fn taints(self, held_for: Option<&str>) -> Vec<DeviceTaint> {
        let is_open = self == Self::Free || self == Self::Kept && held_for.is_some();
        let own = (!is_open).then(|| taint(FABRIC_TAINT, self.as_str()));
        own.into_iter().chain(held_for.map(|value| taint(HELD_TAINT, value))).collect()
    }
}

fn taint(key: &str, value: &str) -> DeviceTaint {
    DeviceTaint { key: key.into(), value: Some(value.into()), effect: "NoSchedule".into(), time_added: None }
}

/// The place of a device, and what the cluster says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DevicePlace<'a> {
    pub(super) manager: &'a str,
    pub(super) domain: &'a str,
    pub(super) inventory: &'a WatchedInventory,
    pub(super) attachment: Option<&'a AttachmentObject>,
    /// Managers and domains that show a device with this identity, beside this one.
    pub(super) elsewhere: Option<&'a str>,
    /// True if a Reservation keeps the device.
    pub(super) is_kept: bool,
    /// Memory in bytes that is being made for other devices of the same memory domain.
    pub(super) promised: u64,
    /// Time since 1970.
    pub(super) now: Duration,
}

/// Returns the entry of a device without its taints.
///
/// # Errors
/// The reason why the device is not offered.
pub(super) fn entry(
    identity: DeviceIdentity,
    device: &FabricDevice,
    place: &DevicePlace<'_>,
) -> Result<SliceDevice, String> {
    obstacle(identity, device, place).map_or(Ok(()), Err)?;
    let text = |text: &str| DeviceAttribute::String(text.into());
    let kind = match device.kind {
        DeviceKind::Accelerator => "accelerator",
        // A device that shows memory and no kind is used as memory.
        DeviceKind::Memory | DeviceKind::Unknown => "memory",
    };
    let mut attributes = vec![
        ("kind", text(kind)),
        ("serial", text(&format!("{:#x}", identity.serial))),
        ("switchDomain", text(&format!("{}/{}", place.manager, place.domain))),
    ];
    if device.kind == DeviceKind::Memory {
        attributes.push(("cxlType", DeviceAttribute::Int(3)));
    }
    let enclosure = device.enclosure.as_ref().map(|path| path.name());
    attributes.extend(enclosure.filter(|name| is_attribute(name)).map(|name| ("enclosure", text(name))));
    let size = memory_bytes(device, place).map(Quantity::whole);
    let capacity = size.map(|size| (MEMORY_CAPACITY, DeviceCapacity { value: size.into(), request_policy: None }));
    Ok(SliceDevice {
        name: identity.device_name().into(),
        attributes: attributes.into_iter().collect(),
        capacity: capacity.into_iter().collect(),
        binds_to_node: true,
        binding_conditions: vec![ATTACHED_CONDITION.to_owned()],
        binding_failure_conditions: vec![ATTACH_FAILED_CONDITION.to_owned()],
        ..SliceDevice::default()
    })
}

/// The memory of a device in bytes, or the most that can be made for it; `None`: there is none, or its size is not told.
fn memory_bytes(device: &FabricDevice, place: &DevicePlace<'_>) -> Option<u64> {
    match &device.room {
        // What is said of a device as a whole may be older than its memory.
        None if device.memory.made_for.is_some() => device.memory.size_bytes,
        None => device.size_bytes.or(device.memory.size_bytes).filter(|bytes| *bytes > 0),
        Some(room) => {
            let left =
                MemoryRoom { free_bytes: room.free_bytes.saturating_sub(place.promised), ..MemoryRoom::clone(room) };
            left.chunk_bytes(None)
        }
    }
}

/// True if the API server takes the text as an attribute.
pub(super) fn is_attribute(text: &str) -> bool {
    (1..=MAX_ATTRIBUTE_BYTES).contains(&text.len())
}

/// The reason why a device is not offered.
fn obstacle(identity: DeviceIdentity, device: &FabricDevice, place: &DevicePlace<'_>) -> Option<String> {
    if let Some(why) = &device.unusable {
        return Some(why.clone());
    }
    if let Some(elsewhere) = place.elsewhere {
        return Some(format!("{elsewhere} has a device of the same identity: give each device its own serial number"));
    }
    if let Some(domain) = lacking(device, place) {
        return Some(format!("{domain} has no memory left for it; claims and other programs have what there is"));
    }
    if device.kind == DeviceKind::Unknown && memory_bytes(device, place).is_none() {
        return Some("its manager tells neither its kind nor the size of its memory".to_owned());
    }
    if is_giving_back(device, place) {
        return Some("its memory is given back to its memory domain; amounts of that are offered next".to_owned());
    }
    if let Some(why) = place.attachment.and_then(|object| elsewhere_attached(object, place)) {
        return Some(why);
    }
    let foreign = || foreign_connection(identity, place).filter(|_| DeviceInUse::of(identity, place).is_none());
    foreign().map(foreign_reason).or_else(|| out_of_order(device)).or_else(|| pause(place))
}

/// The memory domain of a device that has no memory, and for which none can be made now, whatever its manager says of its
/// size.
fn lacking<'a>(device: &'a FabricDevice, place: &DevicePlace<'_>) -> Option<&'a ObjectPath> {
    if device.kind == DeviceKind::Accelerator || device.memory.has_chunks {
        return None;
    }
    let has_room = device.room.is_some() && memory_bytes(device, place).is_some();
    device.memory.open_domain.as_ref().filter(|_| !has_room)
}

/// True if the memory that was made for the device goes next: no claim can count on its size.
fn is_giving_back(device: &FabricDevice, place: &DevicePlace<'_>) -> bool {
    let status = place.attachment.map(|object| &object.attachment.status).filter(|_| !place.is_kept);
    status.is_some_and(|status| status.phase == AttachmentPhase::Detached && !status.used)
        && device.memory.made_for.is_some()
}

/// The reason against a device whose FabricAttachment is about another pool.
fn elsewhere_attached(object: &AttachmentObject, place: &DevicePlace<'_>) -> Option<String> {
    let (spec, status) = (&object.attachment.spec, &object.attachment.status);
    let is_here = (&*spec.manager, &*spec.domain) == (place.manager, place.domain);
    (status.phase.is_under_way() && !is_here)
        .then(|| format!("its FabricAttachment is about {}/{}, which has not let go of it", spec.manager, spec.domain))
}

/// A device that a connection holds which no FabricAttachment explains: it stands in the slice, so that an operator can
/// have the connection taken over, and no claim is given it.
pub(super) struct DeviceInUse {
    /// The taint, which names the host.
    pub(super) taint: DeviceTaint,
    /// The reason why the device is not offered.
    pub(super) reason: String,
}

impl DeviceInUse {
    /// Looks for such a connection. One without a single host cannot be taken over.
    pub(super) fn of(identity: DeviceIdentity, place: &DevicePlace<'_>) -> Option<Self> {
        if OfferState::of(place.attachment) != OfferState::Free {
            return None;
        }
        let other = foreign_connection(identity, place)?;
        let taint = taint(FABRIC_TAINT, &in_use_by(other.host.as_ref()?));
        Some(Self { taint, reason: foreign_reason(other) })
    }
}

/// The connection that holds a device, and that no FabricAttachment explains.
fn foreign_connection<'a>(identity: DeviceIdentity, place: &DevicePlace<'a>) -> Option<&'a FabricConnection> {
    let attachment = place.attachment.map(|object| &object.attachment);
    if attachment.is_some_and(|it| it.spec.adopted && it.status.phase.is_under_way()) {
        return None;
    }
    let own = place.attachment.map(key_of);
    let is_foreign = |key: Option<&str>| key.is_none() || key != own.as_deref();
    let mut connections = place.inventory.connections_of(identity);
    connections.find(|connection| is_foreign(connection.key.as_ref().map(|key| key.as_str())))
}

fn foreign_reason(connection: &FabricConnection) -> String {
    format!(
        "connection {} gives it to {}, and hostler did not make that; have it taken over (kubectl hostler fabric adopt), \
         remove the connection, or leave the device to its user",
        connection.path,
        connection.host_text()
    )
}

/// The key under which the manager knows an attachment.
fn key_of(object: &AttachmentObject) -> String {
    let attachment = &object.attachment;
    format!("{}-{}", attachment.metadata.uid.as_deref().unwrap_or_default(), attachment.spec.attempt)
}

/// The reason against a device of which the manager says that it does not work, in Redfish's words.
fn out_of_order(device: &FabricDevice) -> Option<String> {
    let state = device.broken()?;
    Some(format!("its manager says that it is {state}; see to the device and its link"))
}

/// The reason against a device that has failed lately.
fn pause(place: &DevicePlace<'_>) -> Option<String> {
    let status = &place.attachment?.attachment.status;
    let until = status.retry_at.as_deref().filter(|_| status.phase == AttachmentPhase::Detached)?;
    let is_over = since_1970(until).is_none_or(|until| until <= place.now);
    (!is_over)
        .then(|| format!("{} attachments failed one after the other; it is offered again at {until}", status.failures))
}
