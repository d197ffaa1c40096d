//! The running controller where batch systems ask for capacity: the real binary, an API server, and requests as they write them.

use std::{fs, process::Command};

use hostler_testing::{
    apiserver::{
        ApiFault, ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView, FaultEffect, LoggedRequest, PolicyRule,
    },
    controller::{ControllerOptions, RunningController},
    provisioning::{KueueWorkload, definition},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::rig::{USER, install, objects, options, root, slice};

const CLASS: &str = "check-capacity.hostler.dev";
const ON: &str = "[capabilities]\nprovisioning = 'on'\n";

/// A cluster with so many nodes that have one device each, and the kind in a version.
async fn cluster(nodes: usize, version: &str) -> ApiServer {
    cluster_of(nodes, &[version]).await
}

/// The same, with the kind in several versions.
async fn cluster_of(nodes: usize, versions: &[&str]) -> ApiServer {
    let server =
        ApiServer::start(ApiServerOptions { release: ApiServerRelease::default(), ..ApiServerOptions::default() })
            .await;
    install(&server);
    server.create(definition(versions));
    for at in 0..nodes {
        let name = format!("n{at}");
        server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } }));
        server.create(slice(&format!("{name}-cpus"), &name));
    }
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "cpu" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"hostler.dev\"" } }] },
    }));
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": { "name": "one", "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "cpu" } }] } } },
    }));
    server.allow(USER, rules());
    server
}

/// The same cluster, with room for pods on two nodes.
fn with_cpus(server: ApiServer) -> ApiServer {
    for node in ["n0", "n1"] {
        server.edit("nodes", node, |object| {
            object["metadata"]["labels"] = json!({ "kubernetes.io/os": "linux" });
            object["status"]["allocatable"] = json!({ "cpu": "8", "pods": "110" });
        });
    }
    server
}

/// What the controller may do.
fn rules() -> Vec<PolicyRule> {
    let files = ["deploy/controller/base/rbac.yaml", "deploy/provisioning/rbac.yaml"];
    files.iter().flat_map(|file| PolicyRule::from_yaml(&fs::read_to_string(root().join(file)).unwrap())).collect()
}

fn switched_on(server: &ApiServer) -> ControllerOptions {
    ControllerOptions { config: ON.to_owned(), ..options(server) }
}

async fn controller(server: &ApiServer) -> RunningController {
    RunningController::start(&switched_on(server)).await
}

/// The objects of a file.
fn manifests(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// A request for so many pods with a device each. Its template comes after it: it is the request's.
fn ask(server: &ApiServer, name: &str, pods: usize, version: &str) {
    server.create(json!({
        "apiVersion": format!("autoscaling.x-k8s.io/{version}"), "kind": "ProvisioningRequest",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "provisioningClassName": CLASS, "parameters": { "ValidUntilSeconds": "86400", "team": "a" },
            "podSets": [{ "podTemplateRef": { "name": format!("ppt-{name}-main") }, "count": pods }],
        },
    }));
    server.create(json!({
        "apiVersion": "v1", "kind": "PodTemplate",
        "metadata": { "name": format!("ppt-{name}-main"), "namespace": "default" },
        "template": {
            "metadata": { "labels": { "app": name } },
            "spec": {
                "containers": [{ "name": "c", "image": "i" }],
                "resourceClaims": [{ "name": "cpu", "resourceClaimTemplateName": "one" }],
            },
        },
    }));
}

/// A request for so many pods of a template that is there, of Cluster Autoscaler's class for all or nothing.
fn ask_for_all_or_nothing(server: &ApiServer, name: &str, pods: usize, parameters: &Value) {
    server.create(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io", "parameters": parameters,
            "podSets": [{ "podTemplateRef": { "name": "ppt-known-main" }, "count": pods }],
        },
    }));
}

/// A request that fails at once: it would book for longer than the controller allows.
fn ask_for_too_long(server: &ApiServer, name: &str) {
    server.create(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "provisioningClassName": CLASS, "parameters": { "bookingSeconds": "7200" },
            "podSets": [{ "podTemplateRef": { "name": "ppt-r-main" }, "count": 1 }],
        },
    }));
}

