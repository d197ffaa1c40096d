//! `hostler-controller plan` as people call it. What they see stands in transcripts: in files of `tests/plan`, and in the page
//! about it. `UPDATE_GOLDEN=1` writes them anew.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use hostler_testing::apiserver::{ApiServer, ApiServerRelease, PolicyRule};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::{Value, json};

use crate::{
    rig::root,
    transcript::{check, command, text},
};

fn cases() -> PathBuf {
    root().join("controller/tests/plan")
}

fn examples() -> PathBuf {
    root().join("examples/plan/cards")
}

fn plan(args: &[&str], folder: &Path, stdin: &[u8]) -> Output {
    let mut child = command(&[&["plan"], args].concat(), folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    child.wait_with_output().unwrap()
}

fn json(args: &[&str], folder: &Path) -> Value {
    let output = plan(&[args, &["-o", "json"]].concat(), folder, b"");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {}", text(&output.stderr)))
}

#[test]
fn the_page_says_what_the_command_says() {
    check(&root().join("docs/planning.md"), &root().join("examples/plan"));
}

#[test]
fn what_people_see_is_as_it_was() {
    let transcripts = fs::read_dir(cases()).unwrap().map(|entry| entry.unwrap().path());
    let mut transcripts: Vec<PathBuf> =
        transcripts.filter(|path| path.extension().is_some_and(|extension| extension == "console")).collect();
    transcripts.sort();
    assert!(transcripts.len() > 2, "{transcripts:?}");
    transcripts.iter().for_each(|path| check(path, &cases()));
}

#[test]
fn every_shape_says_the_same() {
    let args = ["-f", "."];
    let document = json(&args, &examples());
    let yaml = plan(&[&args[..], &["-o", "yaml"]].concat(), &examples(), b"");
    assert_eq!(serde_saphyr::from_str::<Value>(&text(&yaml.stdout)).unwrap(), document);
    assert_eq!(
        (document["apiVersion"].as_str(), document["kind"].as_str()),
        (Some("output.hostler.dev/v1"), Some("Plan"))
    );
    assert_eq!((document["verdict"].as_str(), yaml.status.code()), (Some("does-not-fit"), Some(1)));
}

#[test]
fn standard_input_is_read_as_a_file_is() {
    let folder = examples();
    let all: String = ["nodes", "devices", "running", "train"]
        .map(|name| fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap())
        .join("\n---\n");
    let piped = plan(&["-f", "-", "-o", "json"], &folder, all.as_bytes());
    let document: Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!(document, json(&["-f", "."], &folder));
}

#[test]
fn objects_as_kubectl_lists_them_give_the_same_answer() {
    let folder = examples();
    let mut items = Vec::new();
    for name in ["nodes", "devices", "running", "train"] {
        let text = fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        items.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
    }
    let list = serde_json::json!({ "apiVersion": "v1", "items": items, "kind": "List", "metadata": {} });
    let expected = json(&["-f", "."], &folder);
    for text in [serde_json::to_string_pretty(&list).unwrap(), serde_saphyr::to_string(&list).unwrap()] {
        let piped = plan(&["-f", "-", "-o", "json"], &folder, text.as_bytes());
        assert_eq!(serde_json::from_slice::<Value>(&piped.stdout).unwrap(), expected);
    }
}

/// Pods of a template that was changed are another group; those of a Job have its name; namespaces have labels.
#[test]
fn labels_that_controllers_give_to_pods_count() {
    let hostname = "kubernetes.io/hostname";
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {hostname: name}}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}})
    };
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": {"team": "x"}}});
    let far = |selector: &Value, more: Value| {
        let mut term = json!({"topologyKey": hostname, "labelSelector": selector});
        term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    };
    let template = |labels: Value, affinity: Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c"}], "affinity": affinity}});
    let web = json!({"matchLabels": {"app": "web"}});
    let own = far(&web, json!({"matchLabelKeys": ["pod-template-hash"]}));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ml"},
        "spec": {"replicas": 2, "template": template(json!({"app": "web"}), own)}});
    let pod = |name: &str, hash: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml",
        "labels": {"app": "web", "pod-template-hash": hash},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{hash}"), "uid": "u"}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}})
    };
    let of_job = json!({"matchLabels": {"job-name": "train"}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "other"},
        "spec": {"parallelism": 3, "template": template(json!({}), far(&of_job, json!({})))}});
    let lone = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lone", "namespace": "other"},
        "spec": {"containers": [{"name": "c"}], "affinity":
            far(&web, json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}))}});
    let placed = |objects: &[&Value]| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let output = plan(&["-f", "-", "-o", "json"], &cases(), list.as_bytes());
        let answer: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        let sets = answer["podSets"].as_array().unwrap().iter().map(|set| {
            let nodes = set["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap().to_owned());
            nodes.collect::<Vec<String>>().join(" ")
        });
        (sets.collect::<Vec<String>>().join(", "), answer["verdict"].as_str().unwrap().to_owned())
    };
    let (n1, n2, nodes) = (node("n1"), node("n2"), |sets: &str, verdict: &str| (sets.to_owned(), verdict.to_owned()));
    let seen = pod("web-77-a", "77");
    assert_eq!(placed(&[&n1, &n2, &deployment, &seen]), nodes("n2", "fits"), "one of two runs on n1");
    let other = pod("web-66-a", "66");
    assert_eq!(placed(&[&n1, &n2, &deployment, &seen, &other]), nodes("", "fits"), "both run");
    assert_eq!(placed(&[&n1, &n2, &job]), nodes("n1 n2", "does-not-fit"));
    assert_eq!(placed(&[&n1, &n2, &namespace, &seen, &lone]), nodes("n2", "fits"));
    assert_eq!(placed(&[&n1, &n2, &seen, &lone]), nodes("n1", "undecided"), "who knows the labels of ml?");
}

