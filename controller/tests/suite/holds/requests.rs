//! Devices of a ProvisioningRequest are kept by Reservations: the real binary answers the request and keeps the devices.

use std::fs;

use hostler_testing::{
    apiserver::{ApiServerView, PolicyRule},
    controller::RunningController,
    provisioning::definition,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    cluster::{HoldCluster, rules},
    webhook,
};
use crate::rig::{USER, root};

const CONSUME: &str = "autoscaling.x-k8s.io/consume-provisioning-request";

fn role() -> Vec<PolicyRule> {
    PolicyRule::from_yaml(&fs::read_to_string(root().join("deploy/provisioning/rbac.yaml")).unwrap())
}

/// A cluster where requests can be made, and a template of pods with a card each.
async fn cluster() -> HoldCluster {
    let cluster = HoldCluster::start().await;
    cluster.server.create(definition(&["v1"]));
    cluster.server.allow(USER, rules().into_iter().chain(role()).collect());
    cluster.template("any", None);
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "workers", "namespace": "default" },
        "template": { "spec": spec("any") },
    }));
    cluster
}

fn spec(template: &str) -> Value {
    json!({
        "containers": [{ "name": "c", "image": "i", "resources": { "claims": [{ "name": "card" }] } }],
        "resourceClaims": [{ "name": "card", "resourceClaimTemplateName": template }],
    })
}

async fn controller(cluster: &HoldCluster) -> RunningController {
    let mut options = cluster.options();
    options.config = options.config.replace("[capabilities]\n", "[capabilities]\nprovisioning = \"on\"\n");
    RunningController::start(&options).await
}

fn ask(cluster: &HoldCluster, name: &str, pods: usize, parameters: &Value) {
    cluster.server.create(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "provisioningClassName": "check-capacity.hostler.dev", "parameters": parameters,
            "podSets": [{ "podTemplateRef": { "name": "workers" }, "count": pods }],
        },
    }));
}

/// A pod of a request, with a claim of a template.
fn consume(cluster: &HoldCluster, pod: &str, request: &str, template: &str) {
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": pod, "namespace": "default", "annotations": { CONSUME: request } },
        "spec": spec(template),
    }));
}

/// Waits until a condition has this status and reason; gives the request.
async fn until(cluster: &HoldCluster, name: &str, kind: &str, said: [&str; 2]) -> Value {
    let told = |view: &ApiServerView<'_>| {
        let request = view.get("provisioningrequests", name)?;
        let is_it = |it: &Value| it["type"] == kind && it["status"] == said[0] && it["reason"] == said[1];
        let is_so = request["status"]["conditions"].as_array()?.iter().any(is_it);
        is_so.then_some(request)
    };
    cluster.server.until(&format!("{name} has {kind}={} ({})", said[0], said[1]), told).await
}

const FOUND: [&str; 2] = ["True", "CapacityIsFound"];
const CONSUMED: [&str; 2] = ["True", "CapacityBookingConsumed"];

fn detail<'a>(request: &'a Value, key: &str) -> &'a str {
    request["status"]["provisioningClassDetails"][key].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_of_a_request_are_kept_for_its_pods_until_they_have_come() {
    let cluster = cluster().await;
    cluster.node("n1", 2);
    let controller = controller(&cluster).await;
    ask(&cluster, "r", 2, &json!({}));
    let told = until(&cluster, "r", "Provisioned", FOUND).await;
    let value = detail(&told, "tolerationValue").to_owned();
    assert_eq!((detail(&told, "node"), detail(&told, "nodes")), ("n1", "n1=2"));
    assert_eq!((detail(&told, "plan-hash").len(), detail(&told, "eta")), (16, ""));
    assert_eq!(cluster.fences(), [format!("n1/fake/card-0={value}"), format!("n1/fake/card-1={value}")]);
    cluster.pod("stranger", "any");
    cluster.until_refused("stranger").await;
    cluster.template("kept", Some(&value));
    for pod in ["p0", "p1"] {
        consume(&cluster, pod, "r", "kept");
        assert_eq!(cluster.until_bound(pod).await, "n1");
    }
    until(&cluster, "r", "BookingExpired", CONSUMED).await;
    cluster.until_phase(detail(&told, "reservation"), "Succeeded").await;
    cluster.until_no_fence().await;
    assert!(cluster.server.get("pods", "default/stranger").unwrap()["spec"]["nodeName"].is_null());
    assert_eq!(controller.stop().await, Some(0));
}

/// What of a set is kept where: by Reservation, its value, node and devices.
fn kept_for(cluster: &HoldCluster, told: &Value, set: usize) -> (String, String) {
    let name = detail(told, "reservation").split(',').nth(set).unwrap().to_owned();
    let kept = cluster.server.get("reservations", &name).unwrap();
    (name, kept["status"]["nodeName"].as_str().unwrap().to_owned())
}

