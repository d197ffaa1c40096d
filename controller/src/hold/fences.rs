//! What is closed to others: what Reservations say that they keep, and nothing else. Devices of our own driver are closed by
//! their daemons, others by DeviceTaintRules.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::reservation::{ReservationConditionType, ReservedDevice, ReservedDeviceState, toleration_value};
use hostler_cluster::since_1970;

use super::{
    agenda::Topic,
    core::{HoldCore, device_key},
    event::{DeviceKey, Fence, FenceRule, HoldTarget, HoldWrite},
    seen::Seen,
};

/// The name of the rule that closes a device.
pub(super) fn rule_name(device: &DeviceKey) -> String {
    format!("hold-{}", toleration_value(&device.to_string()))
}

/// For whom a device is closed now.
pub(super) fn fenced_for<'a>(seen: &'a Seen, own_driver: &str, device: &DeviceKey) -> Option<&'a str> {
    let of_rule = || seen.rules.get(&rule_name(device)).filter(|rule| rule.device == *device);
    if device.driver == own_driver {
        let (slice, published) = seen.device(device)?;
        let told = || seen.told_to_hold(&slice.node, device).filter(|_| published.is_held);
        published.held_for.as_deref().or_else(told)
    } else {
        of_rule().map(|rule| &*rule.value)
    }
}

impl HoldCore {
    /// Whether all devices of a Reservation that are to be closed are.
    pub(super) fn is_closed(&self, name: &str, devices: &[ReservedDevice]) -> bool {
        let value = self.holds.get(name).map(|hold| &*hold.value);
        let mut fencing = devices.iter().filter(|device| device.state == ReservedDeviceState::Fencing);
        fencing.all(|device| fenced_for(&self.seen, &self.settings.own_driver, &device_key(device)) == value)
    }

    /// Whether a device of a Reservation shall be closed, or stay so.
    fn is_wanted(&mut self, name: &str, device: &ReservedDevice, is_closed: bool) -> bool {
        let Some(hold) = self.holds.get(name) else { return false };
        // Of two claims that have it the one that goes first must not open it to a third.
        if device.conflict || is_closed && (self.is_in_conflict(device) || self.is_anothers(name, device)) {
            return true;
        }
        if hold.object.is_deleting {
            return false;
        }
        if !hold.object.status.phase.is_over() {
            return !device.is_part() || self.is_part_closed(name, device, is_closed);
        }
        if device.state != ReservedDeviceState::HandedOver || !is_closed {
            return false;
        }
        // Another scheduler may not have seen yet that an owner has it.
        let ready = hold.object.status.condition(ReservationConditionType::Ready);
        let since = ready.and_then(|it| since_1970(&it.last_transition_time)).unwrap_or_default();
        let age = self.clock.certain().unwrap_or_default().saturating_sub(since);
        if age < self.settings.settle {
            self.agenda.after(self.settings.settle - age, Topic::NodeFences(device.node_name.clone()));
            self.agenda.after(self.settings.settle - age, Topic::Rule(rule_name(&device_key(device))));
        }
        age < self.settings.settle
    }

    /// Who of several that want a device gets it: who has it, then the oldest.
    fn wanted_by(
        &mut self,
        names: Vec<String>,
        has: impl Fn(&DeviceKey) -> Option<String>,
    ) -> BTreeMap<DeviceKey, String> {
        let mut wanted: BTreeMap<DeviceKey, (bool, std::time::Duration, String, String)> = BTreeMap::new();
        for name in names {
            let Some(hold) = self.holds.get(&name) else { continue };
            let (created, uid, value) = (hold.object.created, hold.object.uid.clone(), hold.value.clone());
            for device in hold.object.status.devices.clone() {
                let key = device_key(&device);
                let is_new = has(&key).as_ref() != Some(&value);
                if self.is_wanted(&name, &device, !is_new) {
                    let rank = (is_new, created, uid.clone(), value.clone());
                    wanted.entry(key).and_modify(|known| *known = rank.clone().min(known.clone())).or_insert(rank);
                }
            }
        }
        wanted.into_iter().map(|(key, (_, _, _, value))| (key, value)).collect()
    }

