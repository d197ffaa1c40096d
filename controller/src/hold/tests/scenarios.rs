//! Scenarios, in the order of a Reservation's life.

use hostler_api::{
    ObjectKey,
    reservation::{PRE_ALLOCATABLE, PRE_ALLOCATABLE_PRIORITY, ReservationPhase as Phase, ReservedDeviceState as State},
};
use serde_json::json;

use super::world::{DRIVER, Means, World, settings, wants, wants_and};
use crate::hold::{DeviceKey, HoldSettings, HoldWrite, NodeFences, taken_by_reservations};

#[test]
pub(super) fn a_reservation_becomes_available_with_devices_and_few_writes() {
    let mut world = World::new(&[2, 2]);
    world.reserve("r", wants(2, "web"));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["a/gpu-0".into(), "a/gpu-1".into()]));
    let status = &world.get("r").status;
    assert_eq!((status.node_name.as_deref(), status.held), (Some("a"), 2));
    assert_eq!(status.toleration_value, Some(world.value("r")));
    assert_eq!(
        serde_json::to_value(&status.allocatable).unwrap(),
        json!({"gpu.deviceclass.resource.k8s.io/devices": "2"})
    );
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(world.condition("r", "Settled").0, "Settled");
    // A node is told of all its devices at once; rules are about one each.
    let of_fences = if world.means == Means::Rules { 2 } else { 1 };
    assert_eq!(world.writes.len(), 3 + of_fences, "{:#?}", world.writes);
    assert!(matches!(world.writes[0], HoldWrite::Finalizers(..)));
    world.check_rest();
}

#[test]
pub(super) fn nothing_is_promised_before_every_claim_was_listed_after_the_settle_time() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    world.settle_for(4);
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Pending, "Fencing"));
    assert!(world.is_closed("a", "gpu-0"), "others are kept off before it is promised");
    world.settle_for(3);
    assert_eq!(world.phase("r"), Phase::Available);
}

#[test]
fn a_node_that_cannot_be_told_to_close_its_devices_is_named() {
    let mut world = World::new(&[1]);
    world.server.remove::<NodeFences>(&"a".to_owned());
    world.reserve("r", wants(1, "web"));
    world.settle_for(4);
    let why = "there is no NodeHardware a; does hostler's daemon run there?";
    assert_eq!(world.condition("r", "Ready"), ("Fencing", &*format!("devices are being closed to others; {why}")));
    world.settle();
    let lost = format!("lost: hostler.dev/a/gpu-0, which cannot be closed: {why}");
    assert_eq!(world.condition("r", "Ready"), ("Lost", &*lost));
    world.server.put(NodeFences { node: "a".to_owned(), ..NodeFences::default() });
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
}

#[test]
pub(super) fn without_capacity_it_is_pending_with_a_reason_and_available_when_there_is_some() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(2, "web"));
    world.settle();
    let (reason, message) = world.condition("r", "Scheduled");
    assert_eq!((world.phase("r"), reason), (Phase::Pending, "Unschedulable"));
    assert!(message.contains("request r"), "{message}");
    world.check_rest();
    world.node("b", DRIVER, 2);
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 2));
}

#[test]
pub(super) fn a_template_of_claims_that_is_not_there_is_named_and_taken_when_it_comes() {
    let mut world = World::new(&[1]);
    let mut spec = wants(1, "web");
    spec["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = json!("later");
    world.reserve("r", spec);
    world.settle();
    let message = world.condition("r", "Scheduled").1;
    assert!(message.contains("later"), "{message}");
    let key = super::cluster::key("later");
    world.server.facts.add_template(key, serde_json::from_value(super::world::asks(1)).unwrap());
    world.feed(crate::hold::HoldEvent::FactsChanged(u64::MAX));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
}

#[test]
pub(super) fn what_cannot_be_understood_is_said_and_nothing_else_is_done() {
    let mut world = World::new(&[1]);
    world.reserve("r", json!({"owners": [{"object": {}}], "template": {}}));
    world.settle();
    assert_eq!(world.condition("r", "Scheduled").0, "Invalid");
    assert!(world.condition("r", "Ready").1.contains("nothing is asked for"));
    world.check_rest();
}

#[test]
pub(super) fn claims_written_inline_are_kept_without_a_pod() {
    let mut world = World::new(&[2]);
    world.reserve(
        "r",
        json!({"deviceClaims": [{"name": "two", "spec": super::world::asks(2)}], "owners": [{"object": {}}]}),
    );
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 2));
    assert_eq!(world.get("r").status.devices[0].claim, "two");
}

