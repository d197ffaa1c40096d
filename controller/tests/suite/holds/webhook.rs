//! Pods are led to what is kept for them: the real binary answers the API server over real TLS.

use std::{fs, net::SocketAddr, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hostler_testing::{
    apiserver::{ApiServerView, LoggedRequest, PolicyRule, ask_over_tls},
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};

use super::cluster::{HoldCluster, rules};
use crate::rig::{USER, root};

pub(crate) const NAMESPACE: &str = "hostler-controller";
pub(crate) const NAME: &str = "hostler-webhook";
const CONFIGURATIONS: &str = "mutatingwebhookconfigurations";
/// What the API server expects of a certificate.
const SERVER: &str = "hostler-webhook.hostler-controller.svc";
const PATIENCE: Duration = Duration::from_secs(30);

fn deployed(file: &str) -> String {
    fs::read_to_string(root().join("deploy/holds/webhook").join(file)).unwrap()
}

/// Installs the webhook; the controller may what it takes, and more.
pub(crate) fn install(cluster: &HoldCluster, more: Vec<PolicyRule>) {
    let own = ["rbac.yaml", "../annotations/rbac.yaml"].map(|file| PolicyRule::from_yaml(&deployed(file)));
    cluster.server.allow(USER, rules().into_iter().chain(own.into_iter().flatten()).chain(more).collect());
    cluster.server.create_yaml(&deployed("configuration.yaml"));
}

/// A cluster in which the webhook is installed, and a node with so many cards.
pub(crate) async fn installed(cards: usize) -> HoldCluster {
    let cluster = HoldCluster::start().await;
    install(&cluster, Vec::new());
    cluster.node("n1", cards);
    cluster.template("any", None);
    cluster
}

pub(crate) fn options(cluster: &HoldCluster) -> ControllerOptions {
    let mut options = cluster.options();
    options.config.push_str("[webhook]\nlisten = \"127.0.0.1:0\"\n");
    options
}

/// A controller that answers; the API server is led to it.
async fn answering(cluster: &HoldCluster) -> RunningController {
    let controller = RunningController::start(&options(cluster)).await;
    until_answering(cluster, &controller).await;
    controller
}

/// Waits until it answers, and has the API server led to it.
pub(crate) async fn until_answering(cluster: &HoldCluster, controller: &RunningController) {
    controller.until_figure("hostler_controller_condition{type=\"Webhook\",status=\"True\"} 1").await;
    cluster.server.lead_to(NAMESPACE, NAME, address(controller));
    let is_written = |view: &ApiServerView<'_>| bundle(&view.get(CONFIGURATIONS, NAME)?);
    cluster.server.until("the API server knows the authority", is_written).await;
}

pub(crate) fn address(controller: &RunningController) -> SocketAddr {
    let log = controller.log();
    let mut words = log.iter().flat_map(|line| line.split_whitespace());
    words.find_map(|word| word.strip_prefix("webhook=")?.parse().ok()).unwrap()
}

fn bundle(configuration: &Value) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str()?).ok()
}

async fn kept(cluster: &HoldCluster, controller: &RunningController, more: &Value) -> Value {
    cluster.reserve("r", 1, "owner", more);
    let kept = cluster.until_phase("r", "Available").await;
    controller.until_figure("hostler_controller_objects{kind=\"reservations\"} 1").await;
    kept
}

/// The claim of a pod.
pub(crate) fn claim(cluster: &HoldCluster, pod: &str) -> Value {
    let pod = cluster.server.get("pods", &format!("default/{pod}")).unwrap();
    let name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().unwrap();
    cluster.server.get("resourceclaims", &format!("default/{name}")).unwrap()
}

/// Makes a pod that is led.
async fn lead(cluster: &HoldCluster, pod: &str) {
    lead_so(cluster, pod, |_| true).await;
}

/// Makes a pod that is led in this way. What the controller knows is a moment old, and a slow answer is none: then it is
/// made once more.
async fn lead_so(cluster: &HoldCluster, pod: &str, is_so: impl Fn(&Value) -> bool) {
    for _ in 0..100 {
        cluster.pod(pod, "any");
        let path = format!("default/{pod}");
        let named = |view: &ApiServerView<'_>| {
            let pod = view.get("pods", &path)?;
            let name = pod["status"]["resourceClaimStatuses"].as_array()?.first()?["resourceClaimName"].as_str()?;
            view.get("resourceclaims", &format!("default/{name}"))
        };
        let claim = cluster.server.until("there is a claim", named).await;
        if claim["metadata"]["annotations"]["hostler.dev/led-to-reservation"].is_string() && is_so(&claim) {
            return;
        }
        cluster.server.delete("pods", &path);
        let name = format!("default/{}", claim["metadata"]["name"].as_str().unwrap());
        let is_gone = |view: &ApiServerView<'_>| view.get("resourceclaims", &name).is_none().then_some(());
        cluster.server.until("the claim is gone", is_gone).await;
    }
    panic!("{pod} was never led so");
}

