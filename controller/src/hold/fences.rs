//! Fences: the devices that Reservations keep are closed to others, and no other devices. Devices of our own driver are
//! closed by their daemons, other devices by DeviceTaintRules.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::reservation::{ReservationConditionType, ReservedDevice, ReservedDeviceState};
use hostler_cluster::since_1970;

use super::{
    closed::rule_name,
    conflicts::{is_in_conflict, is_strangers},
    context::HoldContext,
    objects::{DeviceKey, Fence, FenceRule, device_key},
    parts::is_part_closed,
    reservation::Reservation,
    reservations::Related,
    topics::DecisionTopic,
    vacant::is_kept_by_another,
    writes::{HoldTarget, HoldWrite},
};

/// True if all devices of a Reservation are closed that have to be closed.
pub(super) fn are_closed(cx: &HoldContext<'_>, reservation: &Reservation, devices: &[ReservedDevice]) -> bool {
    let mut fencing = devices.iter().filter(|device| device.state == ReservedDeviceState::Fencing);
    fencing.all(|device| cx.is_closed_for(reservation, &device_key(device)))
}

/// True if any device is closed with this value, or may be as soon as a write has its effect.
pub(super) fn is_fenced(cx: &HoldContext<'_>, value: &str) -> bool {
    let is_closing = |write: &HoldWrite| match write {
        HoldWrite::NodeFences { fences, .. } => fences.iter().any(|fence| fence.value == value),
        HoldWrite::CreateRule(rule) => rule.value == value,
        _ => false,
    };
    cx.cluster.has_fences(value) || cx.writes.uncertain().any(is_closing)
}

/// True if a device of a Reservation shall be closed, or stay so.
fn is_wanted(cx: &mut HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice, is_closed: bool) -> bool {
    // Of two claims that have the device, the first one to go must not open it to a third claim.
    if device.conflict || is_closed && (is_in_conflict(cx, device) || is_strangers(cx, reservation, device)) {
        return true;
    }
    let is_anothers = || device.state == ReservedDeviceState::Lost && is_kept_by_another(cx, reservation, device);
    if reservation.object.is_deleting || is_anothers() {
        return false;
    }
    if !reservation.is_over() {
        return !device.is_part() || is_part_closed(cx, reservation, device, is_closed);
    }
    if device.state != ReservedDeviceState::HandedOver || !is_closed {
        return false;
    }
    // Another scheduler may not have seen yet that an owner has the device.
    let ready = reservation.object.status.condition(ReservationConditionType::Ready);
    let since = ready.and_then(|it| since_1970(&it.last_transition_time)).unwrap_or_default();
    let age = cx.clock.certain().unwrap_or_default().saturating_sub(since);
    if age < cx.settings.settle {
        let left = cx.settings.settle - age;
        cx.decide_after(left, DecisionTopic::NodeFences(device.node_name.clone()));
        cx.decide_after(left, DecisionTopic::Rule(rule_name(&device_key(device))));
    }
    age < cx.settings.settle
}

/// Returns for each device the value that closes it: of several Reservations that want the device, the one that has it,
/// then the oldest.
fn wanted_values<'a>(
    cx: &mut HoldContext<'_>,
    reservations: impl Iterator<Item = &'a Reservation>,
    has: impl Fn(&DeviceKey) -> Option<String>,
) -> BTreeMap<DeviceKey, String> {
    let mut wanted: BTreeMap<DeviceKey, (bool, Duration, &str, &str)> = BTreeMap::new();
    for reservation in reservations {
        let (object, value) = (&reservation.object, &*reservation.value);
        for device in &object.status.devices {
            let key = device_key(device);
            let is_new = has(&key).as_deref() != Some(value);
            if is_wanted(cx, reservation, device, !is_new) {
                let rank = (is_new, object.created, &*object.uid, value);
                wanted.entry(key).and_modify(|known| *known = rank.min(*known)).or_insert(rank);
            }
        }
    }
    wanted.into_iter().map(|(key, (.., value))| (key, value.to_owned())).collect()
}