#[test]
pub(super) fn a_scheduler_gives_what_is_kept_to_those_who_tolerate_it_only() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    world.pod("other", "db", 1, "");
    assert!(!world.schedule("other"));
    let value = world.value("r");
    world.pod("owner", "web", 1, &value);
    assert!(world.schedule("owner"));
    world.settle_for(1);
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Succeeded, "Succeeded"));
    assert_eq!(world.get("r").status.current_owners[0].name, "owner");
    world.settle();
    assert!(!world.is_closed("a", "gpu-0"));
    world.check_rest();
}

#[test]
pub(super) fn what_an_owner_did_not_take_is_open_at_once_and_what_it_took_after_the_settle_time() {
    let mut world = World::new(&[2]);
    world.reserve("r", wants(2, "web"));
    world.settle();
    let value = world.value("r");
    world.pod("owner", "web", 1, &value);
    assert!(world.schedule("owner"));
    world.settle_for(1);
    assert_eq!(world.phase("r"), Phase::Succeeded);
    let held = |world: &World| ["gpu-0", "gpu-1"].iter().filter(|device| world.is_closed("a", device)).count();
    assert_eq!(held(&world), 1);
    world.settle_for(10);
    assert_eq!(held(&world), 0);
    world.check_rest();
}

#[test]
pub(super) fn with_allocate_once_false_devices_come_back_when_their_owner_goes() {
    let mut world = World::new(&[2]);
    world.reserve("r", wants_and(2, "web", json!({"allocateOnce": false})));
    world.settle();
    let value = world.value("r");
    for round in 0..3 {
        let pod = format!("owner-{round}");
        world.pod(&pod, "web", 2, &value);
        assert!(world.schedule(&pod));
        world.settle();
        assert_eq!((world.phase("r"), world.devices("r", State::HandedOver).len()), (Phase::Available, 2));
        assert_eq!(world.get("r").status.current_owners.len(), 1);
        world.end_pod(&pod);
        world.settle();
        assert_eq!((world.held("r").len(), world.get("r").status.current_owners.len()), (2, 0));
    }
    world.check_rest();
}

#[test]
pub(super) fn replicas_are_served_one_after_the_other_and_shrink_with_the_spec() {
    let mut world = World::new(&[2, 2]);
    world.reserve("r", wants_and(1, "web", json!({"replicas": 4})));
    world.settle();
    assert_eq!((world.held("r").len(), world.get("r").status.node_name.clone()), (4, None));
    let value = world.value("r");
    world.pod("one", "web", 1, &value);
    assert!(world.schedule("one"));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 3));
    world.end_pod("one");
    world.settle();
    assert_eq!((world.phase("r"), world.get("r").status.devices.len()), (Phase::Available, 3), "what it had is open");
    world.change("r", |object| object.spec.replicas = Some(2));
    world.settle();
    assert!(world.held("r").len() <= 2, "{:?}", world.held("r"));
    for stranger in ["x", "y"] {
        world.pod(stranger, "db", 1, "");
        world.schedule(stranger);
    }
    world.pod("two", "web", 1, &value);
    assert!(world.schedule("two"));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Succeeded);
    world.check_rest();
}

#[test]
pub(super) fn two_reservations_never_plan_the_same_device() {
    let mut world = World::new(&[1]);
    world.reserve("first", wants(1, "web"));
    world.reserve("second", wants(1, "web"));
    world.settle();
    assert_eq!((world.phase("first"), world.phase("second")), (Phase::Available, Phase::Pending));
    world.server.delete_reservation("first");
    world.settle();
    assert_eq!(world.phase("second"), Phase::Available);
    assert!(!world.server.reservations.contains_key("first"));
    world.check_rest();
}

#[test]
pub(super) fn a_group_that_does_not_fit_as_a_whole_keeps_nothing_from_others() {
    let mut world = World::new(&[2, 1]);
    world.reserve("large", wants_and(2, "web", json!({"replicas": 2})));
    world.reserve("small", wants(2, "web"));
    world.settle();
    assert_eq!((world.phase("large"), world.phase("small")), (Phase::Pending, Phase::Available));
    assert!(world.get("large").status.devices.is_empty());
}

