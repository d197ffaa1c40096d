//! The controllers, one step at a time and in any order.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{ControlPlane, ControllerWrite, list, text};
use crate::apiserver::{ApiServer, ApiServerOptions};

const CLAIM: &str = "default/c";

async fn cluster(devices: usize) -> ApiServer {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "10" });
    server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }));
    server.set_status("nodes", "n", json!({ "allocatable": resources }));
    let devices: Vec<Value> = (0..devices).map(|at| json!({ "name": format!("d{at}") })).collect();
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "x.dev" }, "spec": {},
    }));
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": "s" },
        "spec": {
            "driver": "x.dev", "nodeName": "n", "devices": devices,
            "pool": { "name": "n", "generation": 1, "resourceSliceCount": 1 },
        },
    }));
    let spec = json!({ "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "x.dev" } }] } });
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": { "name": "t", "namespace": "default" }, "spec": { "spec": spec },
    }));
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": "c", "namespace": "default" }, "spec": spec,
    }));
    server
}

fn pod(name: &str, claim: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "resourceClaims": [claim], "containers": [{ "name": "m", "image": "none" }] },
    })
}

fn named() -> Value {
    json!({ "name": "c", "resourceClaimName": "c" })
}

fn from_template() -> Value {
    json!({ "name": "c", "resourceClaimTemplateName": "t" })
}

/// What has been written, in words.
fn word(write: &ControllerWrite) -> &'static str {
    match write {
        ControllerWrite::Create(_) => "create",
        ControllerWrite::Update(_) => "update",
        ControllerWrite::UpdateStatus(_) => "status",
        ControllerWrite::ApplyStatus(_) => "apply",
        ControllerWrite::PatchStatus(_) => "patch",
        ControllerWrite::Delete { .. } => "delete",
        ControllerWrite::Bind { .. } => "bind",
    }
}

fn steps(server: &ApiServer, controllers: &mut ControlPlane) -> Vec<&'static str> {
    let mut words = Vec::new();
    while let Some(command) = server.look(|view| controllers.next(view)) {
        words.push(word(&command.write));
        controllers.carry_out(server, &command).unwrap();
    }
    words
}

#[tokio::test]
async fn the_scheduler_writes_finalizer_status_and_node_in_this_order() {
    let server = cluster(1).await;
    server.create(pod("p", &named()));
    let mut controllers = ControlPlane::new();
    assert_eq!(steps(&server, &mut controllers), ["update", "status", "bind"]);
    server.delete("pods", "default/p");
    assert_eq!(steps(&server, &mut controllers), ["status", "update"], "freed, then let go");
    assert!(server.get("resourceclaims", CLAIM).unwrap()["status"]["allocation"].is_null());
}

#[tokio::test]
async fn a_pod_with_a_template_gets_claim_name_and_node_step_by_step() {
    let server = cluster(1).await;
    server.create(pod("p", &from_template()));
    let mut controllers = ControlPlane::new();
    assert_eq!(steps(&server, &mut controllers), ["create", "apply", "update", "status", "bind"]);
    let claim = server.get("pods", "default/p").unwrap()["status"]["resourceClaimStatuses"][0].clone();
    // The real one makes no other claim in place of one that was deleted.
    server.delete("resourceclaims", &format!("default/{}", text(&claim, "resourceClaimName")));
    assert_eq!(steps(&server, &mut controllers), Vec::<&str>::new());
}

