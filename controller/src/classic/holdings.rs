//! Devices that claims hold. Mistakes elsewhere can let several claims hold the same whole device; it is free when the
//! last of them is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hostler_allocator::structured::{AllocatedState, Features};
use hostler_api::resource::{AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult};

/// Driver, pool and device.
type HeldDevice = (String, String, String);

/// The effect of a change of one claim on others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HoldingChange {
    /// The claim holds the same.
    None,
    /// The claim holds more.
    Taken,
    /// Others can have what the claim held.
    Freed,
}

/// Devices that each claim holds, by UID of the claim.
#[derive(Debug)]
pub(super) struct Holdings {
    features: Features,
    state: AllocatedState,
    claims: BTreeMap<String, Vec<DeviceRequestAllocationResult>>,
    holders: HashMap<HeldDevice, BTreeSet<String>>,
}

impl Holdings {
    pub(super) fn new(features: Features) -> Self {
        Self { features, state: AllocatedState::new(), claims: BTreeMap::new(), holders: HashMap::new() }
    }

    /// Returns the allocator's view of held devices.
    pub(super) fn state(&self) -> &AllocatedState {
        &self.state
    }

    /// Returns the devices that a claim holds.
    pub(super) fn of(&self, uid: &str) -> &[DeviceRequestAllocationResult] {
        self.claims.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Replaces the devices that a claim holds. Returns the effect on other claims.
    pub(super) fn set(&mut self, uid: &str, devices: Vec<DeviceRequestAllocationResult>) -> HoldingChange {
        let change = match self.of(uid) {
            known if known == devices => return HoldingChange::None,
            known if known.iter().all(|device| devices.contains(device)) => HoldingChange::Taken,
            _ => HoldingChange::Freed,
        };
        if let Some(old) = self.claims.remove(uid) {
            self.remove(uid, &old);
        }
        if !devices.is_empty() {
            for device in &devices {
                self.holders.entry(key(device)).or_default().insert(uid.to_owned());
            }
            self.state.add(self.features, &allocation(devices.clone()));
            self.claims.insert(uid.to_owned(), devices);
        }
        change
    }

    fn remove(&mut self, uid: &str, devices: &[DeviceRequestAllocationResult]) {
        self.state.remove(self.features, &allocation(devices.to_vec()));
        for device in devices {
            let key = key(device);
            let Some(holders) = self.holders.get_mut(&key) else { continue };
            holders.remove(uid);
            let left: Vec<String> = holders.iter().cloned().collect();
            if left.is_empty() {
                self.holders.remove(&key);
            } else if device.share_id.is_none() {
                self.hold_again(&key, &left);
            }
        }
    }

    /// Marks a device as held again: the allocator's state knows one holder, and other claims may hold the same device.
    fn hold_again(&mut self, key: &HeldDevice, uids: &[String]) {
        let devices = uids.iter().flat_map(|uid| self.claims.get(uid).into_iter().flatten());
        let mut whole =
            devices.filter(|it| self::key(it) == *key && it.share_id.is_none() && it.admin_access != Some(true));
        if whole.next().is_some() {
            let (driver, pool, device) = key;
            self.state.hold(driver, pool, device);
        }
    }
}

fn key(device: &DeviceRequestAllocationResult) -> HeldDevice {
    (device.driver.clone(), device.pool.clone(), device.device.clone())
}

fn allocation(results: Vec<DeviceRequestAllocationResult>) -> AllocationResult {
    let devices = DeviceAllocationResult { results, config: Vec::new() };
    AllocationResult { devices, ..AllocationResult::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(device: &str) -> DeviceRequestAllocationResult {
        let [driver, pool, request] = ["d", "p", "r"].map(str::to_owned);
        DeviceRequestAllocationResult { request, driver, pool, device: device.to_owned(), ..Default::default() }
    }

    #[test]
    fn a_device_of_two_claims_is_free_when_both_are_gone() {
        let mut holdings = Holdings::new(Features::all());
        assert_eq!(holdings.set("1", vec![whole("a")]), HoldingChange::Taken);
        assert_eq!(holdings.set("2", vec![whole("a"), whole("b")]), HoldingChange::Taken);
        assert_eq!(holdings.set("2", vec![whole("a"), whole("b")]), HoldingChange::None);
        assert_eq!(holdings.set("1", Vec::new()), HoldingChange::Freed);
        let mut expected = AllocatedState::new();
        expected.hold("d", "p", "a");
        expected.hold("d", "p", "b");
        assert_eq!(*holdings.state(), expected);
        holdings.set("2", vec![whole("b")]);
        assert_eq!(holdings.of("2"), [whole("b")]);
        let mut only_b = Holdings::new(Features::all());
        only_b.set("2", vec![whole("b")]);
        assert_eq!(holdings.state(), only_b.state());
    }
}
