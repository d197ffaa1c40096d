//! What requests are told: room, none, none any more, and what is wrong with them. The numbers are those of docs/provisioning.md.

use std::time::Duration;

use hostler_api::{
    ObjectKey,
    hardware::{Condition, ConditionStatus},
    provisioning::ProvisioningConditionType as Type,
};
use serde_json::json;

use super::world::{CLASS, ModelServer, World, key, read};
use crate::{provision::context::Keeping, testkit::Fate};

const MINUTE: Duration = Duration::from_secs(60);
const FOUND: &str = "True CapacityIsFound";
const NOT_FOUND: &str = "False CapacityIsNotFound";

/// 29
#[test]
fn pods_with_devices_fit_or_do_not_and_both_say_where() {
    let mut world = World::of(&[2, 2]);
    world.ask("fits", 4);
    world.ask("large", 5);
    world.settle();
    assert_eq!(world.provisioned("fits"), FOUND);
    assert_eq!(world.says("fits", Type::Accepted), "True Accepted");
    assert_eq!(world.says("fits", Type::CapacityAvailable), FOUND);
    assert_eq!(world.message("fits", Type::CapacityAvailable), "there is room for all pods: fits 4 of 4 on 2 nodes");
    assert_eq!(world.details("fits")["nodes"], "n0=2,n1=2");
    assert_eq!(world.provisioned("large"), NOT_FOUND);
    assert_eq!(world.says("large", Type::CapacityAvailable), NOT_FOUND);
    assert_eq!(world.says("large", Type::Failed), "");
    let message = world.message("large", Type::Provisioned);
    assert!(message.starts_with("there is not room for all pods: large 0 of 5: "), "{message}");
    assert!(message.contains("(2 nodes)"), "{message}");
    world.check_rest();
}

#[test]
fn every_set_is_told_with_what_is_placed_of_what_is_needed() {
    let mut world = World::of(&[2]);
    world.server.template("small", &ModelServer::pod_spec("one"));
    world.server.template("wide", &ModelServer::pod_spec("two"));
    world.ask_for("r", CLASS, &[("small", 1), ("wide", 1)], &[]);
    world.settle();
    let message = world.message("r", Type::Provisioned);
    assert!(message.contains("small 1 of 1; wide 0 of 1: "), "{message}");
    assert!(message.contains("(1 node)"), "{message}");
}

#[test]
fn a_quota_is_counted_before_room_is_promised_and_named_with_its_numbers() {
    const DEVICES: &str = "gpu.deviceclass.resource.k8s.io/devices";
    let allow = |world: &mut World, hard: u32| {
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {DEVICES: hard.to_string()}}});
        world.server.facts.add_quota(key("q"), &read(quota));
    };
    let mut world = World::of(&[4, 4]);
    allow(&mut world, 0);
    world.ask_with("r", 4, &[("bookingSeconds", "3600")]);
    world.ask("s", 2);
    world.settle();
    for (name, asked) in [("r", 4), ("s", 2)] {
        assert_eq!(world.provisioned(name), NOT_FOUND);
        let message = world.message(name, Type::Provisioned);
        let said = format!(
            "ResourceQuota default/q leaves no room: {DEVICES} has hard 0, used 0, promised to others 0, and {asked} are"
        );
        assert!(message.contains(&said), "{message}");
    }
    // Of what it allows the first takes most.
    allow(&mut world, 5);
    world.pass(10 * MINUTE);
    world.settle();
    assert_eq!((world.provisioned("r"), world.provisioned("s")), (FOUND.to_owned(), NOT_FOUND.to_owned()));
    let message = world.message("s", Type::Provisioned);
    assert!(message.contains("hard 5, used 0, promised to others 4, and 2 are asked for"), "{message}");
    world.check_rest();
}

/// 30
#[test]
fn of_two_that_want_the_last_device_in_one_batch_the_older_one_gets_it() {
    let mut world = World::of(&[1]);
    world.keeping = Keeping::NotKept("nobody does".to_owned());
    world.ask("b", 1);
    world.pass(Duration::ZERO);
    world.restart();
    world.delete("b");
    world.ask("b", 1);
    world.ask("a", 1);
    world.settle();
    // Of the same second; the name decides.
    assert_eq!((world.provisioned("a"), world.provisioned("b")), (FOUND.to_owned(), NOT_FOUND.to_owned()));
    world.delete("a");
    world.pass(MINUTE);
    assert_eq!(world.provisioned("b"), FOUND);
}

