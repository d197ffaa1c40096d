//! Devices of other drivers are closed by DeviceTaintRules, one each. All else is as with taints that our own daemon publishes, and so
//! are the scenarios, but for those in which daemons fail: here it is people and other controllers who touch what closes.

use std::collections::BTreeMap;

use hostler_api::reservation::ReservationPhase as Phase;

use super::{
    EVERYWHERE, scenarios,
    world::{DRIVER, World, by_rules, wants},
};
use crate::hold::{DeviceKey, FenceRule, HoldCommand, HoldWrite, closed::rule_name};

#[test]
fn the_scenarios_are_the_same_where_rules_close_devices() {
    for scenario in EVERYWHERE {
        by_rules(scenario);
    }
    by_rules(scenarios::a_node_that_goes_for_good_fails_the_reservation);
}

/// Two devices of three are kept, by a rule each; with that of the first.
fn kept() -> (World, FenceRule) {
    let mut world = World::new(&[3]);
    world.reserve("r", wants(2, "web"));
    world.settle();
    assert_eq!((world.phase("r"), world.server.rules.len()), (Phase::Available, 2));
    let rule = world.server.rules.values().find(|rule| rule.device.device == "gpu-0").unwrap().clone();
    (world, rule)
}

/// The rules are what they were, and keep what they kept.
fn must_be_mended(mut world: World, rules: &BTreeMap<String, FenceRule>) {
    world.settle_for(1);
    assert_eq!(&world.server.rules, rules, "at once");
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["a/gpu-0".into(), "a/gpu-1".into()]));
    world.check_rest();
}

#[test]
fn a_rule_that_somebody_deletes_is_made_again() {
    by_rules(|| {
        let (mut world, rule) = kept();
        let before = world.server.rules.clone();
        world.server.remove_rule(&rule.name);
        must_be_mended(world, &before);
    });
}

#[test]
fn a_rule_that_somebody_edits_is_made_anew() {
    by_rules(|| {
        // With another effect it closes nothing, and without the name of a device all of the pool.
        for (value, device) in
            [("", "gpu-0"), ("of-another", "gpu-0"), ("", "gpu-1"), ("its own", "gpu-1"), ("its own", "")]
        {
            let (mut world, rule) = kept();
            let before = world.server.rules.clone();
            let value = if value == "its own" { rule.value.clone() } else { value.to_owned() };
            let device = DeviceKey { device: device.to_owned(), ..rule.device.clone() };
            world.server.put(FenceRule { value, device, ..rule.clone() });
            must_be_mended(world, &before);
        }
    });
}

#[test]
fn what_is_open_for_a_moment_is_not_said_to_be_kept() {
    by_rules(|| {
        let (mut world, rule) = kept();
        world.server.remove_rule(&rule.name);
        world.pod("quick", "db", 1, "");
        assert!(world.schedule("quick"));
        assert_eq!(world.has("quick"), ["a/gpu-0"]);
        world.settle();
        assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["a/gpu-1".into(), "a/gpu-2".into()]));
        assert!(world.notices.iter().any(|notice| notice.reason == "Lost" && notice.message.contains("quick")));
        world.check_rest();
    });
}

#[test]
fn a_device_whose_rule_has_a_name_that_somebody_else_took_is_left_for_another() {
    by_rules(|| {
        let mut world = World::new(&[1, 1]);
        world.server.rules_of_others.insert(rule_name(&DeviceKey::new(DRIVER, "a", "gpu-0")));
        world.reserve("r", wants(1, "web"));
        world.settle();
        assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["b/gpu-0".into()]));
        world.check_rest();
    });
}

/// Until the controller is about to write this; it is not written.
fn until(world: &mut World, is_it: impl Fn(&HoldWrite) -> bool) {
    let is_about = |world: &World| {
        let mut commands = world.controller.commands.iter();
        commands.any(|command| matches!(command, HoldCommand::Write(write) if is_it(write)))
    };
    for _ in 0..10_000 {
        if is_about(world) {
            return;
        }
        if !(world.deliver() || world.execute_next(0) || world.answer() || world.publish()) {
            world.wake();
        }
    }
    panic!("it is never written");
}

/// A controller stands still before it writes; another one lets `r` go and keeps its device for `s`, up to a write.
fn stands_still(before: impl Fn(&HoldWrite) -> bool) -> World {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    until(&mut world, before);
    world.begin_rival();
    world.settle();
    world
}

/// `s` has the device, and nothing else is closed.
fn must_be_of_s(mut world: World) {
    world.settle();
    world.swap();
    world.settle();
    assert_eq!((world.phase("s"), world.held("s").len()), (Phase::Available, 1));
    let value = world.value("s");
    assert!(world.server.rules.values().map(|rule| &rule.value).eq([&value]), "{:?}", world.server.rules);
    world.rival = None;
    world.check_rest();
}

#[test]
fn of_two_controllers_that_close_a_device_for_two_the_name_of_the_rule_lets_one() {
    let is_made = |write: &HoldWrite| matches!(write, HoldWrite::CreateRule(_));
    by_rules(|| {
        // The one that wakes is the second.
        let mut world = stands_still(is_made);
        world.server.delete_reservation("r");
        world.reserve("s", wants(1, "web"));
        world.settle();
        let value = world.value("s");
        world.swap();
        while world.execute_next(0) {}
        assert!(world.server.rules.values().map(|rule| &rule.value).eq([&value]), "{:?}", world.server.rules);
        must_be_of_s(world);
        // The one that wakes is the first.
        let mut world = stands_still(is_made);
        world.server.delete_reservation("r");
        world.settle();
        assert!(world.server.rules.is_empty());
        world.reserve("s", wants(1, "web"));
        until(&mut world, is_made);
        let value = world.value("s");
        world.swap();
        while world.execute_next(0) {}
        let values: Vec<&String> = world.server.rules.values().map(|rule| &rule.value).collect();
        assert!(values.len() == 1 && *values[0] != value, "{values:?}");
        world.swap();
        must_be_of_s(world);
    });
}

#[test]
fn a_controller_that_is_late_deletes_no_rule_that_is_another_ones_by_now() {
    by_rules(|| {
        let mut world = World::new(&[1]);
        world.reserve("r", wants(1, "web"));
        world.settle();
        world.server.delete_reservation("r");
        until(&mut world, |write| matches!(write, HoldWrite::DeleteRule(_)));
        world.begin_rival();
        world.reserve("s", wants(1, "web"));
        world.settle();
        assert_eq!(world.phase("s"), Phase::Available);
        world.swap();
        while world.execute_next(0) {}
        must_be_of_s(world);
    });
}
