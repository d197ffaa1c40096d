//! A device that two claims have: the scheduler takes it for free once the first of them goes, and it is closed until neither has it.

use hostler_testing::apiserver::ApiServerView;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    cluster::{HoldCluster, RESERVATIONS},
    value,
};

/// A claim of nobody's pod that another scheduler has given the card, whoever has it.
fn give_anyway(cluster: &HoldCluster, name: &str) {
    cluster.server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": { "deviceClassName": "card" } }] } },
    }));
    let result = json!({ "request": "card", "driver": "hostler.dev", "pool": "n1/fake", "device": "card-0" });
    let allocation = json!({ "devices": { "results": [result] }, "allocationTimestamp": "2026-01-01T00:00:00Z" });
    cluster.server.set_status("resourceclaims", &format!("default/{name}"), json!({ "allocation": allocation }));
}

/// Waits until the Reservation says of which claims that they have its device together, and of none of the others.
async fn until_told(cluster: &HoldCluster, claims: &[&str], others: &[&str]) -> Value {
    let look = |view: &ApiServerView<'_>| {
        let object = view.get(RESERVATIONS, "r")?;
        let conditions = object["status"]["conditions"].as_array()?;
        let settled = conditions.iter().find(|it| it["type"] == "Settled" && it["reason"] == "Conflict")?;
        let says = |claim: &&str| settled["message"].as_str().is_some_and(|it| it.contains(claim));
        (claims.iter().all(says) && !others.iter().any(says)).then(|| object.clone())
    };
    cluster.server.until(&format!("it is said that {claims:?} have a device together"), look).await
}

/// The claim that was made for a pod.
fn claim_of(view: &ApiServerView<'_>, pod: &str) -> Option<String> {
    let claims = view.list("resourceclaims");
    let claim = claims.iter().find(|it| it["metadata"]["ownerReferences"][0]["name"] == pod)?;
    Some(format!("default/{}", claim["metadata"]["name"].as_str().unwrap()))
}

fn warnings(view: &ApiServerView<'_>) -> Vec<String> {
    let is_one =
        |it: &&Value| it["reason"] == "Conflict" && it["type"] == "Warning" && it["involvedObject"]["name"] == "r";
    let events = view.list("events");
    events.iter().filter(is_one).map(|it| it["message"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_claims_have_is_closed_until_neither_has_it_whoever_leads_by_then() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({ "allocateOnce": false }));
    let kept = cluster.until_phase("r", "Available").await;
    cluster.template("any", None);
    cluster.template("kept", Some(value(&kept)));
    cluster.pod("owner", "kept");
    cluster.until_bound("owner").await;
    let first = cluster.server.look(|view| claim_of(view, "owner")).unwrap();
    give_anyway(&cluster, "second");
    let told = until_told(&cluster, &[&first, "default/second"], &[]).await;
    assert_eq!(told["status"]["devices"][0]["conflict"], true);
    let is_warned = |view: &ApiServerView<'_>| {
        warnings(view).iter().any(|it| it.contains(&first) && it.contains("default/second")).then_some(())
    };
    cluster.server.until("people are told", is_warned).await;
    // Whoever leads next hears only of the one that is left, and the Reservation is to go.
    controller.signal(Signal::SIGKILL);
    drop(controller);
    cluster.drop_lease();
    cluster.ask_to_go("r");
    cluster.server.delete("pods", "default/owner");
    cluster.server.until("its claim is gone", |view| claim_of(view, "owner").is_none().then_some(())).await;
    let controller = cluster.controller().await;
    until_told(&cluster, &["default/second"], &[&first]).await;
    cluster.pod("third", "any");
    cluster.until_refused("third").await;
    let fence = format!("n1/fake/card-0={}", value(&kept));
    assert_eq!(cluster.fences(), [fence]);
    cluster.server.delete("resourceclaims", "default/second");
    assert_eq!(cluster.until_bound("third").await, "n1");
    cluster.server.until("it is gone", |view| view.get(RESERVATIONS, "r").is_none().then_some(())).await;
    assert!(cluster.fences().is_empty());
    assert_eq!(controller.stop().await, Some(0));
}
