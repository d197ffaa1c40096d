//! The binary, as people call it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "these tests run the binary")]

use std::{
    fs,
    process::{Command, Output},
};

fn controller(args: &[&str]) -> Output {
    // No pod: the service account of a pod that this test may run in is not the controller's.
    Command::new(env!("CARGO_BIN_EXE_hostler-controller"))
        .args(args)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn it_says_which_version_it_is() {
    let output = controller(&["--version"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("hostler-controller {}\n", env!("CARGO_PKG_VERSION")));
    assert!(output.status.success());
}

#[test]
fn a_configuration_is_checked_and_printed() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("controller.toml");
    fs::write(&path, "kubeconfig = '/etc/hostler/kubeconfig'").unwrap();
    let output = controller(&["check-config", "--config", path.to_str().unwrap()]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.starts_with(
            "kubeconfig = \"/etc/hostler/kubeconfig\"\ndriver = \"hostler.dev\"\nlisten = \"127.0.0.1:9440\"\n"
        ),
        "{printed}"
    );
    assert!(printed.contains("[capabilities]\nnode_reports = \"auto\"\n"), "{printed}");
    fs::write(&path, "kubeconfig = 7").unwrap();
    let output = controller(&["check-config", "--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("controller.toml:1: kubeconfig: "), "{}", stderr(&output));
}

#[test]
fn without_credentials_it_says_where_they_come_from() {
    let output = controller(&["run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no kubeconfig is configured and this is no pod"), "{}", stderr(&output));
}

#[test]
fn a_wrong_call_is_told_from_work_that_failed() {
    assert_eq!(controller(&["walk"]).status.code(), Some(2));
}
