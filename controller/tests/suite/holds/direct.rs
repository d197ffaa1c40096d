//! Gated pods: the running controller keeps devices for them, writes these into their claims, and lets them go to their node.

use hostler_testing::{apiserver::ApiServerView, controller::RunningController};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::{HoldCluster, rules_in};
use crate::rig::USER;

const GATE: &str = "hostler.dev/placement";
const ROLE: &str = "deploy/holds/direct/rbac.yaml";

async fn cluster(cards: usize) -> HoldCluster {
    let cluster = without_role(cards).await;
    cluster.allow(&["direct"]);
    cluster
}

/// The controller may not place pods.
async fn without_role(cards: usize) -> HoldCluster {
    let mut cluster = HoldCluster::start().await;
    cluster.run_kubelets();
    cluster.node("n1", cards);
    cluster.template("cards", None);
    cluster
}

async fn controller(cluster: &HoldCluster) -> RunningController {
    let mut options = cluster.options();
    options.config.push_str("direct = true\n");
    let controller = RunningController::start(&options).await;
    controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1").await;
    controller
}

/// A pod with these gates, and two claims of a card each.
fn pod(cluster: &HoldCluster, name: &str, gates: &[&str]) {
    pod_with(cluster, name, gates, &["one", "two"]);
}

fn pod_with(cluster: &HoldCluster, name: &str, gates: &[&str], claims: &[&str]) {
    let claims = claims.iter().map(|name| json!({ "name": name, "resourceClaimTemplateName": "cards" }));
    pod_named(cluster, name, gates, &claims.collect::<Vec<_>>());
}

fn pod_named(cluster: &HoldCluster, name: &str, gates: &[&str], claims: &[Value]) {
    let gates: Vec<Value> = gates.iter().map(|gate| json!({ "name": gate })).collect();
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "schedulingGates": gates, "containers": [{ "name": "c", "image": "i" }],
            "resourceClaims": claims,
        },
    }));
}

/// What people are told of a pod that cannot be placed.
fn refusals(view: &ApiServerView<'_>, pod: &str) -> Vec<String> {
    let is_one = |it: &&Value| it["reason"] == "PlacementRefused" && it["involvedObject"]["name"] == pod;
    let events = view.list("events");
    events.iter().filter(is_one).map(|it| it["message"].as_str().unwrap().to_owned()).collect()
}

async fn until_nothing_is_kept(cluster: &HoldCluster) {
    cluster.server.until("no Reservation is left", |view| view.list("reservations").is_empty().then_some(())).await;
    cluster.until_no_fence().await;
}

