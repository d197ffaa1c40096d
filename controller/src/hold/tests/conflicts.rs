//! Devices that two claims have: they stay closed until neither has them, since a scheduler forgets such a device when one goes.

use hostler_api::reservation::{ReservationPhase as Phase, ReservedDevice, ReservedDeviceState as State};
use serde_json::json;

use super::{
    cluster::key,
    crash::DRIVERS,
    world::{DRIVER, World, settings, wants_and},
};
use crate::{
    hold::{DeviceKey, HoldCommand, HoldSettings, HoldWrite},
    testkit::Fate,
};

impl World {
    /// Another scheduler gives a pod a device, whoever has it.
    pub(super) fn give_anyway(&mut self, pod: &str, device: &DeviceKey) {
        self.in_flight.insert(key(pod), vec![device.clone()]);
        self.given_twice.insert(device.clone());
        assert!(self.bind(pod));
    }

    pub(super) fn has_claim(&self, device: &ReservedDevice) -> bool {
        self.holders(&key_of(device)) > 0
    }

    fn holders(&self, device: &DeviceKey) -> usize {
        self.server.claims.values().filter(|claim| claim.devices.contains(device)).count()
    }

    fn is_told_closed(&self, device: &DeviceKey) -> bool {
        let mut fences = self.server.node_fences.values().flat_map(|node| &node.fences);
        fences.any(|fence| fence.pool == device.pool && fence.device == device.device)
            || self.server.rules.values().any(|rule| rule.device == *device)
    }

    /// A write that was sent before the second claim was seen cannot be taken back.
    fn is_being_opened(&self, device: &DeviceKey) -> bool {
        self.controller.commands.iter().any(|command| match command {
            HoldCommand::Write(HoldWrite::NodeFences { node, fences, .. }) => {
                *node == device.pool && !fences.iter().any(|fence| fence.device == device.device)
            }
            HoldCommand::Write(HoldWrite::DeleteRule(rule)) => rule.device == *device,
            _ => false,
        })
    }

    /// What two claims have is not opened before neither has it, once it was closed and the status said so.
    pub(super) fn check_sealed(&mut self) {
        let unclaimed = |device: &DeviceKey| !self.server.claims.values().any(|claim| claim.devices.contains(device));
        let twice: Vec<DeviceKey> = self.given_twice.iter().filter(|device| unclaimed(device)).cloned().collect();
        let gone = |device: &&DeviceKey| unclaimed(device) || !self.server.node_fences.contains_key(&device.pool);
        let open: Vec<DeviceKey> = self.sealed.iter().filter(gone).cloned().collect();
        self.given_twice.retain(|device| !twice.contains(device));
        self.sealed.retain(|device| !open.contains(device));
        for device in &self.sealed {
            assert!(self.is_told_closed(device), "{device} is open, and {} claims have it", self.holders(device));
        }
        let devices = self.server.reservations.values().flat_map(|object| &object.status.devices);
        let marked: Vec<DeviceKey> = devices.filter(|it| it.conflict && self.has_claim(it)).map(key_of).collect();
        let is_sealed = |device: &DeviceKey| self.is_told_closed(device) && !self.is_being_opened(device);
        let closed: Vec<DeviceKey> = marked.into_iter().filter(is_sealed).collect();
        self.sealed.extend(closed);
    }

    fn is_marked(&self, reservation: &str) -> bool {
        self.get(reservation).status.devices.iter().any(|device| device.conflict)
    }
}

fn key_of(device: &ReservedDevice) -> DeviceKey {
    DeviceKey::new(&device.driver, &device.pool, &device.device)
}

