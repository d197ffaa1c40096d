//! Pods of lower priority make room.

use hostler_api::reservation::{PodEvictionState as Eviction, ReservationPhase as Phase, ReservedDeviceState as State};
use serde_json::json;

use super::{
    cluster::key,
    world::{World, preempts, settings, wants, wants_and},
};
use crate::{
    hold::{HoldSettings, PriorityClasses},
    testkit::Fate,
};

/// Who was evicted, in turn.
fn evicted(world: &World) -> Vec<&str> {
    world.server.evictions.iter().filter(|it| it.is_done).map(|it| &*it.pod).collect()
}

/// A pod that has the only device, and a Reservation that may not evict it yet.
fn blocked() -> World {
    let mut world = World::new(&[1]);
    world.running("one", "db", 1, 0);
    world.server.budgets.insert("db".to_owned(), 1);
    world.reserve("r", preempts(1, "web"));
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Waiting, "Waiting"));
    world
}

#[test]
fn pods_of_lower_priority_go_once_everything_is_closed_and_what_they_had_is_kept() {
    let mut world = World::new(&[2]);
    world.running("one", "db", 1, 0);
    world.running("two", "db", 1, 10);
    world.reserve("r", preempts(2, "web"));
    for _ in 0..60 {
        world.settle_for(1);
        let is_closed = world.server.slices["a"].devices.iter().all(|device| device.held_for.is_some());
        assert!(is_closed || world.server.evictions.is_empty());
    }
    assert_eq!((world.phase("r"), world.held("r").len(), evicted(&world)), (Phase::Available, 2, vec!["one", "two"]));
    let said: Vec<_> = world.get("r").status.evictions.iter().map(|it| (&*it.name, it.state)).collect();
    assert_eq!(said, [("one", Eviction::Evicted), ("two", Eviction::Evicted)]);
    assert_eq!(world.notices.iter().filter(|it| it.reason == "Evicted").count(), 2);
    world.pod("other", "db", 1, "");
    assert!(!world.schedule("other"), "nobody else gets what was freed");
    let value = world.value("r");
    world.pod("web", "web", 2, &value);
    assert!(world.schedule("web"));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Succeeded);
    world.check_rest();
}

#[test]
fn nobody_is_evicted_where_it_is_not_asked_for_nor_for_the_like_nor_for_nothing() {
    for (spec, priority) in [
        (wants(1, "web"), 0),
        (preempts(1, "web"), 1000),
        (preempts(1, "web"), 2000),
        // Not even all of them are enough.
        (preempts(3, "web"), 0),
        // Its own pods are none that it evicts.
        (preempts(1, "db"), 0),
    ] {
        let mut world = World::new(&[2]);
        world.running("one", "db", 1, priority);
        world.running("two", "db", 1, priority);
        world.reserve("r", spec.clone());
        world.settle();
        assert_eq!((world.phase("r"), world.reason("r")), (Phase::Pending, "Unschedulable"), "{spec}");
        assert!(world.server.evictions.is_empty() && world.get("r").status.devices.is_empty());
        world.check_rest();
    }
}

#[test]
fn what_is_free_is_taken_before_anybody_goes() {
    let mut world = World::new(&[1, 1]);
    world.running("one", "db", 1, 0);
    world.reserve("r", preempts(1, "web"));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["b/gpu-0".to_owned()]));
    assert!(world.server.evictions.is_empty());
}

#[test]
fn the_least_important_go_and_of_them_as_few_as_possible() {
    // One pod with two devices rather than two pods, and nobody who is more important.
    let mut world = World::new(&[2, 2, 2]);
    for (name, wants, priority) in [("a", 1, 5), ("b", 1, 5), ("c", 2, 7), ("d", 2, 5)] {
        world.running(name, "db", wants, priority);
    }
    world.reserve("r", preempts(2, "web"));
    world.settle();
    assert_eq!((world.phase("r"), evicted(&world)), (Phase::Available, vec!["d"]));
    // Beside what is free only one has to go.
    let mut world = World::new(&[3]);
    world.running("low", "db", 1, -5);
    world.running("lower", "db", 1, -10);
    world.reserve("r", preempts(2, "web"));
    world.settle();
    assert_eq!((world.phase("r"), evicted(&world)), (Phase::Available, vec!["lower"]));
}

#[test]
fn all_that_a_pod_has_is_kept_with_it() {
    let mut world = World::new(&[2]);
    world.running("one", "db", 2, 0);
    world.reserve("r", preempts(1, "web"));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 2));
    world.check_rest();
}

