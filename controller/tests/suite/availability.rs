//! `hostler-controller availability` as people call it. What they see stands in the page about it; `UPDATE_GOLDEN=1` writes it
//! anew.

use std::{
    fs,
    io::{BufReader, Read},
    process::{Child, Stdio},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease, PolicyRule},
    controller::RunningController,
    host::wait_for,
};
use serde_json::{Value, json};

use crate::{
    rig::{options, root},
    transcript::{call, check, command, text},
};

#[test]
fn the_page_says_what_the_command_says() {
    check(&root().join("docs/availability.md"), &root().join("examples/availability"));
}

#[test]
fn what_cannot_be_answered_is_told() {
    let folder = root().join("examples/plan");
    let output = call(&["availability", "-f", "broken.txt"], &folder);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("broken.txt"), "{}", text(&output.stderr));
    let output = call(&["availability", "--controller", "http://192.0.2.1", "--token-file", "/dev/null"], &folder);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("a token goes nowhere without https"), "{}", text(&output.stderr));
}

/// Rows of an answer in JSON: class, devices and free ones.
fn rows(answer: &Value) -> Vec<(String, u64, u64)> {
    let number = |row: &Value, field: &str| row[field].as_u64().unwrap();
    let row =
        |row: &Value| (row["class"].as_str().unwrap_or("-").to_owned(), number(row, "capacity"), number(row, "free"));
    answer["rows"].as_array().unwrap().iter().map(row).collect()
}

fn slice(devices: &[&str]) -> Value {
    let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "n1-gpu"},
        "spec": {"driver": "gpu.example", "nodeName": "n1", "devices": devices,
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_cluster_is_read_once_or_as_long_as_somebody_watches() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
    server.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == \"gpu.example\""}}]}}));
    server.create(slice(&["a", "b"]));
    let kubeconfig = server.kubeconfig("system:serviceaccount:hostler:hostler-controller");
    let args = ["availability", "--kubeconfig", kubeconfig.to_str().unwrap(), "-o", "json"].map(str::to_owned);
    let once = args.clone();
    let output =
        tokio::task::spawn_blocking(move || call(&once.each_ref().map(String::as_str), &root())).await.unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!(rows(&answer), [("gpu".to_owned(), 2, 2)]);

    let watching = [&args.each_ref().map(String::as_str)[..], &["--watch"]].concat();
    let mut child = command(&watching, &root()).stdout(Stdio::piped()).spawn().unwrap();
    let answers = BufReader::new(child.stdout.take().unwrap());
    let mut answers = serde_json::Deserializer::from_reader(answers).into_iter::<Value>();
    let (first, mut answers) =
        tokio::task::spawn_blocking(move || (rows(&answers.next().unwrap().unwrap()), answers)).await.unwrap();
    assert_eq!(first, [("gpu".to_owned(), 2, 2)]);
    server.delete("resourceslices", "n1-gpu");
    server.create(slice(&["a", "b", "c"]));
    let last =
        tokio::task::spawn_blocking(move || answers.any(|answer| rows(&answer.unwrap()) == [("gpu".to_owned(), 3, 3)]));
    assert!(last.await.unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A command that has answered, and whose reader is gone since. It ends with the test at the latest.
struct WithoutReader(Child);

impl Drop for WithoutReader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl WithoutReader {
    fn start(args: &[String]) -> Self {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut child = Self(command(&args, &root()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let read = child.0.stdout.take().unwrap().read(&mut [0; 4096]).unwrap();
        assert!(read > 0, "{args:?} has answered");
        child
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_watched_ends_with_its_reader_although_nothing_changes() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    server.create_yaml(&fs::read_to_string(root().join("deploy/crds/reservations.yaml")).unwrap());
    server.create(slice(&["a"]));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    let url = format!("http://{}", controller.address());
    let kubeconfig = server.kubeconfig("system:serviceaccount:hostler:hostler-controller").display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let rights = ["nodehardware", "resourceclaims", "resourceslices"].map(|resource| PolicyRule {
        api_groups: vec!["hostler.dev".to_owned(), "resource.k8s.io".to_owned()],
        resources: vec![resource.to_owned()],
        verbs: vec!["list".to_owned()],
        ..PolicyRule::default()
    });
    server.allow("viewer", rights.into());
    let token = folder.path().join("token").display().to_string();
    fs::write(&token, server.user("viewer", None)).unwrap();
    for args in [
        &["availability", "--kubeconfig", &kubeconfig, "--watch"][..],
        &["availability", "--controller", &url, "--token-file", &token, "--watch"],
        &["holds", "--kubeconfig", &kubeconfig, "--watch"],
    ] {
        let args: Vec<String> = args.iter().map(|&it| it.to_owned()).collect();
        let ended = tokio::task::spawn_blocking(move || {
            let mut child = WithoutReader::start(&args);
            wait_for("the command's end", || child.0.try_wait().unwrap())
        });
        assert!(ended.await.unwrap().success());
    }
}
