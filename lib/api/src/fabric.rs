//! Devices behind switches, as controller, daemons and the scheduler tell each other of them: names of devices and hosts,
//! pools, conditions of claims, and the object FabricAttachment.
//!
//! ```text
//!   controller ── spec: give the device to this node, let go of it ──► FabricAttachment ◄── status.node: it is here, it is gone ── daemon
//!   controller ── ResourceSlice with binding conditions ──► scheduler ── allocation ──► claim ◄── condition: attached ── controller
//! ```

mod attachment;
mod identity;

pub use self::{
    attachment::{
        AdoptedConnection, AttachedClaim, AttachmentKeeper, AttachmentPhase, ErasureMethod, FabricAttachment,
        FabricAttachmentSpec, FabricAttachmentStatus, FabricNodeReport, NodeDeviceState,
    },
    identity::{DeviceIdentity, IdentityError, SystemUuid, UuidError},
};

/// The kind of an attachment.
pub const FABRIC_ATTACHMENT_KIND: &str = "FabricAttachment";
/// The plural of the kind.
pub const FABRIC_ATTACHMENTS: &str = "fabricattachments";

/// The capacity in bytes that a device offers, and that a claim asks for.
pub const MEMORY_CAPACITY: &str = "memory";

/// The condition of a claim's device that the scheduler waits for before it binds a pod: the device is attached to the
/// node and ready there.
pub const ATTACHED_CONDITION: &str = "hostler.dev/attached";
/// The condition with which the scheduler gives the claim another device.
pub const ATTACH_FAILED_CONDITION: &str = "hostler.dev/attach-failed";
/// The key of the taint that keeps new claims off a device that is attached, or not in order. Its value tells which.
pub const FABRIC_TAINT: &str = "hostler.dev/fabric";

/// The value of the taint of a device that a connection holds which no FabricAttachment explains, with the host after a
/// point: `in-use.918eda4d-2b69-432f-b0d3-dc2a8d80a351`.
const IN_USE: &str = "in-use";

/// The first part of the names of pools behind switches.
const POOL: &str = "fabric";

/// Returns the name of the pool of a switch domain: `fabric/<manager>/<domain>`.
pub fn fabric_pool(manager: &str, domain: &str) -> String {
    format!("{POOL}/{manager}/{domain}")
}

/// The manager and the switch domain of a pool; `None` for pools of nodes, which are called `<node>/<backend>`.
pub fn of_fabric_pool(pool: &str) -> Option<(&str, &str)> {
    let mut parts = pool.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(POOL), Some(manager), Some(domain), None) => Some((manager, domain)),
        _ => None,
    }
}

/// Returns the value of the taint of a device that a host has, and that no FabricAttachment is about.
pub fn in_use_by(host: &SystemUuid) -> String {
    format!("{IN_USE}.{host}")
}

/// The host in the value of such a taint; `None` for other values.
pub fn host_in_use(taint: &str) -> Option<SystemUuid> {
    taint.strip_prefix(IN_USE)?.strip_prefix('.')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_of_a_device_that_others_attached_names_the_host() {
        let host: SystemUuid = "918eda4d-2b69-432f-b0d3-dc2a8d80a351".parse().unwrap();
        let value = in_use_by(&host);
        assert!(value.len() <= 63, "a taint takes no longer one");
        assert_eq!(host_in_use(&value), Some(host));
        for other in ["attached", "in-use", "in-use.n1", "free.918eda4d-2b69-432f-b0d3-dc2a8d80a351"] {
            assert_eq!(host_in_use(other), None, "{other}");
        }
    }

    #[test]
    fn a_pool_behind_switches_has_three_parts_and_a_pool_of_a_node_two() {
        let pool = fabric_pool("row1", "cxl");
        assert_eq!(of_fabric_pool(&pool), Some(("row1", "cxl")));
        for other in ["fabric/cxl", "node-1/cxl", "fabric", "fabrics/row1/cxl", "fabric/row1/cxl/0"] {
            assert_eq!(of_fabric_pool(other), None, "{other}");
        }
    }
}