#[test]
fn a_larger_one_that_does_not_fit_does_not_keep_a_smaller_one_behind_it() {
    let mut world = World::of(&[2]);
    world.ask("a", 3);
    world.ask("b", 2);
    world.ask("c", 1);
    world.settle();
    let told = ["a", "b", "c"].map(|name| world.provisioned(name));
    assert_eq!(told, [NOT_FOUND, FOUND, NOT_FOUND]);
}

/// 32
#[test]
fn who_wants_no_retry_fails_at_once_and_a_bad_value_is_told_and_tried_again() {
    let mut world = World::of(&[1]);
    world.ask_with("once", 2, &[("noRetry", "true")]);
    world.ask_with("typo", 2, &[("noRetry", "yes")]);
    world.ask_with("again", 2, &[("noRetry", "false")]);
    world.settle();
    assert_eq!(world.says("once", Type::Failed), "True CapacityIsNotFound");
    assert_eq!(world.provisioned("once"), "");
    assert_eq!(world.provisioned("typo"), NOT_FOUND);
    assert!(world.message("typo", Type::Accepted).contains("noRetry is \"yes\", which is taken for false"));
    assert_eq!(world.provisioned("again"), NOT_FOUND);
    world.server.node("n1", 8);
    world.pass(MINUTE);
    assert_eq!(world.says("once", Type::Failed), "True CapacityIsNotFound");
    assert_eq!((world.provisioned("typo"), world.provisioned("again")), (FOUND.to_owned(), FOUND.to_owned()));
}

/// 33
#[test]
fn a_request_is_of_use_as_long_as_it_says_and_a_week_where_it_says_nothing() {
    let mut world = World::of(&[0]);
    world.ask_with("hour", 1, &[("ValidUntilSeconds", "3600")]);
    world.ask("week", 1);
    world.ask_with("bad", 1, &[("ValidUntilSeconds", "1h")]);
    world.settle();
    assert_eq!(world.says("bad", Type::Failed), "True FailedToCreatePods");
    assert!(world.message("bad", Type::Failed).contains("ValidUntilSeconds is \"1h\"; write a number of seconds"));
    world.pass(59 * MINUTE);
    assert_eq!(world.says("hour", Type::Failed), "");
    world.pass(MINUTE);
    assert_eq!(world.says("hour", Type::Failed), "True Expired");
    assert_eq!(world.message("hour", Type::Failed), "no capacity was found within 1 h");
    world.pass(7 * 24 * 60 * MINUTE - 61 * MINUTE);
    assert_eq!(world.says("week", Type::Failed), "");
    world.pass(MINUTE);
    assert_eq!(world.message("week", Type::Failed), "no capacity was found within 7 days");
}

/// 34, the limits
#[test]
fn more_pods_than_a_set_may_have_fail_with_the_limit() {
    let mut world = World::of(&[1]);
    world.ask("r", 16_385);
    world.settle();
    assert_eq!(world.says("r", Type::Failed), "True FailedToCreatePods");
    assert!(world.message("r", Type::Failed).contains("count is 16385; write 1 to 16384"));
    world.check_rest();
}

/// 34: as many pods as a request can have, 524,288. Says what it is told.
fn ask_for_most(world: &mut World, spec: &serde_json::Value) -> (String, String) {
    let names: Vec<String> = (0..32).map(|set| format!("set-{set:02}")).collect();
    names.iter().for_each(|name| world.server.template(name, spec));
    let sets: Vec<(&str, i64)> = names.iter().map(|name| (&**name, 16_384)).collect();
    world.ask_for("r", CLASS, &sets, &[]);
    world.settle();
    (world.provisioned("r"), world.message("r", Type::Provisioned).to_owned())
}

/// 34
#[test]
fn as_many_pods_as_a_request_may_have_are_answered_to_the_last_one() {
    for lacking in [0, 1] {
        let mut world = World::new();
        world.server.node_for("n0", 32 * 16_384 - lacking);
        let (told, message) = ask_for_most(&mut world, &ModelServer::pod_spec(""));
        assert_eq!(told, if lacking == 0 { FOUND } else { NOT_FOUND }, "{message}");
        assert!(lacking == 0 || message.contains("set-31 16383 of 16384: "), "{message}");
    }
}