fn gates(view: &ApiServerView<'_>, pod: &str) -> Vec<String> {
    let pod = view.get("pods", &format!("default/{pod}")).unwrap();
    let gates = pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
    gates.iter().map(|gate| gate["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gated_pod_is_given_what_was_kept_for_it_and_bound_there() {
    let cluster = cluster(2).await;
    let controller = controller(&cluster).await;
    pod(&cluster, "gang-0", &[GATE]);
    assert_eq!(cluster.until_bound("gang-0").await, "n1");
    until_nothing_is_kept(&cluster).await;
    let claims = cluster.server.list("resourceclaims");
    assert_eq!(claims.len(), 2);
    for claim in &claims {
        assert_eq!(claim["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
        let allocation = &claim["status"]["allocation"];
        assert!(allocation["allocationTimestamp"].is_string(), "{allocation}");
        assert_eq!(allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"], json!(["n1"]));
        assert_eq!(claim["status"]["reservedFor"][0]["name"], "gang-0");
    }
    let written = |call: &hostler_testing::apiserver::LoggedRequest| {
        call.verb == "patch" && call.resource == "resourceclaims/status" && call.status == 200
    };
    let by_us = cluster.server.log().iter().filter(|call| call.user == USER && written(call)).count();
    assert_eq!(by_us, 2, "the scheduler allocated nothing");
    // What was not a gated pod's is none of this mode's.
    cluster.server.delete("pods", "default/gang-0");
    cluster.pod("next", "cards");
    assert_eq!(cluster.until_bound("next").await, "n1");
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_goes_before_it_has_a_node_leaves_nothing() {
    let cluster = cluster(2).await;
    let _controller = controller(&cluster).await;
    placed_with_a_slow_scheduler(&cluster).await;
    assert_eq!(cluster.fences().len(), 2, "closed until it is bound");
    cluster.server.delete("pods", "default/gang-0");
    until_nothing_is_kept(&cluster).await;
    cluster.server.until("no claim is left", |view| view.list("resourceclaims").is_empty().then_some(())).await;
}

/// Writes of Reservations, claims and pods by the controller.
fn writes(cluster: &HoldCluster) -> usize {
    let log = cluster.server.log();
    let ours = log.iter().filter(|call| call.user == USER && !["get", "list", "watch"].contains(&call.verb));
    ours.filter(|call| ["reservations", "resourceclaims", "pods"].iter().any(|it| call.resource.starts_with(it)))
        .count()
}

/// A pod that waits for its scheduler on node n1, which takes no pods any more. n2 has as many cards.
async fn placed_where_it_cannot_go(cluster: &HoldCluster, change: impl FnOnce(&mut Value)) {
    placed_with_a_slow_scheduler(cluster).await;
    cluster.node("n2", 2);
    cluster.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(true));
    cluster.server.edit("pods", "default/gang-0", change);
}

/// A pod has its devices, and its scheduler has no time for it.
async fn placed_with_a_slow_scheduler(cluster: &HoldCluster) {
    pod(cluster, "gang-0", &[GATE]);
    cluster.server.edit("pods", "default/gang-0", |pod| pod["spec"]["schedulerName"] = json!("slow"));
    let is_placed = |view: &ApiServerView<'_>| gates(view, "gang-0").is_empty().then_some(());
    cluster.server.until("its gate is gone", is_placed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_for_a_pod_that_another_gate_holds_back() {
    let cluster = cluster(2).await;
    let _controller = controller(&cluster).await;
    pod(&cluster, "gang-0", &[GATE, "example.com/later"]);
    let is_told = |view: &ApiServerView<'_>| refusals(view, "gang-0").pop();
    let told = cluster.server.until("people are told", is_told).await;
    assert!(told.contains("example.com/later"), "{told}");
    assert!(cluster.server.list("reservations").is_empty() && cluster.fences().is_empty());
    cluster.server.edit("pods", "default/gang-0", |pod| pod["spec"]["schedulingGates"] = json!([{ "name": GATE }]));
    assert_eq!(cluster.until_bound("gang-0").await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_scheduler_takes_back_is_bound_elsewhere_with_few_writes() {
    let cluster = cluster(2).await;
    let _controller = controller(&cluster).await;
    placed_where_it_cannot_go(&cluster, |pod| pod["spec"]["schedulerName"] = json!("default-scheduler")).await;
    assert_eq!(cluster.until_bound("gang-0").await, "n2");
    until_nothing_is_kept(&cluster).await;
    assert!(writes(&cluster) <= 40, "{} writes", writes(&cluster));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_scheduler_takes_back_is_planned_anew_without_its_node() {
    let cluster = cluster(2).await;
    let _controller = controller(&cluster).await;
    // Its scheduler frees both claims, and then has no time for the pod for long.
    placed_where_it_cannot_go(&cluster, |_| {}).await;
    for claim in cluster.server.list("resourceclaims") {
        let path = format!("default/{}", claim["metadata"]["name"].as_str().unwrap());
        cluster.server.edit("resourceclaims", &path, |claim| claim["status"] = json!({}));
    }
    let nodes = |view: &ApiServerView<'_>| {
        let pools = view.list("resourceclaims").into_iter().map(|claim| {
            let result = &claim["status"]["allocation"]["devices"]["results"][0];
            result["pool"].as_str().map(str::to_owned)
        });
        pools.collect::<Option<Vec<String>>>()
    };
    assert_eq!(cluster.server.until("both have devices again", nodes).await, ["n2/fake", "n2/fake"]);
    let placed = |view: &ApiServerView<'_>| {
        let [kept] = &view.list("reservations")[..] else { return None };
        let conditions = kept["status"]["conditions"].as_array()?;
        Some((kept["metadata"]["name"].clone(), conditions.iter().find(|it| it["type"] == "Placed")?.clone()))
    };
    let (name, said) = cluster.server.until("it is said why", placed).await;
    assert!(name.as_str().unwrap().ends_with("-1"), "{name}");
    assert_eq!(said["reason"], "PlannedAgain");
    assert!(said["message"].as_str().unwrap().contains("on n1"), "{said}");
    cluster.server.edit("pods", "default/gang-0", |pod| pod["spec"]["schedulerName"] = json!("default-scheduler"));
    assert_eq!(cluster.until_bound("gang-0").await, "n2");
    until_nothing_is_kept(&cluster).await;
    assert!(writes(&cluster) <= 40, "{} writes", writes(&cluster));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_has_a_device_already_keeps_the_pod_on_its_node() {
    let cluster = cluster(2).await;
    cluster.node("n2", 2);
    let _controller = controller(&cluster).await;
    let request = json!({ "name": "card", "exactly": { "deviceClassName": "card" } });
    cluster.server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "shared" },
        "spec": { "devices": { "requests": [request] } },
    }));
    let shared = json!({ "name": "shared", "resourceClaimName": "shared" });
    cluster.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(true));
    pod_named(&cluster, "first", &[], std::slice::from_ref(&shared));
    assert_eq!(cluster.until_bound("first").await, "n2");
    cluster.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(false));
    let own = |name: &str| json!({ "name": name, "resourceClaimTemplateName": "cards" });
    pod_named(&cluster, "gang-0", &[GATE], &[own("own"), shared.clone()]);
    assert_eq!(cluster.until_bound("gang-0").await, "n2");
    until_nothing_is_kept(&cluster).await;
    // Now there is nothing left there.
    pod_named(&cluster, "gang-1", &[GATE], &[own("own"), shared]);
    let pinned = |view: &ApiServerView<'_>| {
        let kept = view.list("reservations").pop()?;
        let placed = kept["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == "Placed").cloned();
        placed.filter(|it| it["reason"] == "Pinned")
    };
    let said = cluster.server.until("it is said which claim keeps it there", pinned).await;
    assert!(said["message"].as_str().unwrap().contains("shared on node n2"), "{said}");
    assert_eq!(cluster.server.look(|view| gates(view, "gang-1")), [GATE]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_for_devices_is_looked_at_less_and_less() {
    let cluster = cluster(1).await;
    let _controller = controller(&cluster).await;
    pod(&cluster, "gang-0", &[GATE]);
    let is_told = |view: &ApiServerView<'_>| {
        let kept = view.list("reservations").pop()?;
        let conditions = kept["status"]["conditions"].as_array()?;
        conditions.iter().any(|it| it["reason"] == "Unschedulable").then_some(())
    };
    cluster.server.until("it is said that there are none", is_told).await;
    let calls = |view: &ApiServerView<'_>, verb: &str, resource: &str| {
        let ours = view.log().iter().filter(|call| call.user == USER && call.status == 200);
        ours.filter(|call| call.verb == verb && call.resource == resource).count()
    };
    let renewals = |view: &ApiServerView<'_>| ["update", "patch"].map(|verb| calls(view, verb, "leases")).iter().sum();
    let (looks, renewed): (usize, usize) = cluster.server.look(|view| (calls(view, "get", "pods"), renewals(view)));
    // Renewals are seconds apart.
    let again = |view: &ApiServerView<'_>| (renewals(view) >= renewed + 2).then(|| calls(view, "get", "pods") - looks);
    let more = cluster.server.until("the controller has led for a while", again).await;
    assert!(more <= 6, "looked at {more} times while nothing changed");
    cluster.node("n2", 2);
    assert_eq!(cluster.until_bound("gang-0").await, "n2");
    until_nothing_is_kept(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_any_write_places_the_pod_all_the_same() {
    let cluster = cluster(2).await;
    pod(&cluster, "gang-0", &[GATE]);
    let is_done = || cluster.server.get("pods", "default/gang-0").unwrap()["spec"]["nodeName"].is_string();
    let mut options = cluster.options();
    options.config.push_str("direct = true\n");
    for after in [1, 1, 2, 1, 1, 1, 1] {
        let controller = RunningController::start(&options).await;
        let before = writes(&cluster);
        controller
            .until("it has written", async |_| (writes(&cluster) >= before + after || is_done()).then_some(()))
            .await;
        controller.signal(Signal::SIGKILL);
        drop(controller);
        cluster.drop_lease();
    }
    let _controller = controller(&cluster).await;
    assert_eq!(cluster.until_bound("gang-0").await, "n1");
    until_nothing_is_kept(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_role_it_says_once_which_right_is_missing() {
    let cluster = without_role(2).await;
    let _controller = controller(&cluster).await;
    pod(&cluster, "gang-0", &[GATE]);
    let said = cluster
        .server
        .until("people are told", |view| Some(refusals(view, "gang-0")).filter(|said| !said.is_empty()))
        .await;
    assert!(said[0].contains("reservations") && said[0].contains("deploy/holds/direct"), "{said:?}");
    let tries = |view: &ApiServerView<'_>| {
        let refused = view.log().iter().filter(|call| call.user == USER && call.status == 403);
        (refused.filter(|call| call.resource == "reservations").count() >= 3).then(|| refusals(view, "gang-0").len())
    };
    assert_eq!(cluster.server.until("it was tried three times", tries).await, 1, "and said once");
    cluster.allow(&["direct"]);
    assert_eq!(cluster.until_bound("gang-0").await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_of_its_role_stands_in_its_reservation_until_it_is_there() {
    let cluster = without_role(2).await;
    let part = rules_in(ROLE).into_iter().filter(|rule| !rule.resources.contains(&"pods".to_owned()));
    cluster.server.allow(USER, part.collect());
    let _controller = controller(&cluster).await;
    pod(&cluster, "gang-0", &[GATE]);
    let placed = |view: &ApiServerView<'_>| {
        let kept = view.list("reservations").pop()?;
        kept["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == "Placed").cloned()
    };
    let said = cluster.server.until("it is said in the Reservation", placed).await;
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("Refused")));
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("pods") && message.contains("deploy/holds/direct"), "{message}");
    assert_eq!(cluster.server.look(|view| refusals(view, "gang-0")), [message]);
    cluster.allow(&["direct"]);
    assert_eq!(cluster.until_bound("gang-0").await, "n1");
    until_nothing_is_kept(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_nine_claims_is_told_how_many_there_may_be() {
    let cluster = cluster(9).await;
    let _controller = controller(&cluster).await;
    pod_with(&cluster, "gang-0", &[GATE], &["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    let said = cluster
        .server
        .until("people are told", |view| Some(refusals(view, "gang-0")).filter(|said| !said.is_empty()))
        .await;
    assert!(said[0].contains("9 claims") && said[0].contains("8 at most"), "{said:?}");
    assert!(cluster.server.list("reservations").is_empty(), "nothing is kept for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stranger_has_as_well_is_taken_from_the_pod_and_its_gate_stays() {
    let cluster = without_role(2).await;
    // The gate cannot be taken away, so there is time for another scheduler that knows of no fence.
    let part = rules_in(ROLE).into_iter().filter(|rule| !rule.resources.contains(&"pods".to_owned()));
    cluster.server.allow(USER, part.collect());
    let _controller = controller(&cluster).await;
    pod_with(&cluster, "gang-0", &[GATE], &["one"]);
    let given = |view: &ApiServerView<'_>| {
        let claims = view.list("resourceclaims");
        let own = claims.iter().find(|it| it["metadata"]["name"] != "stranger")?;
        Some(own["status"]["allocation"]["devices"]["results"][0]["device"].as_str()?.to_owned())
    };
    let first = cluster.server.until("it has a card", given).await;
    cluster.server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "stranger" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": { "deviceClassName": "card" } }] } },
    }));
    let result = json!({ "request": "card", "driver": "hostler.dev", "pool": "n1/fake", "device": first });
    let allocation = json!({ "devices": { "results": [result] }, "allocationTimestamp": "2026-01-01T00:00:00Z" });
    cluster.server.set_status("resourceclaims", "default/stranger", json!({ "allocation": allocation }));
    let other = |view: &ApiServerView<'_>| given(view).filter(|device| *device != first);
    cluster.server.until("it has the other card", other).await;
    assert_eq!(cluster.server.look(|view| gates(view, "gang-0")), [GATE]);
    assert_eq!(cluster.fences().len(), 2, "what the stranger has is closed as well");
    cluster.allow(&["direct"]);
    assert_eq!(cluster.until_bound("gang-0").await, "n1");
    cluster.server.delete("resourceclaims", "default/stranger");
    until_nothing_is_kept(&cluster).await;
}