#[test]
fn a_wrong_call_and_a_wrong_input_are_told_from_an_answer() {
    let folder = examples();
    for args in [
        &[][..],
        &["-f", "absent.yaml"],
        &["-f", ".", "-o", "xml"],
        &["-f", ".", "--kubernetes", "1.20"],
        &["-f", ".", "--feature-gates", "DRADeviceTaint=true"],
        &["-f", ".", "--feature-gates", "DRADeviceTaints=perhaps"],
        &["-f", ".", "--what-if", "drian node n1"],
        &["-f", ".", "--what-if", "drain node n9"],
        &["--node-capture", "nodes.yaml"],
        &["--node-capture", "n9=nodes.yaml"],
        &["--cluster", "--kubeconfig", "absent"],
    ] {
        let output = plan(args, &folder, b"");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stdout));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(plan(&["-f", "nodes.yaml"], &folder, b"").status.code(), Some(0), "nobody asks for anything");
}

#[test]
fn more_pods_than_a_plan_is_made_for_are_refused() {
    let workload = |kind: &str, field: &str, count: u32| {
        format!(
            r#"{{"apiVersion": "{}/v1", "kind": "{kind}", "metadata": {{"name": "w"}}, "spec": {{"{field}": {count},
            "template": {{"spec": {{"containers": []}}}}}}}}"#,
            if kind == "Job" { "batch" } else { "apps" }
        )
    };
    let asked = |manifests: &str| plan(&["-f", "-"], &examples(), manifests.as_bytes());
    for (kind, field) in [("Deployment", "replicas"), ("Job", "parallelism")] {
        assert_eq!(asked(&workload(kind, field, 16_384)).status.code(), Some(1), "there are no nodes");
        let refused = asked(&workload(kind, field, 16_385));
        assert_eq!(refused.status.code(), Some(2));
        let expected =
            format!("{kind} w in default: spec.{field}: 16385 pods that are alike; a plan takes up to 16384, lower it");
        assert!(text(&refused.stderr).contains(&expected), "{}", text(&refused.stderr));
    }
}

/// The variable is in the environment of most who work with a cluster.
#[test]
fn a_kubeconfig_of_the_shell_means_nothing_where_no_cluster_is_asked() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hostler-controller"));
        let command = command.arg("plan").args(args).current_dir(examples()).env("KUBECONFIG", "absent.kubeconfig");
        command.output().unwrap()
    };
    assert_eq!(run(&["-f", "nodes.yaml"]).status.code(), Some(0));
    let asked = run(&["--cluster"]);
    assert!(
        asked.status.code() == Some(2) && text(&asked.stderr).contains("absent.kubeconfig"),
        "{}",
        text(&asked.stderr)
    );
}

#[test]
fn files_that_are_none_are_neither_waited_for_nor_read_without_end() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    mkfifo(&path("fifo.yaml"), Mode::S_IRWXU).unwrap();
    File::create(path("huge.yaml")).unwrap().set_len(3 << 30).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path("device.yaml")).unwrap();
    std::os::unix::fs::symlink(".", path("loop")).unwrap();
    std::os::unix::fs::symlink("itself.yaml", path("itself.yaml")).unwrap();
    fs::write(path("good.yaml"), "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n").unwrap();
    let output = plan(&["-f", "."], temp.path(), b"");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for (name, reason) in [
        ("fifo", "it is a FIFO"),
        ("huge", "it has 3221225472 bytes"),
        ("device", "it is a device"),
        ("itself", "symbolic links"),
    ] {
        let found = said
            .lines()
            .any(|line| line.contains(&format!("{name}.yaml: it cannot be read: ")) && line.contains(reason));
        assert!(found, "{name}: {said}");
    }
    assert!(said.contains("4 problems"), "{said}");
}