/// A workload of so many pods with a device each, as Kueue asks for it.
fn workload(name: &str, pods: usize) -> KueueWorkload<'_> {
    KueueWorkload {
        name,
        class: CLASS,
        parameters: &[("ValidUntilSeconds", "86400"), ("bookingSeconds", "600")],
        annotations: &[("bookingSeconds", "300")],
        pod: json!({
            "restartPolicy": "Never", "nodeSelector": { "kubernetes.io/os": "linux" },
            "containers": [{
                "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" }, "claims": [{ "name": "cpu" }] },
            }],
            "resourceClaims": [{ "name": "cpu", "resourceClaimTemplateName": "one" }],
        }),
        pods,
    }
}

/// What people are told who ask why.
fn explain(server: &ApiServer, name: &str) -> String {
    let kubeconfig = server.kubeconfig(USER);
    let output = Command::new(env!("CARGO_BIN_EXE_hostler-controller"))
        .args(["explain", "provreq", name, "--kubeconfig", kubeconfig.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn condition<'a>(request: &'a Value, kind: &str) -> Option<&'a Value> {
    request["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Waits until a condition has this status and reason; gives its message.
async fn until(server: &ApiServer, name: &str, kind: &str, said: [&str; 2]) -> String {
    let what = format!("{name} has {kind}={} ({})", said[0], said[1]);
    let told = |view: &ApiServerView<'_>| {
        let request = view.get("provisioningrequests", name)?;
        let condition = condition(&request, kind)?;
        let is_so = condition["status"] == said[0] && condition["reason"] == said[1];
        is_so.then(|| condition["message"].as_str().unwrap_or_default().to_owned())
    };
    server.until(&what, told).await
}

const FOUND: [&str; 2] = ["True", "CapacityIsFound"];
const NOT_FOUND: [&str; 2] = ["False", "CapacityIsNotFound"];

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_told_yes_another_one_no_and_pods_use_up_the_booking() {
    let server = cluster(3, "v1").await;
    let controller = controller(&server).await;
    ask(&server, "first", 2, "v1");
    let message = until(&server, "first", "Provisioned", FOUND).await;
    assert!(message.starts_with("there is room for all pods: ppt-first-main 2 of 2 on 2 nodes"), "{message}");
    let accepted = until(&server, "first", "Accepted", ["True", "Accepted"]).await;
    assert!(accepted.ends_with("nothing here knows spec.parameters team"), "{accepted}");
    let details = server.get("provisioningrequests", "first").unwrap()["status"]["provisioningClassDetails"].clone();
    assert_eq!(details["nodes"], "n0=1,n1=1");
    assert_eq!(details["plan-hash"].as_str().map(str::len), Some(16), "{details}");
    ask(&server, "second", 2, "v1");
    let message = until(&server, "second", "Provisioned", NOT_FOUND).await;
    assert!(message.contains("ppt-second-main 1 of 2: "), "{message}");
    let explained = explain(&server, "second");
    assert!(
        explained.contains("there is no room for it: there is not room for all pods: ppt-second-main"),
        "{explained}"
    );
    assert!(explained.contains("room is booked for default/first (2 pods, until 20"), "{explained}");
    controller.until_figure("hostler_controller_provisioning_requests{state=\"booked\"} 1").await;
    controller.until_figure("hostler_controller_provisioning_requests{state=\"open\"} 1").await;
    let events = |view: &ApiServerView<'_>| {
        let events = view.list("events");
        let about = |name: &str, kind: &str, reason: &str| {
            let is_it =
                |it: &&Value| it["involvedObject"]["name"] == name && it["type"] == kind && it["reason"] == reason;
            events.iter().any(|it| is_it(&it))
        };
        (about("first", "Normal", "CapacityIsFound") && about("second", "Warning", "CapacityIsNotFound")).then_some(())
    };
    server.until("people are told in Events", events).await;
    for at in 0..2 {
        server.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("p{at}"), "namespace": "default",
                "annotations": { "autoscaling.x-k8s.io/consume-provisioning-request": "first" },
            },
            "spec": { "nodeName": format!("n{at}"), "containers": [{ "name": "c", "image": "i" }] },
        }));
    }
    let used = until(&server, "first", "BookingExpired", ["True", "CapacityBookingConsumed"]).await;
    assert_eq!(used, "all 2 pods have their node");
    assert_eq!(controller.stop().await, Some(0));
}