/// As the real one was seen to do.
#[tokio::test]
async fn a_pod_that_is_nominated_is_counted_on_its_node_also_while_it_is_gated() {
    let server = cluster(0).await;
    let cpus = |name: &str, priority: i32, gates: &Value| {
        let container = json!({ "name": "m", "image": "none", "resources": { "requests": { "cpu": "6" } } });
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": { "containers": [container], "priority": priority, "schedulingGates": gates },
        })
    };
    let node = |pod: &str| server.get("pods", &format!("default/{pod}")).unwrap()["spec"]["nodeName"].clone();
    server.create(cpus("gated", 0, &json!([{ "name": "g" }])));
    server.edit("pods", "default/gated", |pod| pod["status"]["nominatedNodeName"] = json!("n"));
    server.create(cpus("other", 0, &json!([])));
    let mut controllers = ControlPlane::new();
    controllers.settle(&server);
    assert_eq!((node("gated"), node("other")), (Value::Null, Value::Null));
    server.edit("pods", "default/gated", |pod| drop(pod["spec"].as_object_mut().unwrap().remove("schedulingGates")));
    controllers.settle(&server);
    assert_eq!((node("gated"), node("other")), (json!("n"), Value::Null));
    server.delete("pods", "default/gated");
    server.create(cpus("again", 0, &json!([{ "name": "g" }])));
    server.edit("pods", "default/again", |pod| pod["status"]["nominatedNodeName"] = json!("n"));
    server.create(cpus("higher", 1, &json!([])));
    controllers.settle(&server);
    assert_eq!(node("higher"), json!("n"), "nominations count for pods of the same or a lower priority");
}

#[tokio::test]
async fn a_claim_that_somebody_else_allocates_in_between_is_not_taken() {
    let server = cluster(2).await;
    server.create(pod("p", &named()));
    let mut controllers = ControlPlane::new();
    assert!(controllers.step(&server), "the finalizer");
    let late = server.look(|view| controllers.next(view)).unwrap();
    let result = json!({ "request": "r", "driver": "x.dev", "pool": "n", "device": "d1" });
    server.set_status(
        "resourceclaims",
        CLAIM,
        json!({
            "allocation": { "devices": { "results": [result] }, "allocationTimestamp": "2026-01-01T00:00:00Z" },
        }),
    );
    assert_eq!(controllers.carry_out(&server, &late).unwrap_err().code, 409);
    controllers.settle(&server);
    let claim = server.get("resourceclaims", CLAIM).unwrap();
    assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["device"], "d1");
    assert_eq!(server.get("pods", "default/p").unwrap()["spec"]["nodeName"], "n", "in the next attempt");
    let told = server.list("events").iter().any(|event| text(event, "message").contains("allocated elsewhere"));
    assert!(told, "{:?}", server.list("events"));
}

/// A claim that some other scheduler has given this device.
fn give(server: &ApiServer, name: &str, device: &str) {
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "x.dev" } }] } },
    }));
    let result = json!({ "request": "r", "driver": "x.dev", "pool": "n", "device": device });
    let allocation = json!({ "devices": { "results": [result] }, "allocationTimestamp": "2026-01-01T00:00:00Z" });
    server.set_status("resourceclaims", &format!("default/{name}"), json!({ "allocation": allocation }));
}

#[tokio::test]
async fn a_device_of_two_claims_is_taken_for_free_when_one_goes_until_the_scheduler_begins_anew() {
    for is_new in [false, true] {
        let server = cluster(1).await;
        let mut controllers = ControlPlane::new();
        ["one", "two"].into_iter().for_each(|name| give(&server, name, "d0"));
        controllers.settle(&server);
        server.delete("resourceclaims", "default/one");
        controllers.settle(&server);
        if is_new {
            controllers.restart_scheduler();
        }
        server.create(pod("p", &named()));
        controllers.settle(&server);
        let is_given = server.get("resourceclaims", CLAIM).unwrap()["status"]["allocation"].is_object();
        assert_eq!(is_given, !is_new);
    }
}

