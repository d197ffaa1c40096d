//! What contradicts itself is refused by the API server when it is written, with what to write instead; and the nearest to it that
//! makes sense is taken.

use std::{collections::BTreeSet, fs, sync::Arc};

use hostler_testing::apiserver::{ApiServer, ApiServerOptions, ApiServerRelease};
use serde_json::{Value, json};

use crate::rig::root;

/// What is written over the spec of a Reservation; what is null is not there.
struct RefusedSpec {
    refused: Value,
    /// What the refusal says.
    words: &'static str,
    /// The nearest that is taken.
    taken: Value,
}

fn case(refused: Value, words: &'static str, taken: Value) -> RefusedSpec {
    RefusedSpec { refused, words, taken }
}

async fn server() -> Arc<ApiServer> {
    let options = ApiServerOptions { release: ApiServerRelease::V1_36, ..ApiServerOptions::default() };
    let server = Arc::new(ApiServer::start(options).await);
    server.create_yaml(&definition());
    server
}

fn definition() -> String {
    fs::read_to_string(root().join("deploy/crds/reservations.yaml")).unwrap()
}

/// A request for two cards.
fn request(more: &Value) -> Value {
    let mut exactly = json!({ "deviceClassName": "card", "count": 2 });
    over(&mut exactly, more);
    json!({ "deviceClaims": [{ "name": "c", "spec": { "devices": { "requests": [{ "name": "card", "exactly": exactly }] } } }] })
}

fn over(object: &mut Value, more: &Value) {
    let object = object.as_object_mut().unwrap();
    for (field, value) in more.as_object().unwrap() {
        match value {
            Value::Null => drop(object.remove(field)),
            value => drop(object.insert(field.clone(), value.clone())),
        }
    }
}

fn reservation(name: &str, more: &Value) -> Value {
    let mut spec = request(&json!({}));
    over(&mut spec, &json!({ "owners": [{ "object": { "name": "p" } }] }));
    over(&mut spec, more);
    json!({ "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": { "name": name }, "spec": spec })
}

/// Devices in claims that pods name, and something else.
fn shared(more: &Value) -> Value {
    let template = json!({ "metadata": { "namespace": "default" } });
    let mut spec = json!({ "mode": "SharedClaim", "allocateOnce": false, "template": template });
    over(&mut spec, more);
    spec
}

fn owner(owner: &Value) -> Value {
    json!({ "owners": [owner] })
}

fn labels(requirement: &Value) -> Value {
    owner(&json!({ "labelSelector": { "matchExpressions": [requirement] } }))
}

fn whom_it_is_for() -> Vec<RefusedSpec> {
    let request = json!({ "provisioningRequest": { "namespace": "default", "name": "p" } });
    vec![
        case(json!({ "owners": null }), "owners", owner(&request)),
        case(json!({ "owners": [] }), "owners", owner(&json!({ "labelSelector": {} }))),
        case(owner(&json!({})), "it is about nobody; write object", owner(&json!({ "object": { "uid": "u" } }))),
        case(
            owner(&json!({ "object": {} })),
            "it is about every pod; write namespace, name or uid",
            owner(&json!({ "object": { "namespace": "default" } })),
        ),
        case(
            owner(&json!({ "object": { "kind": "Pod", "name": "" } })),
            "it is about every pod; write",
            owner(&json!({ "object": { "kind": "Pod", "name": "p" } })),
        ),
        case(
            owner(&json!({ "controller": { "apiVersion": "apps/v1" } })),
            "it is about every pod that anything made; write kind",
            owner(&json!({ "controller": { "apiVersion": "apps/v1", "kind": "StatefulSet" } })),
        ),
        case(
            labels(&json!({ "key": "a", "operator": "In" })),
            "values are for In and NotIn, which need one",
            labels(&json!({ "key": "a", "operator": "In", "values": ["b"] })),
        ),
        case(
            labels(&json!({ "key": "a", "operator": "Exists", "values": ["b"] })),
            "values are for In and NotIn, which need one",
            labels(&json!({ "key": "a", "operator": "Exists" })),
        ),
    ]
}