/// 34
#[test]
fn of_as_many_pods_as_a_request_may_have_those_get_devices_for_whom_there_are_some() {
    let mut world = World::of(&[4; 8]);
    let (told, message) = ask_for_most(&mut world, &ModelServer::pod_spec("one"));
    assert_eq!(told, NOT_FOUND);
    assert!(message.contains("set-00 32 of 16384: ") && message.contains("set-01 0 of 16384: "), "{message}");
    assert_eq!(world.kept(), 0, "nothing is kept of what is not enough");
}

/// 35
#[test]
fn a_claim_template_that_comes_later_is_waited_for_like_capacity() {
    let mut world = World::of(&[1]);
    world.server.template("r", &ModelServer::pod_spec("late"));
    world.ask_for("r", CLASS, &[("r", 1)], &[]);
    world.ask_for("once", CLASS, &[("r", 1)], &[("noRetry", "true")]);
    world.settle();
    assert_eq!(world.provisioned("r"), NOT_FOUND);
    let message = world.message("r", Type::Provisioned);
    assert!(message.contains("r 0 of 1: there is no ResourceClaimTemplate default/late"), "{message}");
    assert_eq!(world.says("once", Type::Failed), "True CapacityIsNotFound");
    world.server.claim_template("late", 1);
    world.pass(MINUTE);
    assert_eq!(world.provisioned("r"), FOUND);
}

#[test]
fn templates_of_pods_come_after_the_request_and_who_has_none_after_a_minute_fails() {
    let mut world = World::of(&[2]);
    world.ask_for("late", CLASS, &[("late", 1)], &[]);
    world.ask_for("never", CLASS, &[("never", 1)], &[]);
    world.ask("next", 1);
    world.settle();
    assert_eq!(
        (world.says("late", Type::Accepted), world.provisioned("late")),
        ("True Accepted".to_owned(), String::new())
    );
    assert_eq!(world.provisioned("next"), FOUND, "nobody waits for others' templates");
    world.pass(30 * Duration::from_secs(1));
    world.server.template("late", &ModelServer::pod_spec("one"));
    world.pass(MINUTE);
    assert_eq!(world.provisioned("late"), FOUND);
    assert_eq!(world.says("never", Type::Failed), "True FailedToCreatePods");
    assert!(world.message("never", Type::Failed).starts_with("there is no PodTemplate default/never"));
}

/// 36
#[test]
fn a_claim_that_exists_is_one_for_all_pods_of_a_set() {
    let mut world = World::of(&[1, 1]);
    let mut spec = ModelServer::pod_spec("");
    spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "shared"}]);
    world.server.template("r", &spec);
    world.ask_for("r", CLASS, &[("r", 4)], &[]);
    world.settle();
    assert!(world.message("r", Type::Provisioned).contains("there is no ResourceClaim default/shared"));
    world.server.facts.add_claim(&read(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    })));
    world.pass(MINUTE);
    assert_eq!(world.provisioned("r"), FOUND);
    let details = world.details("r");
    assert!(["n0", "n1"].contains(&&*details["node"]), "one device is on one node: {details:?}");
    // The other device is nobody's.
    world.ask("other", 1);
    world.settle();
    assert_eq!(world.provisioned("other"), FOUND);
}

/// 37
#[test]
fn what_is_not_looked_at_is_named_and_never_called_room() {
    let mut world = World::of(&[4]);
    let mut spec = ModelServer::pod_spec("one");
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]);
    world.server.template("r", &spec);
    world.ask_for("r", CLASS, &[("r", 2)], &[]);
    world.ask_for("once", CLASS, &[("r", 2)], &[("noRetry", "true")]);
    world.settle();
    assert_eq!(world.provisioned("r"), "False FailedToCheckCapacity");
    let message = world.message("r", Type::Provisioned);
    assert!(message.contains("not looked at: volume data claims storage"), "{message}");
    assert_eq!(world.says("once", Type::Failed), "True FailedToCheckCapacity");
}

#[test]
fn pods_that_depend_on_others_are_told_no_and_never_yes() {
    let mut world = World::of(&[4, 4]);
    let mut spec = ModelServer::pod_spec("one");
    // Templates without labels: every pod of the namespace is meant.
    spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}});
    world.server.template("apart", &spec);
    world.ask_for("few", CLASS, &[("apart", 2)], &[]);
    world.ask_for("many", CLASS, &[("apart", 3)], &[]);
    world.settle();
    assert_eq!(world.provisioned("few"), "False FailedToCheckCapacity");
    let message = world.message("few", Type::Provisioned);
    assert!(message.contains("cannot be promised") && message.contains("those of apart"), "{message}");
    assert_eq!(world.provisioned("many"), "False CapacityIsNotFound");
    let message = world.message("many", Type::Provisioned);
    assert!(message.contains("apart 2 of 3: a pod that podAntiAffinity avoids is in the same"), "{message}");
}