pub(crate) fn device(claim: &Value) -> (&str, &str) {
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    (result["request"].as_str().unwrap(), result["device"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_word_in_its_template_an_owner_is_given_what_is_kept() {
    let cluster = installed(2).await;
    let controller = answering(&cluster).await;
    // The second device, which no allocator takes first.
    cluster.server.edit("resourceslices", "0-n1", |slice| {
        slice["spec"]["devices"][0]["taints"] = json!([{ "key": "x", "effect": "NoSchedule" }]);
    });
    let kept = kept(&cluster, &controller, &json!({})).await;
    assert_eq!(kept["status"]["devices"][0]["device"], "card-1");
    assert_eq!(cluster.fences().len(), 1, "the first one is free again");
    lead(&cluster, "owner").await;
    assert_eq!(cluster.until_bound("owner").await, "n1");
    let claim = claim(&cluster, "owner");
    assert_eq!(device(&claim), ("card/held", "card-1"));
    let choice = claim["metadata"]["annotations"]["hostler.dev/led-to-reservation"].as_str().unwrap();
    let choice: Value = serde_json::from_str(choice).unwrap();
    assert_eq!(choice, json!({ "name": "r", "uid": kept["metadata"]["uid"] }));
    let done = cluster.until_phase("r", "Succeeded").await;
    assert_eq!(done["status"]["currentOwners"][0]["name"], "owner");
    controller.until_figure("hostler_controller_webhook_answers_total{what=\"led\"} 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_left_alone_and_owners_take_others_where_nothing_is_left() {
    let cluster = installed(3).await;
    let controller = answering(&cluster).await;
    kept(
        &cluster,
        &controller,
        &json!({ "owners": [{ "labelSelector": { "matchExpressions": [
        { "key": "app", "operator": "In", "values": ["owner", "second"] },
    ] } }], "allocateOnce": false }),
    )
    .await;
    cluster.pod("stranger", "any");
    cluster.until_bound("stranger").await;
    let of_stranger = claim(&cluster, "stranger");
    assert_eq!(device(&of_stranger).0, "card");
    assert_eq!(of_stranger["metadata"]["annotations"]["hostler.dev/led-to-reservation"], Value::Null);
    lead(&cluster, "owner").await;
    cluster.until_bound("owner").await;
    cluster.pod("second", "any");
    cluster.until_bound("second").await;
    let requests = ["owner", "second"].map(|pod| device(&claim(&cluster, pod)).0.to_owned());
    assert_eq!(requests[0], "card/held");
    // Whether it was led before the first one's device was told makes no difference to what it gets.
    assert!(["card/any", "card"].contains(&&*requests[1]), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_who_may_take_only_what_is_kept_is_given_that_and_no_second_one_is() {
    let cluster = installed(2).await;
    let controller = answering(&cluster).await;
    let both = json!([{ "labelSelector": { "matchExpressions": [
        { "key": "app", "operator": "In", "values": ["owner", "second"] },
    ] } }]);
    let strict = json!({ "allocatePolicy": "Restricted", "allocateOnce": false, "owners": both });
    kept(&cluster, &controller, &strict).await;
    // Both are led at the same time, before either has the device; one that is not led takes the free one.
    cluster.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(true));
    for pod in ["owner", "second"] {
        // Before the controller knows that the device is kept, it leads to others as well.
        lead_so(&cluster, pod, |claim| claim["spec"]["devices"]["requests"][0]["exactly"].is_object()).await;
        cluster.until_refused(pod).await;
    }
    cluster.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(false));
    let one = cluster.until_either_bound(["owner", "second"]).await;
    let of_one = claim(&cluster, one);
    assert_eq!(device(&of_one).0, "card");
    let expression = &of_one["spec"]["devices"]["requests"][0]["exactly"]["selectors"][0]["cel"]["expression"];
    assert!(expression.as_str().unwrap().contains("heldFor"), "{of_one}");
    let other = if one == "owner" { "second" } else { "owner" };
    cluster.pod("stranger", "any");
    cluster.until_bound("stranger").await;
    let of_other = cluster.server.get("pods", &format!("default/{other}")).unwrap();
    assert!(
        of_other["spec"]["nodeName"].is_null(),
        "it was free before the stranger came, and is nothing for the other one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn successors_of_owners_are_led_while_their_predecessors_have_everything() {
    let cluster = installed(2).await;
    let controller = answering(&cluster).await;
    let both = json!([{ "labelSelector": { "matchExpressions": [
        { "key": "app", "operator": "In", "values": ["first", "second", "third"] },
    ] } }]);
    cluster.reserve("r", 2, "", &json!({ "allocateOnce": false, "owners": both }));
    cluster.until_phase("r", "Available").await;
    controller.until_figure("hostler_controller_objects{kind=\"reservations\"} 1").await;
    cluster.pod("first", "any");
    cluster.until_bound("first").await;
    cluster.pod("second", "any");
    cluster.until_bound("second").await;
    let is_full = |view: &ApiServerView<'_>| {
        let taken = view.get("reservations", "r")?["status"]["allocated"].clone();
        (taken["card.deviceclass.resource.k8s.io/devices"] == "2").then_some(())
    };
    cluster.server.until("everything is taken", is_full).await;
    // The third comes while nothing is left: its claim cannot be changed when a place comes back.
    cluster.pod("third", "any");
    cluster.until_refused("third").await;
    cluster.server.delete("pods", "default/first");
    assert_eq!(cluster.until_bound("third").await, "n1");
    assert_eq!(device(&claim(&cluster, "third")).0, "card/held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_and_its_pods_that_are_made_at_once_leave_no_pod_waiting() {
    let cluster = installed(2).await;
    let _controller = answering(&cluster).await;
    let both = json!([{ "labelSelector": { "matchExpressions": [
        { "key": "app", "operator": "In", "values": ["first", "second"] },
    ] } }]);
    cluster.reserve("r", 2, "", &json!({ "owners": both }));
    for pod in ["first", "second"] {
        cluster.pod(pod, "any");
    }
    for pod in ["first", "second"] {
        assert_eq!(cluster.until_bound(pod).await, "n1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_webhook_is_down_claims_are_made_as_they_are() {
    let cluster = installed(2).await;
    let controller = answering(&cluster).await;
    kept(&cluster, &controller, &json!({})).await;
    assert_eq!(controller.stop().await, Some(0));
    cluster.pod("owner", "any");
    cluster.until_bound("owner").await;
    let of_owner = claim(&cluster, "owner");
    assert_eq!(device(&of_owner).0, "card");
    assert_eq!(of_owner["metadata"]["annotations"]["hostler.dev/led-to-reservation"], Value::Null);
    assert_eq!(cluster.fences().len(), 1, "what is kept is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_controller_answers_with_the_same_certificate_whoever_leads() {
    let cluster = installed(1).await;
    let first = answering(&cluster).await;
    let second = RunningController::start(&options(&cluster)).await;
    second.until_figure("hostler_controller_condition{type=\"Webhook\",status=\"True\"} 1").await;
    second.until_figure("hostler_controller_leads 0").await;
    kept(&cluster, &second, &json!({})).await;
    cluster.server.lead_to(NAMESPACE, NAME, address(&second));
    lead(&cluster, "owner").await;
    cluster.until_bound("owner").await;
    assert_eq!(device(&claim(&cluster, "owner")).0, "card/held");
    second.until_figure("hostler_controller_webhook_answers_total{what=\"led\"} 1").await;
    assert_eq!(first.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_writes_over_the_certificate_is_mended_by_whoever_leads_next() {
    let cluster = installed(1).await;
    let first = answering(&cluster).await;
    assert_eq!(first.stop().await, Some(0));
    let secrets = format!("{NAMESPACE}/{NAME}");
    let before = cluster.server.get("secrets", &secrets).unwrap();
    cluster.server.edit("secrets", &secrets, |secret| secret["data"]["keys.json"] = json!("bm9uc2Vuc2U="));
    cluster.server.edit(CONFIGURATIONS, NAME, |object| object["webhooks"][0]["clientConfig"]["caBundle"] = json!(""));
    let controller = answering(&cluster).await;
    let is_new = |view: &ApiServerView<'_>| {
        let secret = view.get("secrets", &secrets)?;
        (bundle(&view.get(CONFIGURATIONS, NAME)?)?.len() > 100 && secret["data"] != before["data"]).then_some(())
    };
    cluster.server.until("there are new keys", is_new).await;
    kept(&cluster, &controller, &json!({})).await;
    lead(&cluster, "owner").await;
    cluster.until_bound("owner").await;
    assert_eq!(device(&claim(&cluster, "owner")).0, "card/held");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sends_nonsense_too_much_or_too_slowly_keeps_nobody_out() {
    let cluster = installed(1).await;
    let controller = answering(&cluster).await;
    kept(&cluster, &controller, &json!({})).await;
    let (address, known) = (address(&controller), bundle(&cluster.server.get(CONFIGURATIONS, NAME).unwrap()).unwrap());
    let ask = move |request: String| {
        let known = known.clone();
        tokio::task::spawn_blocking(move || ask_over_tls(address, SERVER, &known, &request, PATIENCE).unwrap().0)
    };
    let post = |length: usize, body: &str| {
        let head = "POST /claims HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\nContent-Length:";
        format!("{head} {length}\r\nConnection: close\r\n\r\n{body}")
    };
    assert_eq!(ask(post(2, "{}")).await.unwrap(), 400);
    assert_eq!(ask(post(1 << 20, "{}")).await.unwrap(), 413, "before it is read");
    assert_eq!(ask("GET /claims HTTP/1.1\r\nHost: w\r\n\r\n".to_owned()).await.unwrap(), 405);
    assert_eq!(ask("GET /metrics HTTP/1.1\r\nHost: w\r\n\r\n".to_owned()).await.unwrap(), 404);
    // Sixty that send the half of what they said they would; the API server is answered beside them.
    let slow: Vec<_> = (0..60).map(|_| ask(post(10, "{}"))).collect();
    lead(&cluster, "owner").await;
    cluster.until_bound("owner").await;
    assert_eq!(device(&claim(&cluster, "owner")).0, "card/held");
    for slow in slow {
        assert_eq!(slow.await.unwrap(), 408);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_comes_in_files_is_taken_and_nothing_is_written() {
    let cluster = installed(1).await;
    let controller = answering(&cluster).await;
    let keys = cluster.server.get("secrets", &format!("{NAMESPACE}/{NAME}")).unwrap();
    let keys = BASE64_STANDARD.decode(keys["data"]["keys.json"].as_str().unwrap()).unwrap();
    let keys: Value = serde_json::from_slice(&keys).unwrap();
    assert_eq!(controller.stop().await, Some(0));
    let folder = cluster.server.folder();
    for (file, field) in [("tls.crt", "certificate"), ("tls.key", "key")] {
        fs::write(folder.join(file), keys["in_use"][field].as_str().unwrap()).unwrap();
    }
    let writes = || cluster.server.writes("secrets") + cluster.server.writes(CONFIGURATIONS);
    let before = writes();
    let mut options = options(&cluster);
    let path = |file: &str| folder.join(file).display().to_string();
    options.config.push_str(&format!("certificate = {:?}\nkey = {:?}\n", path("tls.crt"), path("tls.key")));
    let controller = RunningController::start(&options).await;
    controller.until_figure("hostler_controller_condition{type=\"Webhook\",status=\"True\"} 1").await;
    cluster.server.lead_to(NAMESPACE, NAME, address(&controller));
    kept(&cluster, &controller, &json!({})).await;
    lead(&cluster, "owner").await;
    cluster.until_bound("owner").await;
    assert_eq!(device(&claim(&cluster, "owner")).0, "card/held");
    assert_eq!(writes(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_role_allows_all_that_the_webhook_takes_and_nothing_that_it_never_does() {
    let cluster = installed(1).await;
    let controller = answering(&cluster).await;
    kept(&cluster, &controller, &json!({})).await;
    // One that was made without the webhook is looked at.
    cluster.server.lead_to(NAMESPACE, NAME, SocketAddr::from(([127, 0, 0, 1], 1)));
    cluster.pod("owner", "any");
    let is_told = |view: &ApiServerView<'_>| {
        view.list("events").iter().any(|it| it["reason"] == "ReservationPassedBy").then_some(())
    };
    cluster.server.until("people are told", is_told).await;
    cluster.until_phase("r", "Succeeded").await;
    cluster.server.lead_to(NAMESPACE, NAME, address(&controller));
    // Nonsense in the Secret is written over.
    cluster.server.edit("secrets", &format!("{NAMESPACE}/{NAME}"), |secret| secret["data"] = json!({}));
    assert_eq!(controller.stop().await, Some(0));
    let _controller = answering(&cluster).await;
    let is_mended = |view: &ApiServerView<'_>| {
        view.get("secrets", &format!("{NAMESPACE}/{NAME}"))?["data"]["keys.json"].is_string().then_some(())
    };
    cluster.server.until("there are keys again", is_mended).await;
    let log = cluster.server.log();
    let asked: Vec<&LoggedRequest> = log.iter().filter(|call| call.user == USER && !call.resource.is_empty()).collect();
    let refused: Vec<&&LoggedRequest> = asked.iter().filter(|call| call.status == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    for rule in PolicyRule::from_yaml(&deployed("rbac.yaml")) {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let is_needed = asked.iter().any(|call| call.verb == verb && call.resource == *resource);
                assert!(is_needed, "nothing needs the verb {verb} on {resource}");
            }
        }
    }
}
