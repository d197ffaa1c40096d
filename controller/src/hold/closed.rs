//! Devices that are closed to others, as the API server shows: by a taint of their driver, or by a DeviceTaintRule.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::reservation::{ReservedDevice, ReservedDeviceState, toleration_value};

use super::{
    context::{HoldContext, HoldEffect},
    objects::{DeviceKey, device_key},
    reservation::Reservation,
    settings::HoldSettings,
    topics::DecisionTopic,
};

/// Delay of a node's fences: devices of a node that are closed together cost one write, and so one write of each of the
/// node's slices.
const FENCE_DELAY: Duration = Duration::from_millis(100);

/// Name of the rule that closes a device.
pub(super) fn rule_name(device: &DeviceKey) -> String {
    format!("hold-{}", toleration_value(&device.to_string()))
}

/// Queues the decision about the object that closes a device.
pub(super) fn fence_topic(settings: &HoldSettings, device: &ReservedDevice) -> HoldEffect {
    let topic = match device.driver == settings.own_driver {
        true => DecisionTopic::NodeFences(device.node_name.clone()),
        false => DecisionTopic::Rule(rule_name(&device_key(device))),
    };
    HoldEffect::DecideAfter(FENCE_DELAY, topic)
}

impl<'a> HoldContext<'a> {
    /// Value with which the device is closed now.
    pub(super) fn closed_with(&self, device: &DeviceKey) -> Option<&'a str> {
        if device.driver == self.settings.own_driver {
            let (slice, published) = self.cluster.device(device)?;
            let told = || self.cluster.told_to_hold(&slice.node, device).filter(|_| published.is_held);
            return published.held_for.as_deref().or_else(told);
        }
        let rule = self.cluster.rules.get(&rule_name(device)).filter(|rule| rule.device == *device);
        rule.map(|rule| &*rule.value)
    }

    /// Nodes whose devices are to be closed or kept so, and that have no NodeHardware which tells them so.
    pub(super) fn untold(&self, devices: &[ReservedDevice]) -> BTreeSet<String> {
        let is_untold = |device: &&ReservedDevice| {
            !matches!(device.state, ReservedDeviceState::HandedOver | ReservedDeviceState::Releasing)
                && device.driver == self.settings.own_driver
                && !self.cluster.node_fences.contains_key(&device.node_name)
        };
        devices.iter().filter(is_untold).map(|device| device.node_name.clone()).collect()
    }

    /// True if a device is closed for this Reservation.
    pub(super) fn is_closed_for(&self, reservation: &Reservation, device: &DeviceKey) -> bool {
        self.closed_with(device) == Some(&*reservation.value)
    }
}
