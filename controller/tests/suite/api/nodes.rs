//! The grid, a node as a machine, sums, and the stream of what changes.

use std::time::Duration;

use hostler_testing::visitor::{EventStream, SentEvent};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{CLAIMS, NODES, Scene, class, node, slice};

const GPU: &str = "gpu.example.com";
const NIC: &str = "nic.example.com";

/// What a hostile cluster calls a node and a device; the API server refuses it, a broken one would not.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// A claim of `ml` that has a device.
fn allocated(name: &str, node: &str, driver: &str, device: &str) -> (Value, Value) {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": name, "namespace": "ml" },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": driver } }] } },
    });
    let result = json!({ "request": "r", "driver": driver, "pool": node, "device": device });
    let status = json!({
        "allocation": { "devices": { "results": [result] } },
        "reservedFor": [{ "resource": "pods", "name": "train-0", "uid": "u" }],
    });
    (claim, status)
}

fn zoned(mut slice: Value) -> Value {
    for (at, device) in slice["spec"]["devices"].as_array_mut().unwrap().iter_mut().enumerate() {
        device["attributes"] = json!({ "resource.kubernetes.io/numaNode": { "int": at % 2 } });
    }
    slice
}

async fn cluster() -> Scene {
    Scene::with(|server| {
        for driver in [GPU, NIC] {
            server.create(class(driver));
        }
        for name in ["n1", "n2"] {
            server.create(node(name));
            server.create(zoned(slice(name, GPU, 4)));
        }
        server.create(slice("n2", NIC, 3));
        server.edit("nodes", "n2", |node| node["metadata"]["labels"]["zone"] = "b".into());
        let (claim, status) = allocated("train", "n1", GPU, "dev-1");
        server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "ml" } }));
        server.create(claim);
        server.set_status("resourceclaims", "ml/train", status);
    })
    .await
}

/// Rows once the controller has seen the claim.
async fn rows(scene: &Scene, query: &str) -> Value {
    let viewer = scene.viewer();
    let is_seen = async |_: &_| {
        let rows = viewer.get("/v1/nodes").await.json()["nodes"].clone();
        (rows[0][3] == json!([1, 1, 1])).then_some(())
    };
    scene.controller.until("the claim is seen", is_seen).await;
    let answer = viewer.get(&format!("/v1/nodes{query}")).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.json()["nodes"].clone()
}