#[test]
pub(super) fn what_a_reservation_keeps_is_taken_for_all_who_plan() {
    let mut world = World::new(&[2]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    let statuses = || world.server.reservations.values().map(|object| &object.status);
    let taken = taken_by_reservations(statuses());
    assert_eq!(taken.into_iter().collect::<Vec<_>>(), [DeviceKey::new(DRIVER, "a", "gpu-0")]);
    world.server.delete_reservation("r");
    world.settle();
    assert!(taken_by_reservations(world.server.reservations.values().map(|object| &object.status)).is_empty());
}

#[test]
pub(super) fn a_late_allocation_keeps_its_device_and_the_reservation_moves() {
    let mut world = World::new(&[1, 1]);
    world.pod("late", "db", 1, "");
    assert!(world.decide("late"), "before anything is closed");
    world.reserve("r", wants(1, "web"));
    world.settle_for(3);
    assert_eq!(world.devices("r", State::Fencing), ["a/gpu-0"]);
    assert!(world.bind("late"));
    world.settle();
    assert_eq!((world.has("late"), world.held("r")), (vec!["a/gpu-0".into()], vec!["b/gpu-0".into()]));
    assert!(!world.is_closed("a", "gpu-0"));
    world.check_rest();
}

#[test]
pub(super) fn a_device_that_somebody_got_later_than_anybody_expects_is_lost_and_replaced() {
    let mut world = World::new(&[1, 1]);
    world.pod("late", "db", 1, "");
    assert!(world.decide("late"));
    world.reserve("r", wants(1, "web"));
    world.settle();
    assert_eq!(world.held("r"), ["a/gpu-0"]);
    assert!(world.bind("late"));
    world.settle();
    assert_eq!(world.held("r"), ["b/gpu-0"]);
    assert!(world.notices.iter().any(|notice| notice.reason == "Lost" && notice.message.contains("late")));
    world.check_rest();
}

#[test]
pub(super) fn a_thief_that_tolerates_everything_is_named() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    world.pod("thief", "db", 1, "*");
    assert!(world.schedule("thief"));
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Pending, "Lost"));
    assert!(world.condition("r", "Ready").1.contains("default/thief"), "{:?}", world.condition("r", "Ready"));
    world.check_rest();
    world.end_pod("thief");
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available, "it stayed closed, and comes back");
    world.check_rest();
}

#[test]
pub(super) fn a_device_that_stops_working_is_replaced() {
    let mut world = World::new(&[1, 1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    world.edit_device("a", "gpu-0", |device| device.is_usable = false);
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["b/gpu-0".into()]));
    world.check_rest();
}

#[test]
pub(super) fn a_slice_that_goes_is_waited_for_and_then_replaced() {
    let mut world = World::new(&[1, 1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    world.server.remove_slice("a");
    world.settle_for(30);
    assert_eq!(world.held("r"), ["a/gpu-0"]);
    world.settle();
    assert_eq!((world.phase("r"), world.held("r")), (Phase::Available, vec!["b/gpu-0".into()]));
    world.check_rest();
}

#[test]
pub(super) fn a_node_that_goes_for_good_fails_the_reservation() {
    let mut world = World::new(&[1, 1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    world.server.remove_node("a");
    world.server.remove_slice("a");
    world.settle_for(30);
    assert_eq!(world.phase("r"), Phase::Available);
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Failed, "NodeLost"));
    world.check_rest();
}

#[test]
pub(super) fn slices_that_come_back_open_are_closed_before_anything_is_promised_again() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    world.edit_device("a", "gpu-0", |device| (device.held_for, device.is_held) = (None, false));
    world.daemons_down.insert("a".to_owned());
    world.settle_for(1);
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Pending, "Fencing"));
    world.daemons_down.clear();
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
    world.check_rest();
}

#[test]
pub(super) fn a_node_whose_daemon_does_not_answer_is_left_for_another() {
    let mut world = World::new(&[1, 1]);
    world.daemons_down.insert("a".to_owned());
    world.reserve("r", wants(1, "web"));
    world.settle_for(30);
    assert_eq!(world.devices("r", State::Fencing), ["a/gpu-0"]);
    world.settle();
    assert_eq!(world.held("r"), ["b/gpu-0"]);
    world.daemons_down.clear();
    world.settle();
    world.check_rest();
}

#[test]
pub(super) fn an_owner_that_goes_before_it_is_given_anything_changes_nothing() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    let value = world.value("r");
    world.pod("owner", "web", 1, &value);
    assert!(world.decide("owner"));
    world.delete_pod("owner");
    assert!(!world.bind("owner"));
    world.control();
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 1));
    world.check_rest();
}