/// Decides which devices a node closes.
pub(super) fn decide_node(cx: &mut HoldContext<'_>, node: &str) -> Option<HoldWrite> {
    let known = cx.cluster.node_fences.get(node)?;
    let has = |key: &DeviceKey| {
        let fence = known.fences.iter().find(|fence| fence.pool == key.pool && fence.device == key.device);
        fence.map(|fence| fence.value.clone())
    };
    let here = cx.reservations.related_to(&Related::Node(node.to_owned()));
    let wanted = wanted_values(cx, here, has);
    // A Reservation may have devices of several nodes.
    let is_here = |key: &DeviceKey| node_of(cx, key).is_none_or(|it| it == node);
    let left_alone: Vec<&Fence> =
        known.fences.iter().filter(|fence| cx.reservations.is_unreadable(&fence.value)).collect();
    let is_free = |key: &DeviceKey| !left_alone.iter().any(|it| it.pool == key.pool && it.device == key.device);
    let own = wanted
        .into_iter()
        .filter(|(key, _)| key.driver == cx.settings.own_driver && is_here(key) && is_free(key))
        .map(|(key, value)| Fence { pool: key.pool, device: key.device, value });
    let fences: BTreeSet<Fence> = own.chain(left_alone.iter().copied().cloned()).collect();
    // A write whose answer was lost may have closed more than is known: the answer to this write tells.
    let is_lost = !cx.writes.lost(&HoldTarget::NodeFences(node.to_owned())).is_empty();
    let is_news = is_lost || fences != known.fences.iter().cloned().collect();
    let (node, version) = (node.to_owned(), known.version.clone());
    is_news.then(|| HoldWrite::NodeFences { node, version, fences: fences.into_iter().collect() })
}

/// The node for which a Reservation has the device.
fn node_of<'a>(cx: &HoldContext<'a>, key: &DeviceKey) -> Option<&'a str> {
    let mut devices = cx.reservations.with_pool_of(key).flat_map(|it| &it.object.status.devices);
    devices.find(|device| device_key(device) == *key).map(|device| &*device.node_name)
}

/// Decides whether a device of another driver is closed.
pub(super) fn decide_rule(cx: &mut HoldContext<'_>, name: &str) -> Option<HoldWrite> {
    let lost = cx.writes.lost(&HoldTarget::Rule(name.to_owned())).iter().find_map(HoldWrite::rule);
    let known = cx.cluster.rules.get(name).cloned();
    let written = known.as_ref().or(lost).map(|rule| rule.device.clone());
    let device = written.or_else(|| device_of_rule(cx, name))?;
    let has = |_: &DeviceKey| known.as_ref().map(|rule| rule.value.clone());
    // A rule that was changed to close another device closes that device for no Reservation.
    let is_its_name = rule_name(&device) == name;
    let reservations = cx.reservations.with_pool_of(&device);
    let wanted = wanted_values(cx, reservations, has).remove(&device).filter(|_| is_its_name);
    match (known, wanted) {
        (None, Some(value)) if cx.settings.has_rules => {
            Some(HoldWrite::CreateRule(FenceRule { name: name.to_owned(), device, value }))
        }
        (Some(rule), _) if cx.reservations.is_unreadable(&rule.value) => None,
        (Some(rule), wanted) if wanted.as_ref() != Some(&rule.value) => Some(HoldWrite::DeleteRule(rule)),
        // The rule may have been created after all.
        (None, None) => {
            let rule = lost.filter(|rule| !cx.reservations.is_unreadable(&rule.value))?;
            Some(HoldWrite::DeleteRule(rule.clone()))
        }
        _ => None,
    }
}

fn device_of_rule(cx: &HoldContext<'_>, name: &str) -> Option<DeviceKey> {
    let mut devices = cx.reservations.iter().flat_map(|it| &it.object.status.devices).map(device_key);
    devices.find(|key| key.driver != cx.settings.own_driver && rule_name(key) == name)
}
