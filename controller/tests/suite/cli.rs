//! The binary, as people call it.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

fn controller(args: &[&str]) -> Output {
    // No pod: the service account of a pod that this test may run in is not the controller's.
    Command::new(env!("CARGO_BIN_EXE_hostler-controller"))
        .args(args)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("KUBECONFIG")
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
    let output = controller(&["config", "show", path.to_str().unwrap()]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.starts_with(
            "kubeconfig = \"/etc/hostler/kubeconfig\"\ndriver = \"hostler.dev\"\nlisten = \"127.0.0.1:9440\"\n"
        ),
        "{printed}"
    );
    assert!(printed.contains("[capabilities]\nnode_reports = \"auto\"\n"), "{printed}");
    fs::write(&path, "kubeconfig = 7").unwrap();
    for args in [&["config", "check", "--config"][..], &["config", "check"], &["run", "--config"]] {
        let output = controller(&[args, &[path.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(78), "{args:?}: a service manager does not start it again");
    }
    let output = controller(&["config", "check", path.to_str().unwrap()]);
    assert!(stderr(&output).contains("controller.toml:1: kubeconfig: "), "{}", stderr(&output));
}

#[test]
fn without_credentials_it_says_where_they_come_from() {
    let output = controller(&["run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no kubeconfig is named, and this is no pod"), "{}", stderr(&output));
}

#[test]
fn a_configuration_in_order_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("controller.toml");
    fs::write(&path, "").unwrap();
    let output = controller(&["config", "check", path.to_str().unwrap()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{} is in order\n", path.display()));
}

#[test]
fn every_shell_and_man_get_what_the_other_program_gives_them() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(controller(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("HOSTLER_CONTROLLER_COMPLETE"), "{shell}: {script}");
    }
    let asked = Command::new(env!("CARGO_BIN_EXE_hostler-controller"))
        .args(["--", "hostler-controller", "avail"])
        .envs([("HOSTLER_CONTROLLER_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", "1"), ("_CLAP_IFS", "\n")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout).trim_end(), "availability");
    let temp = tempfile::tempdir().unwrap();
    assert!(controller(&["man", temp.path().to_str().unwrap()]).status.success());
    let page =
        |name: &str| fs::read_to_string(temp.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(page("man1/hostler-controller-plan.1").contains("KUBECONFIG"));
    assert!(page("man5/controller.toml.5").contains(".SS [capabilities]"));
}

#[test]
fn a_context_that_is_not_there_is_told_with_those_that_are() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join(".kube/config");
    fs::create_dir(temp.path().join(".kube")).unwrap();
    let text = "contexts: [{name: lab, context: {cluster: c, user: u}}]\ncurrent-context: lab\n\
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n";
    fs::write(&path, text).unwrap();
    let asked = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_hostler-controller"))
            .args(args)
            .env("HOME", temp.path())
            .env_remove("KUBECONFIG")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        stderr(&output)
    };
    let known = "contexts: there is none with the name \"prod\"; there are lab";
    for args in [&["holds"][..], &["availability"], &["plan", "--cluster"], &["explain", "reservation", "r"]] {
        let told = asked(&[args, &["--context", "prod"]].concat());
        assert!(told.contains(known) && told.contains(".kube/config"), "{args:?}: {told}");
        let told = asked(args);
        assert!(told.contains("127.0.0.1:1") || told.contains("refused"), "the file of the user is read: {told}");
    }
}

#[test]
fn a_wrong_call_is_told_from_work_that_failed() {
    assert_eq!(controller(&["walk"]).status.code(), Some(2));
}

#[test]
fn answers_have_colours_on_a_terminal_alone() {
    let temp = tempfile::tempdir().unwrap();
    let class = "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}}";
    fs::write(temp.path().join("class.yaml"), class).unwrap();
    let file = temp.path().join("class.yaml").display().to_string();
    let piped = String::from_utf8(controller(&["availability", "-f", &file]).stdout).unwrap();
    assert!(piped.starts_with("CLASS") && !piped.contains('\x1b'), "{piped}");
    let on_a_terminal = |environment: &str| {
        let line = format!("{environment} {} availability -f {file}", env!("CARGO_BIN_EXE_hostler-controller"));
        let made = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null())
            .env("TERM", "xterm")
            .output();
        made.ok().filter(|output| output.status.success()).map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let (Some(coloured), Some(plain)) = (on_a_terminal(""), on_a_terminal("NO_COLOR=1")) else {
        println!("skipped: there is no script(1) here to make a terminal");
        return;
    };
    assert!(coloured.starts_with("\x1b[1mCLASS"), "{coloured}");
    assert!(!plain.contains('\x1b'), "{plain}");
}