/// The owner of what is kept has a device, and `second`, which is nobody's, has it too.
fn both_have_it(nodes: &[usize], owner: &str, is_once: bool) -> (World, DeviceKey) {
    let mut world = World::new(nodes);
    world.reserve("r", wants_and(1, "web", json!({"allocateOnce": is_once})));
    world.settle();
    let (value, device) = (world.value("r"), DeviceKey::new(DRIVER, "a", "gpu-0"));
    // Both are seen at once, in the order of their names.
    world.pod(owner, "web", 1, &value);
    world.pod("second", "db", 1, "");
    assert!(world.schedule(owner));
    world.give_anyway("second", &device);
    world.settle();
    (world, device)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Meanwhile {
    Nothing,
    /// The Reservation is deleted.
    Deletion,
    /// Another controller leads.
    Restart,
    DeletionAndRestart,
}

fn two_claims_and_then(owner: &str, is_once: bool, is_owner_first: bool, meanwhile: Meanwhile) {
    let case = (owner, is_once, is_owner_first, meanwhile);
    let (mut world, device) = both_have_it(&[1], owner, is_once);
    let phase = if is_once { Phase::Succeeded } else { Phase::Available };
    assert_eq!((world.phase("r"), world.devices("r", State::HandedOver).len()), (phase, 1), "{case:?}");
    assert!(world.is_marked("r") && world.is_told_closed(&device), "{case:?}");
    let (reason, message) = world.condition("r", "Settled");
    assert_eq!(reason, "Conflict", "{case:?}");
    for claim in [format!("default/{owner}"), "default/second".to_owned()] {
        assert!(message.contains(&claim), "{case:?}: {message}");
        assert!(is_once || world.condition("r", "Ready").1.contains(&claim), "{case:?}");
        let told = |notice: &crate::hold::HoldEventNote| notice.is_warning && notice.reason == "Conflict";
        assert!(world.notices.iter().any(|it| told(it) && it.message.contains(&claim)), "{case:?}");
    }
    let (is_deleted, is_restarted) = match meanwhile {
        Meanwhile::Nothing => (false, false),
        Meanwhile::Deletion => (true, false),
        Meanwhile::Restart => (false, true),
        Meanwhile::DeletionAndRestart => (true, true),
    };
    if is_deleted {
        world.server.delete_reservation("r");
        world.settle();
    }
    let (first, last) = if is_owner_first { (owner, "second") } else { ("second", owner) };
    world.end_pod(first);
    if is_restarted {
        world.restart();
    }
    world.settle();
    world.pod("third", "db", 1, "");
    assert!(!world.schedule("third"), "{case:?}: {last} has it");
    assert!(!world.given.devices.contains(&device), "the scheduler takes it for free");
    assert!(world.is_marked("r"), "{case:?}");
    assert!(world.condition("r", "Settled").1.contains(&format!("default/{last}")), "{case:?}");
    world.check_rest();
    world.end_pod(last);
    world.settle();
    let is_gone = !world.server.reservations.contains_key("r");
    assert_eq!(is_gone, is_deleted, "{case:?}");
    assert_eq!(world.is_told_closed(&device), !is_deleted && !is_once, "{case:?}");
    assert!(is_gone || !world.is_marked("r") && world.condition("r", "Settled").0 != "Conflict", "{case:?}");
    assert!(is_gone || !world.condition("r", "Ready").1.contains("conflict"), "{case:?}");
    assert!(is_deleted || is_once || world.held("r").len() == 1, "{case:?}");
    world.check_rest();
}

#[test]
pub(super) fn where_two_claims_have_a_device_it_stays_closed_until_both_are_gone() {
    use Meanwhile::{Deletion, DeletionAndRestart, Nothing, Restart};
    for owner in ["a-owner", "z-owner"] {
        for is_once in [true, false] {
            for is_owner_first in [true, false] {
                for meanwhile in [Nothing, Deletion, Restart, DeletionAndRestart] {
                    two_claims_and_then(owner, is_once, is_owner_first, meanwhile);
                }
            }
        }
    }
}

#[test]
pub(super) fn what_two_claims_have_is_replaced_and_stays_closed() {
    let (mut world, device) = both_have_it(&[1, 1], "owner", false);
    world.end_pod("owner");
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["b/gpu-0".to_owned()]));
    assert_eq!((world.reason("r"), world.devices("r", State::Releasing)), ("Conflict", vec!["a/gpu-0".to_owned()]));
    assert_eq!(world.get("r").status.node_name.as_deref(), Some("b"));
    let allocatable = serde_json::to_value(&world.get("r").status.allocatable).unwrap();
    assert_eq!(allocatable, json!({"gpu.deviceclass.resource.k8s.io/devices": "1"}), "what is left is not kept");
    world.reserve("other", wants_and(1, "job", json!({})));
    world.pod("third", "db", 1, "");
    world.settle();
    assert!(!world.schedule("third"), "{:?}", world.has("third"));
    assert_eq!(world.phase("other"), Phase::Pending, "it is nobody's yet");
    world.check_rest();
    world.end_pod("second");
    world.settle();
    assert_eq!((world.reason("r"), world.get("r").status.devices.len()), ("Available", 1));
    assert!(world.is_told_closed(&device) && world.phase("other") == Phase::Available, "it is free, and kept at once");
    world.check_rest();
}

