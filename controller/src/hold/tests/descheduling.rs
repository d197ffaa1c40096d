//! A pod is moved: what comes after it has its devices first.

use hostler_api::reservation::{PodEvictionState as Eviction, ReservationPhase as Phase};
use serde_json::{Value, json};

use super::{
    cluster::key,
    world::{World, wants_and},
};
use crate::testkit::Fate;

/// What moves a pod of the application.
fn moves(world: &World, pod: &str) -> Value {
    let uid = &world.server.pods[&key(pod)].is.uid;
    wants_and(1, "web", json!({"replaces": {"namespace": "default", "name": pod, "uid": uid}}))
}

/// A cluster with a pod on its first node.
fn with_pod(devices: &[usize]) -> World {
    let mut world = World::new(devices);
    world.pod("web", "web", 1, "");
    assert!(world.schedule("web"));
    assert_eq!(world.has("web"), ["a/gpu-0"]);
    world
}

/// Somebody gets what the pod had.
fn fill(world: &mut World, wants: usize) {
    world.pod("other", "db", wants, "");
    assert!(world.schedule("other"));
}

fn evictions(world: &World, name: &str) -> Vec<(String, Eviction)> {
    world.get(name).status.evictions.iter().map(|it| (it.name.clone(), it.state)).collect()
}

#[test]
fn its_node_is_taken_again_once_the_pod_is_gone_though_its_claim_is_not() {
    let mut world = with_pod(&[2]);
    let spec = moves(&world, "web");
    world.reserve("r", spec);
    world.settle();
    assert_eq!(world.phase("r"), Phase::Pending, "the free device is beside it");
    world.delete_pod("web");
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["a/gpu-1".to_owned()]));
    world.check_rest();
}

#[test]
fn a_pod_is_evicted_once_devices_are_kept_on_another_node_and_not_before() {
    let mut world = with_pod(&[2, 1]);
    let spec = moves(&world, "web");
    world.reserve("r", spec);
    world.settle_for(4);
    assert!(world.server.evictions.is_empty(), "what is not certain yet moves nobody");
    while world.phase("r") != Phase::Available {
        assert!(world.server.evictions.is_empty());
        world.settle_for(1);
    }
    assert_eq!(world.held("r"), ["b/gpu-0"], "not the free device beside it");
    world.settle();
    assert!(!world.server.pods.contains_key(&key("web")));
    assert_eq!(evictions(&world, "r"), [("web".to_owned(), Eviction::Evicted)]);
    assert_eq!(world.condition("r", "Settled").0, "Settled");
    assert!(world.notices.iter().any(|it| it.reason == "Evicted" && it.message.contains("default/web")));
    fill(&mut world, 2);
    let value = world.value("r");
    world.pod("web-2", "web", 1, &value);
    assert!(world.schedule("web-2"));
    assert_eq!(world.has("web-2"), ["b/gpu-0"]);
    world.settle();
    assert_eq!((world.phase("r"), world.server.evictions.len()), (Phase::Succeeded, 1));
    world.check_rest();
}

#[test]
fn nobody_is_evicted_for_devices_that_are_never_there() {
    let mut world = with_pod(&[2]);
    let mut spec = moves(&world, "web");
    spec["ttl"] = json!("10m");
    world.reserve("r", spec);
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Pending, "Unschedulable"));
    world.settle_for(600);
    assert_eq!(world.phase("r"), Phase::Failed);
    world.settle();
    assert!(world.server.evictions.is_empty());
    assert_eq!(world.has("web"), ["a/gpu-0"]);
    world.check_rest();
}

#[test]
fn a_budget_is_waited_for_and_named() {
    let mut world = with_pod(&[1, 1]);
    world.server.budgets.insert("web".to_owned(), 1);
    let spec = moves(&world, "web");
    world.reserve("r", spec);
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
    assert_eq!(evictions(&world, "r"), [("web".to_owned(), Eviction::Blocked)]);
    let (reason, message) = world.condition("r", "Settled");
    assert_eq!(reason, "Evicting");
    assert!(message.contains("default/web") && message.contains("budget web"), "{message}");
    let tries = world.server.evictions.len();
    assert!((3..20).contains(&tries), "less and less often: {tries}");
    assert_eq!(world.notices.iter().filter(|it| it.reason == "EvictionBlocked").count(), 1);
    world.server.budgets.clear();
    world.settle();
    assert_eq!(evictions(&world, "r"), [("web".to_owned(), Eviction::Evicted)]);
    world.check_rest();
}

#[test]
fn a_pod_that_is_gone_or_another_one_of_its_name_is_left_alone() {
    for is_made_anew in [false, true] {
        let mut world = with_pod(&[1, 1]);
        let spec = moves(&world, "web");
        world.reserve("r", spec);
        world.settle_for(3);
        world.end_pod("web");
        if is_made_anew {
            world.pod("web", "web", 1, "");
            assert!(world.schedule("web"));
        }
        world.settle();
        assert_eq!(world.phase("r"), Phase::Available);
        assert_eq!(evictions(&world, "r"), [("web".to_owned(), Eviction::Gone)]);
        assert!(world.server.evictions.is_empty());
        world.check_rest();
    }
}

#[test]
fn a_pod_is_not_moved_for_what_was_lost_again_or_is_over() {
    let mut world = with_pod(&[1, 1]);
    world.server.budgets.insert("web".to_owned(), 1);
    let spec = moves(&world, "web");
    world.reserve("r", spec);
    world.settle();
    world.edit_device("b", "gpu-0", |device| device.is_usable = false);
    world.settle();
    assert_eq!(world.phase("r"), Phase::Pending);
    world.server.budgets.clear();
    world.settle();
    assert!(world.server.evictions.iter().all(|it| !it.is_done));
    world.edit_device("b", "gpu-0", |device| device.is_usable = true);
    world.server.budgets.insert("web".to_owned(), 1);
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
    world.server.delete_reservation("r");
    world.server.budgets.clear();
    world.settle();
    assert!(world.server.evictions.iter().all(|it| !it.is_done));
    assert_eq!(world.has("web"), ["a/gpu-0"]);
    world.check_rest();
}

/// A pod is moved, with something going wrong at writes. Says how many there were.
fn story(fates: &[(usize, Fate)]) -> usize {
    let mut world = with_pod(&[1, 1]);
    world.fates.extend(fates.iter().copied());
    let spec = moves(&world, "web");
    world.reserve("r", spec);
    world.settle();
    world.settle();
    let done: Vec<_> = world.server.evictions.iter().filter(|it| it.is_done).collect();
    assert_eq!((done.len(), world.phase("r")), (1, Phase::Available), "{fates:?}");
    fill(&mut world, 1);
    // Another one under its name is somebody else.
    let value = world.value("r");
    world.pod("web", "web", 1, &value);
    assert!(world.schedule("web"), "{fates:?}");
    world.settle();
    assert_eq!((world.phase("r"), world.has("web")), (Phase::Succeeded, vec!["b/gpu-0".to_owned()]), "{fates:?}");
    let writes = world.writes.len();
    world.check_rest();
    writes
}

#[test]
fn whatever_happens_at_any_write_the_pod_is_moved_once() {
    for at in 0..story(&[]) {
        for fate in Fate::ALL {
            story(&[(at, fate)]);
            for second in at + 1..at + 4 {
                story(&[(at, fate), (second, Fate::DieAfter)]);
            }
        }
    }
}