/// Who allocates a claim writes the time with it, or its pod: the scheduler adds what lacks, and the server lets no allocation change.
#[tokio::test]
async fn a_claim_that_somebody_else_allocated_is_bound_if_it_has_a_time_or_its_pod_and_else_never() {
    for has_time in [true, false] {
        let server = cluster(1).await;
        let result = json!({ "request": "r", "driver": "x.dev", "pool": "n", "device": "d0" });
        let mut allocation = json!({ "devices": { "results": [result] } });
        if has_time {
            allocation["allocationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        server.set_status("resourceclaims", CLAIM, json!({ "allocation": allocation }));
        let pod = server.create(pod("p", &named()));
        let mut controllers = ControlPlane::new();
        controllers.settle(&server);
        let is_bound = || server.get("pods", "default/p").unwrap()["spec"]["nodeName"] == "n";
        let refused = || server.list("events").iter().filter(|it| text(it, "message").contains("immutable")).count();
        assert_eq!((is_bound(), refused()), (has_time, usize::from(!has_time)), "{:?}", server.list("events"));
        if has_time {
            continue;
        }
        // Whatever else happens in the cluster.
        server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "other" } }));
        controllers.settle(&server);
        assert_eq!((is_bound(), refused()), (false, 2));
        let user = json!({ "resource": "pods", "name": "p", "uid": pod["metadata"]["uid"] });
        server.set_status("resourceclaims", CLAIM, json!({ "allocation": allocation, "reservedFor": [user] }));
        controllers.settle(&server);
        assert!(is_bound(), "then the scheduler has nothing to write");
    }
}

#[tokio::test]
async fn a_missing_template_is_told_once() {
    let server = cluster(1).await;
    server.create(pod("p", &json!({ "name": "c", "resourceClaimTemplateName": "none" })));
    ControlPlane::new().settle(&server);
    let events = server.list("events");
    assert_eq!(events.len(), 1);
    assert!(text(&events[0], "message").contains("resource claim template \"none\""), "{events:?}");
}

#[tokio::test]
async fn a_namespace_goes_with_all_that_is_in_it() {
    let server = cluster(1).await;
    let object =
        |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "x" } });
    server.create(object("a"));
    let namespace = server.get("namespaces", "x").unwrap();
    server
        .carry_out(&super::ControllerCommand {
            who: "somebody",
            write: ControllerWrite::Delete { object: namespace, options: json!({}) },
        })
        .unwrap();
    let refusal = server.try_create(object("b")).unwrap_err().status();
    assert!(text(&refusal, "message").contains("because it is being terminated"), "{refusal}");
    ControlPlane::new().settle(&server);
    assert_eq!((server.get("namespaces", "x"), server.get("configmaps", "x/a")), (None, None));
}

/// Whatever comes in which order: no device is in two allocations, and nothing is left when the pods are gone.
#[tokio::test]
async fn whatever_is_late_no_device_is_given_away_twice_and_all_come_back() {
    for seed in 1..40_u64 {
        let server = cluster(3).await;
        let mut controllers = ControlPlane::new();
        let mut random = seed;
        let mut draw = move |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        let mut late = Vec::new();
        let mut made = 0;
        for _ in 0..120 {
            match draw(6) {
                0 if made < 8 => {
                    let claim = if draw(3) == 0 { named() } else { from_template() };
                    server.create(pod(&format!("p{made}"), &claim));
                    made += 1;
                }
                1 if made > 0 => {
                    server.delete("pods", &format!("default/p{}", draw(made)));
                }
                2 => late.extend(server.look(|view| controllers.next(view))),
                3 if !late.is_empty() => {
                    let at = usize::try_from(draw(u64::try_from(late.len()).unwrap())).unwrap();
                    // What is late is often refused, as it should be.
                    let _ = controllers.carry_out(&server, &late.remove(at));
                }
                _ => {
                    controllers.step(&server);
                }
            }
            check_devices(&server, seed);
        }
        for at in 0..made {
            server.delete("pods", &format!("default/p{at}"));
        }
        controllers.settle(&server);
        let claims = server.list("resourceclaims");
        assert_eq!(claims.len(), 1, "seed {seed}: {claims:#?}");
        assert!(claims[0]["status"]["allocation"].is_null(), "seed {seed}: {claims:#?}");
    }
}

fn check_devices(server: &ApiServer, seed: u64) {
    let mut seen = BTreeSet::new();
    for claim in server.list("resourceclaims") {
        for result in list(&claim["status"]["allocation"]["devices"]["results"]) {
            assert!(seen.insert(result["device"].to_string()), "seed {seed}: {} is given away twice", result["device"]);
        }
    }
}