/// 38
#[test]
fn others_requests_are_left_alone() {
    let mut world = World::of(&[8]);
    let official = "check-capacity.autoscaling.x-k8s.io";
    world.server.template("t", &ModelServer::pod_spec("one"));
    world.ask_for("official", official, &[("t", 1)], &[]);
    world.ask_for("theirs", official, &[("t", 1)], &[("processorInstance", "other")]);
    world.ask_for("cloud", "queued-provisioning.gke.io", &[("t", 1)], &[]);
    world.ask_for("ours", official, &[("t", 1)], &[("processorInstance", "hostler")]);
    world.settle();
    assert_eq!(["official", "theirs", "cloud"].map(|name| world.says(name, Type::Accepted)), ["", "", ""]);
    assert_eq!(world.provisioned("ours"), FOUND);
    assert_eq!(world.server.writes, 3);
}

#[test]
fn who_is_told_no_waits_a_minute_and_then_twice_as_long_up_to_ten_minutes() {
    let mut world = World::of(&[0]);
    world.ask("r", 1);
    world.settle();
    let mut checked = world.batches.len();
    for minutes in [1, 2, 4, 8, 10, 10] {
        world.pass(minutes * MINUTE - Duration::from_secs(1));
        assert_eq!(world.batches.len(), checked, "before {minutes} minutes");
        world.pass(Duration::from_secs(1));
        checked += 1;
        assert_eq!(world.batches.len(), checked, "after {minutes} minutes");
    }
    let writes = world.server.writes;
    world.pass(10 * MINUTE);
    assert_eq!(world.server.writes, writes, "the same no is not written twice");
}

#[test]
fn the_time_of_a_no_stays_when_its_words_change() {
    let mut world = World::of(&[1]);
    world.ask("r", 3);
    world.settle();
    let before = world.condition("r", Type::Provisioned).unwrap().clone();
    world.server.node("n1", 1);
    world.pass(MINUTE);
    let after = world.condition("r", Type::Provisioned).unwrap();
    assert_ne!(before.message, after.message);
    assert_eq!(before.last_transition_time, after.last_transition_time);
}

#[test]
fn after_a_restart_a_no_counts_from_when_it_was_said() {
    let mut world = World::of(&[0]);
    world.ask("r", 1);
    world.pass(30 * Duration::from_secs(1));
    world.restart();
    let checked = world.batches.len();
    world.pass(29 * Duration::from_secs(1));
    assert_eq!(world.batches.len(), checked);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.batches.len(), checked + 1);
}

/// 40: all pods of a request have room, or nothing is booked for any.
#[test]
fn all_or_nothing_is_booked() {
    let mut world = World::of(&[3]);
    world.server.template("two", &ModelServer::pod_spec("two"));
    world.server.template("one", &ModelServer::pod_spec("one"));
    world.ask_for("atomic", "atomic-scale-up.hostler.dev", &[("two", 1), ("one", 2)], &[]);
    world.ask_for("rest", CLASS, &[("one", 3)], &[]);
    world.settle();
    assert_eq!(world.provisioned("atomic"), NOT_FOUND);
    assert!(world.message("atomic", Type::Provisioned).contains("nothing is booked"));
    assert_eq!(world.provisioned("rest"), FOUND, "no device is kept for a part of it");
}

/// 44
#[test]
fn a_write_that_fails_stops_no_other_and_is_tried_again() {
    for fate in [Fate::FailBefore, Fate::FailAfter, Fate::Conflict] {
        let mut world = World::of(&[3]);
        world.ask_together(&["a", "b", "c"]);
        world.fates.insert("b".to_owned(), fate);
        world.settle();
        assert_eq!((world.provisioned("a"), world.provisioned("c")), (FOUND.to_owned(), FOUND.to_owned()), "{fate:?}");
        world.pass(Duration::from_secs(1));
        assert_eq!(world.provisioned("b"), FOUND, "{fate:?}");
        world.check_rest();
    }
}