fn what_is_kept() -> Vec<RefusedSpec> {
    let moved = json!({ "namespace": "default", "name": "p", "uid": "u" });
    vec![
        case(
            json!({ "deviceClaims": null }),
            "no device is asked for; write template or deviceClaims",
            json!({ "deviceClaims": null, "template": { "metadata": { "namespace": "default" } } }),
        ),
        case(
            request(&json!({ "allocationMode": "All" })),
            "count is for allocationMode ExactCount; leave one of both out",
            request(&json!({ "allocationMode": "All", "count": null })),
        ),
        case(json!({ "ttl": "1d" }), "ttl", json!({ "ttl": "24h0m0s" })),
        case(json!({ "expires": "tomorrow" }), "expires", json!({ "expires": "2030-01-01T00:00:00Z" })),
        case(
            json!({ "ttl": "1h", "expires": "2030-01-01T00:00:00Z" }),
            "ttl and expires contradict each other; leave one of both out",
            json!({ "ttl": "0", "expires": "2030-01-01T00:00:00Z" }),
        ),
        case(
            json!({ "ttl": "24h0m0s", "expires": "2030-01-01T00:00:00Z" }),
            "ttl and expires contradict each other",
            json!({ "ttl": "24h", "expires": "2030-01-01T00:00:00Z" }),
        ),
        case(json!({ "replicas": 0 }), "replicas", json!({ "replicas": 128 })),
        case(
            json!({ "preAllocationPolicy": { "enableMultiple": true } }),
            "write preAllocation: true, or leave it out",
            json!({ "preAllocationPolicy": { "enableMultiple": true }, "preAllocation": true }),
        ),
        case(
            json!({ "preAllocation": true, "preAllocationPolicy": { "mode": "Node" } }),
            "supported values: \"Default\", \"Cluster\"",
            json!({ "preAllocation": true, "preAllocationPolicy": { "mode": "Cluster" } }),
        ),
        case(
            json!({ "restrictedResources": ["cpu"] }),
            "write allocatePolicy: Restricted, or leave it out",
            json!({ "restrictedResources": ["cpu"], "allocatePolicy": "Restricted" }),
        ),
        case(
            json!({ "preAllocation": true, "preemptionPolicy": "PreemptLowerPriority" }),
            "preemptionPolicy evicts others; leave one of both out",
            json!({ "preAllocation": true, "preemptionPolicy": "Never" }),
        ),
        case(
            json!({ "preemptionPolicy": "Always" }),
            "preemptionPolicy",
            json!({ "preemptionPolicy": "PreemptLowerPriority" }),
        ),
        case(
            json!({ "replaces": moved, "replicas": 2 }),
            "replaces is about one pod; leave replicas out",
            json!({ "replaces": moved }),
        ),
        case(json!({ "replaces": { "namespace": "default", "name": "p" } }), "uid", json!({ "replaces": moved })),
    ]
}

fn what_goes_with_shared_claims() -> Vec<RefusedSpec> {
    let moved = json!({ "namespace": "default", "name": "p", "uid": "u" });
    let fence = |more: Value| {
        let mut spec = json!({ "mode": "Fence" });
        over(&mut spec, &more);
        spec
    };
    vec![
        case(shared(&json!({ "replicas": 2 })), "write replicas: 1, or mode: Fence", fence(json!({ "replicas": 2 }))),
        case(
            shared(&json!({ "preAllocation": true })),
            "leave preAllocation out, or write mode: Fence",
            fence(json!({ "preAllocation": true })),
        ),
        case(
            shared(&json!({ "preemptionPolicy": "PreemptLowerPriority" })),
            "mode SharedClaim evicts nobody; leave preemptionPolicy",
            fence(json!({ "preemptionPolicy": "PreemptLowerPriority" })),
        ),
        case(
            shared(&json!({ "replaces": moved })),
            "mode SharedClaim evicts nobody; leave preemptionPolicy",
            fence(json!({ "replaces": moved })),
        ),
        case(shared(&json!({ "allocateOnce": true })), "write allocateOnce: false, or mode: Fence", shared(&json!({}))),
        case(shared(&json!({ "allocateOnce": null })), "write allocateOnce: false, or mode: Fence", fence(json!({}))),
        case(
            shared(&json!({ "template": null })),
            "write the pods' namespace into template.metadata.namespace",
            shared(&json!({ "replicas": 1 })),
        ),
    ]
}

/// A Reservation as it is made, its phase, and what is written over its spec then.
struct RefusedChange {
    made: Value,
    phase: &'static str,
    change: Value,
    words: &'static str,
}

