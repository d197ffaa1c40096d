//! What `kubectl describe` shows of Reservations: Events, read from the server.

use hostler_testing::apiserver::ApiServerView;
use serde_json::{Value, json};

use super::{cluster::HoldCluster, value};

/// Events about a Reservation with this reason.
fn events(view: &ApiServerView<'_>, reservation: &Value, reason: &str) -> Vec<Value> {
    let metadata = &reservation["metadata"];
    let object = json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "name": metadata["name"], "uid": metadata["uid"],
    });
    let is_about = |event: &Value| {
        let involved = &event["involvedObject"];
        object.as_object().unwrap().iter().all(|(field, text)| involved[field] == *text)
    };
    view.list("events").into_iter().filter(|event| event["reason"] == reason && is_about(event)).collect()
}

async fn until_told(cluster: &HoldCluster, reservation: &Value, reason: &str) -> Value {
    let look = |view: &ApiServerView<'_>| events(view, reservation, reason).into_iter().next();
    cluster.server.until(&format!("people are told {reason}"), look).await
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_told_that_something_is_kept_lost_and_over() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let _controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let kept = cluster.until_phase("r", "Available").await;
    let told = until_told(&cluster, &kept, "Available").await;
    assert_eq!((&told["type"], &told["message"]), (&json!("Normal"), &json!("all 1 devices are kept")));
    assert_eq!(told["source"]["component"], "hostler-controller");
    // Somebody whom no policy keeps from it tolerates everything.
    cluster.template("all", Some(value(&kept)));
    cluster.server.edit("resourceclaimtemplates", "default/all", |object| {
        object["spec"]["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = json!([{ "operator": "Exists" }]);
    });
    cluster.pod("thief", "all");
    assert_eq!(cluster.until_bound("thief").await, "n1");
    let told = until_told(&cluster, &kept, "Lost").await;
    assert_eq!(told["type"], "Warning");
    assert!(told["message"].as_str().unwrap().contains("which pod default/thief has"), "{told}");
    cluster.reserve("short", 1, "nobody", &json!({ "ttl": "1s" }));
    let short = cluster.until_phase("short", "Failed").await;
    assert_eq!(until_told(&cluster, &short, "Expired").await["type"], "Warning");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_waits_for_ever_says_why_once() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 0);
    let _controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let waiting = cluster.server.get("reservations", "r").unwrap();
    let told = until_told(&cluster, &waiting, "Unschedulable").await;
    assert_eq!(told["type"], "Warning");
    let said = |view: &ApiServerView<'_>| {
        let conditions = view.get("reservations", "r")?["status"]["conditions"].take();
        let scheduled = conditions.as_array()?.iter().find(|it| it["type"] == "Scheduled")?.clone();
        Some(scheduled["message"].as_str()?.to_owned())
    };
    let why = cluster.server.until("it is said why", said).await;
    assert_eq!(told["message"], why.as_str());
    // It is looked for again whenever nodes come, in vain; who asks later is told after that.
    for at in 2..5 {
        cluster.node(&format!("n{at}"), 0);
    }
    // Of two that were made in one second the name decides.
    cluster.reserve("second", 1, "other", &json!({}));
    let second = cluster.server.get("reservations", "second").unwrap();
    until_told(&cluster, &second, "Unschedulable").await;
    cluster.node("n5", 1);
    let kept = cluster.until_phase("r", "Available").await;
    until_told(&cluster, &kept, "Available").await;
    // What is told later is written later: there is no other one on its way.
    let all = cluster.server.look(|view| events(view, &kept, "Unschedulable"));
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(all[0]["count"].as_u64().is_none_or(|count| count == 1), "{all:#?}");
}