/// 38: where no Cluster Autoscaler answers, and the configuration says so.
#[tokio::test(flavor = "multi_thread")]
async fn best_effort_atomic_requests_are_answered_where_nothing_else_answers_them() {
    let server = cluster(3, "v1").await;
    ask(&server, "known", 1, "v1");
    ask_for_all_or_nothing(&server, "theirs", 1, &json!({}));
    let accepted = json!({
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "accepted by ClusterAutoscaler",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    server.set_status("provisioningrequests", "theirs", json!({ "conditions": [accepted] }));
    let config = format!("{ON}[provisioning]\nanswers_best_effort_atomic = true\n");
    let controller = RunningController::start(&ControllerOptions { config, ..options(&server) }).await;
    until(&server, "known", "Provisioned", FOUND).await;
    let no_retry = json!({ "noRetry": "true" });
    ask_for_all_or_nothing(&server, "fits", 2, &json!({}));
    until(&server, "fits", "Provisioned", FOUND).await;
    ask_for_all_or_nothing(&server, "waits", 1, &json!({}));
    let message = until(&server, "waits", "Provisioned", NOT_FOUND).await;
    assert!(message.contains("nothing is booked"), "{message}");
    ask_for_all_or_nothing(&server, "fails", 1, &no_retry);
    until(&server, "fails", "Failed", ["True", "CapacityIsNotFound"]).await;
    assert_eq!(condition(&server.get("provisioningrequests", "theirs").unwrap(), "Provisioned"), None);
    // What is booked is free again with its request, and whoever waits has it.
    server.delete("provisioningrequests", "default/fits");
    until(&server, "waits", "Provisioned", FOUND).await;
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_ask_what_they_say_and_are_answered() {
    let server = cluster(2, "v1").await;
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "fpga.hostler.dev" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"hostler.dev\"" } }] },
    }));
    let example = |file: &str| fs::read_to_string(root().join("deploy/examples").join(file)).unwrap();
    server.create_yaml(&example("provisioning-request.yaml"));
    let _controller = controller(&server).await;
    until(&server, "encode", "Provisioned", FOUND).await;
    assert!(explain(&server, "encode").contains("0 of its 2 pods have a node"));
    // What Kueue is told to ask with is a class that is answered, and it leads pods by a detail that is there.
    let [check, config] = <[Value; 2]>::try_from(manifests(&example("kueue-admission-check.yaml"))).unwrap();
    assert_eq!(check["spec"]["controllerName"], "kueue.x-k8s.io/provisioning-request");
    assert_eq!(check["spec"]["parameters"]["name"], config["metadata"]["name"]);
    let request = server.get("provisioningrequests", "encode").unwrap();
    for field in ["provisioningClassName", "parameters"] {
        assert_eq!(config["spec"][field], request["spec"][field], "{field}");
    }
    let detail = &config["spec"]["podSetUpdates"]["nodeSelector"][0]["valueFromProvisioningClassDetail"];
    server.delete("provisioningrequests", "default/encode");
    ask(&server, "one", 1, "v1");
    until(&server, "one", "Provisioned", FOUND).await;
    let details = &server.get("provisioningrequests", "one").unwrap()["status"]["provisioningClassDetails"];
    assert_eq!(details[detail.as_str().unwrap()], "n0", "{details}");
}