#[test]
pub(super) fn an_owner_that_goes_while_it_is_handed_over_leaves_nothing_closed() {
    let mut world = World::new(&[1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    let value = world.value("r");
    world.pod("owner", "web", 1, &value);
    assert!(world.schedule("owner"));
    world.settle_for(1);
    assert_eq!(world.phase("r"), Phase::Succeeded);
    world.end_pod("owner");
    world.settle();
    assert!(!world.is_closed("a", "gpu-0"));
    world.check_rest();
}

#[test]
pub(super) fn devices_of_running_owners_are_kept_for_those_who_come_after_them() {
    let mut world = World::new(&[2]);
    world.pod("old", "web", 2, "");
    assert!(world.schedule("old"));
    world.reserve("r", wants_and(1, "web", json!({"preAllocation": true})));
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Waiting, "Waiting"));
    assert_eq!(world.get("r").status.devices.len(), 2, "all that the pod has goes with it");
    assert_eq!(world.condition("r", "Ready").1, "0 of 2 devices are released; pods have the others");
    world.check_rest();
    world.pod("other", "db", 1, "");
    world.end_pod("old");
    assert!(!world.schedule("other"), "it is closed before it is free");
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 2));
    world.check_rest();
}

#[test]
fn with_mode_cluster_pods_that_permit_it_make_room_the_greatest_number_first_and_owners_do_not() {
    let mut world = World::new(&[3]);
    for (pod, app) in [("owner", "web"), ("first", "db"), ("later", "db")] {
        world.pod(pod, app, 1, "");
        assert!(world.schedule(pod));
    }
    for (pod, priority) in [("first", "7"), ("later", "-1")] {
        let key = ObjectKey::new("default", pod);
        let pod = &mut world.server.pods.get_mut(&key).unwrap().is;
        pod.labels.insert(PRE_ALLOCATABLE.to_owned(), "true".to_owned());
        pod.annotations.insert(PRE_ALLOCATABLE_PRIORITY.to_owned(), priority.to_owned());
    }
    let policy = json!({"preAllocation": true, "preAllocationPolicy": {"mode": "Cluster"}});
    world.reserve("r", wants_and(1, "web", policy));
    world.settle();
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Waiting, "Waiting"));
    let [device] = &world.get("r").status.devices[..] else { panic!("{:?}", world.get("r").status) };
    assert_eq!(device.owner.as_ref().unwrap().pod, "first");
    world.end_pod("first");
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Available, 1));
    world.check_rest();
}

#[test]
pub(super) fn devices_of_several_owners_are_kept_only_where_that_is_allowed() {
    for is_allowed in [false, true] {
        let mut world = World::new(&[2]);
        for pod in ["one", "two"] {
            world.pod(pod, "web", 1, "");
            assert!(world.schedule(pod));
        }
        let policy = json!({"preAllocation": true, "preAllocationPolicy": {"enableMultiple": is_allowed}});
        world.reserve("r", wants_and(2, "web", policy));
        world.settle();
        let expected = if is_allowed { Phase::Waiting } else { Phase::Pending };
        assert_eq!(world.phase("r"), expected);
        world.end_pod("one");
        world.settle();
        assert_eq!(world.phase("r"), Phase::Waiting, "one pod is left in any case");
        world.end_pod("two");
        world.settle();
        assert_eq!(world.phase("r"), Phase::Available);
        world.check_rest();
    }
}

#[test]
pub(super) fn a_device_that_an_owner_has_of_this_or_another_reservation_is_not_waited_for() {
    let mut world = World::new(&[1, 1]);
    let more = json!({"preAllocation": true, "allocateOnce": false, "replicas": 2});
    world.reserve("r", wants_and(1, "web", more));
    world.settle();
    let value = world.value("r");
    world.pod("owner", "web", 1, &value);
    assert!(world.schedule("owner"));
    world.settle();
    let (had, other) = if world.has("owner") == ["a/gpu-0"] { ("a", "b") } else { ("b", "a") };
    world.edit_device(other, "gpu-0", |device| device.is_usable = false);
    world.reserve("s", wants_and(1, "web", json!({"preAllocation": true})));
    world.settle();
    assert_eq!(world.devices("r", State::HandedOver), [format!("{had}/gpu-0")]);
    assert_eq!(world.devices("r", State::Lost), [format!("{other}/gpu-0")]);
    assert_eq!((world.phase("r"), world.phase("s")), (Phase::Pending, Phase::Pending));
    assert!(world.get("s").status.devices.is_empty());
    world.check_rest();
    world.end_pod("owner");
    world.settle();
    assert_eq!(world.held("r"), [format!("{had}/gpu-0")]);
    assert!(world.get("s").status.devices.is_empty());
    world.check_rest();
}

