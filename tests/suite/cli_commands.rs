//! The real binary, as a shell sees it: exit codes, output on each stream, and pipes that close early.
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

fn hostler(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hostler")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_machine_that_runs_the_test_has_an_inventory() {
    let output = hostler(&["inventory", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["topology"]["threads"].as_u64().unwrap() >= 1);
    assert!(json["devices"].as_array().unwrap().iter().any(|device| device["backend"] == "cpu"));
}

#[test]
fn help_and_version_go_to_standard_output() {
    for args in [["--help"], ["--version"]] {
        let output = hostler(&args);
        assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""), "{args:?}");
        assert!(text(&output.stdout).contains("hostler"));
    }
}

#[test]
fn config_check_reports_every_mistake_and_has_its_own_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hostler.toml");
    fs::write(&path, "drivr = \"x\"\n[paths]\nstate = 3\n").unwrap();
    let output = hostler(&["config", "check", "--config", path.to_str().unwrap()]);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(78), ""));
    let shown = text(&output.stderr);
    assert!(shown.contains("hostler.toml:1: drivr: ") && shown.contains("hostler.toml:3: paths.state: "), "{shown}");
    fs::write(&path, "driver = \"hostler.dev\"\n").unwrap();
    for args in [&["config", "check", "--config"][..], &["config", "check"]] {
        let output = hostler(&[args, &[path.to_str().unwrap()]].concat());
        let expected = format!("{} is in order\n", path.display());
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), &*expected), "{args:?}");
    }
}

#[test]
fn config_show_writes_what_config_check_accepts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shown.toml");
    fs::write(&path, "[inventory]\nrescan = \"5m\"\n").unwrap();
    let shown = hostler(&["config", "show", "--config", path.to_str().unwrap()]);
    assert!(text(&shown.stdout).contains("rescan = \"5m\""), "{}", text(&shown.stdout));
    fs::write(&path, &shown.stdout).unwrap();
    let output = hostler(&["config", "check", "--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hostler"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
}

#[test]
fn without_a_daemon_its_questions_fail_with_the_way_on() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("admin.sock");
    let socket = socket.to_str().unwrap();
    for args in [&["status"][..], &["claim", "list"], &["claim", "show", "x"], &["claim", "delete", "x"]] {
        let output = hostler(&[args, &["--socket", socket]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let shown = text(&output.stderr);
        assert!(shown.starts_with("hostler: no daemon listens on ") && shown.contains("systemctl start"), "{shown}");
    }
}

#[test]
fn a_hook_that_is_not_called_as_written_fails_with_its_reason() {
    for (args, reason) in [(&["hook"][..], "the hooks are"), (&["hook", "cpuset", "--cpus"], "it has no value")] {
        let output = Command::new(env!("CARGO_BIN_EXE_hostler")).args(args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
}

#[test]
fn doctor_judges_this_host_in_words_and_in_json() {
    let output = hostler(&["doctor", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&list["apiVersion"], &list["kind"]), (&"output.hostler.dev/v1".into(), &"FindingList".into()));
    let findings = &list["items"];
    let failed = findings.as_array().unwrap().iter().any(|finding| finding["level"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(failed)), "{findings}");
    for finding in findings.as_array().unwrap() {
        assert_eq!(finding["level"] == "ok", finding["fix"] == "", "{finding}");
    }
    assert!(text(&hostler(&["doctor"]).stdout).contains(" to look at, "));
}

#[test]
fn cdi_files_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let check = |path: &Path| hostler(&["cdi", "validate", path.to_str().unwrap()]);
    fs::write(
        &path,
        r#"{"cdiVersion":"0.3.0","kind":"a.b/c","devices":[{"name":"d","containerEdits":{"env":["A=b"]}}]}"#,
    )
    .unwrap();
    let output = check(&path);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    fs::write(&path, r#"{"cdiVersion":"0.3.0","kind":"a.b/c","devices":[]}"#).unwrap();
    let output = check(&path);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("x.json: refused: devices: "), "{}", text(&output.stdout));
}

#[test]
fn manifests_are_validated_from_files_and_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("class.yaml");
    let class = |driver: &str, fields: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: quiet}}\nspec:\n  config:\n  - opaque: \
             {{driver: {driver}, parameters: {{apiVersion: hostler.dev/v1alpha1, kind: CpuConfig, {fields}}}}}\n"
        )
    };
    let file = path.to_str().unwrap();
    fs::write(&path, class("hostler.dev", "smt: isolated")).unwrap();
    let output = hostler(&["validate", file]);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "1 object checked, 0 problems\n"));
    fs::write(&path, class("mine.example", "smt: off")).unwrap();
    assert_eq!(hostler(&["validate", file]).status.code(), Some(0), "another driver's");
    let output = hostler(&["validate", file, "/nonexistent/a.yaml", "--driver", "mine.example"]);
    assert_eq!(output.status.code(), Some(1));
    let place = "document 1 (DeviceClass quiet): spec.config[0].opaque.parameters.smt";
    let expected =
        format!("{file}: {place}: \"off\" is not one of shared, isolated\n/nonexistent/a.yaml: it cannot be read:");
    assert!(text(&output.stdout).starts_with(&expected), "{}", text(&output.stdout));
    assert!(text(&output.stdout).ends_with("1 object checked, 2 problems\n"));

    let mut child = Command::new(env!("CARGO_BIN_EXE_hostler"))
        .args(["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), class("hostler.dev", "spread: 1").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).starts_with("standard input: document 1 (DeviceClass quiet): "));
}

#[test]
fn manual_pages_and_completions_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let output = hostler(&["man", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(dir.path().join("man1/hostler-claim-create.1").is_file());
    assert!(dir.path().join("man5/hostler.toml.5").is_file());
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&hostler(&["completions", shell]).stdout).contains("HOSTLER_COMPLETE"), "{shell}");
    }
}

