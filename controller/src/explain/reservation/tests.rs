//! What is said of Reservations, in every state that one can be in.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000;

/// A Reservation of a minute ago.
fn reservation(name: &str, status: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "1", "generation": 2, "creationTimestamp": "2027-01-15T07:59:00Z",
            "finalizers": ["hostler.dev/reservation"],
        },
        "spec": {"ttl": "1h", "owners": [{"controller": {"kind": "Job", "namespace": "ml", "name": "train"}}]},
        "status": status,
    })
}

fn device(name: &str, state: &str, owner: &Value) -> Value {
    json!({
        "claim": "c", "request": "r", "driver": "hostler.dev", "pool": "n1/fake", "device": name, "nodeName": "n1",
        "state": state, "owner": owner,
    })
}

fn status(phase: &str, ready: [&str; 3], devices: &[Value]) -> Value {
    json!({
        "phase": phase, "observedGeneration": 2, "tolerationValue": "0123456789abcdef", "devices": devices,
        "held": devices.iter().filter(|device| device["state"] == "Held").count(),
        "conditions": [{
            "type": "Ready", "status": ready[0], "reason": ready[1], "message": ready[2],
            "lastTransitionTime": "2027-01-15T07:59:30Z",
        }],
    })
}

fn world(reservations: &[Value]) -> ReservationWorld {
    let mut world = ReservationWorld::default();
    world.take(&json!({"kind": "ReservationList", "items": reservations}).to_string()).unwrap();
    world
}

fn said(world: &ReservationWorld, name: &str) -> String {
    world.explained(name, UNIX_EPOCH + Duration::from_secs(NOW)).unwrap()
}

#[test]
fn what_is_kept_is_told_with_until_when_the_toleration_and_whom_it_fits() {
    let kept =
        status("Available", ["True", "Available", "all 1 devices are kept"], &[device("a", "Held", &json!(null))]);
    let mut world = world(&[reservation("r", &kept)]);
    assert_eq!(world.owner_namespaces("r"), Some(vec!["ml".to_owned()]));
    let pod = |name: &str, node: &str| {
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": true}]);
        json!({
            "metadata": {"name": name, "namespace": "ml", "uid": name, "ownerReferences": owner},
            "spec": {"nodeName": node}, "status": {"phase": "Pending"},
        })
    };
    let claim = |pod: &str, tolerations: Value| {
        json!({
            "metadata": {"name": format!("{pod}-c"), "namespace": "ml", "ownerReferences": [{"kind": "Pod", "name": pod, "uid": pod}]},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "g", "tolerations": tolerations}}]}},
        })
    };
    let toleration = json!([{"key": "hostler.dev/held", "value": "0123456789abcdef", "effect": "NoSchedule"}]);
    let pods = [pod("no", ""), pod("yes", ""), pod("runs", "n1"), pod("none", "")];
    world.take(&json!({"kind": "PodList", "items": pods}).to_string()).unwrap();
    let claims = [claim("no", json!([])), claim("yes", toleration)];
    world.take(&json!({"kind": "ResourceClaimList", "items": claims}).to_string()).unwrap();
    assert_eq!(
        said(&world, "r"),
        "Reservation r: Available, 1 of 1 devices held, for Job ml/train\n  \
         it can be relied on since 2027-01-15T07:59:30Z: all 1 devices are kept (Available)\n  \
         held: hostler.dev/n1/fake/a on n1\n  \
         it lasts until 2027-01-15T08:59:00Z\n  \
         requests for its devices need tolerations: [{key: hostler.dev/held, operator: Equal, value: 0123456789abcdef, effect: \
         NoSchedule}]\n  \
         owner ml/no waits: its claim no-c does not tolerate what is kept; write that into its template, and make the pod anew\n  \
         owner ml/yes waits: it tolerates what is kept, and the scheduler says in its Events what it lacks\n  \
         owner ml/none waits: it has no claim of its own that wants devices\n"
    );
}

