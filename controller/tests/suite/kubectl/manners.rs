//! The plugin's own manners: its name, its commands, kubectl's flags, credentials and wrong uses.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use hostler_testing::{apiserver::ApiServerRelease, skip::skipped};
use serde_json::{Value, json};

use super::{
    link, plugin,
    scene::{OPERATOR, PluginScene, claim, given, pod, with_namespace},
};
use crate::rig::root;

#[test]
fn the_plugin_has_its_own_name_and_the_commands_of_users_alone() {
    let folder = tempfile::tempdir().unwrap();
    link(folder.path());
    let said = |args: &[&str]| {
        let output = plugin(folder.path(), args).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, help) = said(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("Usage: kubectl hostler <COMMAND>"), "{help}");
    for command in ["plan", "availability", "explain", "holds", "why", "node", "top", "doctor"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
    for (args, expected) in [
        (&["--version"][..], format!("kubectl hostler {}", env!("CARGO_PKG_VERSION"))),
        (&["why", "--help"], "Usage: kubectl hostler why [OPTIONS] [POD]".to_owned()),
        (&["run"], "unrecognized subcommand 'run'".to_owned()),
        (&["config", "show"], "unrecognized subcommand 'config'".to_owned()),
        (&["why", "-A", "train"], "cannot be used with".to_owned()),
        (&["why", "-A", "-n", "ml"], "cannot be used with".to_owned()),
        (&["holds", "--as-group", "g"], "--as <USER>".to_owned()),
        (&["explain"], "Usage: kubectl hostler explain".to_owned()),
        (&["node", "a", "b"], "unexpected argument 'b'".to_owned()),
        (&["why", "-o", "xml"], "invalid value 'xml'".to_owned()),
        (&["holds"], "kubectl hostler: no cluster is named, and this is no pod: name one with --kubeconfig".to_owned()),
    ] {
        let (code, said) = said(args);
        assert!(said.contains(&expected), "{args:?}: {said}");
        assert_eq!(code, Some(if args[0].contains("--v") || args.contains(&"--help") { 0 } else { 2 }), "{args:?}");
    }
}

#[test]
fn the_manifest_of_krew_has_a_place_for_each_checksum() {
    let text = fs::read_to_string(root().join("deploy/krew/hostler.yaml")).unwrap();
    let manifest: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&json!("Plugin"), &json!("hostler")));
    let short = manifest["spec"]["shortDescription"].as_str().unwrap();
    assert!(short.len() < 50, "krew shows no more: {short}");
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    let architectures = platforms.iter().map(|platform| {
        let arch = platform["selector"]["matchLabels"]["arch"].as_str().unwrap();
        assert_eq!(platform["sha256"], format!("SHA256-linux-{arch}"));
        let archive = format!("/vVERSION/kubectl-hostler_VERSION_linux_{arch}.tar.gz");
        assert!(platform["uri"].as_str().unwrap().ends_with(&archive), "{platform}");
        assert_eq!(platform["bin"], "kubectl-hostler");
        arch
    });
    assert_eq!(architectures.collect::<Vec<_>>(), ["amd64", "arm64"]);
}

