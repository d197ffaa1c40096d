//! Commands that ask a controller instead of a cluster.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use hostler_testing::apiserver::PolicyRule;
use serde_json::Value;

use super::{Scene, class, node, slice};

const TRAIN: &str = "apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ml}
spec:
  parallelism: 3
  template:
    spec:
      containers: [{name: main}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: ml}
spec:
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example}}]}}
";

async fn scene() -> Scene {
    Scene::with(|server| {
        server.create(class("gpu.example"));
        server.create(node("n1"));
        server.create(slice("n1", "gpu.example", 2));
    })
    .await
}

/// Runs a command of somebody whose token is in a file.
async fn call(scene: &Scene, folder: &Path, args: &[&str]) -> Output {
    let rights = ["nodehardware", "resourceclaims", "resourceslices"].map(|resource| PolicyRule {
        api_groups: vec!["hostler.dev".to_owned(), "resource.k8s.io".to_owned()],
        resources: vec![resource.to_owned()],
        verbs: vec!["list".to_owned()],
        ..PolicyRule::default()
    });
    scene.server.allow("viewer", rights.into());
    fs::write(folder.join("token"), scene.server.user("viewer", None)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostler-controller"));
    let address = format!("http://{}", scene.controller.address());
    command.args(args).args(["--controller", &address, "-o", "json"]).current_dir(folder);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_made_of_what_the_controller_knows() {
    let (scene, temp) = (scene().await, tempfile::tempdir().unwrap());
    fs::write(temp.path().join("train.yaml"), TRAIN).unwrap();
    let args = ["plan", "-f", "train.yaml", "--token-file", "token"];
    let output = call(&scene, temp.path(), &args).await;
    let answer = json(&output);
    assert_eq!((answer["verdict"].as_str(), output.status.code()), (Some("does-not-fit"), Some(1)));
    assert_eq!(answer["podSets"][0]["placed"], 2);
    let more = [&args[..], &["--what-if", "add node like n1"]].concat();
    assert_eq!(call(&scene, temp.path(), &more).await.status.code(), Some(0));
    let wrong = [&args[..], &["--what-if", "drain node n9"]].concat();
    let refused = call(&scene, temp.path(), &wrong).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("there is no node n9"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_plans_for_so_many_at_once_and_says_who_plans_for_more() {
    let (scene, temp) = (scene().await, tempfile::tempdir().unwrap());
    let pods = |count: usize| {
        let pod =
            |at| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p{at}}}\nspec: {{containers: [{{name: m}}]}}\n");
        (0..count).map(pod).collect::<Vec<_>>().join("---\n")
    };
    let args = ["plan", "-f", "pods.yaml", "--token-file", "token"];
    fs::write(temp.path().join("pods.yaml"), pods(32)).unwrap();
    assert_eq!(json(&call(&scene, temp.path(), &args).await)["podSets"].as_array().unwrap().len(), 32);
    fs::write(temp.path().join("pods.yaml"), pods(33)).unwrap();
    let refused = call(&scene, temp.path(), &args).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("33 workloads and pods; send up to 32"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn availability_is_what_the_controller_has_counted() {
    let (scene, temp) = (scene().await, tempfile::tempdir().unwrap());
    let answer = json(&call(&scene, temp.path(), &["availability", "--by", "node", "--token-file", "token"]).await);
    assert_eq!((&answer["rows"][0]["node"], &answer["rows"][0]["free"]), (&"n1".into(), &2.into()));
    let refused = call(&scene, temp.path(), &["availability"]).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("a token is needed"), "{said}");
}