/// 42: with its labels, owners, parameters and selectors, and both versions of the kind.
#[tokio::test(flavor = "multi_thread")]
async fn what_kueue_writes_is_answered_as_what_people_write() {
    let server = with_cpus(cluster_of(2, &["v1", "v1beta1"]).await);
    let _controller = controller(&server).await;
    let train = workload("train", 2);
    let request = server.create(train.request(1));
    assert_eq!(request["metadata"]["ownerReferences"][0]["kind"], "Workload");
    // It is accepted before its template is there.
    let name = train.request_name(1);
    until(&server, &name, "Accepted", ["True", "Accepted"]).await;
    server.create(train.template(&request));
    let message = until(&server, &name, "Provisioned", FOUND).await;
    let yes = format!("there is room for all pods: ppt-{name}-main 2 of 2 on 2 nodes");
    assert!(message.starts_with(&yes), "{message}");
    let answered = server.get("provisioningrequests", &name).unwrap();
    assert_eq!(answered["status"]["provisioningClassDetails"]["nodes"], "n0=1,n1=1");
    assert_eq!(answered["metadata"]["labels"], request["metadata"]["labels"]);
    assert_eq!(answered["metadata"]["ownerReferences"], request["metadata"]["ownerReferences"]);
    let accepted = condition(&answered, "Accepted").unwrap()["message"].as_str().unwrap();
    assert!(!accepted.contains("nothing here knows"), "{accepted}");
    // What people write who ask for the same: no more is left, and the words are the same.
    ask(&server, "by-hand", 1, "v1");
    let no = until(&server, "by-hand", "Provisioned", NOT_FOUND).await;
    assert!(no.contains("ppt-by-hand-main 0 of 1: "), "{no}");
    let explained = explain(&server, "by-hand");
    assert!(explained.contains(&format!("room is booked for default/{name} (2 pods, until 20")), "{explained}");
    // Of an attempt that is told no the next one is a request of its own, and nothing in a request changes.
    let again = workload("again", 1);
    let first = server.create(again.request(1));
    server.create(again.template(&first));
    let no_again = until(&server, &again.request_name(1), "Provisioned", NOT_FOUND).await;
    assert_eq!(no_again.replace(&again.request_name(1), "by-hand"), no);
    server.delete("provisioningrequests", &format!("default/{name}"));
    let second = server.create(again.request(2));
    server.create(again.template(&second));
    until(&server, &again.request_name(2), "Provisioned", FOUND).await;
}

/// 42: Kueue 0.13 and later make the template first, as their Workload's, and then hand it to the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_is_its_workloads_before_it_is_its_requests_is_the_same() {
    let server = with_cpus(cluster(2, "v1").await);
    let _controller = controller(&server).await;
    let train = workload("train", 2);
    let mut request = train.request(1);
    let owners = request["metadata"]["ownerReferences"].clone();
    let mut early = train.template(&request);
    early["metadata"]["ownerReferences"] = owners;
    let early = server.create(early);
    request = server.create(request);
    let name = train.request_name(1);
    until(&server, &name, "Accepted", ["True", "Accepted"]).await;
    let owners = train.template(&request)["metadata"]["ownerReferences"].clone();
    server.try_merge(&early, &json!({ "metadata": { "ownerReferences": owners } })).map_err(|it| it.code).unwrap();
    until(&server, &name, "Provisioned", FOUND).await;
    // The pods of the Job have the annotations that Kueue writes, and a label of their node besides what the template has.
    for at in 0..2 {
        server.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("train-{at}"), "namespace": "default", "annotations": {
                    "autoscaling.x-k8s.io/consume-provisioning-request": name,
                    "autoscaling.x-k8s.io/provisioning-class-name": CLASS,
                },
            },
            "spec": {
                "nodeName": format!("n{at}"), "containers": [{ "name": "c", "image": "i" }],
                "nodeSelector": { "kubernetes.io/hostname": format!("n{at}"), "kubernetes.io/os": "linux" },
            },
        }));
    }
    until(&server, &name, "BookingExpired", ["True", "CapacityBookingConsumed"]).await;
}

