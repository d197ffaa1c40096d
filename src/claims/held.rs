//! Devices that claims hold, as decisions on other claims see them.

use hostler_api::{BackendName, ClaimUid, DeviceName};
use hostler_backend::HeldDevice;

use super::store::RecordDevice;

impl RecordDevice {
    /// Name by which the backend knows the device.
    pub fn local_name(&self) -> &DeviceName {
        self.local.as_ref().unwrap_or(&self.grant.device)
    }
}

/// A device that a claim holds, with the claim's full name.
#[derive(Clone, Debug)]
pub struct HeldGrant<'a> {
    /// The holder.
    pub uid: &'a ClaimUid,
    /// `namespace/name` of the holder.
    pub name: &'a str,
    /// The device that the claim holds.
    pub device: &'a RecordDevice,
}

/// A device that a claim holds, for a thread that outlives the borrow of the table.
#[derive(Debug)]
pub(super) struct OwnedHeldGrant {
    uid: ClaimUid,
    name: String,
    device: RecordDevice,
}

impl OwnedHeldGrant {
    pub(super) fn of(held: &HeldGrant<'_>) -> Self {
        Self { uid: held.uid.clone(), name: held.name.to_owned(), device: held.device.clone() }
    }

    /// The grant as the device's backend sees it.
    pub(super) fn as_held(&self) -> HeldDevice<'_> {
        HeldDevice { claim: &self.uid, claim_name: &self.name, grant: &self.device.grant, plan: &self.device.plan }
    }
}

/// Devices of a backend that are held.
pub(super) fn held_of<'a>(holdings: &'a [HeldGrant<'a>], backend: &BackendName) -> Vec<HeldDevice<'a>> {
    let own = holdings.iter().filter(|holding| holding.device.backend == *backend);
    own.map(|holding| HeldDevice {
        claim: holding.uid,
        claim_name: holding.name,
        grant: &holding.device.grant,
        plan: &holding.device.plan,
    })
    .collect()
}