fn changes() -> Vec<RefusedChange> {
    let moved = json!({ "replaces": { "namespace": "default", "name": "p", "uid": "u" } });
    let template = json!({ "template": { "metadata": { "namespace": "other" } } });
    let fewer = request(&json!({ "count": 1 }));
    let refused = |made: &Value, phase, change: &Value, words| RefusedChange {
        made: made.clone(),
        phase,
        change: change.clone(),
        words,
    };
    let (fence, shared) = (json!({}), shared(&json!({})));
    vec![
        refused(&moved, "Pending", &json!({ "replaces": { "uid": "other" } }), "spec.replaces cannot change"),
        refused(&moved, "Pending", &json!({ "replaces": null }), "spec.replaces cannot change"),
        refused(&fence, "Pending", &moved, "spec.replaces cannot change"),
        refused(&fence, "Available", &template, "spec.template cannot change once the Reservation is Available"),
        refused(
            &shared,
            "Pending",
            &template,
            "spec.template cannot change once the Reservation is Available, nor with",
        ),
        refused(&fence, "Available", &fewer, "spec.deviceClaims cannot change once the Reservation is Available"),
        refused(&fence, "Succeeded", &fewer, "spec.deviceClaims cannot change once the Reservation is Available"),
        refused(&shared, "Pending", &fewer, "spec.deviceClaims cannot change once the Reservation is Available, nor"),
        refused(
            &fence,
            "Pending",
            &json!({ "mode": "SharedClaim", "allocateOnce": false, "template": { "metadata": { "namespace": "default" } } }),
            "spec.mode cannot change; make another Reservation",
        ),
    ]
}

/// What the API server says of what it refuses.
fn told(refusal: Result<Value, hostler_testing::apiserver::StatusError>) -> String {
    let refusal = refusal.map_err(|refusal| refusal.status());
    refusal.map_or_else(|status| status["message"].as_str().unwrap().to_owned(), |_| "nothing".to_owned())
}

fn cases() -> Vec<RefusedSpec> {
    [whom_it_is_for(), what_is_kept(), what_goes_with_shared_claims()].into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_contradicts_itself_is_refused_with_the_fix_and_what_does_not_is_taken() {
    let server = server().await;
    for (at, case) in cases().into_iter().enumerate() {
        let told = told(server.try_create(reservation("bad", &case.refused)));
        assert!(told.contains(case.words), "{}: {told:?} does not say {:?}", case.refused, case.words);
        let taken = server.try_create(reservation(&format!("good-{at}"), &case.taken));
        assert!(taken.is_ok(), "{}: {}", case.taken, taken.unwrap_err().status());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_relies_on_cannot_change_and_the_rest_can() {
    let server = server().await;
    for (at, case) in changes().into_iter().enumerate() {
        let name = format!("r-{at}");
        server.create(reservation(&name, &case.made));
        let made = server.set_status("reservations", &name, json!({ "phase": case.phase, "held": 0 }));
        let told = told(server.try_merge(&made, &json!({ "spec": case.change })));
        let change = &case.change;
        assert!(told.contains(case.words), "{change} when {}: {told:?} does not say {:?}", case.phase, case.words);
        let taken = server.try_merge(&made, &json!({ "spec": { "unschedulable": true, "expires": null } }));
        assert!(taken.is_ok(), "{}", taken.unwrap_err().status());
    }
    // Nobody relies on it before it is Available.
    for (name, change) in [("a", request(&json!({ "count": 1 }))), ("b", json!({ "template": {}, "replicas": 2 }))] {
        server.create(reservation(name, &json!({})));
        let made = server.set_status("reservations", name, json!({ "phase": "Waiting", "held": 0 }));
        let taken = server.try_merge(&made, &json!({ "spec": change }));
        assert!(taken.is_ok(), "{change}: {}", taken.unwrap_err().status());
    }
}

/// Messages of all rules of a schema, but those about what drivers are told, which claims have as well.
fn messages(schema: &Value, all: &mut BTreeSet<String>) {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    all.extend(rules.map(|rule| rule["message"].as_str().unwrap().to_owned()));
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties.filter(|(name, _)| *name != "opaque").for_each(|(_, property)| messages(property, all));
    if schema["items"].is_object() {
        messages(&schema["items"], all);
    }
}

#[test]
fn every_rule_of_the_kind_has_its_case() {
    let definition: Value = serde_saphyr::from_str(&definition()).unwrap();
    let mut all = BTreeSet::new();
    messages(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut all);
    assert!(all.len() > 10, "{all:?}");
    let words: Vec<&str> =
        cases().iter().map(|case| case.words).chain(changes().iter().map(|case| case.words)).collect();
    all.retain(|message| !words.iter().any(|words| message.contains(words)));
    assert!(all.is_empty(), "no case is about {all:?}");
}
