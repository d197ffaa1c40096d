//! The webhook, which leads owners to the devices that are kept for them.

use std::{fs, net::TcpListener, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hostler_process::serve::MadeCertificate;
use hostler_testing::real_node::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{CARDS, HoldingCluster, RESOURCE, apply, deployed};

const WEBHOOK: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hostler-webhook";

/// A cluster whose API server calls the webhook. The server does not reach Services: it has an address, and a
/// certificate from files of the folder.
fn asking_cluster() -> Option<(HoldingCluster, TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    let made = MadeCertificate::new(&["127.0.0.1".to_owned()], Duration::from_secs(3600)).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (certificate, key) = (file("tls.crt", &made.certificate), file("tls.key", &made.key));
    // The port is free again when the controller starts.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!("[webhook]\nlisten = \"{address}\"\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let cluster = HoldingCluster::start_with(&config)?;
    apply(&cluster.node, &deployed("holds/webhook/rbac.yaml"));
    let mut configurations = deployed("holds/webhook/configuration.yaml");
    let bundle = BASE64_STANDARD.encode(&made.authority);
    configurations[0]["webhooks"][0]["clientConfig"] =
        json!({"url": format!("https://{address}/claims"), "caBundle": bundle});
    apply(&cluster.node, &configurations);
    cluster
        .node
        .block_on(cluster.controller.until_figure("hostler_controller_condition{type=\"Webhook\",status=\"True\"} 1"));
    cluster.template("any", &json!([])).unwrap();
    Some((cluster, folder))
}

/// Deletes the pods, the Reservation and the webhook of a test.
fn end(cluster: HoldingCluster, pods: &[&str], reservation: &str) {
    for pod in pods {
        cluster.node.delete(&cluster.node.of("/api/v1", &format!("pods/{pod}")), 1);
    }
    cluster.release(reservation);
    cluster.node.delete(WEBHOOK, 0);
    cluster.stop();
}

#[test]
fn an_owner_is_led_to_what_is_kept_without_a_word_in_his_template() {
    let Some((cluster, _folder)) = asking_cluster() else { return };
    // One of four cards: without the webhook the owner would have three others to choose from.
    cluster.reserve("e2e-led", 1, "led");
    let kept = cluster.until_phase("e2e-led", "Available");
    let claims = cluster.node.of(RESOURCE, "resourceclaims");
    let pod = cluster.node.of("/api/v1", "pods/led");
    // A configuration is in force some moments after it was made.
    let claim = eventually("the claim of a pod that was led", || {
        cluster.pod("led", "any");
        let claim = eventually("the claim", || {
            let items = cluster.node.get(&claims)?["items"].as_array()?.clone();
            let is_its = |it: &Value| it["metadata"]["ownerReferences"][0]["name"] == "led";
            items.into_iter().find(is_its).filter(|it| it["metadata"]["deletionTimestamp"].is_null())
        });
        let choice = claim["metadata"]["annotations"]["hostler.dev/led-to-reservation"].clone();
        if choice.is_string() {
            return Some(claim);
        }
        cluster.node.delete(&pod, 0);
        eventually("the pod to be gone", || cluster.node.get(&pod).is_none().then_some(()));
        None
    });
    let choice: Value =
        serde_json::from_str(claim["metadata"]["annotations"]["hostler.dev/led-to-reservation"].as_str().unwrap())
            .unwrap();
    assert_eq!(choice, json!({"name": "e2e-led", "uid": kept["metadata"]["uid"]}));
    eventually("the container", || cluster.node.pid("led"));
    let name = claim["metadata"]["name"].as_str().unwrap();
    let claim = cluster.node.get(&format!("{claims}/{name}")).unwrap();
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!((&result["request"], &result["device"]), (&json!("card/held"), &kept["status"]["devices"][0]["device"]));
    cluster.until_phase("e2e-led", "Succeeded");
    end(cluster, &["led"], "e2e-led");
}

/// All cards are kept, and the pods are made in the same moment as the Reservation; one more waits until a card comes
/// back.
#[test]
fn a_reservation_and_its_pods_in_one_apply_leave_no_pod_waiting_beside_what_is_kept() {
    let Some((cluster, _folder)) = asking_cluster() else { return };
    let pods = ["one", "two", "three", "four", "more"];
    assert_eq!(pods.len(), CARDS + 1);
    let owner = |pod: &&str| json!({"object": {"namespace": cluster.node.namespace(), "name": pod}});
    let owners: Vec<Value> = pods.iter().map(owner).collect();
    // The pod before its Reservation: its claim is the older one.
    cluster.pod("one", "any");
    cluster.reserve_with("e2e-at-once", 1, "", &json!({"owners": owners, "replicas": CARDS, "allocateOnce": false}));
    for pod in &pods[1..CARDS] {
        cluster.pod(pod, "any");
    }
    for pod in &pods[..CARDS] {
        eventually(&format!("the container of {pod}"), || cluster.node.pid(pod));
    }
    cluster.pod("more", "any");
    let is_refused = || cluster.node.events("Pod", "more").iter().any(|it| it.contains("cannot allocate all claims"));
    eventually("the refusal", || is_refused().then_some(()));
    cluster.node.delete(&cluster.node.of("/api/v1", "pods/two"), 1);
    eventually("the container of who waited", || cluster.node.pid("more"));
    end(cluster, &["one", "three", "four", "more"], "e2e-at-once");
}

/// Files with a certificate of another authority replace the present ones, as programs that rotate certificates do it.
#[test]
fn a_certificate_that_is_replaced_while_the_controller_runs_leads_the_next_owner() {
    let Some((cluster, folder)) = asking_cluster() else { return };
    let made = MadeCertificate::new(&["127.0.0.1".to_owned()], Duration::from_secs(3600)).unwrap();
    for (name, text) in [("tls.key", &made.key), ("tls.crt", &made.certificate)] {
        fs::write(folder.path().join("new"), text).unwrap();
        fs::rename(folder.path().join("new"), folder.path().join(name)).unwrap();
    }
    cluster.node.change(WEBHOOK, "", |webhook| {
        webhook["webhooks"][0]["clientConfig"]["caBundle"] = json!(BASE64_STANDARD.encode(&made.authority));
    });
    cluster.reserve("e2e-rotated", CARDS, "rotated");
    cluster.until_phase("e2e-rotated", "Available");
    // As long as the server does not take the new certificate, the claim is created unchanged, and the pod waits: all
    // cards are kept.
    let pod = cluster.node.of("/api/v1", "pods/rotated");
    let began = std::time::Instant::now();
    eventually("an owner that is led", || {
        cluster.pod("rotated", "any");
        let claim = eventually("the claim", || {
            let items = cluster.node.get(&cluster.node.of(RESOURCE, "resourceclaims"))?["items"].as_array()?.clone();
            items.into_iter().find(|it| it["metadata"]["deletionTimestamp"].is_null())
        });
        let is_led = claim["metadata"]["annotations"]["hostler.dev/led-to-reservation"].is_string();
        if is_led {
            return Some(());
        }
        cluster.node.delete(&pod, 0);
        eventually("the pod to be gone", || cluster.node.get(&pod).is_none().then_some(()));
        None
    });
    println!("led {:.1?} after the files were replaced", began.elapsed());
    eventually("the container", || cluster.node.pid("rotated"));
    end(cluster, &["rotated"], "e2e-rotated");
}
