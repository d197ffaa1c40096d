//! Situations, and what is said of each.

use serde_json::{Value, json};

use super::*;

fn claim(status: &Value) -> ResourceClaim {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "train", "namespace": "ml", "uid": "u1"},
        "status": status,
    });
    serde_json::from_value(claim).unwrap()
}

fn allocated_by(driver: &str, pool: &str) -> ClaimObject {
    let result = json!({"request": "r", "driver": driver, "pool": pool, "device": "a"});
    let users = json!([{"resource": "pods", "name": "p", "uid": "x"}]);
    let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": users});
    ClaimObject::Found(Box::new(claim(&status)))
}

fn device(pool: &str, health: Option<Health>) -> DeviceFact {
    DeviceFact {
        pool: pool.to_owned(),
        device: "a".to_owned(),
        access: Access::Use,
        health,
        stale: None,
        unknown: None,
        drained: None,
        others: Vec::new(),
        bound: String::new(),
    }
}

fn record(state: ClaimState, problem: Option<&str>) -> Option<RecordFact> {
    Some(RecordFact { uid: "u1".to_owned(), state, problem: problem.map(str::to_owned) })
}

fn failure(uid: &str, error: &str) -> Option<FailureFact> {
    Some(FailureFact { uid: uid.to_owned(), operation: "prepare".to_owned(), error: error.to_owned(), seconds_ago: 5 })
}

fn hot() -> Option<Health> {
    Some(Health::Unhealthy { reason: "hot".to_owned() })
}

/// Allocated here, healthy, not on record.
fn facts() -> ClaimFacts {
    ClaimFacts {
        asked: "ml/train".to_owned(),
        driver: "hostler.dev".to_owned(),
        node: "n".to_owned(),
        origin: ClaimOrigin::Cluster,
        record: None,
        object: allocated_by("hostler.dev", "n/fake"),
        failure: None,
        devices: vec![device("n/fake", Some(Health::Healthy))],
        offer: None,
    }
}

/// A name for the table's reader, the situation, and what state, summary and advice have to hold.
type Situation = (&'static str, ClaimFacts, &'static str, &'static str, &'static str);

fn on_record_and_ready() -> Vec<Situation> {
    let prepared = || ClaimFacts { record: record(ClaimState::Prepared, None), ..facts() };
    let mut newer = claim(&json!({}));
    newer.metadata.uid = Some("u2".to_owned());
    vec![
        ("well", prepared(), "prepared", "holds 1 device", ""),
        (
            "sick",
            ClaimFacts { devices: vec![device("n/fake", hot())], ..prepared() },
            "prepared",
            "n/fake/a is unhealthy: hot",
            "delete the pod",
        ),
        (
            "unplugged",
            ClaimFacts { devices: vec![device("n/fake", None)], ..prepared() },
            "prepared",
            "not on this host",
            "mend",
        ),
        (
            "deleted",
            ClaimFacts { object: ClaimObject::Missing, ..prepared() },
            "prepared",
            "no longer in the API",
            "taken back",
        ),
        (
            "made anew",
            ClaimFacts { object: ClaimObject::Found(Box::new(newer)), ..prepared() },
            "prepared",
            "a newer claim of the same name",
            "taken back",
        ),
        (
            "API down",
            ClaimFacts { object: ClaimObject::Unknown("refused".to_owned()), ..prepared() },
            "prepared",
            "holds",
            "",
        ),
    ]
}

fn on_record_and_not_ready() -> Vec<Situation> {
    vec![
        (
            "stuck",
            ClaimFacts {
                record: record(ClaimState::Preparing, Some("failed to undo")),
                devices: vec![device("n/fake", hot())],
                ..facts()
            },
            "preparing",
            "failed to undo",
            "mend device n/fake/a (hot)",
        ),
        (
            "at work",
            ClaimFacts { record: record(ClaimState::Preparing, None), ..facts() },
            "preparing",
            "worked on",
            "tries again",
        ),
        (
            "quarantined",
            ClaimFacts { record: record(ClaimState::Quarantined, Some("checksum")), ..facts() },
            "quarantined",
            "checksum",
            "hostler claim forget u1",
        ),
    ]
}

