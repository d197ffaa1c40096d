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
        AttachedClaim, AttachmentKeeper, AttachmentPhase, ErasureMethod, FabricAttachment, FabricAttachmentSpec,
        FabricAttachmentStatus, FabricNodeReport, NodeDeviceState,
    },
    identity::{DeviceIdentity, IdentityError, SystemUuid, UuidError},
};

/// The kind of an attachment.
pub const FABRIC_ATTACHMENT_KIND: &str = "FabricAttachment";
/// The plural of the kind.
pub const FABRIC_ATTACHMENTS: &str = "fabricattachments";

/// The condition of a claim's device that the scheduler waits for before it binds a pod: the device is attached to the
/// node and ready there.
pub const ATTACHED_CONDITION: &str = "hostler.dev/attached";
/// The condition with which the scheduler gives the claim another device.
pub const ATTACH_FAILED_CONDITION: &str = "hostler.dev/attach-failed";
/// The key of the taint that keeps new claims off a device that is attached, or not in order. Its value tells which.
pub const FABRIC_TAINT: &str = "hostler.dev/fabric";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_behind_switches_has_three_parts_and_a_pool_of_a_node_two() {
        let pool = fabric_pool("row1", "cxl");
        assert_eq!(of_fabric_pool(&pool), Some(("row1", "cxl")));
        for other in ["fabric/cxl", "node-1/cxl", "fabric", "fabrics/row1/cxl", "fabric/row1/cxl/0"] {
            assert_eq!(of_fabric_pool(other), None, "{other}");
        }
    }
}