/// Whoever leads next has not seen both, and finds another claim than that of the owner of whom the status speaks.
#[test]
fn what_another_has_than_the_status_says_stays_closed_though_nobody_saw_both() {
    for is_deleted in [false, true] {
        let mut world = World::new(&[1]);
        world.reserve("r", wants_and(1, "web", json!({"allocateOnce": false})));
        world.settle();
        let (value, device) = (world.value("r"), DeviceKey::new(DRIVER, "a", "gpu-0"));
        world.pod("owner", "web", 1, &value);
        assert!(world.schedule("owner"));
        world.settle();
        world.pod("second", "db", 1, "");
        world.give_anyway("second", &device);
        world.end_pod("owner");
        if is_deleted {
            world.server.delete_reservation("r");
        }
        world.restart();
        world.settle();
        world.pod("third", "db", 1, "");
        assert!(!world.schedule("third") && world.is_told_closed(&device), "second has it");
        let message = world.condition("r", "Settled").1;
        assert!(world.is_marked("r") && message.contains("default/second"), "{message}");
        world.check_rest();
        world.end_pod("second");
        world.settle();
        let is_gone = !world.server.reservations.contains_key("r");
        assert_eq!((is_gone, world.is_told_closed(&device)), (is_deleted, !is_deleted));
        assert!(is_gone || world.held("r").len() == 1);
        world.check_rest();
    }
}

#[test]
fn an_owner_who_comes_after_another_while_nobody_looks_is_no_conflict() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants_and(1, "web", json!({"allocateOnce": false})));
    world.settle();
    let value = world.value("r");
    for owner in ["first", "next"] {
        world.pod(owner, "web", 1, &value);
        assert!(world.schedule(owner));
        if owner == "first" {
            world.settle();
            world.end_pod(owner);
        }
    }
    world.restart();
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r"), world.is_marked("r")), (Phase::Available, "Available", false));
    assert_eq!(world.devices("r", State::HandedOver), ["a/gpu-0"]);
    world.check_rest();
}

#[test]
fn two_strangers_with_a_kept_device_are_named_and_it_is_kept_again_when_both_are_gone() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants_and(1, "web", json!({})));
    world.settle();
    let device = DeviceKey::new(DRIVER, "a", "gpu-0");
    for pod in ["one", "two"] {
        world.pod(pod, "db", 1, "");
        world.give_anyway(pod, &device);
    }
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Pending, "Lost"));
    let message = world.condition("r", "Ready").1.to_owned();
    assert!(message.contains("default/one") && message.contains("default/two"), "{message}");
    for pod in ["one", "two"] {
        assert!(world.is_told_closed(&device) && world.is_marked("r"), "{pod} still has it");
        world.end_pod(pod);
        world.settle();
    }
    assert_eq!((world.phase("r"), world.is_marked("r")), (Phase::Available, false));
    world.check_rest();
}