/// 42
#[tokio::test]
async fn nothing_that_is_asked_for_can_be_changed_and_limits_are_those_of_the_kind() {
    let server = cluster(0, "v1").await;
    let train = workload("train", 2);
    let request = server.create(train.request(1));
    for (field, value) in [
        ("podSets", json!([{ "podTemplateRef": { "name": "other" }, "count": 2 }])),
        ("provisioningClassName", json!("other.example.com")),
        ("parameters", json!({ "noRetry": "true" })),
    ] {
        let refusal = server.try_merge(&request, &json!({ "spec": { field: value } })).unwrap_err();
        let message = refusal.status()["message"].as_str().unwrap_or_default().to_owned();
        assert!(refusal.code == 422 && message.contains("Value is immutable"), "{field}: {message}");
    }
    let of_sets = |sets: Value| {
        let mut other = request.clone();
        other["metadata"] = json!({ "name": "other", "namespace": "default" });
        other["spec"]["podSets"] = sets;
        server.try_create(other).map(drop).map_err(|refusal| refusal.code)
    };
    let set = |count: i64| json!({ "podTemplateRef": { "name": "t" }, "count": count });
    assert_eq!(of_sets(json!([])), Err(422));
    assert_eq!(of_sets(json!([set(0)])), Err(422));
    assert_eq!(of_sets(json!(vec![set(1); 33])), Err(422));
    // How many pods are too many is for the controller to say.
    assert_eq!(of_sets(json!(vec![set(16_385); 32])), Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_only_the_older_version_is_served_that_one_is_read_and_written() {
    let server = cluster(1, "v1beta1").await;
    let _controller = controller(&server).await;
    ask(&server, "r", 1, "v1beta1");
    until(&server, "r", "Provisioned", FOUND).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_where_it_is_not_switched_on_and_what_lacks_is_told_where_it_is() {
    let server = cluster(1, "v1").await;
    let off = RunningController::start(&options(&server)).await;
    off.until_figure("hostler_controller_condition{type=\"ProvisioningRequests\",status=\"False\"} 1").await;
    off.until_answers("/readyz", 200).await;
    ask(&server, "r", 1, "v1");
    off.until_figure("hostler_controller_leads 1").await;
    assert_eq!(off.stop().await, Some(0));
    assert!(server.log().iter().all(|call| call.user != USER || call.resource != "provisioningrequests"));
    // Switched on, where there is no such kind.
    let bare = ApiServer::of(ApiServerRelease::default()).await;
    install(&bare);
    let on = controller(&bare).await;
    let said = on.until_answers("/readyz", 503).await;
    on.until("it says what lacks", async |it| {
        it.get("/readyz").await?.1.contains("install the kind as Cluster Autoscaler has it").then_some(())
    })
    .await;
    assert!(!said.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_say_of_a_request_stays() {
    let server = cluster(1, "v1").await;
    let revoked = json!({
        "type": "CapacityRevoked", "status": "False", "reason": "Cloud", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    ask(&server, "r", 1, "v1");
    let status = json!({ "conditions": [revoked], "provisioningClassDetails": { "theirs": "x" } });
    server.set_status("provisioningrequests", "r", status);
    let _controller = controller(&server).await;
    until(&server, "r", "Provisioned", FOUND).await;
    let request = server.get("provisioningrequests", "r").unwrap();
    assert_eq!(condition(&request, "CapacityRevoked").unwrap()["reason"], "Cloud");
    assert_eq!(request["status"]["provisioningClassDetails"]["theirs"], "x");
    let managers = request["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|it| it["manager"] == "hostler-controller-provisioning" && it["operation"] == "Apply"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_in_its_place_goes_when_it_is_taken_back() {
    let server = cluster(1, "v1").await;
    ask(&server, "r", 1, "v1");
    let uid = server.get("provisioningrequests", "r").unwrap()["metadata"]["uid"].clone();
    // A Reservation that nobody here could make.
    let details = json!({ "reservation": format!("provreq-{}-0-0", uid.as_str().unwrap()), "theirs": "x" });
    server.set_status("provisioningrequests", "r", json!({ "provisioningClassDetails": details }));
    let _controller = controller(&server).await;
    until(&server, "r", "Provisioned", NOT_FOUND).await;
    let taken_back = |view: &ApiServerView<'_>| {
        let details = view.get("provisioningrequests", "r")?["status"]["provisioningClassDetails"].take();
        details["reservation"].is_null().then_some(details)
    };
    let details = server.until("it is taken back", taken_back).await;
    assert_eq!(details["theirs"], "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_fails_stops_no_other_and_is_made_good() {
    let server = cluster(3, "v1").await;
    let controller = controller(&server).await;
    controller.until_figure("hostler_controller_provisioning_requests{state=\"open\"} 0").await;
    server.fail(ApiFault::new("patch", "provisioningrequests/status", 2, FaultEffect::Status(500, None)));
    for name in ["a", "b", "c"] {
        ask(&server, name, 1, "v1");
    }
    for name in ["a", "b", "c"] {
        until(&server, name, "Provisioned", FOUND).await;
    }
    assert_eq!(server.faults_left(), 0);
}

/// The next one begins with what the server says, whatever write the last one died after.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_any_write_promises_nothing_twice() {
    for writes in 1..=3 {
        let server = cluster(1, "v1").await;
        let first = controller(&server).await;
        first.until_figure("hostler_controller_provisioning_requests{state=\"open\"} 0").await;
        ask(&server, "a", 1, "v1");
        ask(&server, "b", 1, "v1");
        let written = || server.log().iter().filter(|call| is_answer(call) && call.status == 200).count();
        first.until("it has written", async |_| (written() >= writes).then_some(())).await;
        first.signal(Signal::SIGKILL);
        drop(first);
        server.delete("leases", "hostler-controller/hostler-controller");
        let _next = controller(&server).await;
        let told = |view: &ApiServerView<'_>| {
            let status = |name: &str| {
                let request = view.get("provisioningrequests", name)?;
                Some(condition(&request, "Provisioned")?["status"] == "True")
            };
            Some([status("a")?, status("b")?])
        };
        let yes = server.until("both are told something", told).await;
        assert_eq!(yes.iter().filter(|yes| **yes).count(), 1, "after {writes} writes");
    }
}

fn is_answer(call: &LoggedRequest) -> bool {
    call.user == USER && call.resource.starts_with("provisioningrequests") && call.verb == "patch"
}

#[tokio::test(flavor = "multi_thread")]
async fn its_roles_allow_all_that_it_asks_and_nothing_of_them_is_in_vain() {
    let server = cluster(1, "v1").await;
    let mut options = switched_on(&server);
    options.config.push_str("[provisioning]\nkeep_seconds = 1\n");
    let controller = RunningController::start(&options).await;
    ask(&server, "r", 1, "v1");
    until(&server, "r", "Provisioned", FOUND).await;
    server.until("people are told", |view| (!view.list("events").is_empty()).then_some(())).await;
    ask_for_too_long(&server, "long");
    let is_gone = |view: &ApiServerView<'_>| view.get("provisioningrequests", "default/long").is_none().then_some(());
    server.until("the request that has failed is deleted", is_gone).await;
    assert!(server.get("provisioningrequests", "default/r").is_some(), "the other one is not over");
    assert_eq!(controller.stop().await, Some(0));
    let asked: Vec<LoggedRequest> = server.log().into_iter().filter(|call| call.user == USER).collect();
    let refused: Vec<&LoggedRequest> = asked.iter().filter(|call| call.status == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let own = PolicyRule::from_yaml(&fs::read_to_string(root().join("deploy/provisioning/rbac.yaml")).unwrap());
    for (resource, verb) in own
        .iter()
        .flat_map(|rule| rule.resources.iter().flat_map(|resource| rule.verbs.iter().map(move |verb| (resource, verb))))
    {
        // A server of this release tells lists as watches.
        let is_used = |call: &LoggedRequest| {
            call.resource == *resource && (call.verb == verb || (verb == "list" && call.verb == "watch"))
        };
        // What it takes to keep devices is asked for where somebody does: controller/tests/suite/holds/requests.rs.
        // And the same words about a request come twice only after a restart.
        let is_elsewhere = resource == "reservations" || (resource, &**verb) == (&"events".to_owned(), "patch");
        assert!(is_elsewhere || asked.iter().any(is_used), "nothing needs the verb {verb} on {resource}");
    }
}

/// At rest it writes nothing at all.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_at_rest() {
    let server = cluster(1, "v1").await;
    let controller = controller(&server).await;
    ask(&server, "a", 1, "v1");
    ask(&server, "b", 1, "v1");
    until(&server, "a", "Accepted", ["True", "Accepted"]).await;
    until(&server, "b", "Accepted", ["True", "Accepted"]).await;
    let told = |view: &ApiServerView<'_>| {
        let is_told = |name: &str| condition(&view.get("provisioningrequests", name)?, "Provisioned").map(|_| ());
        is_told("a").and(is_told("b"))
    };
    server.until("both are told something", told).await;
    let before = server.writes("provisioningrequests");
    // Changes of the cluster that no request asked about.
    for at in 0..20 {
        server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("other-{at}") } }));
    }
    controller.until_figure(&objects("nodes", 21)).await;
    assert_eq!(server.writes("provisioningrequests"), before);
}