/// 45
#[test]
fn after_the_time_box_nothing_is_said_of_those_that_were_not_begun() {
    let mut world = World::of(&[8]);
    (world.candidate_takes, world.most_checks) = (Duration::from_secs(11), 1);
    world.ask_together(&["a", "b", "c"]);
    let versions = |world: &World| ["b", "c"].map(|name| world.server.request(name).version.clone());
    let before = versions(&world);
    world.settle();
    assert_eq!((world.provisioned("a"), &*world.batches), (FOUND.to_owned(), &[3][..]));
    for name in ["b", "c"] {
        assert_eq!(world.provisioned(name), "", "{name}");
        assert_eq!(world.says(name, Type::Accepted), "True Accepted");
    }
    assert_eq!(versions(&world), before, "not one write");
    assert_eq!(world.kept(), 1);
}

/// 45
#[test]
fn after_the_time_box_the_rest_is_left_as_it_is() {
    let mut world = World::of(&[8]);
    world.ask_together(&["a", "b", "c"]);
    world.candidate_takes = Duration::from_secs(11);
    world.settle();
    // Each check looks at one, and the next one begins where that ended.
    assert_eq!(world.batches, [3, 2, 1]);
    assert_eq!(["a", "b", "c"].map(|name| world.provisioned(name)), [FOUND, FOUND, FOUND]);
}

#[test]
fn a_batch_has_as_many_as_it_may() {
    let mut world = World::of(&[30]);
    let names: Vec<String> = (0..25).map(|at| format!("r{at:02}")).collect();
    world.ask_together(&names.iter().map(String::as_str).collect::<Vec<_>>());
    world.settle();
    assert_eq!(world.batches, [10, 10, 5]);
}

#[test]
fn what_somebody_else_says_is_neither_changed_nor_repeated() {
    let mut world = World::of(&[2]);
    world.ask("unknown", 1);
    world.ask("revoked", 1);
    let condition = |kind: &str, status| Condition {
        kind: kind.to_owned(),
        status,
        reason: "Cloud".to_owned(),
        message: String::new(),
        last_transition_time: "2026-01-01T00:00:00Z".to_owned(),
    };
    world.with_status("unknown", |it| it.status.conditions.push(condition("Provisioned", ConditionStatus::Unknown)));
    world.with_status("revoked", |it| it.status.conditions.push(condition("CapacityRevoked", ConditionStatus::False)));
    world.settle();
    assert_eq!(world.says("unknown", Type::Accepted), "");
    assert_eq!(world.provisioned("revoked"), FOUND);
    let ours = &world.server.request("revoked").status.conditions;
    assert!(ours.iter().all(|condition| condition.kind != "CapacityRevoked"), "an apply names only what is its own");
}

#[test]
fn a_request_that_is_asked_to_go_is_not_looked_at() {
    let mut world = World::of(&[1]);
    world.ask("going", 1);
    let others = vec!["example.com/others".to_owned()];
    world.with_status("going", |request| (request.is_going, request.finalizers) = (true, others));
    world.ask("next", 1);
    world.settle();
    assert_eq!((world.provisioned("going"), world.provisioned("next")), (String::new(), FOUND.to_owned()));
}

#[test]
fn pods_of_another_namespace_are_of_no_request_here() {
    let mut world = World::of(&[2]);
    world.ask("r", 1);
    world.settle();
    let pod = read(json!({
        "metadata": {"annotations": {"autoscaling.x-k8s.io/consume-provisioning-request": "r"}},
        "spec": {"nodeName": "n0", "containers": []},
    }));
    world.server.objects.see_pod(ObjectKey::new("other", "p"), &pod);
    world.settle();
    assert_eq!(world.says("r", Type::BookingExpired), "");
    world.server.objects.see_pod(key("p"), &pod);
    world.settle();
    assert_eq!(world.says("r", Type::BookingExpired), "True CapacityBookingConsumed");
}

#[test]
fn nobody_waits_for_ever_behind_those_that_are_told_no_again_and_again() {
    let mut world = World::of(&[0]);
    let names: Vec<String> = (0..30).map(|at| format!("a{at:02}")).collect();
    world.ask_together(&names.iter().map(String::as_str).collect::<Vec<_>>());
    // Each check looks at one alone, and takes a minute: that is less than come up again meanwhile.
    (world.candidate_takes, world.check_takes, world.most_checks) = (11 * Duration::from_secs(1), MINUTE, 40);
    world.settle();
    assert!(names.iter().all(|name| world.provisioned(name) == NOT_FOUND), "{:?}", world.batches);
}