/// Sets that differ in their nodes only, and pods as a batch system makes them: of ordinary templates, with the annotation. Strangers
/// want every device that is opened, in every moment.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_each_set_are_led_to_what_is_kept_for_it() {
    let cluster = cluster().await;
    webhook::install(&cluster, role());
    for (node, zone) in [("n1", "a"), ("n2", "b")] {
        cluster.node(node, 2);
        cluster.server.edit("nodes", node, |object| object["metadata"]["labels"] = json!({ "zone": zone }));
        let mut of_zone = spec("any");
        of_zone["nodeSelector"] = json!({ "zone": zone });
        cluster.server.create(json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": format!("of-{zone}"), "namespace": "default" },
            "template": { "spec": of_zone },
        }));
    }
    let mut options = webhook::options(&cluster);
    options.config = options.config.replace("[capabilities]\n", "[capabilities]\nprovisioning = \"on\"\n");
    let controller = RunningController::start(&options).await;
    webhook::until_answering(&cluster, &controller).await;
    let sets = ["a", "b"].map(|zone| json!({ "podTemplateRef": { "name": format!("of-{zone}") }, "count": 2 }));
    cluster.server.create(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": "r", "namespace": "default" },
        "spec": { "provisioningClassName": "check-capacity.hostler.dev", "podSets": sets },
    }));
    let told = until(&cluster, "r", "Provisioned", FOUND).await;
    let of_sets = [0, 1].map(|set| kept_for(&cluster, &told, set));
    assert_eq!(of_sets.clone().map(|(_, node)| node), ["n1", "n2"]);
    for stranger in ["s0", "s1"] {
        cluster.pod(stranger, "any");
        cluster.until_refused(stranger).await;
    }
    // Those of the second set come first.
    for (pod, zone, node) in [("b0", "b", "n2"), ("b1", "b", "n2"), ("a0", "a", "n1"), ("a1", "a", "n1")] {
        let mut of_zone = spec("any");
        of_zone["nodeSelector"] = json!({ "zone": zone });
        cluster.server.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": pod, "namespace": "default", "annotations": { CONSUME: "r" } }, "spec": of_zone,
        }));
        assert_eq!(cluster.until_bound(pod).await, node);
        let claim = webhook::claim(&cluster, pod);
        assert_eq!(webhook::device(&claim).0, "card/held", "{claim}");
        let choice = claim["metadata"]["annotations"]["hostler.dev/led-to-reservation"].as_str().unwrap();
        let expected = of_sets.iter().find(|(_, of)| of == node).unwrap();
        assert!(choice.contains(&expected.0), "{choice} is not {expected:?}");
    }
    until(&cluster, "r", "BookingExpired", CONSUMED).await;
    for (name, _) in &of_sets {
        cluster.until_phase(name, "Succeeded").await;
    }
    cluster.until_no_fence().await;
    for stranger in ["s0", "s1"] {
        let pod = cluster.server.get("pods", &format!("default/{stranger}")).unwrap();
        assert!(pod["spec"]["nodeName"].is_null(), "{stranger} was given what was kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_of_it_cannot_have_is_opened_when_it_comes() {
    let cluster = cluster().await;
    cluster.node("n1", 2);
    let _controller = controller(&cluster).await;
    ask(&cluster, "r", 2, &json!({}));
    until(&cluster, "r", "Provisioned", FOUND).await;
    assert_eq!(cluster.fences().len(), 2);
    consume(&cluster, "p0", "r", "any");
    assert_eq!(cluster.until_bound("p0").await, "n1");
    let one = |view: &ApiServerView<'_>| {
        let slice = view.list("resourceslices").into_iter().next()?;
        let closed = slice["spec"]["devices"].as_array()?.iter().filter(|it| it["taints"][0].is_object()).count();
        (closed == 1).then_some(())
    };
    cluster.server.until("the other one is kept", one).await;
    consume(&cluster, "p1", "r", "any");
    cluster.until_bound("p1").await;
    until(&cluster, "r", "BookingExpired", CONSUMED).await;
    cluster.server.until("nothing is kept", |view| view.list("reservations").is_empty().then_some(())).await;
    cluster.until_no_fence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promise_of_which_a_card_fails_is_taken_back_until_another_one_is_kept() {
    let cluster = cluster().await;
    cluster.node("n1", 1);
    let controller = controller(&cluster).await;
    ask(&cluster, "r", 1, &json!({}));
    until(&cluster, "r", "Provisioned", FOUND).await;
    cluster.fail("n1");
    let told = until(&cluster, "r", "CapacityRevoked", ["True", "CapacityLost"]).await;
    let conditions = told["status"]["conditions"].as_array().unwrap();
    let revoked = conditions.iter().find(|it| it["type"] == "CapacityRevoked").unwrap();
    assert!(revoked["message"].as_str().unwrap().contains("n1/fake/card-0"), "{revoked}");
    let of_request = |view: &ApiServerView<'_>| {
        let is_it = |it: &&Value| it["reason"] == "CapacityLost" && it["involvedObject"]["name"] == "r";
        view.list("events").iter().find(is_it).map(drop)
    };
    cluster.server.until("the Event", of_request).await;
    cluster.node("n2", 1);
    until(&cluster, "r", "CapacityRevoked", ["False", "CapacityReplaced"]).await;
    let told = until(&cluster, "r", "Provisioned", FOUND).await;
    assert_eq!(detail(&told, "nodes"), "n2=1");
    cluster.until_fences(&[format!("n2/fake/card-0={}", detail(&told, "tolerationValue"))]).await;
    assert_eq!(controller.stop().await, Some(0));
}

