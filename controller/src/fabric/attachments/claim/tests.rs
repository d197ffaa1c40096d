//! Reading claims, and their conditions.

use hostler_api::hardware::ConditionStatus;
use serde_json::{Value, json};

use super::{ClaimNews, ClaimOfDevice};

fn object(results: &Value, devices: &Value) -> Value {
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
    json!({
        "metadata": {"namespace": "ml", "name": "c", "uid": "u", "resourceVersion": "7"},
        "status": {
            "allocation": {
                "devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]},
                "allocationTimestamp": "2026-01-01T00:00:00Z",
            },
            "devices": devices,
        },
    })
}

fn result(pool: &str, device: &str) -> Value {
    json!({
        "request": "r", "driver": "hostler.dev", "pool": pool, "device": device,
        "bindingConditions": ["hostler.dev/attached"],
    })
}

fn read(object: &Value) -> Option<ClaimOfDevice> {
    ClaimOfDevice::of(object, "hostler.dev", "b").unwrap()
}

#[test]
fn a_claim_has_the_device_by_its_allocation_and_not_as_an_administrator() {
    let ours = json!([result("fabric/m/d", "a"), result("fabric/m/d", "b")]);
    let claim = read(&object(&ours, &json!([]))).unwrap();
    assert_eq!((claim.node.as_deref(), claim.pool.as_str()), (Some("n1"), "fabric/m/d"));
    assert_eq!(claim.first.map(|it| it.device), Some("a".to_owned()));
    let mut admin = result("fabric/m/d", "b");
    admin["adminAccess"] = json!(true);
    assert_eq!(read(&object(&json!([admin]), &json!([]))), None);
    assert_eq!(read(&object(&json!([result("n1/cxl", "b")]), &json!([]))), None);
    assert_eq!(read(&json!({"metadata": object(&ours, &json!([]))["metadata"]})), None);
}

#[test]
fn a_claim_asks_for_memory_by_the_request_that_got_the_device() {
    let mut claim = object(&json!([result("fabric/m/d", "b")]), &json!([]));
    assert_eq!(read(&claim).unwrap().memory, None);
    let request = |name: &str, memory: &str| json!({"name": name, "exactly": {"deviceClassName": "c", "capacity": {"requests": {"memory": memory}}}});
    claim["spec"] = json!({"devices": {"requests": [request("other", "1Gi"), request("r", "64Gi")]}});
    assert_eq!(read(&claim).unwrap().memory, Some(hostler_api::Quantity::whole(64 << 30)));
}

#[test]
fn news_of_one_device_keep_what_was_told_of_the_others() {
    let results = json!([result("fabric/m/d", "a"), result("fabric/m/d", "b")]);
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:01Z",
        })
    };
    let devices = json!([
        {"driver": "hostler.dev", "pool": "fabric/m/d", "device": "a", "conditions": [
            condition("hostler.dev/attached", "True"), condition("Ready", "True"),
        ]},
        {"driver": "hostler.dev", "pool": "fabric/m/d", "device": "b", "conditions": [
            condition("hostler.dev/attached", "False"),
        ]},
        {"driver": "other.example", "pool": "p", "device": "b"},
    ]);
    let claim = read(&object(&results, &devices)).unwrap();
    assert!(claim.is_told_to_wait("R") && !claim.is_told_attached());
    let told = claim.with(ClaimNews::Attached, "2026-01-01T00:00:09Z").devices;
    let [a, b] = &*told else { panic!("{told:?}") };
    assert_eq!(a.conditions.len(), 1, "conditions of other writers stay theirs: {a:?}");
    assert_eq!(
        (b.conditions[0].status, &*b.conditions[0].last_transition_time),
        (ConditionStatus::True, "2026-01-01T00:00:09Z")
    );
    let again = claim.with(ClaimNews::Waits { reason: "S", message: String::new() }, "2026-01-01T00:00:09Z").devices;
    assert_eq!(again[1].conditions[0].last_transition_time, "2026-01-01T00:00:01Z", "the status has not changed");
}
