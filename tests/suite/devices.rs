//! The real binary and devices with more to them: drains that outlive it, and partitions that exclude each other.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use hostler_testing::host::{Host, http, wait_for};

const CARDS: &str = r#"
    [[counter_set]]
    name = "card"
    counters = { slots = 4 }

    [[device]]
    name = "whole"
    consumes = [{ set = "card", counters = { slots = 4 } }]

    [[device]]
    name = "half"
    count = 2
    consumes = [{ set = "card", counters = { slots = 2 } }]

    [[device]]
    name = "quarter"
    count = 4
    consumes = [{ set = "card", counters = { slots = 1 } }]
"#;

fn started() -> Host {
    let mut host = Host::bare(CARDS);
    host.start();
    host
}

fn device(host: &Host, name: &str) -> serde_json::Value {
    let devices = host.get("/v1/devices");
    devices.as_array().unwrap().iter().find(|device| device["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn a_drain_survives_a_kill_and_holds_up_new_claims_only() {
    let mut host = started();
    host.run_ok(&["claim", "create", "old", "-d", "fake/half-0"]);
    let said = host.run_ok(&["device", "drain", "half-0", "--reason", "fan is broken", "--evict"]);
    assert_eq!(said, "fake/half-0 drained; still held by default/old\n");
    host.run_ok(&["device", "drain", "fake/half-1"]);
    host.kill();
    host.start();
    let drained = device(&host, "half-0");
    assert_eq!((&drained["drained"]["reason"], &drained["drained"]["evict"]), (&"fan is broken".into(), &true.into()));
    assert_eq!(drained["holders"], serde_json::json!(["default/old"]));
    assert!(host.run_ok(&["device", "list", "--drained"]).contains("evicting: fan is broken"));
    assert!(host.metrics("/metrics").1.contains("hostler_devices_drained{backend=\"fake\"} 2"));
    assert_eq!(host.get("/v1/status")["backends"][0]["drained"], 2);

    host.run_ok(&["claim", "prepare", "old"]);
    let refused = host.run_refused(&["claim", "create", "new", "-d", "fake/half-1"]);
    assert!(refused.contains("device fake/half-1 is drained (no reason given, for "), "{refused}");
    assert!(refused.contains("hostler device undrain fake/half-1"), "{refused}");
    host.run_ok(&["device", "undrain", "half-1"]);
    host.run_ok(&["claim", "create", "new", "-d", "fake/half-1"]);
    assert!(host.stop().success());
}

#[test]
fn a_name_that_is_not_there_comes_with_those_that_are_near() {
    let mut host = started();
    let refused = host.run_refused(&["device", "drain", "half-2"]);
    assert!(refused.contains("there is no device \"half-2\"; did you mean fake/half-0 or fake/half-1?"), "{refused}");
    assert!(host.stop().success());
}

#[test]
fn an_unplugged_device_stays_drained_and_can_be_put_back() {
    let mut host = started();
    host.run_ok(&["device", "drain", "quarter-3"]);
    host.script(&CARDS.replace("count = 4", "count = 3"));
    host.run_ok(&["status", "--rescan"]);
    assert_eq!(device(&host, "quarter-3")["health"], "Absent");
    host.kill();
    host.start();
    assert_eq!(device(&host, "quarter-3")["drained"]["evict"], false);
    host.run_ok(&["device", "undrain", "fake/quarter-3"]);
    assert_eq!(device(&host, "quarter-3"), serde_json::Value::Null);
    assert!(host.stop().success());
}

#[test]
fn a_damaged_list_stops_nobody_and_puts_nothing_back_unseen() {
    let mut host = started();
    host.run_ok(&["claim", "create", "old", "-d", "fake/half-0"]);
    host.run_ok(&["device", "drain", "quarter-0"]);
    assert!(host.stop().success());
    fs::write(host.path("state/drains.json"), "no list").unwrap();
    for _restart in 0..2 {
        host.start();
        let (code, missing) = host.metrics("/readyz");
        assert!(
            code == 503 && missing.contains("drains.json.damaged") && missing.contains("hostler device forget"),
            "{missing}"
        );
        host.run_ok(&["claim", "prepare", "old"]);
        assert!(host.run_refused(&["claim", "create", "new", "-d", "fake/quarter-1"]).contains("is drained"));
        host.kill();
    }
    host.start();
    host.run_ok(&["device", "drain", "quarter-0", "--reason", "still"]);
    host.run_ok(&["device", "forget"]);
    wait_for("nothing to be said of drains", || (!host.metrics("/readyz").1.contains("drains")).then_some(()));
    host.run_ok(&["claim", "create", "new", "-d", "fake/quarter-1"]);
    assert!(host.run_refused(&["claim", "create", "another", "-d", "fake/quarter-0"]).contains("(still, for "));
    assert!(host.stop().success());
}

#[test]
fn partitions_of_a_card_exclude_each_other_even_when_one_is_gone() {
    let mut host = started();
    host.run_ok(&["claim", "create", "a", "-d", "fake/half-0"]);
    let refused = host.run_refused(&["claim", "create", "b", "-d", "fake/whole"]);
    assert!(refused.contains("takes 4 of counter slots in set card, which has 2 left; held by "), "{refused}");
    assert!(refused.contains("(default/a): 2 with half-0"), "{refused}");
    host.run_ok(&["claim", "create", "c", "-d", "fake/quarter-0", "-d", "fake/quarter-1"]);
    assert!(host.run_refused(&["claim", "create", "d", "-d", "fake/quarter-2"]).contains("which has 0 left"));

    // The held half is unplugged; what it takes is known from its record, also to the next daemon.
    host.run_ok(&["claim", "delete", "c"]);
    host.kill();
    let half = CARDS.replace("name = \"half\"\n    count = 2", "name = \"half-1\"");
    assert_ne!(half, CARDS);
    host.script(&half);
    host.start();
    assert_eq!(device(&host, "half-0")["holders"], serde_json::json!(["default/a"]));
    assert!(host.run_refused(&["claim", "create", "b", "-d", "fake/whole"]).contains("which has 2 left"));
    host.run_ok(&["claim", "create", "e", "-d", "fake/half-1"]);
    host.run_ok(&["claim", "delete", "e"]);
    host.run_ok(&["claim", "delete", "a"]);
    host.run_ok(&["claim", "create", "b", "-d", "fake/whole"]);
    assert!(host.stop().success());
}

#[test]
fn an_order_for_a_device_that_cannot_be_attached_is_refused_for_that_and_not_for_its_holder() {
    let host = started();
    let refused = host.run_refused(&["device", "attach", "fake/half-0"]);
    assert!(refused.contains("half-0 cannot be attached: devices of its kind are always attached"), "{refused}");
    let rehearsed = host.run_refused(&["device", "attach", "fake/half-0", "--dry-run"]);
    assert_eq!(rehearsed.lines().last(), refused.lines().last(), "a dry run is refused as the order is");
    host.run_ok(&["claim", "create", "holder", "-d", "fake/half-0"]);
    let refused = host.run_refused(&["device", "detach", "half-0", "--sanitize", "--remove"]);
    assert!(refused.contains("half-0 cannot be detached: devices of its kind are always attached"), "{refused}");
    let rehearsed = host.run_refused(&["device", "detach", "half-0", "--sanitize", "--remove", "--dry-run"]);
    assert_eq!(rehearsed.lines().last(), refused.lines().last(), "a dry run is refused as the order is");
    let unknown = host.run_refused(&["device", "detach", "memory-1001"]);
    assert!(unknown.contains("there is no device \"memory-1001\""), "{unknown}");
    // A refused claim delays no other.
    host.run_ok(&["claim", "delete", "holder"]);
    host.run_ok(&["claim", "create", "next", "-d", "fake/half-0"]);
}

/// Makes preparing of one half hang until there is such a file, and begins a claim on it.
fn stuck_claim(host: &Host) -> (std::path::PathBuf, std::thread::JoinHandle<std::io::Result<(u16, String)>>) {
    let answer = host.path("answer");
    let until = answer.display();
    host.script(&format!("{CARDS}\n[[fault]]\nstep = \"prepare\"\ndevice = \"half-0\"\nuntil = \"{until}\"\n"));
    let (socket, device) = (host.path("run/admin.sock"), serde_json::json!({"pool": "fake", "device": "half-0"}));
    let claim = serde_json::json!({"namespace": "default", "name": "stuck", "devices": [device]}).to_string();
    let call = std::thread::spawn(move || http(&socket, "POST", "/v1/claims", &claim));
    wait_for("the record", || (!host.files("state/claims").is_empty()).then_some(()));
    (answer, call)
}

#[test]
fn an_order_waits_no_longer_than_it_may_and_says_what_for() {
    let host = started();
    let (answer, call) = stuck_claim(&host);
    let refused = host.run_refused(&["device", "attach", "fake/half-1", "--timeout", "300ms"]);
    assert!(refused.contains("waiting for claim default/stuck (preparing since 2"), "{refused}");
    let expected = "gave up after 300ms, before anything was changed: busy with claim default/stuck (preparing since 2";
    assert!(refused.contains(expected), "{refused}");
    let order = r#"{"operation": "attach"}"#;
    let (code, said) = host.request("POST", "/v1/devices/fake%2Fhalf-1/operate?timeout=300ms", order);
    assert!(code == 409 && said["error"].as_str().unwrap().starts_with(expected), "{code} {said}");
    let (code, said) = host.request("POST", "/v1/devices/fake%2Fhalf-1/operate?timeout=25h", order);
    assert_eq!((code, &said["error"]), (400, &"an order waits at most 24h".into()));
    assert!(host.run(&["device", "attach", "fake/half-1", "--timeout", "soon"]).status.code() == Some(2));
    // An order that has given up delays no claim any more.
    host.run_ok(&["claim", "create", "next", "-d", "fake/half-1"]);
    fs::write(answer, "").unwrap();
    assert_eq!(call.join().unwrap().unwrap().0, 201);
}

#[test]
fn an_order_is_withdrawn_with_the_command_that_gave_it() {
    let host = started();
    let (answer, call) = stuck_claim(&host);
    let mut command = host.spawn_command(&["device", "attach", "fake/half-1", "--timeout", "10m"]);
    let mut lines = BufReader::new(command.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.starts_with("waiting for claim default/stuck (preparing since 2"), "{line}");
    command.kill().unwrap();
    command.wait().unwrap();
    wait_for("the order to be withdrawn", || {
        host.log().contains("the order was withdrawn before anything was changed").then_some(())
    });
    host.run_ok(&["claim", "create", "next", "-d", "fake/half-1"]);
    fs::write(answer, "").unwrap();
    assert_eq!(call.join().unwrap().unwrap().0, 201);
}