#[test]
fn kubectl_gets_completions_as_it_wants_them() {
    let folder = tempfile::tempdir().unwrap();
    link(folder.path());
    let words = |args: &[&str]| {
        let output = Command::new(folder.path().join("kubectl_complete-hostler")).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = words(&["av"]);
    assert!(said.starts_with("availability\tSay how many devices") && said.ends_with("\n:4\n"), "{said}");
    assert!(words(&["explain", ""]).contains("reservation\t"), "{}", words(&["explain", ""]));
    assert!(words(&["why", "--name"]).starts_with("--namespace\t"), "{}", words(&["why", "--name"]));
    assert_eq!(words(&["nonsense", "x", ""]).lines().last(), Some(":4"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_finds_the_plugin() {
    let scene = PluginScene::new().await;
    scene.put(given("train-gpu", "a", "train"));
    scene.put(pod(json!({"nodeName": "n1"}), json!({"phase": "Running"})));
    let config = with_namespace(&scene.kubeconfig(OPERATOR), "ml");
    let path = format!("{}:{}", scene.folder.path().display(), std::env::var("PATH").unwrap());
    let asked = |args: &[&str]| {
        let mut command = Command::new("kubectl");
        command.args(args).env("PATH", &path).env("KUBECONFIG", &config).env("HOME", scene.folder.path());
        command.output().ok()
    };
    let Some(output) = asked(&["hostler", "why", "train"]) else { return skipped("there is no kubectl") };
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.starts_with("Pod ml/train runs on node n1"), "{said}");
    for args in [&["hostler", "holds"][..], &["hostler", "availability"], &["hostler", "node"], &["hostler", "plan"]] {
        let output = asked(args).unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let output = asked(&["hostler", "why", "absent"]).unwrap();
    assert_eq!(output.status.code(), Some(2), "kubectl passes the exit code on");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("kubectl hostler: there is no Pod ml/absent"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_those_of_the_option_the_context_or_default() {
    let scene = PluginScene::new().await;
    scene.put(pod(json!({"resourceClaims": []}), json!({})));
    let at = |args: &'static [&'static str]| scene.ask(args);
    assert!(at(&["why", "train"]).await.out.starts_with("Pod ml/train"));
    assert!(at(&["why", "ml/train", "-n", "web"]).await.out.starts_with("Pod ml/train"));
    let said = at(&["why", "train", "-n", "web"]).await;
    assert!(said.err.contains("there is no Pod web/train; name the namespace with --namespace"), "{}", said.err);
    assert!(at(&["why", "-n", "web"]).await.out.starts_with("No pod waits."));
    assert!(at(&["why", "-A"]).await.out.starts_with("NAMESPACE  POD"));
    let said = at(&["why", "trian"]).await;
    assert!(said.err.contains("there is no Pod ml/trian; did you mean train?"), "{}", said.err);
    let said = at(&["explain", "claim", "gpu"]).await;
    assert_eq!((said.code, said.err.contains("there is no ResourceClaim ml/gpu")), (Some(2), true), "{}", said.err);
    let said = at(&["explain", "reservation", "r"]).await;
    assert!(said.err.contains("kubectl hostler: there is no Reservation r"), "{}", said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_of_a_kubeconfig_gives_the_token() {
    let scene = PluginScene::empty(ApiServerRelease::V1_36).await;
    let path = scene.kubeconfig(OPERATOR);
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let token = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    let login = scene.folder.path().join("login");
    let answer =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}});
    fs::write(&login, format!("#!/bin/sh\ncat <<E\n{answer}\nE\n")).unwrap();
    fs::set_permissions(&login, fs::Permissions::from_mode(0o755)).unwrap();
    config["users"][0]["user"] = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": login, "args": null, "env": null,
        "interactiveMode": "IfAvailable", "provideClusterInfo": false,
    }});
    let path = path.with_extension("exec");
    let asked = |config: &Value| {
        fs::write(&path, config.to_string()).unwrap();
        let mut command = plugin(scene.folder.path(), &["holds"]);
        command.env("KUBECONFIG", &path);
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let output = asked(&config).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    config["users"][0]["user"]["exec"]["command"] = "/absent/login".into();
    config["users"][0]["user"]["exec"]["installHint"] = "install the login program".into();
    let output = asked(&config).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is no /absent/login; install the login program"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_token_and_authority_stand_in_for_a_kubeconfig_in_every_command() {
    let scene = PluginScene::new().await;
    scene.put(pod(json!({"resourceClaims": []}), json!({})));
    let (server, token) = (scene.server.url(), scene.server.user(OPERATOR, None));
    let authority = scene.server.authority().display().to_string();
    let asked = |args: &[&str]| {
        let mut command = plugin(scene.folder.path(), args);
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let cluster = ["--server", &server, "--token", &token, "--certificate-authority", &authority];
    for (args, expected) in [
        (&["why", "train", "-n", "default"][..], 2),
        (&["why", "ml/train"], 0),
        (&["explain", "pod", "ml/train"], 0),
        (&["node", "n1"], 0),
        (&["top", "--once"], 0),
        (&["availability"], 0),
        (&["holds"], 0),
        (&["plan", "--cluster"], 0),
    ] {
        let output = asked(&[args, &cluster].concat()).await.unwrap();
        assert_eq!(output.status.code(), Some(expected), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let wrong = asked(&["holds", "-s", &server, "--token", "other", "--certificate-authority", &authority]).await;
    let said = String::from_utf8(wrong.unwrap().stderr).unwrap();
    assert!(said.contains("401") || said.contains("Unauthorized"), "{said}");
    let unknown = asked(&["holds", "-s", &server, "--token", &token]).await.unwrap();
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(said.contains("name the file with its certificate: --certificate-authority FILE"), "{said}");
    assert!(!said.contains(&token), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_the_plugin_reads_the_cluster_of_the_context_and_names_the_right_that_is_missing() {
    let scene = PluginScene::new().await;
    let file = scene.folder.path().join("train.yaml");
    // The claim is in the cluster, and the file names no namespace: both are of the context's.
    scene.put(claim("train-gpu", json!({})));
    let mut train = pod(json!({}), json!({}));
    train["metadata"].as_object_mut().unwrap().remove("namespace");
    fs::write(&file, train.to_string()).unwrap();
    let file = file.display().to_string();
    let fits = scene.ask(&["plan", "-f", &file]).await;
    assert_eq!((fits.code, fits.err.as_str()), (Some(0), ""), "{}", fits.out);
    assert_eq!(scene.ask(&["plan"]).await.code, Some(0), "no pod of the cluster waits");
    let elsewhere = scene.ask(&["plan", "-n", "web", "-f", &file]).await;
    assert!(elsewhere.out.contains("there is no ResourceClaim web/train-gpu"), "{}{}", elsewhere.out, elsewhere.err);
    let alone = scene.ask(&["plan", "--offline", "-f", &file]).await;
    assert_eq!(alone.code, Some(1), "without the cluster there is no node: {}", alone.out);
    let said = scene.ask(&["plan", "--offline"]).await;
    assert!(said.code == Some(2) && said.err.contains("--filename"), "{}", said.err);
    scene.allow("tenant", &[""], &["nodes", "pods"]);
    let said = scene.ask_as("tenant", &["plan", "-f", &file]).await;
    assert!(said.err.contains("the user needs the verb list on deviceclasses"), "{}", said.err);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
}
