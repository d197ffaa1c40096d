//! Devices behind switches: all of them, the counts alone, and only to visitors who may see them.

use std::fs;

use serde_json::{Value, json};

use super::{FABRIC, NODES, SLICES, Scene};
use crate::rig::root;

const FREE: &str = "0000000000001001-0001";
const TAKEN: &str = "0000000000001002-0001";

/// FabricAttachments are read where there is a manager.
const MANAGER: &str =
    "[[fabric.managers]]\nname = 'row1'\nfake = { hosts = ['918eda4d-2b69-432f-b0d3-dc2a8d80a351'] }\n";

async fn scene() -> Scene {
    let scene = Scene::configured(MANAGER.to_owned(), |server| {
        server.create_yaml(&fs::read_to_string(root().join("deploy/crds/fabric/fabricattachments.yaml")).unwrap());
        let taint = json!([{ "key": "hostler.dev/fabric", "value": "attached", "effect": "NoSchedule" }]);
        server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": "behind-switches" },
            "spec": {
                "driver": "hostler.dev", "allNodes": true,
                "pool": { "name": "fabric/row1/cxl", "generation": 1, "resourceSliceCount": 1 },
                "devices": [
                    { "name": FREE, "attributes": { "kind": { "string": "memory" }, "enclosure": { "string": "box-1" } } },
                    { "name": TAKEN, "taints": taint },
                ],
            },
        }));
        server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "FabricAttachment", "metadata": { "name": TAKEN },
            "spec": {
                "manager": "row1", "domain": "cxl", "device": "00-00-00-00-00-00-10-02:0001", "nodeName": "n1", "attempt": 0,
                "claim": { "namespace": "ml", "name": "train", "uid": "u" },
            },
        }));
        server.set_status("fabricattachments", TAKEN, json!({ "phase": "Ready", "since": "2026-11-28T10:00:00Z" }));
    })
    .await;
    scene.controller.until_figure("hostler_controller_objects{kind=\"fabricattachments\"} 1").await;
    scene
}

fn devices(answer: &Value) -> Vec<&str> {
    let domains = answer["domains"].as_array().unwrap().iter();
    domains.flat_map(|it| it["devices"].as_array().unwrap()).map(|it| it["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn devices_behind_switches_are_told_to_those_who_may_see_them() {
    let scene = scene().await;
    assert_eq!(scene.visitor("poor", &[NODES, SLICES]).get("/v1/fabric").await.code, 403);
    let all = scene.visitor("all", &[FABRIC, SLICES]).get("/v1/fabric").await.json();
    assert_eq!((&all["kind"], devices(&all)), (&json!("Fabric"), vec![FREE, TAKEN]));
    let domain = &all["domains"][0];
    assert_eq!(domain["counts"], json!({ "Free": 1, "Ready": 1 }));
    let (free, taken) = (&domain["devices"][0], &domain["devices"][1]);
    assert_eq!((&free["enclosure"], &free["state"]), (&json!("box-1"), &json!("Free")));
    assert_eq!((&taken["nodeName"], &taken["claim"]), (&json!("n1"), &json!("ml/train")));
    // Devices that are free stand in slices alone.
    let attached = scene.visitor("attached", &[FABRIC]).get("/v1/fabric").await.json();
    assert_eq!(devices(&attached), [TAKEN]);
}

#[tokio::test]
async fn a_question_about_one_pool_or_about_counts_has_no_other_devices() {
    let scene = scene().await;
    let visitor = scene.visitor("all", &[FABRIC, SLICES]);
    let busy = visitor.get("/v1/fabric?devices=busy&pool=fabric/row1/cxl").await.json();
    assert_eq!(devices(&busy), [TAKEN]);
    let counts = visitor.get("/v1/fabric?devices=none").await.json();
    assert!(devices(&counts).is_empty());
    assert_eq!(counts["domains"][0]["counts"], json!({ "Free": 1, "Ready": 1 }));
    assert_eq!(visitor.get("/v1/fabric?pool=fabric/row1/other").await.json()["domains"], json!([]));
    assert_eq!(visitor.get("/v1/fabric?devices=some").await.code, 400);
}

#[tokio::test]
async fn nothing_is_told_where_nothing_is_behind_a_switch() {
    let scene = Scene::start().await;
    let answer = scene.visitor("all", &[FABRIC, SLICES]).get("/v1/fabric").await.json();
    assert_eq!(answer["domains"], json!([]));
}
