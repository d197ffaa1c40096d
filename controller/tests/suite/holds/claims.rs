//! Claims that pods name: the running controller has the scheduler fill them, and keeps them filled.

use std::fs;

use hostler_testing::{
    apiserver::{ApiServerView, PolicyRule},
    controller::RunningController,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::HoldCluster;
use crate::rig::{USER, root};

const CLAIM: &str = "default/r-card";
const POD: &str = "default/r-reserve";

fn more_rules() -> Vec<PolicyRule> {
    PolicyRule::from_yaml(&fs::read_to_string(root().join("deploy/holds/claims/rbac.yaml")).unwrap())
}

async fn cluster(cards: usize) -> HoldCluster {
    let cluster = cluster_without_role(cards).await;
    cluster.server.allow(USER, more_rules());
    cluster
}

async fn cluster_without_role(cards: usize) -> HoldCluster {
    let mut cluster = HoldCluster::start().await;
    cluster.run_kubelets();
    cluster.node("n1", cards);
    cluster.template("cards", None);
    cluster
}

fn reserve(cluster: &HoldCluster) {
    let claims = json!([{ "name": "card", "resourceClaimTemplateName": "cards" }]);
    let containers = json!([{ "name": "c", "image": "i" }]);
    let template = json!({
        "metadata": { "namespace": "default" }, "spec": { "containers": containers, "resourceClaims": claims },
    });
    let spec = json!({
        "mode": "SharedClaim", "allocateOnce": false, "deviceClaims": [], "template": template,
        "owners": [{ "labelSelector": { "matchLabels": { "job": "train" } } }],
    });
    cluster.reserve("r", 0, "nobody", &spec);
}

/// A pod that names the claim.
fn pod(cluster: &HoldCluster, name: &str, job: &str) {
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "job": job } },
        "spec": {
            "containers": [{ "name": "c", "image": "i", "resources": { "claims": [{ "name": "card" }] } }],
            "resourceClaims": [{ "name": "card", "resourceClaimName": "r-card" }],
        },
    }));
}

fn allocation(cluster: &HoldCluster) -> Value {
    cluster.server.get("resourceclaims", CLAIM).unwrap()["status"]["allocation"].clone()
}

async fn until_users(cluster: &HoldCluster, names: &[&str]) {
    let look = |view: &ApiServerView<'_>| {
        let owners = view.get("reservations", "r")?["status"]["currentOwners"].take();
        let owners: Vec<&str> = owners.as_array().into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
        (owners == names).then_some(())
    };
    cluster.server.until(&format!("{names:?} are the owners"), look).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_keeps_its_device_between_one_pod_and_the_next_until_it_is_released() {
    let cluster = cluster(1).await;
    let controller = cluster.controller().await;
    reserve(&cluster);
    let kept = cluster.until_phase("r", "Available").await;
    assert_eq!(
        kept["status"]["claims"],
        json!([{ "name": "card", "namespace": "default", "resourceClaimName": "r-card" }])
    );
    assert!(cluster.server.get("pods", POD).is_none());
    let given = allocation(&cluster);
    assert_eq!(given["devices"]["results"][0]["device"], "card-0");
    for name in ["first", "second"] {
        pod(&cluster, name, "train");
        assert_eq!(cluster.until_bound(name).await, "n1");
        until_users(&cluster, &[name]).await;
        cluster.server.delete("pods", &format!("default/{name}"));
        until_users(&cluster, &[]).await;
        assert_eq!(allocation(&cluster), given);
    }
    // Nobody else gets it meanwhile.
    cluster.pod("stranger", "cards");
    cluster.until_refused("stranger").await;
    cluster.ask_to_go("r");
    let is_gone = |view: &ApiServerView<'_>| {
        (view.get("reservations", "r").is_none() && view.get("resourceclaims", CLAIM).is_none()).then_some(())
    };
    cluster.server.until("nothing of it is left", is_gone).await;
    assert_eq!(cluster.until_bound("stranger").await, "n1", "who waited for the device is woken");
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_any_write_leaves_one_claim_and_no_pod() {
    let cluster = cluster(2).await;
    reserve(&cluster);
    let writes = || {
        let log = cluster.server.log();
        let ours = log.iter().filter(|call| call.user == USER && ["create", "patch", "delete"].contains(&call.verb));
        ours.filter(|call| ["reservations", "resourceclaims", "pods"].iter().any(|it| call.resource.starts_with(it)))
            .count()
    };
    let is_done = || cluster.server.get("reservations", "r").unwrap()["status"]["phase"] == "Available";
    for after in [1, 1, 1, 2, 1, 1] {
        let controller = RunningController::start(&cluster.options()).await;
        let before = writes();
        controller.until("it has written", async |_| (writes() >= before + after || is_done()).then_some(())).await;
        controller.signal(Signal::SIGKILL);
        drop(controller);
        cluster.drop_lease();
    }
    let _controller = cluster.controller().await;
    cluster.until_phase("r", "Available").await;
    let claims = cluster.server.list("resourceclaims");
    assert_eq!(claims.len(), 1);
    let consumers = claims[0]["status"]["reservedFor"].as_array().unwrap();
    assert!(consumers.iter().any(|it| it["apiGroup"] == "hostler.dev" && it["name"] == "r"), "{consumers:?}");
    assert!(cluster.server.list("pods").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_role_it_says_what_is_refused() {
    let cluster = cluster_without_role(1).await;
    let get = PolicyRule {
        api_groups: vec!["hostler.dev".to_owned(), "resource.k8s.io".to_owned()],
        resources: vec!["reservations".to_owned(), "resourceclaims".to_owned()],
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    cluster.server.allow(USER, vec![get]);
    let _controller = cluster.controller().await;
    reserve(&cluster);
    let look = |view: &ApiServerView<'_>| {
        let conditions = view.get("reservations", "r")?["status"]["conditions"].take();
        let ready = conditions.as_array()?.iter().find(|it| it["type"] == "Ready")?.clone();
        let message = ready["message"].as_str()?;
        (message.starts_with("the API server refuses it") && message.contains("ResourceClaim default/r-card"))
            .then_some(())
    };
    cluster.server.until("it is said what is refused", look).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_role_allows_all_that_shared_claims_take_and_nothing_else() {
    let cluster = cluster(1).await;
    let controller = cluster.controller().await;
    reserve(&cluster);
    cluster.until_phase("r", "Available").await;
    cluster.ask_to_go("r");
    let is_gone = |view: &ApiServerView<'_>| view.get("reservations", "r").is_none().then_some(());
    cluster.server.until("it is gone", is_gone).await;
    assert_eq!(controller.stop().await, Some(0));
    let log = cluster.server.log();
    let asked: Vec<_> = log.iter().filter(|call| call.user == USER).collect();
    let refused: Vec<_> = asked.iter().filter(|call| call.status == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    for rule in more_rules() {
        for resource in rule.resources.iter().filter(|resource| *resource != "resourceclaims/binding") {
            for verb in &rule.verbs {
                let is_needed = asked.iter().any(|call| call.verb == *verb && call.resource == *resource);
                assert!(is_needed, "nothing needs the verb {verb} on {resource}");
            }
        }
    }
}