/// 41
#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_for_a_request_that_is_deleted_is_free_whoever_leads_then() {
    let cluster = cluster().await;
    cluster.node("n1", 1);
    let first = controller(&cluster).await;
    ask(&cluster, "r", 1, &json!({}));
    until(&cluster, "r", "Provisioned", FOUND).await;
    assert_eq!(cluster.fences().len(), 1);
    cluster.server.delete("provisioningrequests", "r");
    // Another controller leads: nobody remembers the request.
    first.signal(Signal::SIGKILL);
    drop(first);
    cluster.drop_lease();
    let _next = controller(&cluster).await;
    cluster.until_no_fence().await;
    ask(&cluster, "last", 1, &json!({}));
    until(&cluster, "last", "Provisioned", FOUND).await;
}

/// The next one begins with what the server says, whatever write of a request or a Reservation the last one died after.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_any_write_keeps_what_it_promises() {
    let cluster = cluster().await;
    cluster.node("n1", 1);
    ask(&cluster, "a", 1, &json!({}));
    ask(&cluster, "b", 1, &json!({}));
    let is_write = |call: &hostler_testing::apiserver::LoggedRequest| {
        let is_ours = call.resource.starts_with("provisioningrequests") || call.resource.starts_with("reservations");
        call.user == USER && is_ours && call.verb != "watch" && call.verb != "list"
    };
    let writes = || cluster.server.log().iter().filter(|call| is_write(call)).count();
    let yes = |view: &ApiServerView<'_>| {
        let is_yes = |name: &str| {
            let request = view.get("provisioningrequests", name)?;
            let conditions = request["status"]["conditions"].as_array()?;
            let is_yes = conditions.iter().any(|it| it["type"] == "Provisioned" && it["status"] == "True");
            is_yes.then(|| request.clone())
        };
        is_yes("a").or_else(|| is_yes("b"))
    };
    for after in [1, 2, 1, 3, 2, 1] {
        let controller = controller(&cluster).await;
        let before = writes();
        let is_done = || cluster.server.look(yes).is_some();
        controller.until("it has written", async |_| (writes() >= before + after || is_done()).then_some(())).await;
        controller.signal(Signal::SIGKILL);
        drop(controller);
        cluster.drop_lease();
    }
    let _last = controller(&cluster).await;
    let told = cluster.server.until("one is told yes", yes).await;
    cluster.until_phase(detail(&told, "reservation"), "Available").await;
    assert_eq!(cluster.fences(), [format!("n1/fake/card-0={}", detail(&told, "tolerationValue"))]);
    let other = if told["metadata"]["name"] == "a" { "b" } else { "a" };
    until(&cluster, other, "Provisioned", ["False", "CapacityIsNotFound"]).await;
    assert_eq!(cluster.server.list("reservations").len(), 1, "nothing is kept for the other one");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_role_allows_all_that_keeping_devices_for_requests_takes() {
    let cluster = cluster().await;
    cluster.node("n1", 2);
    let controller = controller(&cluster).await;
    ask(&cluster, "r", 2, &json!({}));
    until(&cluster, "r", "Provisioned", FOUND).await;
    for pod in ["p0", "p1"] {
        consume(&cluster, pod, "r", "any");
        cluster.until_bound(pod).await;
    }
    until(&cluster, "r", "BookingExpired", CONSUMED).await;
    cluster.server.until("nothing is kept", |view| view.list("reservations").is_empty().then_some(())).await;
    assert_eq!(controller.stop().await, Some(0));
    let log = cluster.server.log();
    let refused: Vec<_> = log.iter().filter(|call| call.user == USER && call.status == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    for verb in ["create", "patch", "delete"] {
        let is_it = |call: &&hostler_testing::apiserver::LoggedRequest| {
            call.user == USER && call.resource == "reservations" && call.verb == verb
        };
        assert!(log.iter().any(|call| is_it(&call)), "nothing needs the verb {verb} on reservations");
    }
}