fn not_on_record() -> Vec<Situation> {
    let mut held = device("n/fake", Some(Health::Healthy));
    held.others = vec!["u9 (ml/eval)".to_owned()];
    let down =
        || ClaimFacts { object: ClaimObject::Unknown("connection refused".to_owned()), devices: Vec::new(), ..facts() };
    let elsewhere =
        ClaimFacts { object: allocated_by("hostler.dev", "m/fake"), devices: vec![device("m/fake", None)], ..facts() };
    let unallocated =
        ClaimFacts { object: ClaimObject::Found(Box::new(claim(&json!({})))), devices: Vec::new(), ..facts() };
    let others = ClaimFacts { object: allocated_by("gpu.dev", "n/gpu"), devices: Vec::new(), ..facts() };
    let mut nobodys = claim(&json!({}));
    if let ClaimObject::Found(found) = allocated_by("hostler.dev", "n/fake") {
        nobodys.status.allocation = found.status.allocation;
    }
    let object = ClaimObject::Found(Box::new(nobodys));
    vec![
        ("waiting", facts(), "allocated", "nobody has asked", "kubectl describe pod"),
        ("no pod", ClaimFacts { object: object.clone(), ..facts() }, "allocated", "nobody has asked", "start a pod"),
        (
            "manifest",
            ClaimFacts { origin: ClaimOrigin::Manifests, object, ..facts() },
            "allocated",
            "nobody has asked",
            "hostler claim prepare -n ml train",
        ),
        (
            "held by another",
            ClaimFacts { devices: vec![held], failure: failure("u1", "device a is held"), ..facts() },
            "failed",
            "device a is held",
            "also given to u9 (ml/eval)",
        ),
        (
            "unplugged",
            ClaimFacts { devices: vec![device("n/fake", None)], failure: failure("u1", "no such device"), ..facts() },
            "failed",
            "no such device",
            "plug device n/fake/a in again",
        ),
        (
            "failure of an earlier claim",
            ClaimFacts { failure: failure("u0", "held"), ..facts() },
            "allocated",
            "nobody",
            "kubelet",
        ),
        ("other node", elsewhere, "elsewhere", "another node than n", "pool m/fake"),
        ("not allocated", unallocated, "pending", "scheduler found no node", "kubectl describe pod"),
        ("other driver", others, "elsewhere", "driver hostler.dev has no part", "status.allocation"),
        (
            "gone",
            ClaimFacts { object: ClaimObject::Missing, ..facts() },
            "missing",
            "there is no such claim",
            "namespace",
        ),
        ("API down", down(), "unknown", "could not be asked", "connection refused"),
        ("API down, failed", ClaimFacts { failure: failure("u1", "the API"), ..down() }, "failed", "the API", ""),
    ]
}

#[test]
fn each_situation_is_told_with_what_to_do() {
    let situations = [on_record_and_ready(), on_record_and_not_ready(), not_on_record()];
    for (name, facts, state, summary, advice) in situations.into_iter().flatten() {
        let told = explain(&facts);
        assert_eq!(told.state.to_string(), state, "{name}: {told:?}");
        assert!(told.summary.contains(summary), "{name}: {}", told.summary);
        assert!(told.next.join("\n").contains(advice), "{name}: {:?}", told.next);
    }
}

#[test]
fn an_allocation_that_cannot_be_used_names_its_field() {
    let mut facts = facts();
    if let ClaimObject::Found(claim) = &mut facts.object {
        claim.status.allocation.as_mut().unwrap().devices.results[0].device = "Bad_Name".to_owned();
    }
    let told = explain(&facts);
    assert!(told.summary.contains("field status.allocation.devices.results[0].device"), "{}", told.summary);
}

#[test]
fn a_device_of_a_backend_that_does_not_answer_is_not_called_gone() {
    let mut facts = ClaimFacts { record: record(ClaimState::Prepared, None), ..facts() };
    facts.devices = vec![DeviceFact { unknown: Some("it hangs".to_owned()), ..device("n/fake", None) }];
    let told = explain(&facts);
    assert_eq!(told.summary, "it is prepared, but nothing is known of device n/fake/a: it hangs");
    assert!(told.next[0].contains("does not tell what it has: it hangs"), "{:?}", told.next);
    assert!(told.facts.iter().any(|fact| fact == "device n/fake/a: nothing is known of it: it hangs"), "{told:?}");
}

#[test]
fn everything_that_was_found_out_is_told() {
    let mut facts =
        ClaimFacts { record: record(ClaimState::Prepared, None), failure: failure("u1", "was held"), ..facts() };
    let device = &mut facts.devices[0];
    device.drained = Some("new firmware".to_owned());
    device.stale = Some("no sysfs".to_owned());
    device.bound = "bound to CPUs 0-3".to_owned();
    device.access = Access::Admin;
    if let ClaimObject::Found(claim) = &mut facts.object {
        claim.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
    }
    let told = explain(&facts).facts.join("\n");
    for expected in [
        "on record as prepared with uid u1",
        "in the API server with uid u1",
        "being deleted since 2026-01-01",
        "allocated: of 1 device 1 from driver hostler.dev",
        "reserved for pods/p",
        "drained: new firmware",
        "no sysfs",
        "bound to CPUs 0-3",
        "administrative access",
        "last failure, 5 s ago, to prepare uid u1: was held",
    ] {
        assert!(told.contains(expected), "{expected} is not in\n{told}");
    }
}