#[test]
fn who_has_a_device_that_is_lost_or_waited_for_is_named_and_so_are_other_reservations() {
    let owner = json!({"namespace": "ops", "pod": "p", "claim": "p-c", "uid": "u"});
    let devices = [device("a", "Lost", &owner), device("b", "Fencing", &owner), device("c", "Lost", &json!(null))];
    let lost = status("Pending", ["False", "Lost", "lost: …"], &devices);
    let kept = status("Available", ["True", "Available", ""], &[device("d", "Held", &json!(null))]);
    let text = said(&world(&[reservation("r", &lost), reservation("other", &kept)]), "r");
    for line in [
        "it cannot be relied on since 2027-01-15T07:59:30Z: lost: … (Lost)",
        "hostler.dev/n1/fake/a on n1: lost: pod ops/p (claim ops/p-c) has it",
        "hostler.dev/n1/fake/b on n1: waited for: pod ops/p (claim ops/p-c) still has it",
        "hostler.dev/n1/fake/c on n1: lost: it is gone, does not work or cannot be closed",
        "other Reservations keep devices: other (1 devices, until 2027-01-15T08:59:00Z)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_budget_that_is_in_the_way_of_an_eviction_is_named() {
    let mut waiting = status("Waiting", ["False", "Waiting", "0 of 1 devices are released"], &[]);
    let eviction = |name: &str, state: &str, message: &str| json!({"namespace": "ml", "name": name, "uid": name, "state": state, "message": message});
    waiting["evictions"] = json!([
        eviction("a", "Blocked", "budget careful needs 1 healthy pods"),
        eviction("b", "Planned", ""),
        eviction("c", "Evicted", ""),
        eviction("d", "Gone", ""),
    ]);
    let text = said(&world(&[reservation("r", &waiting)]), "r");
    for line in [
        "pod ml/a cannot be evicted yet: budget careful needs 1 healthy pods",
        "pod ml/b is to be evicted",
        "pod ml/c is evicted",
        "pod ml/d went by itself",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn who_does_not_close_a_device_is_named() {
    let fencing = status("Pending", ["False", "Fencing", "…"], &[device("a", "Fencing", &json!(null))]);
    let mut world = world(&[reservation("r", &fencing)]);
    assert_eq!(world.nodes_to_ask("r"), ["n1"]);
    let mut closing = |hardware: Option<Value>| {
        world.take_hardware("n1", hardware).unwrap();
        let text = said(&world, "r");
        text.lines().find_map(|line| line.split_once("being closed to others: ")).unwrap().1.to_owned()
    };
    let hardware = |told: bool, published: Option<i64>, conditions: Value| {
        let holds = json!([{"pool": "n1/fake", "device": "a", "value": "0123456789abcdef"}]);
        Some(json!({
            "metadata": {"name": "n1", "generation": 3}, "spec": {"holds": if told { holds } else { json!([]) }},
            "status": {"driver": "hostler.dev", "holdsGeneration": published, "conditions": conditions},
        }))
    };
    assert_eq!(closing(None), "there is no NodeHardware n1; does hostler's daemon run there?");
    assert_eq!(closing(hardware(false, None, json!([]))), "the controller has not told node n1 yet");
    let silent = "the daemon of node n1 has not published it yet; is it running?";
    assert_eq!(closing(hardware(true, Some(2), json!([]))), silent);
    assert_eq!(
        closing(hardware(true, Some(3), json!([]))),
        "it is closed; what schedulers had decided on before is waited for"
    );
    let cannot = json!([{"type": "HoldsPublished", "status": "False", "reason": "DevicesNotHeld", "message": "a is a part",
        "lastTransitionTime": ""}]);
    assert_eq!(closing(hardware(true, Some(3), cannot)), "the daemon of node n1 cannot: a is a part");
    let mut other = hardware(true, None, json!([]));
    other.as_mut().unwrap()["status"]["driver"] = json!("other.example.com");
    assert!(closing(other).contains("DeviceTaintRule"));
}

#[test]
fn that_nobody_settles_it_is_said() {
    let nobody = "is there a controller with capabilities.reservations switched on, and does one lead?";
    let text = said(&world(&[reservation("r", &json!({}))]), "r");
    assert!(text.contains(&format!("nobody has said anything of it yet: {nobody}")), "{text}");
    let mut changed = status("Available", ["True", "Available", ""], &[]);
    changed["observedGeneration"] = json!(1);
    let text = said(&world(&[reservation("r", &changed)]), "r");
    assert!(
        text.contains(&format!("its spec is another one since, and nobody has looked at that yet: {nobody}")),
        "{text}"
    );
    let mut late = reservation("r", &status("Available", ["True", "Available", ""], &[]));
    late["spec"]["ttl"] = json!("1s");
    late["metadata"]["creationTimestamp"] = json!("2027-01-15T07:50:00Z");
    let text = said(&world(&[late]), "r");
    assert!(text.contains(&format!("its time is over: {nobody}")), "{text}");
}

#[test]
fn one_that_is_over_or_goes_says_what_is_left_of_it() {
    let failed = status("Failed", ["False", "Expired", "its time is over"], &[device("a", "Releasing", &json!(null))]);
    let text = said(&world(&[reservation("r", &failed)]), "r");
    assert!(text.contains("it is over since 2027-01-15T07:59:30Z: its time is over (Expired)"), "{text}");
    assert!(text.contains("not opened to others yet: hostler.dev/n1/fake/a on n1"), "{text}");
    let mut going =
        reservation("r", &status("Available", ["True", "Available", ""], &[device("a", "Held", &json!(null))]));
    going["metadata"]["deletionTimestamp"] = json!("2027-01-15T07:59:40Z");
    let text = said(&world(&[going.clone()]), "r");
    assert!(text.contains("goes when nothing is closed for it any more") && text.contains("fake/a on n1"), "{text}");
    going["metadata"]["finalizers"] = json!(["example.com/x"]);
    let text = said(&world(&[going]), "r");
    assert!(text.contains("finalizers of others keep it: example.com/x"), "{text}");
}

#[test]
fn owners_that_may_be_anywhere_are_looked_for_everywhere() {
    let kept = status("Available", ["True", "Available", ""], &[]);
    let mut anywhere = reservation("r", &kept);
    anywhere["spec"]["owners"] = json!([{"labelSelector": {"matchLabels": {"a": "b"}}}]);
    assert_eq!(world(&[anywhere.clone()]).owner_namespaces("r"), Some(vec!["default".to_owned()]));
    anywhere["spec"]["owners"] = json!([{"object": {"uid": "u"}}]);
    assert_eq!(world(&[anywhere.clone()]).owner_namespaces("r"), None);
    anywhere["status"]["phase"] = json!("Pending");
    assert_eq!(world(&[anywhere]).owner_namespaces("r"), Some(Vec::new()), "nobody can take anything yet");
}
