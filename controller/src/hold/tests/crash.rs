//! A whole life of Reservations, with something going wrong at every single write.

use hostler_api::reservation::ReservationPhase as Phase;
use serde_json::json;

use super::{
    cluster::key,
    world::{World, by_rules, settings, wants, wants_and, wants_part},
};
use crate::{
    hold::{DeviceKey, HoldCommand, HoldEvent, HoldSettings, HoldWrite},
    testkit::Fate,
};

/// One is taken by its owner, one is used twice and deleted, one loses a device, one waits for a pod, one expires. Says how many
/// writes that took.
pub(super) fn life(driver: &str, fates: &[(usize, Fate)]) -> usize {
    let settings = HoldSettings { has_rules: true, ..settings() };
    let mut world = World::with(settings, driver, &[2, 2, 1]);
    world.fates.extend(fates.iter().copied());
    world.reserve("once", wants(2, "web"));
    world.reserve("often", wants_and(1, "job", json!({"allocateOnce": false})));
    world.settle();
    let (once, often) = (world.value("once"), world.value("often"));
    world.pod("web", "web", 2, &once);
    assert!(world.schedule("web"), "{fates:?}");
    world.settle();
    assert_eq!(world.phase("once"), Phase::Succeeded, "{fates:?}");
    world.pod("job", "job", 1, &often);
    assert!(world.schedule("job"), "{fates:?}");
    world.settle();
    world.end_pod("job");
    world.settle();
    assert_eq!(world.held("often").len(), 1, "{fates:?}");
    world.pod("thief", "db", 1, "*");
    world.schedule("thief");
    world.settle();
    world.reserve("after", wants_and(2, "web", json!({"preAllocation": true, "ttl": "30m"})));
    world.settle();
    world.end_pod("web");
    world.settle();
    assert_eq!(world.phase("after"), Phase::Available, "{fates:?}");
    world.server.delete_reservation("often");
    world.settle();
    assert!(!world.server.reservations.contains_key("often"), "{fates:?}");
    world.settle_for(1800);
    assert_eq!(world.phase("after"), Phase::Failed, "{fates:?}");
    world.settle();
    let writes = world.writes.len();
    world.check_rest();
    writes
}

/// Parts of a device: taken by owners, twice; one goes before it has its part, one is too late, one expires, one is deleted. Says how
/// many writes that took.
fn life_of_parts(driver: &str, fates: &[(usize, Fate)]) -> usize {
    let settings = HoldSettings { has_rules: true, ..settings() };
    let mut world = World::with(settings, driver, &[1, 1]);
    world.share("a", "gpu-0", 8);
    world.share("b", "gpu-0", 8);
    world.fates.extend(fates.iter().copied());
    world.reserve("often", wants_part(3, "job", json!({"allocateOnce": false, "replicas": 2})));
    world.settle();
    assert_eq!(world.held("often").len(), 2, "{fates:?}");
    let often = world.value("often");
    world.pod_of_part("gone", "job", 3, &often);
    world.settle();
    world.end_pod("gone");
    world.settle();
    world.pod_of_part("job", "job", 3, &often);
    world.settle();
    assert!(world.schedule("job"), "{fates:?}");
    world.settle();
    assert_eq!(world.held("often").len(), 1, "{fates:?}");
    world.end_pod("job");
    world.settle();
    assert_eq!(world.held("often").len(), 2, "{fates:?}");
    world.pod_of_part("late", "db", 6, "");
    world.in_flight.insert(key("late"), vec![DeviceKey::new(driver, "a", "gpu-0")]);
    assert!(world.bind("late"), "{fates:?}");
    world.settle();
    assert_eq!(world.held("often"), ["b/gpu-0", "b/gpu-0"], "{fates:?}");
    world.reserve("once", wants_part(1, "web", json!({"ttl": "30m"})));
    world.settle();
    world.server.delete_reservation("often");
    world.settle();
    assert!(!world.server.reservations.contains_key("often"), "{fates:?}");
    world.settle_for(1800);
    assert_eq!(world.phase("once"), Phase::Failed, "{fates:?}");
    world.settle();
    let writes = world.writes.len();
    world.check_rest();
    assert!(world.server.claims.values().all(|claim| claim.placeholder.is_none()), "{fates:?}");
    writes
}

#[test]
fn whatever_happens_at_any_write_no_part_is_lost_kept_twice_or_kept_for_nobody() {
    for driver in DRIVERS {
        let writes = life_of_parts(driver, &[]);
        assert!(writes >= 30, "{writes}");
        for at in 0..writes {
            for fate in Fate::ALL {
                life_of_parts(driver, &[(at, fate)]);
            }
        }
    }
}