    /// Has a node close what is kept there, and nothing else.
    pub(super) fn settle_node(&mut self, node: &str) {
        let Some(known) = self.seen.node_fences.get(node).cloned() else { return };
        let names: Vec<String> = self.on_node(node).map(|hold| hold.object.name.clone()).collect();
        let has = |key: &DeviceKey| {
            let fence = known.fences.iter().find(|fence| fence.pool == key.pool && fence.device == key.device);
            fence.map(|fence| fence.value.clone())
        };
        let own = self.settings.own_driver.clone();
        let wanted = self.wanted_by(names, has).into_iter().filter(|(key, _)| key.driver == own);
        // A Reservation may have devices of several nodes.
        let here = wanted.filter(|(key, _)| self.node_of(key).is_none_or(|it| it == node));
        let left_alone: Vec<&Fence> = known.fences.iter().filter(|fence| self.is_unreadable(&fence.value)).collect();
        let is_free = |key: &DeviceKey| !left_alone.iter().any(|it| it.pool == key.pool && it.device == key.device);
        let here = here.filter(|(key, _)| is_free(key));
        let fences = here.map(|(key, value)| Fence { pool: key.pool, device: key.device, value });
        let fences: BTreeSet<Fence> = fences.chain(left_alone.iter().copied().cloned()).collect();
        if fences != known.fences.iter().cloned().collect() && self.can_write(&HoldTarget::NodeFences(node.to_owned()))
        {
            let (node, version) = (node.to_owned(), known.version);
            self.write(HoldWrite::NodeFences { node, version, fences: fences.into_iter().collect() });
        }
    }

    /// The node for which a Reservation has the device.
    fn node_of(&self, key: &DeviceKey) -> Option<String> {
        let devices = self.on_pool(key).flat_map(|hold| &hold.object.status.devices);
        devices.into_iter().find(|device| device_key(device) == *key).map(|device| device.node_name.clone())
    }

    /// Closes a device of another driver, or opens it.
    pub(super) fn settle_rule(&mut self, name: &str) {
        let known = self.seen.rules.get(name).cloned();
        let device = known.as_ref().map(|rule| rule.device.clone()).or_else(|| self.device_of_rule(name));
        let Some(device) = device else { return };
        let names: Vec<String> = self.on_pool(&device).map(|hold| hold.object.name.clone()).collect();
        let has = |_: &DeviceKey| known.as_ref().map(|rule| rule.value.clone());
        // One that somebody has made close another device closes that for nobody.
        let is_its_name = rule_name(&device) == name;
        let wanted = self.wanted_by(names, has).remove(&device).filter(|_| is_its_name);
        let write = match (known, wanted) {
            (None, Some(value)) if self.settings.has_rules => {
                HoldWrite::CreateRule(FenceRule { name: name.to_owned(), device, value })
            }
            (Some(rule), _) if self.is_unreadable(&rule.value) => return,
            (Some(rule), wanted) if wanted.as_ref() != Some(&rule.value) => HoldWrite::DeleteRule(rule),
            _ => return,
        };
        if self.can_write(&HoldTarget::Rule(name.to_owned())) {
            self.write(write);
        }
    }

    fn device_of_rule(&self, name: &str) -> Option<DeviceKey> {
        let devices = self.holds.values().flat_map(|hold| &hold.object.status.devices).map(device_key);
        devices.into_iter().find(|key| key.driver != self.settings.own_driver && rule_name(key) == name)
    }

    /// Whether anything is closed for a Reservation, or is being closed.
    pub(super) fn is_fenced(&self, value: &str) -> bool {
        self.seen.has_fences(value) || self.is_closing(value)
    }
}
