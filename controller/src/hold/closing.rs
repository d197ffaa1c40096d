//! Decides which devices can be closed to others. The planner uses no device that cannot be closed.

use std::{collections::BTreeSet, sync::Arc};

use hostler_api::reservation::{PLACEMENT_GATE, ReservedDevice};

use super::{
    objects::{DeviceKey, PublishedDevice, PublishedSlice},
    published::PublishedDevices,
};

/// Knowledge that decides whether a device can be closed.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    pub(super) published: Arc<PublishedDevices>,
    pub(super) own_driver: String,
    pub(super) has_rules: bool,
    pub(super) holds_partitions: bool,
}

impl Closing {
    /// Refuses devices that only schedulers can give to a claim: only schedulers know all that goes with those devices.
    pub(super) fn can_be_written(&self, key: &DeviceKey) -> Result<(), String> {
        let Some((_, published)) = self.published.device(key) else { return Err(format!("{key} is gone")) };
        if published.is_shareable || published.has_binding_conditions {
            return Err(format!(
                "{key} is given by schedulers only: several claims can have parts of it, or it has binding conditions; leave \
                 the scheduling gate {PLACEMENT_GATE} out of the pod"
            ));
        }
        Ok(())
    }

    /// Devices that are published and that nothing closes, on any node: the planner does not use them.
    pub(super) fn unclosable(&self) -> BTreeSet<DeviceKey> {
        let of_slice = |slice: &PublishedSlice, device: &PublishedDevice| {
            let is_foreign = slice.driver != self.own_driver && !self.has_rules;
            (is_foreign || device.is_partition && !self.holds_partitions)
                .then(|| DeviceKey::new(&slice.driver, &slice.pool, &device.name))
        };
        self.published.devices().filter_map(|(slice, device)| of_slice(slice, device)).collect()
    }

    /// Refuses devices that cannot be closed to others.
    pub(super) fn can_close(&self, key: &DeviceKey, device: &ReservedDevice) -> Result<(), String> {
        let is_own = key.driver == self.own_driver;
        if !is_own && !self.has_rules {
            return Err(format!(
                "{key} cannot be closed to others: it is of another driver, and there are no DeviceTaintRules that this \
                 controller may write and schedulers are known to act on; turn on the feature gate DRADeviceTaintRules and its API, and \
                 apply deploy/holds/rules; schedulers of 1.37 and later act on rules, others do where \
                 reservations.oldest_scheduler states their release, and those of 1.36.0 to 1.36.2 ignore new rules \
                 (kubernetes#139651): a change is noticed within five minutes"
            ));
        }
        if is_own && device.node_name.is_empty() {
            return Err(format!("{key} cannot be closed to others: it is on no single node"));
        }
        let Some((_, published)) = self.published.device(key) else { return Err(format!("{key} is gone")) };
        if published.is_partition && !self.holds_partitions {
            return Err(format!(
                "{key} cannot be closed to others: it is a part of a device, and schedulers without the fix of kubernetes#140436 \
                 would take the other parts for taken as well; where all have it, set reservations.holds_partitions = true"
            ));
        }
        Ok(())
    }
}