#[test]
fn two_deaths_at_any_two_writes_do_no_harm_to_parts() {
    for driver in DRIVERS {
        for first in 0..life_of_parts(driver, &[]) {
            for second in first + 1..first + 5 {
                for fates in [[Fate::DieAfter, Fate::DieBefore], [Fate::DieBefore, Fate::DieAfter], [Fate::DieAfter; 2]]
                {
                    life_of_parts(driver, &[(first, fates[0]), (second, fates[1])]);
                }
            }
        }
    }
}

pub(super) const DRIVERS: [&str; 2] = ["hostler.dev", "gpu.example.com"];

#[test]
fn whatever_happens_at_any_write_nothing_is_lost_kept_twice_or_kept_for_nobody() {
    for driver in DRIVERS {
        let writes = life(driver, &[]);
        assert!(writes >= 20, "{writes}");
        for at in 0..writes {
            for fate in Fate::ALL {
                life(driver, &[(at, fate)]);
            }
        }
    }
}

/// A second death long after the first one is as a first one.
#[test]
fn two_deaths_at_any_two_writes_do_no_harm() {
    for driver in DRIVERS {
        for first in 0..life(driver, &[]) {
            for second in first + 1..first + 5 {
                for fates in [[Fate::DieAfter, Fate::DieBefore], [Fate::DieBefore, Fate::DieAfter], [Fate::DieAfter; 2]]
                {
                    life(driver, &[(first, fates[0]), (second, fates[1])]);
                }
            }
        }
    }
}

/// One step of a controller to which nothing is said about what closes devices.
fn step_without_news_of_fences(world: &mut World) -> bool {
    let is_news = |event: &HoldEvent| {
        !matches!(event, HoldEvent::NodeFences(_) | HoldEvent::Rule(_) | HoldEvent::RuleGone(_) | HoldEvent::Slice(_))
    };
    world.deliver_where(is_news) || world.answer() || world.execute_next(0)
}

fn closes(command: Option<&HoldCommand>) -> bool {
    match command {
        Some(HoldCommand::Write(HoldWrite::NodeFences { fences, .. })) => !fences.is_empty(),
        Some(HoldCommand::Write(HoldWrite::CreateRule(_))) => true,
        _ => false,
    }
}

fn go_on_without_news_of_fences(world: &mut World) {
    for _ in 0..100 {
        if !step_without_news_of_fences(world) {
            world.wake();
        }
        world.check();
    }
}

/// A Reservation of which so many writes that close its device were answered by nothing, before any news of them.
fn lose_answers(fates: &[Fate]) -> World {
    let mut world = World::new(&[1]);
    world.settle();
    world.reserve("r", wants(1, "web"));
    for fate in fates {
        for _ in 0..100 {
            if closes(world.controller.commands.front()) {
                break;
            }
            if !step_without_news_of_fences(&mut world) {
                world.wake();
            }
        }
        assert!(closes(world.controller.commands.front()), "{fates:?}");
        world.fates.plan(0, *fate);
        world.execute_next(0);
    }
    world
}

fn delete_after_lost_answers(fates: &[Fate]) {
    let mut world = lose_answers(fates);
    world.server.delete_reservation("r");
    go_on_without_news_of_fences(&mut world);
    world.settle();
    assert!(world.server.reservations.is_empty(), "{fates:?}");
    world.check_rest();
}

#[test]
fn a_reservation_is_let_go_only_once_it_is_certain_what_lost_answers_closed() {
    let after = [Fate::FailAfter, Fate::FailBefore];
    for fates in
        after.iter().flat_map(|first| [vec![*first], vec![*first, Fate::FailAfter], vec![*first, Fate::FailBefore]])
    {
        delete_after_lost_answers(&fates);
        by_rules(|| delete_after_lost_answers(&fates));
    }
}

#[test]
fn a_rule_whose_answer_was_lost_is_left_alone_where_its_reservation_cannot_be_understood() {
    by_rules(|| {
        let mut world = lose_answers(&[Fate::FailAfter]);
        world.unreadable.insert("r".to_owned());
        world.change("r", |_| {});
        go_on_without_news_of_fences(&mut world);
        assert_eq!(world.server.rules.len(), 1);
        world.unreadable.clear();
        world.change("r", |_| {});
        world.settle();
        assert_eq!(world.phase("r"), Phase::Available);
        world.check_rest();
    });
}