#[test]
fn nobody_goes_whose_devices_are_not_all_closed() {
    let mut world = World::new(&[1, 1]);
    world.running("one", "db", 1, 0);
    world.running("two", "db", 1, 10);
    world.daemons_down.insert("a".to_owned());
    world.reserve("r", preempts(1, "web"));
    world.settle_for(50);
    assert!(world.server.evictions.is_empty());
    // Its node does not close it: another one is looked for.
    world.settle();
    assert_eq!((world.phase("r"), evicted(&world)), (Phase::Available, vec!["two"]));
    world.daemons_down.clear();
    world.settle();
    world.check_rest();
}

#[test]
fn nobody_goes_for_what_a_late_allocation_took() {
    let mut world = World::new(&[2]);
    world.running("one", "db", 1, 0);
    world.pod("late", "db", 1, "");
    world.server.pods.get_mut(&key("late")).unwrap().is.priority = 2000;
    assert!(world.decide("late"), "a scheduler has decided, and has not written it yet");
    world.reserve("r", preempts(2, "web"));
    world.settle_for(3);
    assert_eq!(world.devices("r", State::Fencing).len(), 2);
    assert!(world.bind("late"));
    world.settle();
    assert!(world.server.evictions.is_empty());
    assert_eq!(world.phase("r"), Phase::Pending);
    assert_eq!(world.has("one").len(), 1);
    world.check_rest();
}

#[test]
fn a_budget_that_is_in_the_way_is_named_until_it_allows_it() {
    let mut world = blocked();
    let message = world.condition("r", "Ready").1;
    for words in ["0 of 1 devices are released", "default/one", "budget db is against it"] {
        assert!(message.contains(words), "{message}");
    }
    world.server.budgets.clear();
    world.settle();
    assert_eq!((world.phase("r"), evicted(&world)), (Phase::Available, vec!["one"]));
    world.check_rest();
}

#[test]
fn of_pods_that_would_do_those_go_whose_budget_allows_it() {
    for hides_budgets in [false, true] {
        let mut world = World::new(&[1, 1]);
        world.running("one", "db", 1, 0);
        world.running("two", "job", 1, 10);
        world.server.budgets.insert("db".to_owned(), 1);
        world.server.hides_budgets = hides_budgets;
        world.reserve("r", preempts(1, "web"));
        world.settle();
        // Who may not see budgets asks the least important.
        let expected = if hides_budgets { (Phase::Waiting, vec![]) } else { (Phase::Available, vec!["two"]) };
        assert_eq!((world.phase("r"), evicted(&world)), expected);
        world.server.budgets.clear();
        world.settle();
        let gone = if hides_budgets { "one" } else { "two" };
        assert_eq!((world.phase("r"), evicted(&world)), (Phase::Available, vec![gone]));
        world.check_rest();
    }
}

#[test]
fn where_budgets_are_against_all_as_few_as_can_be_go_against_them() {
    // Of the two on the first node the budget allows one to go, of the two on the second none.
    let mut world = World::new(&[2, 2]);
    for (name, app, priority) in [("a", "db", 7), ("b", "db", 7), ("c", "job", 0), ("d", "job", 0)] {
        world.running(name, app, 1, priority);
    }
    world.server.budgets.extend([("db".to_owned(), 1), ("job".to_owned(), 2)]);
    world.reserve("r", preempts(2, "web"));
    world.settle();
    assert_eq!((world.phase("r"), evicted(&world).len()), (Phase::Waiting, 1));
    assert!(["a", "b"].contains(&evicted(&world)[0]), "{:?}", evicted(&world));
    world.server.budgets.clear();
    world.settle();
    let mut gone = evicted(&world);
    gone.sort_unstable();
    assert_eq!((world.phase("r"), gone), (Phase::Available, vec!["a", "b"]));
    world.check_rest();
}

#[test]
fn a_pod_that_ends_by_itself_meanwhile_is_not_evicted() {
    let mut world = blocked();
    world.end_pod("one");
    world.settle();
    assert_eq!((world.phase("r"), evicted(&world).len()), (Phase::Available, 0));
    assert!(world.get("r").status.evictions.is_empty());
    world.check_rest();
}

