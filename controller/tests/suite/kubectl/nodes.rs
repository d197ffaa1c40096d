//! `kubectl hostler node` and `top`.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use serde_json::{Value, json};

use super::{
    plugin,
    scene::{OPERATOR, PluginScene, given, kept, node, out_of_service, reserve, slice, with_namespace},
};

async fn scene() -> PluginScene {
    let scene = PluginScene::new().await;
    let value = reserve(&scene, "night", json!({"object": {"namespace": "ml", "name": "other"}}));
    scene.put(node("n2"));
    scene.put(slice("n2", json!([{"name": "a"}, kept("b", &value), out_of_service("c", "drained", "operator")])));
    scene.put(given("x", "a", "other-0"));
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_have_a_row_with_a_bar_and_their_holders() {
    let said = scene().await.ask(&["node"]).await;
    assert_eq!(
        said.out,
        "NODE   DEVICES  USE               FREE  ALLOCATED  HELD  OTHER  STATUS  HOLDERS\n\
         n1           2  ########........     1          1     0      0  ready   ml 1\n\
         n2           3  :::::xxxxx......     1          0     1      1  ready   kept for night 1\n\
         TOTAL        5  ###:::xxx.......     2          1     1      1\n\n\
         Bars: # allocated, : held, x out of service or not known, . free\n",
        "{}",
        said.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_shown_with_devices_holders_reservations_and_the_age_of_its_report() {
    let scene = scene().await;
    let said = scene.ask(&["node", "n2"]).await;
    assert!(
        said.out.starts_with("Node n2: ready; 3 devices: 1 drained, 1 free, 1 held\nDaemon: no report"),
        "{}{}",
        said.out,
        said.err
    );
    for line in [
        "night        Available        1  Pod ml/other  for ever",
        "gpu.example/n2/c  drained  -     gpu      -       -",
    ] {
        assert!(said.out.contains(line), "{line}: {}", said.out);
    }
    let states = ["capacity", "allocatable", "allocated", "held", "unhealthy", "drained", "unknown", "blocked", "free"];
    let counts: serde_json::Map<String, Value> = states.iter().map(|state| ((*state).to_owned(), json!(0))).collect();
    scene.put(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": {"name": "n1"},
        "spec": {"nodeName": "n1"},
        "status": {
            "driver": "gpu.example", "hostlerVersion": "0.1.0", "kernelVersion": "6.1.0", "bootID": "b",
            "devices": counts, "lastReportTime": "2026-01-01T00:00:00Z",
        },
    }));
    let said = scene.ask(&["node", "n1"]).await;
    assert!(
        said.out.starts_with("Node n1: ready, unknown; 2 devices: 2 unknown\nDaemon: hostler 0.1.0"),
        "{}{}",
        said.out,
        said.err
    );
    let said = scene.ask(&["node", "n1", "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&answer["kind"], &answer["report"]), (&json!("Machine"), &json!("unknown")), "{answer}");
    assert_eq!(answer["daemon"]["hostlerVersion"], "0.1.0");
    let said = scene.ask(&["node", "n3"]).await;
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(2), "kubectl hostler: there is no node n3; did you mean n1 or n2?\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_nodes_again_whenever_anything_changes() {
    let scene = scene().await;
    let mut command = plugin(scene.folder.path(), &["top", "-o", "json"]);
    command.env("KUBECONFIG", with_namespace(&scene.kubeconfig(OPERATOR), "ml")).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = tokio::task::spawn_blocking(move || {
        assert!(lines.any(|line| line.unwrap().contains("\"free\": 2")), "the first answer");
        lines
    });
    let mut lines = (&mut until).await.unwrap();
    scene.put(given("y", "b", "other-1"));
    let seen = tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap().contains("\"ml\": 2")));
    assert!(seen.await.unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    let said = scene.ask(&["top", "--once", "--class", "gp"]).await;
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("there is no DeviceClass gp; did you mean gpu?"), "{}", said.err);
}
