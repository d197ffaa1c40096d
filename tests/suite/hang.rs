//! The real binary on hardware that hangs: a backend that does not answer keeps no other backend from serving or being
//! served, and no claim is lost, however often the daemon is killed meanwhile.

use std::{fs, path::Path};

use hostler::claims::store::{ClaimRecord, RecordState, decode, encode};
use hostler_testing::{
    host::{Host, SCRIPT, script_with, wait_for},
    node::{TestNode, uid},
    systemd::Systemd,
};
use serde_json::Value;

/// A host with four CPUs beside the scripted devices, whose daemon has short deadlines.
fn host() -> Host {
    let host = Host::bare_with(SCRIPT, "[inventory]\nanswer_within = \"500ms\"\n");
    let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
    let with_cpus = config.replace("[backends.cpu]\nenabled = false", "[backends.cpu]\nenabled = true");
    assert_ne!(config, with_cpus);
    fs::write(host.path("hostler.toml"), with_cpus).unwrap();
    machine(&host.path("machine/sys/devices/system"));
    host
}

fn machine(system: &Path) {
    let write = |path: &str, text: &str| {
        let path = system.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for file in ["online", "present", "possible"] {
        write(&format!("cpu/{file}"), "0-3");
    }
    for cpu in 0..4 {
        write(&format!("cpu/cpu{cpu}/topology/physical_package_id"), "0");
        write(&format!("cpu/cpu{cpu}/topology/core_id"), &cpu.to_string());
        write(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &cpu.to_string());
        write(&format!("cpu/cpu{cpu}/topology/core_siblings_list"), "0-3");
    }
    write("node/online", "0");
    write("node/node0/cpulist", "0-3");
    write("node/node0/distance", "10");
    write("node/node0/meminfo", "Node 0 MemTotal:  1048576 kB\nNode 0 MemFree: 524288 kB");
}

/// Makes these steps of the scripted devices hang until [`answer`].
fn hang(host: &Host, steps: &[&str]) {
    let file = host.path("answer");
    let fault = |step: &&str| format!("[[fault]]\nstep = \"{step}\"\nuntil = \"{}\"\n", file.display());
    let faults: String = steps.iter().map(fault).collect();
    let _ = fs::remove_file(file);
    host.script(&script_with(&faults));
}

fn answer(host: &Host) {
    fs::write(host.path("answer"), "").unwrap();
}

/// Returns the daemon's status of the backend of the scripted devices.
fn fake(host: &Host) -> Value {
    let backends = host.get("/v1/status")["backends"].take();
    backends.as_array().unwrap().iter().find(|backend| backend["name"] == "fake").unwrap().clone()
}

fn wait_until_known(host: &Host) {
    wait_for("the backend to answer", || {
        let fake = fake(host);
        (fake["unknown"] == false && fake["unanswered_since"].is_null()).then_some(())
    });
}

/// Returns the problem of a claim in the daemon's status.
fn problem(host: &Host, name: &str) -> Option<String> {
    host.get(&format!("/v1/claims/{}", uid(name)))["problem"].as_str().map(str::to_owned)
}

#[test]
fn a_backend_that_hangs_at_the_start_is_unknown_until_it_answers_and_the_others_serve() {
    let mut host = host();
    let systemd = Systemd::new(&mut host);
    hang(&host, &["enumerate"]);
    host.start();
    let waiting = systemd.next();
    assert!(waiting.starts_with("EXTEND_TIMEOUT_USEC=500000\n"), "systemd is asked to wait on: {waiting}");
    assert!(systemd.wait_for("READY=1").contains("backend fake has not answered since 2"));

    let backend = fake(&host);
    assert_eq!((&backend["unknown"], &backend["pool"]), (&true.into(), &"node/fake".into()), "{backend}");
    assert!(backend["unanswered_since"].as_u64().is_some(), "{backend}");
    let status = host.run_ok(&["status"]);
    assert!(status.contains("no answer since 2") && status.contains("has not answered since 2"), "{status}");
    let (code, missing) = host.metrics("/readyz");
    assert!(code == 503 && missing.contains("nothing is known of its devices"), "{code} {missing}");
    assert_eq!(host.run(&["ready"]).status.code(), Some(1));
    assert_eq!(host.run_ok(&["ready", "--alive"]), "ok\n", "a start probe must not end the daemon over it");
    let (_, figures) = host.metrics("/metrics");
    assert!(figures.contains("hostler_backend_unknown{backend=\"fake\"} 1\n"), "{figures}");
    assert!(figures.contains("hostler_backend_unknown{backend=\"cpu\"} 0\n"), "{figures}");

    // Other backends serve; a request to the hanging one is refused with the reason, and without waiting.
    host.run_ok(&["claim", "create", "a", "-d", "cpu/numa0,cpus=2"]);
    let refused = host.run_refused(&["claim", "create", "b", "-d", "fake/card-0"]);
    assert!(refused.contains("nothing is known of the devices in pool node/fake: it has not answered"), "{refused}");
    let refused = host.run_refused(&["device", "attach", "fake/card-0"]);
    assert!(refused.contains("nothing is known of the devices in pool node/fake"), "{refused}");
    host.manifest("c", &uid("c"), &[("whole", "fake", "card-0", Value::Null)]);
    let refused = host.run_refused(&["claim", "prepare", "c"]);
    assert!(refused.contains("whether device card-0 is in pool node/fake is not known"), "{refused}");
    let explained = host.run_ok(&["explain", "claim", "c"]);
    assert!(explained.contains("nothing is known of it: it has not answered since 2"), "{explained}");
    assert!(!explained.contains("not on this host"), "{explained}");
    assert_eq!(host.request("POST", "/v1/rescan", "").0, 204, "nor does anybody wait for it later");

    answer(&host);
    wait_until_known(&host);
    host.run_ok(&["claim", "prepare", "c"]);
    host.run_ok(&["claim", "create", "b", "-d", "fake/card-1"]);
    assert_eq!(fake(&host)["devices"], 9);
    let missing = host.get("/v1/status")["not_ready"].take();
    assert!(!missing.to_string().contains("fake"), "{missing}");
    assert!(host.stop().success());
}

#[test]
fn a_service_manager_that_does_not_read_holds_nobody_up_and_hears_it_all_later() {
    let mut host = host();
    let systemd = Systemd::new(&mut host);
    systemd.fill();
    host.start();
    host.run_ok(&["claim", "create", "a", "-d", "fake/card-0"]);
    systemd.wait_for("READY=1");
    systemd.fill();
    assert!(host.stop().success(), "nor does it keep a daemon from ending");
}

#[test]
fn a_scan_that_hangs_later_leaves_what_is_known_and_claims_on_it_as_they_are() {
    let mut host = host();
    host.start();
    host.run_ok(&["claim", "create", "a", "-d", "fake/card-0"]);
    hang(&host, &["enumerate"]);
    assert_eq!(host.request("POST", "/v1/rescan", "").0, 204);
    wait_for("the scan to be late", || fake(&host)["unanswered_since"].as_u64());
    let backend = fake(&host);
    assert_eq!((&backend["unknown"], &backend["devices"]), (&false.into(), &9.into()), "{backend}");
    host.run_ok(&["claim", "create", "b", "-d", "cpu/numa0,cpus=1"]);
    let refused = host.run_refused(&["device", "attach", "fake/card-1"]);
    assert!(refused.contains("is not known: it has not answered since 2"), "an order would hang as well: {refused}");
    host.run_ok(&["claim", "delete", "a"]);
    answer(&host);
    wait_until_known(&host);
    assert!(fake(&host)["stale"].is_null());
    assert!(host.stop().success());
}

/// Two claims on the scripted devices, of which one is half prepared, and one on CPUs; the daemon is dead.
fn killed_node() -> (TestNode, Vec<hostler_proto::dra_v1::Device>) {
    let mut node = TestNode::new(host());
    node.begin();
    node.allocate("ready", &["card-0", "pool:2"]);
    node.allocate("half", &["card-1"]);
    node.allocate("thief", &["card-0"]);
    node.allocate("other-thief", &["card-1"]);
    let list = node.prepare("ready");
    node.prepare("half");
    node.run_ok(&["claim", "create", "cpus", "-d", "cpu/numa0,cpus=2"]);
    node.kill();
    let path = node.path(&node.record_path("half"));
    let record = ClaimRecord { state: RecordState::Preparing, ..decode(&fs::read(&path).unwrap()).unwrap() };
    fs::write(path, encode(&record).unwrap()).unwrap();
    // After a reboot the journal would still have the claim as prepared.
    fs::remove_file(node.path("state/claims.journal")).unwrap();
    (node, list)
}

/// Checks that claims on the hanging backend are kept and reported as recovering, and that the claim on the other one
/// is ready.
fn assert_kept(node: &mut TestNode, case: &str) {
    let cpus = node.get("/v1/claims/cpus");
    assert_eq!(cpus["state"], "prepared", "{case}: {cpus}");
    for name in ["ready", "half"] {
        assert!(node.path(&node.record_path(name)).exists(), "{case}: {name}");
        let problem = problem(node, name).unwrap();
        assert!(problem.starts_with("being recovered since 2") && problem.ends_with(" by backend fake"), "{problem}");
        let refused = node.prepare_error(name);
        assert!(refused.contains("being recovered since 2"), "{case}: {name}: {refused}");
        assert!(node.unprepare_error(name).contains("being recovered since 2"), "{case}: {name}");
    }
    let claim = node.get(&format!("/v1/claims/{}", uid("ready")));
    assert_eq!(claim["busy"]["operation"], "recover", "{case}: {claim}");
}

/// Checks the state after the backend has answered: ready claims are ready, the half-prepared one is gone, and its
/// device is free.
fn assert_mended(node: &mut TestNode, list: &[hostler_proto::dra_v1::Device], case: &str) {
    wait_for(case, || (node.state("ready").as_deref() == Some("prepared")).then_some(()));
    wait_for(case, || node.traces("half").is_gone().then_some(()));
    assert_eq!(node.prepare("ready"), list, "{case}");
    node.prepare("other-thief");
    assert!(node.prepare_error("thief").contains("already prepared for claim"), "{case}");
    node.unprepare("ready");
    node.prepare("thief");
    assert!(node.stop().success(), "{case}");
}

#[test]
fn recovery_goes_on_behind_a_backend_that_hangs_and_no_claim_is_lost_however_often_the_daemon_dies() {
    for steps in [&["verify", "unprepare"][..], &["enumerate"]] {
        let case = format!("{steps:?} hangs");
        let (mut node, list) = killed_node();
        hang(&node, steps);
        for _ in 0..2 {
            node.begin();
            assert_kept(&mut node, &case);
            if steps.len() == 2 {
                for thief in ["thief", "other-thief"] {
                    assert!(node.prepare_error(thief).contains("already prepared for claim"), "{case}: {thief}");
                }
            }
            node.kill();
        }
        node.begin();
        assert_kept(&mut node, &case);
        answer(&node);
        assert_mended(&mut node, &list, &case);
    }
}

#[test]
fn a_stop_does_not_wait_for_recovery_that_hangs() {
    let (mut node, list) = killed_node();
    hang(&node, &["verify", "unprepare"]);
    node.begin();
    assert!(node.stop().success());
    answer(&node);
    node.begin();
    assert_mended(&mut node, &list, "after the stop");
}

#[test]
fn after_a_reboot_a_backend_that_hangs_costs_no_claim_its_devices() {
    let (mut node, list) = killed_node();
    for folder in ["cdi", "hardware"] {
        fs::remove_dir_all(node.path(folder)).unwrap();
    }
    node.boot("00000000-0000-4000-8000-000000000002");
    hang(&node, &["enumerate"]);
    for _ in 0..2 {
        node.begin();
        wait_for("the claim on CPUs", || (node.get("/v1/claims/cpus")["state"] == "prepared").then_some(()));
        let refused = node.prepare_error("ready");
        assert!(refused.contains("is not known: it has not answered since 2"), "{refused}");
        node.kill();
    }
    node.begin();
    answer(&node);
    assert_mended(&mut node, &list, "after the reboot");
}
