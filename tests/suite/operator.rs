//! Output for operators is true, and plain text: names that other users chose forge no lines and move no cursor,
//! problems show, changes are taken over or refused, and amounts are amounts.

use std::fs;

use hostler_proto::dra_v1::Claim;
use hostler_testing::{
    binary::binary,
    host::{Host, SCRIPT, wait_for},
    kubelet::claim,
    node::{TestNode, named, uid},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Text that only an attacker puts into a name: a line of its own, and codes that a terminal acts upon.
const EVIL: &str = "evil\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{9b}31m\u{202e}";

/// Returns true if no text of `EVIL` is more than text.
fn is_plain(text: &str) -> bool {
    text.contains("forged")
        && !text.contains(['\u{1b}', '\u{9b}', '\u{202e}'])
        && text.lines().all(|line| !line.starts_with("2026-01-01"))
}

/// A manifest of a claim on a card, with configuration whose key is [`EVIL`].
fn evil_manifest(name: &str) -> Value {
    let parameters = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig", EVIL: 1});
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": uid(name)},
        "status": {"allocation": {"devices": {
            "results": [{"request": "r", "driver": "hostler.dev", "pool": "node/fake", "device": "card-0"}],
            "config": [{"source": "FromClaim", "opaque": {"driver": "hostler.dev", "parameters": parameters}}],
        }}},
    })
}

#[test]
fn what_others_have_named_reaches_logs_and_terminals_as_text_only() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-0"]);
    let manifest = node.path("manifests/default_a.json");
    fs::write(&manifest, evil_manifest("a").to_string()).unwrap();
    let refusal = node.prepare_error("a");
    assert!(refusal.contains('\n'), "the kubelet gets it as it is");
    let named: Claim = claim("default", EVIL, &uid("b"));
    let mut plugin = node.connected();
    node.block_on(async { plugin.prepare(&[named]).await }).unwrap();
    wait_for("the log", || (node.log().matches("forged").count() > 1).then_some(()));
    assert!(is_plain(&node.log()), "{:?}", node.log());

    let explained = node.run_ok(&["explain", "claim", "a"]);
    assert!(is_plain(&explained), "{explained:?}");
    let file = manifest.display().to_string();
    let validated = node.run(&["validate", &file]);
    let validated = String::from_utf8(validated.stdout).unwrap();
    assert!(is_plain(&validated), "{validated:?}");
    let error = node.run_refused(&["claim", "show", EVIL]);
    assert!(is_plain(&error), "{error:?}");
    // A program reads the text as it was written.
    let explained: Value = serde_json::from_str(&node.run_ok(&["explain", "claim", "a", "-o", "json"])).unwrap();
    assert!(explained.to_string().contains("forged\\u001b"), "{explained}");
}

#[test]
fn a_hangup_changes_the_level_of_the_log_and_says_what_takes_a_restart() {
    let mut node = TestNode::started();
    let hang_up = |node: &TestNode, heard: &str| {
        node.signal(Signal::SIGHUP);
        wait_for(heard, || node.log().contains(heard).then_some(()));
    };
    hang_up(&node, "nothing has changed");
    node.configure("[log]\nlevel = \"debug\"\n[inventory]\nrescan = \"2m\"\n");
    hang_up(&node, "the log has another level");
    hang_up(&node, "inventory.rescan");
    node.allocate("a", &["card-0"]);
    node.prepare("a");
    wait_for("more in the log", || node.log().contains("DEBUG").then_some(()));

    node.configure("[log]\nlevel = \"loud\"\n[inventory]\nrescan = \"soon\"\n");
    hang_up(&node, "the configuration is not taken over");
    assert!(node.log().contains("log.level") && node.log().contains("soon"), "{}", node.log());
    node.unprepare("a");
    assert!(node.stop().success());
}

#[test]
fn a_hook_that_is_missing_and_a_manifest_that_is_none_are_seen() {
    let mut host = Host::bare(SCRIPT);
    let hook = host.path("hook");
    fs::copy(binary(), &hook).unwrap();
    let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
    let named = format!("hook = \"{}\"", binary().display());
    assert!(config.contains(&named));
    fs::write(host.path("hostler.toml"), config.replace(&named, &format!("hook = \"{}\"", hook.display()))).unwrap();
    host.start();
    let ready = |host: &Host| (host.metrics("/readyz"), host.run_ok(&["status"]));
    let node = TestNode::new(host);
    let mut node = node;
    node.register();
    assert_eq!(node.metrics("/readyz").0, 200);

    fs::remove_file(&hook).unwrap();
    fs::create_dir_all(node.path("manifests")).unwrap();
    fs::write(node.path("manifests/default_x.yaml"), "kind: [").unwrap();
    wait_for("both to be noticed", || {
        let ((code, reasons), status) = ready(&node);
        let both = |text: &str| text.contains("binary of their hooks") && text.contains("default_x.yaml");
        (code == 503 && both(&reasons) && both(&status)).then_some(())
    });
    assert_eq!(node.run(&["ready"]).status.code(), Some(1));
    fs::copy(binary(), &hook).unwrap();
    fs::remove_file(node.path("manifests/default_x.yaml")).unwrap();
    wait_for("both to be mended", || (ready(&node).0.0 == 200).then_some(()));
    assert!(node.stop().success());
    fs::remove_file(&hook).unwrap();
    node.start();
    assert!(node.metrics("/readyz").1.contains("is not there; install it again"), "from the start");
}

#[test]
fn an_amount_is_more_than_nothing_wherever_it_is_written() {
    let mut node = TestNode::started();
    for amount in ["-3", "0", "9223372036854775808"] {
        let device = format!("fake/pool,units={amount}");
        let output = node.run(&["claim", "create", "a", "-d", &device]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(amount), "{error}");
        let body = json!({"namespace": "default", "name": "a", "devices": [
            {"pool": "fake", "device": "pool", "capacity": {"units": amount}}
        ]});
        let (code, _) = node.request("POST", "/v1/claims", &body.to_string());
        assert_eq!(code, 422, "{amount}");
        for amount in [json!(amount), amount.parse::<i64>().map_or(json!(null), |amount| json!(amount))] {
            if !amount.is_null() {
                node.manifest("m", &uid("m"), &[("r", "fake", "pool", json!({"units": amount}))]);
                node.prepare_error("m");
            }
        }
    }
    fs::remove_file(node.path("manifests/default_m.json")).unwrap();
    node.run_ok(&["claim", "create", "all", "-d", "fake/pool"]);
    assert_eq!(node.get("/v1/claims/all")["devices"][0]["consumed"], json!({"units": "64"}));
    node.allocate("late", &["pool:1"]);
    let refusal = node.call_prepare(&["late"]).unwrap().remove(&named("late").uid).unwrap().unwrap_err();
    assert!(refusal.contains("has 0 of units left"), "{refusal}");
}