#[tokio::test]
async fn the_grid_counts_what_a_filter_means() {
    let scene = cluster().await;
    let n1 = json!(["n1", 3, [0, 2], [1, 1, 1]]);
    let n2 = json!(["n2", 3, [0, 2], [1, 2], [-1, 3]]);
    for (query, expected) in [
        ("", json!([n1, n2])),
        ("?class=gpu.example.com", json!([n1, ["n2", 3, [0, 2], [1, 2]]])),
        ("?class=nic.example.com", json!([["n2", 3, [-1, 3]]])),
        ("?namespace=ml", json!([["n1", 3, [0, 0, 0, 0, 0, 0, 0, 0, 2], [1, 0, 1, 0, 0, 0, 0, 0, 1]]])),
        ("?namespace=other", json!([])),
        ("?label=zone%3Db", json!([n2])),
        ("?label=zone%3Db&class=gpu.example.com&namespace=ml", json!([])),
    ] {
        assert_eq!(rows(&scene, query).await, expected, "{query}");
    }
    for wrong in ["?label=%3D", "?klass=a", "?class=a&class=b"] {
        assert_eq!(scene.viewer().get(&format!("/v1/nodes{wrong}")).await.code, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_node_shows_its_devices_and_who_has_them_to_whom_may_know() {
    let scene = cluster().await;
    rows(&scene, "").await;
    let machine = scene.viewer().get("/v1/nodes/n1").await.json();
    assert_eq!(machine["holders"], json!([{ "namespace": "ml", "name": "train", "pods": ["train-0"] }]));
    let device = machine["devices"].as_array().unwrap().iter().find(|it| it["name"] == "dev-1").unwrap();
    let expected = json!({
        "driver": GPU, "pool": "n1", "name": "dev-1", "numaNode": 1, "state": "allocated", "classes": [GPU],
        "holds": [{ "holder": 0 }],
    });
    assert_eq!(device, &expected);
    assert_eq!((&machine["labels"], &machine["isReady"]), (&json!({ "zone": "a" }), &json!(true)));
    assert_eq!(scene.viewer().get("/v1/nodes/absent").await.code, 404);
}

#[tokio::test]
async fn whoever_may_not_know_holders_sees_no_trace_of_them() {
    let scene = cluster().await;
    rows(&scene, "").await;
    let visitor = scene.visitor("nodes-only", &[NODES]);
    for path in ["/v1/nodes", "/v1/nodes/n1", "/v1/availability?by=class", "/v1/availability?by=node"] {
        let answer = visitor.get(path).await;
        assert_eq!(answer.code, 200, "{path}");
        for word in ["\"ml\"", "train"] {
            assert!(!answer.body.contains(word), "{path}: {}", answer.body);
        }
    }
    let machine = visitor.get("/v1/nodes/n1").await.json();
    assert_eq!((&machine["holdersShown"], machine.get("holders")), (&json!(false), None));
    for path in ["/v1/nodes?namespace=ml", "/v1/changes?namespace=ml", "/v1/availability?by=namespace"] {
        let answer = visitor.get(path).await;
        assert_eq!(answer.code, 403, "{path}");
        assert!(answer.body.contains("list resourceclaims.resource.k8s.io"), "{}", answer.body);
    }
    assert_eq!(scene.visitor("claims-only", &[CLAIMS]).get("/v1/nodes/n1").await.code, 403);
}

#[tokio::test]
async fn names_are_texts_wherever_they_come_from() {
    let scene = cluster().await;
    let viewer = scene.viewer();
    let encoded = HOSTILE.replace(' ', "%20").replace('<', "%3C").replace('>', "%3E");
    for path in [format!("/v1/nodes/{encoded}"), format!("/v1/nodes?class={encoded}"), format!("/{encoded}")] {
        let answer = viewer.get(&path).await;
        assert!(!answer.header("content-type").contains("html"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
}

async fn next(stream: &mut EventStream) -> SentEvent {
    timeout(Duration::from_secs(30), stream.next()).await.unwrap().unwrap()
}

#[tokio::test]
async fn changes_are_told_and_go_on_where_somebody_was() {
    let scene = cluster().await;
    rows(&scene, "").await;
    let viewer = scene.viewer();
    let revision = viewer.get("/v1/nodes").await.json()["revision"].as_str().unwrap().to_owned();
    let mut stream = viewer.follow("/v1/changes", &[("Last-Event-ID", &revision)]).await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    scene.server.create(node("n3"));
    let event = next(&mut stream).await;
    assert_eq!((&*event.event, event.json()), ("nodes", json!({ "nodes": [["n3", 3]], "gone": [] })));
    drop(stream);
    scene.server.delete("nodes", "n3");
    let mut stream = viewer.follow("/v1/changes", &[("Last-Event-ID", &event.id)]).await.unwrap();
    assert_eq!(next(&mut stream).await.json(), json!({ "nodes": [], "gone": ["n3"] }));
}

#[tokio::test]
async fn whoever_comes_from_nowhere_gets_everything_first() {
    let scene = cluster().await;
    rows(&scene, "").await;
    for last in [&[][..], &[("Last-Event-ID", "other-1")], &[("Last-Event-ID", "☃")]] {
        let mut stream = scene.viewer().follow("/v1/changes?label=zone%3Da", last).await.unwrap();
        let event = next(&mut stream).await;
        assert_eq!((&*event.event, &event.json()["nodes"][0][0]), ("grid", &json!("n1")));
        assert_eq!(event.json()["revision"], event.id);
    }
}

#[tokio::test]
async fn a_node_that_does_not_pass_a_filter_any_more_is_gone() {
    let scene = cluster().await;
    rows(&scene, "").await;
    let mut stream = scene.viewer().follow("/v1/changes?class=nic.example.com", &[]).await.unwrap();
    assert_eq!(next(&mut stream).await.json()["nodes"], json!([["n2", 3, [-1, 3]]]));
    scene.server.delete("resourceslices", &format!("n2-{NIC}"));
    assert_eq!(next(&mut stream).await.json(), json!({ "nodes": [], "gone": ["n2"] }));
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_taken_away() {
    let scene = cluster().await;
    let mut stream = scene.viewer().follow("/v1/changes", &[]).await.unwrap();
    assert_eq!(next(&mut stream).await.event, "grid");
    scene.server.forget_user("viewer");
    let taken_away = Instant::now();
    while next(&mut stream).await.event != "end" {}
    assert!(taken_away.elapsed() < Duration::from_secs(12), "{:?}", taken_away.elapsed());
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn many_streams_of_one_keep_out_nobody_else() {
    let scene = cluster().await;
    let greedy = scene.visitor("greedy", &[NODES]);
    let mut streams = Vec::new();
    let refused = loop {
        match greedy.follow("/v1/changes", &[]).await {
            Ok(stream) => streams.push(stream),
            Err(answer) => break answer,
        }
    };
    assert_eq!((refused.code, refused.header("retry-after"), streams.len()), (429, "1", 12));
    assert!(scene.viewer().follow("/v1/changes", &[]).await.is_ok());
    assert_eq!(greedy.get("/v1/nodes").await.code, 200);
    streams.clear();
    // Places are given back when the server notices that nobody listens.
    let is_free = async |_: &_| greedy.follow("/v1/changes", &[]).await.ok();
    scene.controller.until("there is a place again", is_free).await;
}

#[tokio::test]
async fn a_reader_who_does_not_read_is_in_nobodys_way() {
    let scene = cluster().await;
    let slow = scene.visitor("slow", &[NODES]).follow("/v1/changes", &[]).await.unwrap();
    let mut quick = scene.viewer().follow("/v1/changes", &[]).await.unwrap();
    assert_eq!(next(&mut quick).await.event, "grid");
    for round in 0..20 {
        scene.server.edit("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(round % 2 == 0));
        assert_eq!(next(&mut quick).await.event, "nodes");
        sleep(Duration::from_millis(1)).await;
    }
    drop(slow);
}