#[test]
fn one_that_is_over_or_does_not_want_it_any_more_evicts_nobody() {
    for is_deleted in [true, false] {
        let mut world = blocked();
        if is_deleted {
            world.server.delete_reservation("r");
        } else {
            world.change("r", |object| object.spec.preemption_policy = None);
        }
        while world.deliver() {}
        world.server.budgets.clear();
        world.settle();
        assert!(evicted(&world).is_empty());
        world.check_rest();
    }
}

#[test]
fn what_another_reservation_gave_away_for_a_while_comes_back_to_it() {
    let mut world = World::new(&[1]);
    world.reserve("often", wants_and(1, "db", json!({"allocateOnce": false})));
    world.settle();
    let value = world.value("often");
    world.pod("one", "db", 1, &value);
    assert!(world.schedule("one"));
    world.settle();
    world.reserve("r", preempts(1, "web"));
    world.settle();
    assert!(world.server.evictions.is_empty());
    assert_eq!(world.phase("r"), Phase::Pending);
}

#[test]
fn whom_it_may_evict_is_not_guessed() {
    let mut world = World::new(&[1]);
    world.running("one", "db", 1, 0);
    world.server.priorities = Err("no right to list priorityclasses".to_owned());
    world.reserve("r", preempts(1, "web"));
    world.settle();
    assert!(world.condition("r", "Scheduled").1.contains("no right to list priorityclasses"));
    world.server.priorities = Ok(PriorityClasses::default());
    world.settle();
    assert!(world.condition("r", "Scheduled").1.contains("there is no PriorityClass high"));
    let values = [("high".to_owned(), 7)].into();
    world.server.priorities = Ok(PriorityClasses { values, default: 0 });
    world.settle();
    assert_eq!((world.phase("r"), evicted(&world)), (Phase::Available, vec!["one"]));
    world.check_rest();
}

/// Two pods go for another one, with something going wrong at writes. Says how many there were.
fn story(driver: &str, fates: &[(usize, Fate)]) -> usize {
    let settings = HoldSettings { has_rules: true, ..settings() };
    let mut world = World::with(settings, driver, &[2, 1]);
    world.running("one", "db", 1, 0);
    world.running("two", "db", 1, 0);
    world.running("three", "db", 1, 2000);
    world.fates.extend(fates.iter().copied());
    world.reserve("r", preempts(2, "web"));
    world.settle();
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 2), "{fates:?}");
    let mut gone = evicted(&world);
    gone.sort_unstable();
    assert_eq!(gone, ["one", "two"], "{fates:?}");
    let value = world.value("r");
    world.pod("one", "db", 1, "");
    assert!(!world.schedule("one"), "{fates:?}");
    world.pod("web", "web", 2, &value);
    assert!(world.schedule("web"), "{fates:?}");
    world.settle();
    assert_eq!(world.phase("r"), Phase::Succeeded, "{fates:?}");
    assert!(world.server.pods.contains_key(&key("one")) && world.has("three").len() == 1, "{fates:?}");
    let writes = world.writes.len();
    world.check_rest();
    writes
}

#[test]
fn whatever_happens_at_any_write_those_who_must_go_go_once() {
    for driver in ["hostler.dev", "gpu.example.com"] {
        for at in 0..story(driver, &[]) {
            for fate in Fate::ALL {
                story(driver, &[(at, fate)]);
            }
            for second in at + 1..at + 4 {
                story(driver, &[(at, Fate::DieAfter), (second, Fate::DieAfter)]);
                story(driver, &[(at, Fate::DieBefore), (second, Fate::DieAfter)]);
            }
        }
    }
}

/// All that a pod has goes with it, and of a shared device another one has a part: nothing of that can be kept.
#[test]
fn a_pod_that_has_a_device_together_with_another_is_not_asked_about_without_end() {
    let mut world = World::new(&[2]);
    world.share("a", "gpu-1", 4);
    world.running("old", "db", 2, 10);
    world.pod_of_part("part", "job", 1, "");
    world.server.pods.get_mut(&key("part")).unwrap().is.priority = 2000;
    assert!(world.schedule("part"));
    world.reserve("r", preempts(1, "web"));
    world.settle();
    let message = world.condition("r", "Scheduled").1;
    assert!(message.contains("hostler.dev/a/gpu-1") && message.contains("is another one's as well"), "{message}");
    assert_eq!((world.phase("r"), world.server.evictions.len()), (Phase::Pending, 0));
    world.end_pod("old");
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["a/gpu-0".into()]));
    world.check_rest();
}