#[test]
fn nobody_is_evicted_from_a_device_that_somebody_else_has_as_well() {
    let mut world = World::new(&[1]);
    world.running("victim", "db", 1, 0);
    world.pod("second", "db", 1, "");
    world.give_anyway("second", &DeviceKey::new(DRIVER, "a", "gpu-0"));
    world.reserve("r", super::world::preempts(1, "web"));
    world.settle();
    assert_eq!((world.phase("r"), world.server.evictions.len()), (Phase::Pending, 0));
    world.check_rest();
}

/// What the model is for: without anybody who keeps it closed, such a device is given to a third.
#[test]
fn a_scheduler_takes_a_device_for_free_once_one_of_two_claims_is_gone() {
    let mut world = World::new(&[1]);
    world.running("one", "db", 1, 0);
    world.pod("two", "db", 1, "");
    world.give_anyway("two", &DeviceKey::new(DRIVER, "a", "gpu-0"));
    world.pod("three", "db", 1, "");
    assert!(!world.schedule("three"));
    world.end_pod("one");
    assert!(world.decide("three"), "two has it");
    world.in_flight.clear();
    world.restart_scheduler();
    assert!(!world.decide("three"), "one that begins anew reads what there is");
}

/// A device that two claims have, while the one who keeps it is used, replaced, deleted. Says how many writes that took.
fn life_of_conflict(driver: &str, fates: &[(usize, Fate)]) -> usize {
    let settings = HoldSettings { has_rules: true, ..settings() };
    let mut world = World::with(settings, driver, &[1, 1]);
    world.fates.extend(fates.iter().copied());
    world.reserve("r", wants_and(1, "web", json!({"allocateOnce": false})));
    world.settle();
    let value = world.value("r");
    world.pod("owner", "web", 1, &value);
    assert!(world.schedule("owner"), "{fates:?}");
    world.settle();
    let device = DeviceKey::new(driver, "a", "gpu-0");
    world.pod("second", "db", 1, "");
    world.give_anyway("second", &device);
    world.settle();
    assert!(world.is_marked("r"), "{fates:?}");
    world.end_pod("owner");
    world.settle();
    assert_eq!(world.held("r"), ["b/gpu-0"], "{fates:?}");
    world.server.delete_reservation("r");
    world.settle();
    world.pod("third", "db", 1, "");
    world.pod("fourth", "db", 1, "");
    assert!(world.is_told_closed(&device) && world.schedule("third"), "{fates:?}");
    assert!(world.has("third") == ["b/gpu-0"] && !world.schedule("fourth"), "{fates:?}");
    world.end_pod("second");
    world.settle();
    assert!(world.server.reservations.is_empty() && world.schedule("fourth"), "{fates:?}");
    let writes = world.writes.len();
    world.check_rest();
    writes
}

#[test]
fn whatever_happens_at_any_write_what_two_claims_have_stays_closed() {
    for driver in DRIVERS {
        let writes = life_of_conflict(driver, &[]);
        assert!(writes >= 12, "{writes}");
        for at in 0..writes {
            for fate in Fate::ALL {
                life_of_conflict(driver, &[(at, fate)]);
            }
        }
    }
}

#[test]
fn two_deaths_at_any_two_writes_leave_closed_what_two_claims_have() {
    for driver in DRIVERS {
        for first in 0..life_of_conflict(driver, &[]) {
            for second in first + 1..first + 5 {
                for fates in [[Fate::DieAfter, Fate::DieBefore], [Fate::DieBefore, Fate::DieAfter], [Fate::DieAfter; 2]]
                {
                    life_of_conflict(driver, &[(first, fates[0]), (second, fates[1])]);
                }
            }
        }
    }
}

#[test]
fn the_mark_is_written_before_anything_is_opened() {
    let (world, _) = both_have_it(&[1], "owner", true);
    let is_mark =
        |write: &HoldWrite| matches!(write, HoldWrite::Status(_, it) if it.devices.iter().any(|it| it.conflict));
    let is_opening = |write: &HoldWrite| matches!(write, HoldWrite::NodeFences { fences, .. } if fences.is_empty());
    assert!(world.writes.iter().any(is_mark) && !world.writes.iter().any(is_opening), "{:#?}", world.writes);
}
