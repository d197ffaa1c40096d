//! `kubectl hostler`, asked about devices behind switches: all of them, the claim that has one, and the pod that waits.

use std::fs;

use serde_json::{Value, json};

use super::scene::{PluginScene, claim, pod};
use crate::rig::root;

const FREE: &str = "0000000000001001-0001";
const ATTACHING: &str = "0000000000001002-0001";
const QUARANTINED: &str = "0000000000001003-0001";

/// A cluster with node n1, whose devices of class gpu are behind a switch.
async fn scene(has_kind: bool) -> PluginScene {
    let scene = PluginScene::new().await;
    scene.server.delete("resourceslices", "n1-gpu");
    if has_kind {
        scene
            .server
            .create_yaml(&fs::read_to_string(root().join("deploy/crds/fabric/fabricattachments.yaml")).unwrap());
    }
    scene
}

fn offer(scene: &PluginScene, devices: &Value) {
    scene.put(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "behind-switches"},
        "spec": {
            "driver": "gpu.example", "allNodes": true, "devices": devices,
            "pool": {"name": "fabric/row1/cxl", "generation": 1, "resourceSliceCount": 1},
        },
    }));
}

fn tainted(name: &str) -> Value {
    json!({"name": name, "taints": [{"key": "hostler.dev/fabric", "value": "attaching", "effect": "NoSchedule"}]})
}

fn attach(scene: &PluginScene, device: &str, claim: &Value, status: &Value) {
    scene.put(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "FabricAttachment", "metadata": {"name": device},
        "spec": {
            "manager": "row1", "domain": "cxl", "nodeName": "n1", "attempt": 2,
            "device": format!("00-00-00-00-00-00-{}-{}:0001", &device[12..14], &device[14..16]),
            "claim": {"namespace": "ml", "name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"]},
        },
        "status": status,
    }));
}

/// Claim ml/train-gpu, which was given a device behind a switch.
fn given(scene: &PluginScene, device: &str) -> Value {
    let mut given = claim("train-gpu", json!({}));
    let result = json!({"request": "one", "driver": "gpu.example", "pool": "fabric/row1/cxl", "device": device});
    given["status"] = json!({"allocation": {"devices": {"results": [result]}}});
    scene.put(given)
}

fn attached() -> Value {
    json!({
        "phase": "Attached", "since": "2026-11-28T10:00:00Z", "deadline": "2126-11-28T10:08:00Z",
        "message": "the device is attached; node n1 is to find it",
        "node": {"attempt": 2, "state": "Found", "message": "it is being erased"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_and_its_pod_are_told_how_far_the_device_is() {
    let scene = scene(true).await;
    offer(&scene, &json!([{"name": FREE}, tainted(ATTACHING)]));
    let claim = given(&scene, ATTACHING);
    scene.put(pod(json!({}), json!({})));
    let said = scene.ask(&["explain", "claim", "train-gpu"]).await;
    assert!(said.out.contains("has no FabricAttachment yet"), "{}{}", said.out, said.err);
    attach(&scene, ATTACHING, &claim, &attached());
    let said = scene.ask(&["explain", "claim", "train-gpu"]).await;
    let is = format!(
        "device {ATTACHING} is attached for claim ml/train-gpu, and node n1 has not found it in order yet (since \
         2026-11-28T10:00:00Z): the device is attached; node n1 is to find it"
    );
    assert_eq!(
        said.out,
        format!(
            "ResourceClaim ml/train-gpu: it has 1 device\n  \
             request one: device gpu.example/fabric/row1/cxl/{ATTACHING}\n  \
             {is}\n  \
             node n1 reports Found: it is being erased\n  \
             the claim is given another device if the device is not ready at 2126-11-28T10:08:00Z\n  \
             next the daemon of node n1 finds and checks the device: hostler status there, and its log, say more\n  \
             no pod uses it: its devices stay its own until it is deleted, or freed\n"
        ),
        "{}",
        said.err
    );
    let said = scene.ask(&["why", "train"]).await;
    let sentence =
        format!("Pod ml/train waits: its claim train-gpu has a device that is not attached yet: {is}.\nFix: wait; ");
    assert!(said.out.starts_with(&sentence), "{}{}", said.out, said.err);
    let said = scene.ask(&["fabric"]).await;
    let row = format!("fabric/row1/cxl  {ATTACHING}  -     Attached  n1    ml/train-gpu  2026-11-28T10:00:00Z\n");
    assert!(said.code == Some(0) && said.out.contains(&row), "{}{}", said.out, said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_for_which_all_devices_are_hidden_is_told_which_and_by_what() {
    let scene = scene(true).await;
    offer(&scene, &json!([tainted(ATTACHING)]));
    let other = scene.put(claim("other", json!({})));
    attach(&scene, ATTACHING, &other, &json!({"phase": "Releasing", "message": "memory 32 is in use"}));
    let failed = json!({
        "phase": "Detached", "reason": "Quarantined", "retryAt": "2126-11-28T12:00:00Z", "failures": 6, "message": "no link",
    });
    attach(&scene, QUARANTINED, &other, &failed);
    scene.put(claim("train-gpu", json!({})));
    scene.put(pod(json!({}), json!({})));
    let hidden = [
        format!("device {ATTACHING} is given back by node n1, which had it for claim ml/other: memory 32 is in use"),
        format!(
            "device {QUARANTINED} is quarantined until 2126-11-28T12:00:00Z, after 6 failed attachments in a row: no link"
        ),
    ];
    let said = scene.ask(&["why", "train"]).await;
    let sentence = "Pod ml/train waits: request one of its claim gpu wants 1 device, and 1 matches: 1 is behind a switch and being \
                    attached or given back.";
    assert!(said.out.starts_with(sentence), "{}{}", said.out, said.err);
    let told = scene.ask(&["explain", "claim", "train-gpu"]).await;
    for line in &hidden {
        assert!(said.out.contains(&format!("Note: {line}\n")), "{}{}", said.out, said.err);
        assert!(told.out.contains(&format!("  {line}\n")), "{}{}", told.out, told.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_the_kind_is_told_the_step_that_brings_it() {
    let scene = scene(false).await;
    let said = scene.ask(&["fabric"]).await;
    assert_eq!(said.code, Some(2));
    let expected = "the API server has no fabricattachments.hostler.dev; apply deploy/crds/fabric, which deploy/fabric brings along";
    assert!(said.err.contains(expected), "{}", said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_told_of_the_missing_right_only_where_it_matters() {
    let scene = scene(true).await;
    scene.allow("tenant", &["", "resource.k8s.io"], &["pods", "events", "nodes", "resourceslices", "resourceclaims"]);
    scene.put(claim("train-gpu", json!({})));
    scene.put(pod(json!({}), json!({})));
    let said = scene.ask_as("tenant", &["why", "train"]).await;
    assert!(said.out.contains("you may not list") && !said.out.contains("fabricattachments"), "{}", said.out);
    scene.server.delete("resourceclaims", "ml/train-gpu");
    given(&scene, FREE);
    let said = scene.ask_as("tenant", &["explain", "claim", "train-gpu"]).await;
    assert!(said.out.contains("how far its attachment is, you may not read"), "{}{}", said.out, said.err);
}