/// The objects of the examples, on a server.
fn fill(server: &ApiServer) {
    for name in ["nodes", "devices", "running"] {
        let text = fs::read_to_string(examples().join(format!("{name}.yaml"))).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let (status, plural) = (object["status"].clone(), object["kind"].as_str().unwrap().to_lowercase() + "s");
            let path = [&object["metadata"]["namespace"], &object["metadata"]["name"]];
            let path: Vec<&str> = path.into_iter().filter_map(Value::as_str).collect();
            server.create(object.clone());
            if !status.is_null() {
                server.set_status(&plural, &path.join("/"), status);
            }
        }
    }
}

async fn asked_live(server: &ApiServer, user: &str, more: &[&str]) -> Output {
    let kubeconfig = server.kubeconfig(user).display().to_string();
    let mut args = ["--cluster", "--kubeconfig", &kubeconfig].map(str::to_owned).to_vec();
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    let run = move || plan(&args.iter().map(String::as_str).collect::<Vec<_>>(), &examples(), b"");
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_cluster_is_read_and_nothing_is_written() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    fill(&server);
    let before = server.log().len();
    let output = asked_live(&server, "planner", &["-f", "train.yaml", "-o", "json"]).await;
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let offline = json(&["-f", "."], &examples());
    for field in ["kubernetes", "verdict", "podSets", "devices", "nodes"] {
        assert_eq!(document[field], offline[field], "{field}");
    }
    let log = server.log();
    assert!(
        log.len() > before + 6 && log[before..].iter().all(|request| ["get", "list", ""].contains(&request.verb)),
        "{log:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_page_by_page() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    for number in 0..600 {
        server.create(
            serde_json::json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("n{number:03}") } }),
        );
    }
    let output = asked_live(&server, "planner", &["-o", "json"]).await;
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!(document["nodes"].as_array().map(Vec::len), Some(600));
    let lists = server.log().iter().filter(|request| request.resource == "nodes" && request.verb == "list").count();
    assert_eq!(lists, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_is_told_what_is_missing() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    server.allow(
        "guest",
        vec![PolicyRule {
            api_groups: vec![String::new()],
            resources: vec!["nodes".to_owned(), "pods".to_owned()],
            verbs: vec!["list".to_owned()],
            ..PolicyRule::default()
        }],
    );
    let output = asked_live(&server, "guest", &[]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("needs the verb list on deviceclasses"), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_is_that_of_the_server_and_must_be_known() {
    let server = ApiServer::of(ApiServerRelease::V1_35).await;
    let document: Value =
        serde_json::from_slice(&asked_live(&server, "planner", &["-o", "json"]).await.stdout).unwrap();
    assert_eq!(document["kubernetes"], "1.35");
    let older = ApiServer::of(ApiServerRelease::V1_33).await;
    let output = asked_live(&older, "planner", &[]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("choose one with --kubernetes"), "{}", text(&output.stderr));
    assert_eq!(asked_live(&older, "planner", &["--kubernetes", "1.34"]).await.status.code(), Some(0));
}

/// An archive as the daemon writes it, as far as it is read here.
fn capture(folder: &Path, name: &str, objects: Option<&Value>) {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, content).unwrap();
    };
    add("hostler-capture.json", b"{}");
    if let Some(objects) = objects {
        add("hostler-objects.json", objects.to_string().as_bytes());
    }
    let archive = tar.into_inner().unwrap();
    let packed = ruzstd::encoding::compress_to_vec(archive.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    fs::write(folder.join(name), packed).unwrap();
}

#[test]
fn a_captured_node_brings_its_devices_under_the_name_that_it_is_given() {
    let temp = tempfile::tempdir().unwrap();
    let capacity = serde_json::json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
    let pool = serde_json::json!({ "name": "captured/cpu", "generation": 1, "resourceSliceCount": 1 });
    let devices = serde_json::json!([{ "name": "numa0" }, { "name": "numa1" }]);
    let objects = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Node", "metadata": { "name": "captured" }, "status": { "capacity": capacity } },
        { "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": "00000-hostler.dev-captured-cpu" },
          "spec": { "driver": "hostler.dev", "nodeName": "captured", "pool": pool, "devices": devices } },
    ]});
    capture(temp.path(), "worker-7.tar.zst", Some(&objects));
    capture(temp.path(), "old.tar.zst", None);
    let document = json(&["--node-capture", "worker-7.tar.zst", "--node-capture", "n8=worker-7.tar.zst"], temp.path());
    let nodes: Vec<&str> =
        document["nodes"].as_array().unwrap().iter().filter_map(|node| node["node"].as_str()).collect();
    assert_eq!(nodes, ["n8", "worker-7"]);
    assert_eq!(document["devices"][0]["devices"], 4);
    let refused = plan(&["--node-capture", "old.tar.zst"], temp.path(), b"");
    let said = text(&refused.stderr);
    assert!(
        refused.status.code() == Some(2) && said.contains("run `hostler capture --root old.tar.zst -o NEW.tar.zst`"),
        "{said}"
    );
}
