//! `hostler-controller doctor` as operators call it: against an API server with a running controller.

use std::{fs, path::Path, process::Output};

use hostler_testing::{
    apiserver::{ApiServer, PolicyRule},
    controller::RunningController,
};
use serde_json::{Value, json};

use crate::{
    check_upgrade::{cluster, of_this_version},
    rig::{USER, options, root},
    transcript::{call, text},
};

/// Rules of the bundles that are installed.
fn rules(files: &[&str]) -> Vec<PolicyRule> {
    let text = |file: &&str| fs::read_to_string(root().join("deploy").join(file)).unwrap();
    files.iter().flat_map(|file| PolicyRule::from_yaml(&text(file))).collect()
}

/// A cluster with all that `deploy` and `deploy/controller` bring, and a controller that leads.
async fn installed() -> (ApiServer, RunningController) {
    let server = cluster(&of_this_version()).await;
    for file in ["cluster/deviceclasses.yaml", "controller/base/priority.yaml"] {
        server.create_yaml(&fs::read_to_string(root().join("deploy").join(file)).unwrap());
    }
    server.edit("daemonsets", "hostler-system/hostler", |it| {
        it["status"] = json!({ "desiredNumberScheduled": 1, "numberReady": 1 });
    });
    server.edit("deployments", "hostler-controller/hostler-controller", |it| {
        it["spec"]["replicas"] = 1.into();
        it["spec"]["template"]["spec"]["serviceAccountName"] = "hostler-controller".into();
        it["spec"]["template"]["spec"]["priorityClassName"] = "hostler-controller".into();
        it["status"] = json!({ "readyReplicas": 1 });
    });
    server.allow(USER, rules(&["controller/base/rbac.yaml", "holds/base/rbac.yaml"]));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_figure("hostler_controller_leads 1").await;
    server.until("the sums are written", |view| view.get("clusterhardware", "cluster").map(drop)).await;
    (server, controller)
}

async fn asked(server: &ApiServer, user: &str, more: &[&str]) -> Output {
    let kubeconfig = server.kubeconfig(user).display().to_string();
    let mut args: Vec<String> = ["doctor", "--kubeconfig", &kubeconfig].map(str::to_owned).into();
    args.extend(more.iter().map(|word| (*word).to_owned()));
    let work = move || call(&args.iter().map(String::as_str).collect::<Vec<_>>(), &root());
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// The findings that are not ok, `level check: found`, and the exit code.
async fn bad(server: &ApiServer, user: &str) -> (i32, Vec<String>) {
    let output = asked(server, user, &["-o", "json"]).await;
    let code = output.status.code().unwrap();
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{code} {}", text(&output.stderr)));
    assert_eq!([&answer["apiVersion"], &answer["kind"]], ["output.hostler.dev/v1", "FindingList"]);
    let bad = answer["items"].as_array().unwrap().iter().filter(|it| it["level"] != "ok");
    let word = |it: &Value, field: &str| it[field].as_str().unwrap().to_owned();
    let line = |it: &Value| format!("{} {}: {}", word(it, "level"), word(it, "check"), word(it, "found"));
    (code, bad.map(line).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_as_it_is_deployed_lacks_only_what_it_has_not_got() {
    let (server, controller) = installed().await;
    let (code, found) = bad(&server, "operator").await;
    let expected = [
        // The API server of these tests has no rules for devices, and no daemon.
        "warn DeviceTaintRules: are not served: devices of other drivers can be neither drained nor kept by rules",
        "warn reports of nodes: no daemon has reported",
    ];
    assert_eq!(code, 0, "{found:#?}");
    let is_told = |start: &&str| found.iter().any(|line| line.starts_with(*start));
    assert!(expected.iter().all(is_told) && found.len() == expected.len(), "{found:#?}");
    let output = asked(&server, "operator", &[]).await;
    let said = text(&output.stdout);
    let leads = "ok    leader            ";
    assert!(said.contains(leads) && said.contains("renewed "), "{said}");
    assert!(said.contains("rights            deploy/controller: system:serviceaccount:hostler-controller:"), "{said}");
    assert!(said.ends_with(" ok, 2 to look at, 0 failed\n"), "{said}");
    assert_eq!(controller.stop().await, Some(0));
    let (code, found) = bad(&server, "operator").await;
    assert_eq!(code, 1);
    assert!(found.iter().any(|line| line.contains("is free: no controller leads")), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_away_is_told_with_the_command_that_brings_it_back() {
    let (server, _controller) = installed().await;
    let less = rules(&["controller/base/rbac.yaml", "holds/base/rbac.yaml"]);
    let without = |resource: &str| -> Vec<PolicyRule> {
        let others = |rule: &PolicyRule| !rule.resources.iter().any(|it| it == resource);
        less.iter().filter(|rule| others(rule)).cloned().collect()
    };
    server.forget_user(USER);
    server.allow(USER, without("resourcequotas"));
    let output = asked(&server, "operator", &[]).await;
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("lacks 2 of ") && said.contains("list resourcequotas, watch resourcequotas"), "{said}");
    assert!(said.contains("→ kubectl apply -k deploy/controller\n"), "{said}");
    server.delete("priorityclasses", "hostler-controller");
    server.delete("customresourcedefinitions", "reservations.hostler.dev");
    server.edit("daemonsets", "hostler-system/hostler", |it| it["status"]["numberReady"] = 0.into());
    let (_, found) = bad(&server, "operator").await;
    for start in [
        "fail kinds of hostler: CustomResourceDefinition reservations.hostler.dev: it is missing",
        "fail priority classes: Deployment hostler-controller/hostler-controller names hostler-controller, which",
        "fail daemons: 0 of 1 pods are ready",
    ] {
        assert!(found.iter().any(|line| line.starts_with(start)), "{start}: {found:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_own_account_checks_its_own_rights_and_says_what_it_may_not_see() {
    let (server, _controller) = installed().await;
    let (code, found) = bad(&server, USER).await;
    assert_eq!(code, 0, "{found:#?}");
    assert!(!found.iter().any(|line| line.starts_with("warn leader")), "it may read its Lease: {found:#?}");
    let unread = "warn kinds of hostler: not checked: you may not get customresourcedefinitions";
    assert!(found.iter().any(|line| line == unread), "{found:#?}");
    let said = asked(&server, USER, &[]).await;
    assert!(text(&said.stdout).contains("deploy/controller: the user who asks has all "), "{}", text(&said.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_with_mistakes_and_a_silent_server_are_failures() {
    let (server, _controller) = installed().await;
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("controller.toml");
    fs::write(&file, "[capabilities]\nreservation = 'on'\n").unwrap();
    let output = asked(&server, "operator", &["--config", file.to_str().unwrap()]).await;
    let said = text(&output.stdout);
    assert!(said.contains("controller.toml:2: capabilities.reservation: is no key that hostler knows"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    server.stop_listening().await;
    let output = asked(&server, "operator", &[]).await;
    let said = text(&output.stdout);
    assert!(said.starts_with("FAIL  API server  gives no answer: "), "{said}");
    assert_eq!(output.status.code(), Some(1));
    let output = call(&["doctor", "--kubeconfig", "absent"], Path::new("/"));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}