#[test]
pub(super) fn devices_of_strangers_are_never_waited_for() {
    let mut world = World::new(&[1]);
    world.pod("stranger", "db", 1, "");
    world.schedule("stranger");
    world.reserve("r", wants_and(1, "web", json!({"preAllocation": true})));
    world.settle();
    assert_eq!((world.phase("r"), world.get("r").status.devices.len()), (Phase::Pending, 0));
}

#[test]
pub(super) fn devices_of_other_drivers_are_closed_by_rules_or_refused_with_the_reason() {
    let mut world = World::with(settings(), "gpu.example.com", &[1]);
    world.reserve("r", wants(1, "web"));
    world.settle();
    assert!(
        world.condition("r", "Scheduled").1.contains("DeviceTaintRules"),
        "{:?}",
        world.condition("r", "Scheduled")
    );
    world.check_rest();
    let mut world = World::with(HoldSettings { has_rules: true, ..settings() }, "gpu.example.com", &[1, 1]);
    world.reserve("r", wants(2, "web"));
    world.reserve("s", wants(1, "web"));
    world.settle();
    assert_eq!((world.phase("r"), world.phase("s")), (Phase::Pending, Phase::Available));
    assert_eq!(world.server.rules.len(), 1);
    world.pod("other", "db", 1, "");
    assert!(world.schedule("other"));
    assert_eq!(world.has("other"), ["b/gpu-0"]);
    let value = world.value("s");
    world.pod("owner", "web", 1, &value);
    assert!(world.schedule("owner"));
    world.settle();
    assert_eq!(world.phase("s"), Phase::Succeeded);
    assert!(world.server.rules.is_empty());
    world.check_rest();
}

#[test]
pub(super) fn a_part_of_a_device_is_not_closed_unless_schedulers_can_bear_it() {
    for (driver, is_mended) in [(DRIVER, false), (DRIVER, true), ("gpu.example.com", false), ("gpu.example.com", true)]
    {
        let of_all = HoldSettings { holds_partitions: is_mended, has_rules: true, ..settings() };
        let mut world = World::with(of_all, driver, &[1]);
        world.edit_device("a", "gpu-0", |device| device.is_partition = true);
        world.reserve("r", wants(1, "web"));
        world.settle();
        let expected = if is_mended { Phase::Available } else { Phase::Pending };
        assert_eq!(world.phase("r"), expected, "{driver} {is_mended}");
        let (_, said) = world.condition("r", "Scheduled");
        assert_eq!(said.contains("where all have it, set reservations.holds_partitions = true"), !is_mended, "{said}");
        world.check_rest();
    }
}

#[test]
pub(super) fn a_shared_device_is_kept_as_a_whole_or_not_at_all() {
    let mut world = World::new(&[1]);
    world.edit_device("a", "gpu-0", |device| device.is_shareable = true);
    world.pod("user", "db", 1, "");
    world.schedule("user");
    world.reserve("r", wants(1, "web"));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Pending);
    world.end_pod("user");
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
    world.check_rest();
}

#[test]
pub(super) fn quotas_are_said_in_their_own_names() {
    let mut world = World::new(&[2]);
    world.reserve("r", wants_and(2, "web", json!({"allocateOnce": false})));
    world.settle();
    let value = world.value("r");
    world.pod("owner", "web", 1, &value);
    world.schedule("owner");
    world.settle();
    let status = serde_json::to_value(&world.get("r").status).unwrap();
    assert_eq!(status["allocatable"], json!({"gpu.deviceclass.resource.k8s.io/devices": "2"}));
    assert_eq!(status["allocated"], json!({"gpu.deviceclass.resource.k8s.io/devices": "1"}));
}

/// So many at once, on ten nodes with room for all.
fn reserve_at_once(count: usize) {
    let mut world = World::new(&[count / 10; 10]);
    for at in 0..count {
        world.reserve(&format!("r-{at}"), wants(1, "web"));
    }
    world.settle_for(60);
    let available = world.server.reservations.values().filter(|it| it.status.phase == Phase::Available).count();
    assert_eq!(available, count);
    assert!(world.writes.len() <= count * 5, "{}", world.writes.len());
}

#[test]
pub(super) fn many_reservations_at_once_are_available_with_at_most_five_writes_each() {
    reserve_at_once(100);
}

#[test]
#[ignore = "takes a minute"]
fn a_thousand_reservations_at_once_are_available_with_at_most_five_writes_each() {
    reserve_at_once(1000);
}
