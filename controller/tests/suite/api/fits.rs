//! What would fit, asked of the controller.

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{SLICES, Scene, claim, class, node, slice};

const GPU: &str = "gpu.example.com";

/// Two nodes, of which one has enough.
async fn two_nodes() -> Scene {
    Scene::with(|server| {
        server.create(class(GPU));
        for (name, devices) in [("n1", 1), ("n2", 4)] {
            server.create(node(name));
            server.create(slice(name, GPU, devices));
        }
    })
    .await
}

fn first(answer: &Value) -> &Value {
    &answer["podSets"][0]
}

#[tokio::test]
async fn every_node_says_whether_a_pasted_claim_would_fit_or_why_not() {
    let scene = two_nodes().await;
    let answer = scene.viewer().post("/v1/fits", claim("two", GPU, 2).to_string()).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let answer = answer.json();
    assert_eq!(answer["kind"], "Fits");
    let set = first(&answer);
    assert_eq!((&set["name"], &set["namespace"]), (&json!("ResourceClaim two"), &json!("ml")));
    assert_eq!((&set["verdict"], &set["room"]), (&json!("fits"), &json!(["n2"])));
    assert_eq!(set["refusals"][0]["nodes"], json!(["n1"]));
    let reason = set["refusals"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("request r"), "{reason}");
    assert!(scene.server.list("resourceclaims").is_empty(), "nothing is made");
}

#[tokio::test]
async fn pods_templates_and_workloads_are_asked_for_too() {
    let scene = two_nodes().await;
    let yaml = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: t, namespace: ml}}\nspec:\n  spec:\n    \
         devices: {{requests: [{{name: r, exactly: {{deviceClassName: {GPU}, count: 9}}}}]}}\n"
    );
    let viewer = scene.viewer();
    let template = viewer.post("/v1/fits", yaml.clone()).await.json();
    assert_eq!(first(&template)["name"], "ResourceClaimTemplate t");
    assert_eq!((&first(&template)["verdict"], &first(&template)["room"]), (&json!("does-not-fit"), &json!([])));
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ml}\nspec:\n  containers: [{name: c, image: i}]\n  \
               resourceClaims: [{name: r, resourceClaimTemplateName: t}]\n";
    let both = viewer.post("/v1/fits", format!("{yaml}---\n{pod}")).await.json();
    assert_eq!((&first(&both)["name"], both["podSets"].as_array().unwrap().len()), (&json!("Pod p"), 1));
}

#[tokio::test]
async fn an_answer_follows_the_cluster() {
    let scene = two_nodes().await;
    let viewer = scene.viewer();
    let asked = claim("all", GPU, 4).to_string();
    assert_eq!(first(&viewer.post("/v1/fits", asked.clone()).await.json())["room"], json!(["n2"]));
    scene.server.delete("resourceslices", &format!("n2-{GPU}"));
    let is_gone = async |_: &_| {
        let answer = viewer.post("/v1/fits", asked.clone()).await.json();
        (first(&answer)["room"] == json!([])).then_some(())
    };
    scene.controller.until("nothing fits any more", is_gone).await;
}

#[tokio::test]
async fn what_cannot_be_used_is_told_with_its_place() {
    let scene = two_nodes().await;
    let viewer = scene.viewer();
    for (pasted, expected) in [
        ("", "nothing here wants a place"),
        ("kind: [", "document 1"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: s}", "Service is none of them"),
        ("apiVersion: resource.k8s.io/v9\nkind: ResourceClaim\nmetadata: {name: c}", "apiVersion"),
    ] {
        let answer = viewer.post("/v1/fits", pasted).await;
        assert_eq!(answer.code, 422, "{pasted}");
        let error = &answer.json()["error"];
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
        assert_eq!(error["problems"].as_array().unwrap().len(), 1);
    }
    assert_eq!(viewer.post("/v1/fits", Bytes::from_static(b"\xff\xfe")).await.code, 422);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let scene = two_nodes().await;
    let answer = scene.viewer().post("/v1/fits", vec![b' '; 300 << 10]).await;
    assert_eq!((answer.code, &answer.json()["error"]["code"]), (413, &json!("too-large")));
}

#[tokio::test]
async fn a_body_that_does_not_come_keeps_nobody_waiting() {
    let scene = two_nodes().await;
    let slow = scene.visitor("slow", &[SLICES]);
    assert_eq!(slow.get("/v1/access").await.code, 200);
    let mut bodies = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(scene.controller.address()).await.unwrap();
        let head =
            "POST /v1/fits HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-of-slow\r\nContent-Length: 9\r\n\r\nk";
        stream.write_all(head.as_bytes()).await.unwrap();
        bodies.push(stream);
    }
    let viewer = scene.viewer();
    assert_eq!(viewer.post("/v1/fits", claim("c", GPU, 1).to_string()).await.code, 200);
    let mut answers = Vec::new();
    for stream in &mut bodies {
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        answers.push(String::from_utf8(answer).unwrap());
    }
    // Those for whom there was a place in time, and those beyond a visitor's sixteen places at once.
    assert!(answers.iter().all(|answer| ["HTTP/1.1 408", "HTTP/1.1 429"].contains(&&**answer)), "{answers:?}");
    assert!(answers.contains(&"HTTP/1.1 429".to_owned()), "{answers:?}");
}