/// Returns the completion of a command line, as bash asks for it.
fn completed(words: &[&str]) -> (Option<i32>, Vec<String>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hostler"))
        .args([&["--", "hostler"], words].concat())
        .env("HOSTLER_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .output()
        .unwrap();
    let found = text(&output.stdout).lines().map(str::to_owned).collect();
    (output.status.code(), found, text(&output.stderr))
}

#[test]
fn completion_knows_subcommands_and_is_silent_when_the_daemon_is_away() {
    let (code, found, error) = completed(&["clai"]);
    assert_eq!((code, &found[..], &*error), (Some(0), &["claim".to_owned()][..], ""));
    let (_, found, _) = completed(&["inventory", "-o", "j"]);
    assert_eq!(found, ["json", "jsonpath="]);
    let (code, found, error) = completed(&["claim", "show", "--socket", "/nonexistent/admin.sock", ""]);
    assert_eq!((code, &*error), (Some(0), ""));
    assert!(found.iter().all(|found| found.starts_with('-')), "no name, and no complaint: {found:?}");
}

#[test]
fn the_example_of_a_manifest_with_configuration_of_every_kind_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/manifests/tuned.yaml");
    let manifest = fs::read_to_string(&path).unwrap();
    for kind in ["CpuConfig", "MemoryConfig", "FpgaConfig", "CxlConfig", "PlacementConfig"] {
        assert!(manifest.contains(&format!("kind: {kind}")), "{kind}");
    }
    let output = hostler(&["validate", path.to_str().unwrap()]);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "1 object checked, 0 problems\n"));
    // As strict as the daemon that reads it.
    let claim = hostler::standalone::parse(&manifest).unwrap();
    let allocation = claim.allocation("hostler.dev").unwrap();
    assert_eq!(allocation.grants.len(), 4);
    assert!(allocation.grants.iter().all(|grant| !grant.config.is_empty()));
}

/// Returns the output of a command on a terminal with so many columns; `None` without the program that makes one.
fn on_a_terminal(columns: u32, environment: &str, command: &str) -> Option<String> {
    let line = format!("stty rows 40 cols {columns}; {environment} {} {command}", env!("CARGO_BIN_EXE_hostler"));
    let made =
        Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env("TERM", "xterm").output();
    let written = made.ok().filter(|output| output.status.success())?;
    Some(text(&written.stdout).replace('\r', ""))
}

#[test]
fn help_and_tables_fit_the_terminal_and_have_colours_there_alone() {
    let Some(help) = on_a_terminal(60, "NO_COLOR=1", "device --help") else {
        println!("skipped: there is no script(1) here to make a terminal");
        return;
    };
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest(&help) <= 60 && !help.contains('\x1b'), "{help}");
    assert!(on_a_terminal(60, "", "device --help").unwrap().contains('\x1b'));
    assert!(!text(&hostler(&["device", "--help"]).stdout).contains('\x1b'));

    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let spec = r#"{"cdiVersion":"0.3.0","kind":"vendor.com/gpu","devices":[{"name":"g0","containerEdits":{"env":["A=b"]}}]}"#;
        fs::write(dir.path().join(format!("{name}.json")), spec).unwrap();
    }
    let list = format!("cdi list --dir {}", dir.path().display());
    let wide = text(&hostler(&["cdi", "list", "--dir", dir.path().to_str().unwrap()]).stdout);
    let narrow = on_a_terminal(60, "NO_COLOR=1", &list).unwrap();
    assert!(longest(&wide) > 60 && longest(&narrow) <= 60, "{narrow}");
    assert!(on_a_terminal(60, "", &list).unwrap().contains("\x1b[1mDEVICE"));
}
