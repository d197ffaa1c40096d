//! The real binary as its neighbours see it: the kubelet, systemd, Prometheus, users at the command line, and readers
//! of its files.

use std::{
    fs,
    io::Write,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::PathBuf,
    thread,
    time::Duration,
};

use hostler_proto::{
    dra_v1::{Claim, Device},
    health_v1::HealthStatus,
};
use hostler_testing::{
    host::{Host, SCRIPT, http, script_with, wait_for},
    kubelet::{ClaimAnswers, KubeletResult, claim},
    node::{TestNode, named, uid},
    systemd::Systemd,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const ADMIN: &str = "run/admin.sock";
const METRICS: &str = "run/metrics.sock";

/// Longer than any test waits: a call that takes so long is stuck.
const STUCK_MS: u64 = 600_000;

/// A script in which preparing one of the cards takes so long.
fn slow_card_1(delay_ms: u64) -> String {
    script_with(&format!("[[fault]]\nstep = \"prepare\"\ndevice = \"card-1\"\ndelay_ms = {delay_ms}"))
}

type Call = JoinHandle<KubeletResult<ClaimAnswers<Vec<Device>>>>;

/// Begins a call of the kubelet whose answer is waited for later.
fn call_prepare(node: &TestNode, name: &str) -> Call {
    let (mut plugin, claim) = (node.connected(), named(name));
    node.spawn(async move { plugin.prepare(&[claim]).await })
}

/// Waits until a prepare has got as far as the hardware.
fn wait_for_record(node: &TestNode, name: &str) {
    wait_for("the record", || node.path(&node.record_path(name)).exists().then_some(()));
}

/// The devices that a call answered for a claim.
fn list(node: &TestNode, name: &str, call: Call) -> Vec<Device> {
    let mut answers = node.block_on(call).unwrap().unwrap();
    answers.remove(&uid(name)).unwrap().unwrap()
}

/// Code and text of a refusal by the admin socket.
fn refusal(host: &Host, method: &str, path: &str, body: &str) -> (u16, String) {
    let (code, answer) = host.request(method, path, body);
    let error =
        answer["error"].as_str().unwrap_or_else(|| panic!("{method} {path}: {code} without an error: {answer}"));
    (code, error.to_owned())
}

fn create(name: &str, pool: &str, device: &str) -> String {
    json!({"namespace": "default", "name": name, "devices": [{"pool": pool, "device": device}]}).to_string()
}

fn is_served(host: &Host, socket: &str) -> bool {
    UnixStream::connect(host.path(socket)).is_ok()
}

/// Returns the paths of all four sockets.
fn sockets(host: &Host) -> [PathBuf; 4] {
    [host.path(ADMIN), host.path(METRICS), host.registration_socket(), host.service_socket()]
}

fn are_served(host: &Host) -> bool {
    sockets(host).iter().all(|socket| UnixStream::connect(socket).is_ok())
}

#[test]
fn files_and_sockets_are_for_those_who_need_them() {
    let mut node = TestNode::started();
    let (code, _) = node.request("POST", "/v1/claims", &create("a", "fake", "card-0"));
    assert_eq!(code, 201);
    let claim = node.get("/v1/claims/a");
    let uid = claim["uid"].as_str().unwrap();
    let relative = |path: PathBuf| path.strip_prefix(node.path("")).unwrap().to_str().unwrap().to_owned();
    for (path, mode) in [
        ("state", 0o700),
        ("state/lock", 0o600),
        ("state/claims", 0o700),
        (&format!("state/claims/{uid}.json"), 0o600),
        ("run", 0o700),
        (ADMIN, 0o600),
        // Figures may be read by a group.
        (METRICS, 0o660),
        ("kubelet/plugins_registry", 0o750),
        (&relative(node.registration_socket()), 0o600),
        ("kubelet/plugins/hostler.dev", 0o750),
        (&relative(node.service_socket()), 0o600),
        // Rootless container runtimes read these.
        ("cdi", 0o755),
        (&format!("cdi/hostler.dev-claim_{uid}.json"), 0o644),
        ("manifests", 0o700),
        ("manifests/default_a.json", 0o600),
    ] {
        assert_eq!(format!("{:o}", node.mode(path)), format!("{mode:o}"), "{path}");
    }
    for folder in ["state", "state/claims", "run", "kubelet/plugins_registry", "kubelet/plugins/hostler.dev", "cdi"] {
        let hidden = fs::read_dir(node.path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        // The witness of the journal stays as long as the journal does.
        let hidden = hidden.filter(|name| name.as_encoded_bytes().starts_with(b".") && name != ".journal_kept.tmp");
        assert_eq!(hidden.count(), 0, "temporary files in {folder}");
    }
    node.unprepare("nobody");
}

#[test]
fn nobody_is_answered_before_everything_that_he_asks_about_is_ready() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-0"]);
    let list = node.prepare("a");
    node.kill();
    // The sockets of the dead daemon are still there, and no process answers.
    assert!(sockets(&node).iter().all(|socket| socket.exists() && UnixStream::connect(socket).is_err()));
    fs::remove_file(node.path(&node.cdi_path("a"))).unwrap();
    node.script(&script_with("[latency_ms]\nenumerate = 150\nprepare = 150\nverify = 150"));
    Host::spawn(&mut node);
    // The kubelet's sockets come first, since the kubelet takes its time to find them; its call waits.
    node.register();
    assert_eq!(node.prepare("a"), list);
    assert!(node.path(&node.cdi_path("a")).exists(), "all claims are recovered");
    wait_for(METRICS, || is_served(&node, METRICS).then_some(()));
    let (_, figures) = node.metrics("/metrics");
    assert!(figures.contains("hostler_devices{backend=\"fake\",health=\"Healthy\"} 9\n"), "{figures}");
    assert!(figures.contains("hostler_claims{state=\"prepared\"} 1\n"), "{figures}");
}

#[test]
fn a_signal_ends_the_daemon_well_and_its_sockets_go() {
    let mut node = TestNode::started();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        assert!(are_served(&node));
        node.signal(signal);
        assert!(node.wait().success(), "{signal}");
        assert!(sockets(&node).iter().all(|socket| !socket.exists()), "{signal}");
        node.begin();
    }
    let mut starting = Host::bare(&script_with(&format!("[latency_ms]\nenumerate = {STUCK_MS}")));
    starting.spawn();
    wait_for("the daemon to begin", || starting.path("state").exists().then_some(()));
    assert!(starting.stop().success(), "before anything is ready, too");
}

#[test]
fn neighbours_that_say_nothing_do_not_keep_the_daemon_from_stopping() {
    let mut node = TestNode::started();
    let silent: Vec<UnixStream> =
        [ADMIN, METRICS].iter().map(|socket| UnixStream::connect(node.path(socket)).unwrap()).collect();
    let mut half = UnixStream::connect(node.path(ADMIN)).unwrap();
    half.write_all(b"GET /v1/status HTTP/1.1\r\nhost: ").unwrap();
    let mut idle = UnixStream::connect(node.path(ADMIN)).unwrap();
    idle.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut health = node.block_on(node.connected().health()).unwrap();
    node.block_on(health.next()).unwrap();
    assert!(node.stop().success());
    drop((silent, half, idle));
}

#[test]
fn a_scan_that_is_stuck_does_not_keep_the_daemon_from_stopping() {
    let mut node = TestNode::started();
    node.script(&script_with(&format!("[latency_ms]\nenumerate = {STUCK_MS}")));
    let mut rescan = UnixStream::connect(node.path(ADMIN)).unwrap();
    rescan.write_all(b"POST /v1/rescan HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    // Connections are served in the order in which they come.
    node.get("/v1/status");
    assert!(node.stop().success());
}

#[test]
fn a_second_signal_ends_a_daemon_that_is_stuck_and_nothing_is_lost() {
    let mut node = TestNode::started();
    node.allocate("stuck", &["card-1"]);
    node.allocate("fine", &["card-0"]);
    let fine = node.prepare("fine");
    node.script(&slow_card_1(STUCK_MS));
    let call = call_prepare(&node, "stuck");
    wait_for_record(&node, "stuck");
    node.signal(Signal::SIGTERM);
    wait_for("the registration socket to go", || (!node.registration_socket().exists()).then_some(()));
    node.signal(Signal::SIGTERM);
    assert_eq!(node.wait().code(), Some(1));
    assert!(node.log().contains("second signal"));
    node.block_on(call).unwrap().expect_err("nobody is left to answer");
    node.script(SCRIPT);
    node.begin();
    assert!(node.traces("stuck").is_gone());
    assert_eq!(node.prepare("fine"), fine);
    node.prepare("stuck");
}

#[test]
fn the_admin_socket_creates_shows_and_takes_back_claims() {
    let node = TestNode::started();
    let (code, claim) = node.request("POST", "/v1/claims", &create("a", "fake", "card-0"));
    assert_eq!(code, 201, "{claim}");
    assert_eq!((&claim["state"], &claim["devices"][0]["device"]), (&json!("prepared"), &json!("card-0")));
    let uid = claim["uid"].as_str().unwrap();
    let by_uid = format!("/v1/claims/{uid}");
    assert_eq!(node.get("/v1/claims"), json!([claim]));
    for path in ["/v1/claims/a", "/v1/claims/a?namespace=default", &by_uid] {
        // One claim is shown with its files, which the list leaves out.
        let mut shown = node.get(path);
        let files = shown.as_object_mut().unwrap().remove("files").unwrap();
        assert!(files[0].as_str().unwrap().ends_with(&format!("/claims/{uid}.json")), "{files}");
        assert_eq!(shown, claim, "{path}");
    }
    assert_eq!(node.request("POST", "/v1/claims/a/prepare", ""), (200, claim.clone()));
    assert_eq!(node.files("hardware"), [format!("{uid}.card-0")]);
    assert_eq!(node.request("DELETE", "/v1/claims/a", "").0, 204);
    assert_eq!((node.get("/v1/claims"), node.files("manifests")), (json!([]), Vec::new()));
    assert_eq!(node.all_traces(), [""; 0]);
    let inventory = node.get("/v1/inventory");
    assert_eq!(inventory["devices"].as_array().unwrap().len(), 9, "{inventory}");
    assert_eq!(node.request("POST", "/v1/rescan", "").0, 204);
}

#[test]
fn a_manifest_that_somebody_put_there_is_prepared_and_taken_back_by_name() {
    let node = TestNode::started();
    node.allocate("a", &["card-3", "pool:2"]);
    fs::write(node.path("manifests/broken.yaml"), "kind: [").unwrap();
    let claims = node.get("/v1/claims");
    let states: Vec<&Value> = claims.as_array().unwrap().iter().map(|claim| &claim["state"]).collect();
    assert_eq!(states, ["invalid", "allocated"]);
    assert!(claims[0]["problem"].as_str().unwrap().contains("broken.yaml"), "{claims}");
    assert!(node.run_refused(&["claim", "show", "a", "-o", "podman"]).contains("hostler claim prepare default/a"));
    assert!(node.run_ok(&["claim", "prepare", "a"]).contains("prepared"));
    assert_eq!(node.files("hardware").len(), 2);
    node.run_ok(&["claim", "delete", "a"]);
    assert_eq!((node.all_traces().len(), node.files("manifests")), (0, vec!["broken.yaml".to_owned()]));
}

#[test]
fn of_claims_that_are_made_under_one_name_at_once_one_is_made() {
    let node = TestNode::started();
    for round in 0..5 {
        let answers: Vec<(u16, Value)> = thread::scope(|scope| {
            let create =
                |card: usize| node.request("POST", "/v1/claims", &create("a", "fake", &format!("card-{card}")));
            let calls: Vec<_> = (0..8).map(|card| scope.spawn(move || create(card))).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let codes = answers.iter().map(|(code, _)| *code);
        assert_eq!(codes.clone().filter(|code| *code == 201).count(), 1, "round {round}: {answers:?}");
        assert_eq!(codes.filter(|code| *code == 409).count(), 7, "round {round}: {answers:?}");
        let (_, made) = answers.into_iter().find(|(code, _)| *code == 201).unwrap();
        assert_eq!(node.get("/v1/claims"), json!([made]), "round {round}");
        assert_eq!(node.files("manifests"), ["default_a.json"]);
        assert_eq!(node.request("DELETE", "/v1/claims/a", "").0, 204);
        assert_eq!((node.all_traces(), node.files("manifests")), (Vec::new(), Vec::new()), "round {round}");
    }
}

#[test]
fn a_command_that_runs_while_the_daemon_is_stopped_gets_its_answer() {
    let mut node = TestNode::started();
    node.script(&slow_card_1(300));
    let socket = node.path(ADMIN);
    let call = thread::spawn(move || http(&socket, "POST", "/v1/claims", &create("a", "fake", "card-1")).unwrap());
    wait_for("the record", || (!node.files("state/claims").is_empty()).then_some(()));
    assert!(node.stop().success());
    let (code, answer) = call.join().unwrap();
    assert!(code == 201 && answer.contains("\"prepared\""), "{code} {answer}");
    node.begin();
    assert_eq!(node.get("/v1/claims/a")["state"], "prepared");
}

#[test]
fn whatever_the_admin_socket_refuses_it_says_why() {
    let node = TestNode::started();
    assert_eq!(node.request("POST", "/v1/claims", &create("a", "fake", "card-0")).0, 201);
    let a = node.get("/v1/claims/a")["uid"].as_str().unwrap().to_owned();
    let create_b = create("b", "fake", "card-0");
    let forget_a = format!("/v1/claims/{a}/forget");
    for (method, path, body, code, words) in [
        ("POST", "/v1/claims", &*create("a", "fake", "card-1"), 409, "exists already"),
        ("POST", "/v1/claims", &create_b, 409, "already prepared for claim"),
        ("POST", "/v1/claims", &create("b", "gpu", "card-1"), 400, "there are node/fake"),
        ("POST", "/v1/claims", &create("b", "fake", "card-77"), 400, "there are card-0, card-1"),
        ("POST", "/v1/claims", &create("../b", "fake", "card-1"), 400, "not valid"),
        ("POST", "/v1/claims", "{\"name\": \"b\", \"namespace\": \"default\", \"devices\": []}", 400, "at least one"),
        ("POST", "/v1/claims", "{\"name\": \"b\", \"colour\": 1}", 422, "colour"),
        ("POST", "/v1/claims", "{", 400, "EOF"),
        ("GET", "/v1/claims/b", "", 404, "no claim with name or uid \"b\""),
        ("GET", "/v1/claims/a?namespace=other", "", 404, "\"other\""),
        ("GET", "/v1/claims/a?space=other", "", 400, "space"),
        ("DELETE", "/v1/claims/b", "", 404, "no claim"),
        ("POST", "/v1/claims/b/prepare", "", 404, "no claim"),
        ("POST", &forget_a, "", 409, "take it back instead"),
        ("POST", "/v1/claims/.%2F/forget", "", 404, "no claim"),
        ("PUT", "/v1/claims", "", 405, "PUT /v1/claims"),
        ("GET", "/v1/nothing", "", 404, "GET /v1/nothing"),
    ] {
        let (found, error) = refusal(&node, method, path, body);
        assert!(found == code && error.contains(words), "{method} {path} {body}: {found} {error}");
    }
    assert_eq!(node.get("/v1/claims").as_array().unwrap().len(), 1, "a refused claim leaves no manifest");
    assert_eq!(node.files("manifests").len(), 1);
}

#[test]
fn the_command_line_makes_claims_that_container_runtimes_can_use() {
    let node = TestNode::started();
    let ids = node.run_ok(&["claim", "create", "a", "-d", "fake/card-0", "-d", "fake/pool,units=3", "-o", "cdi"]);
    let options = node.run_ok(&["claim", "show", "a", "-o", "podman"]);
    let expected: Vec<String> = ids.lines().map(|id| format!("--device {id}")).collect();
    assert_eq!(options.trim_end(), expected.join(" "));
    let cdi = node.path("cdi").display().to_string();
    assert!(node.run_ok(&["cdi", "validate", &cdi]).contains(": valid"));
    let text = fs::read_to_string(node.path("cdi").join(&node.files("cdi")[0])).unwrap();
    let spec: Value = serde_json::from_str(&text).unwrap();
    let names = spec["devices"].as_array().unwrap().iter();
    let names: Vec<String> =
        names.map(|device| format!("hostler.dev/claim={}", device["name"].as_str().unwrap())).collect();
    assert_eq!(ids.lines().collect::<Vec<_>>(), names, "every id is a device of the file");
    let env = spec["devices"][0]["containerEdits"]["env"].as_array().unwrap();
    assert!(env.contains(&json!("CARD=0")), "the device's own edits are there: {env:?}");

    assert!(node.run_refused(&["claim", "create", "b", "-d", "fake/card-0"]).contains("default/a"), "names the holder");
    assert!(node.run_ok(&["claim", "delete", "a"]).contains("deleted"));
    assert!(node.run_refused(&["claim", "show", "a"]).contains("no claim"));
    assert_eq!(node.all_traces(), [""; 0]);
}

#[test]
fn the_daemon_is_ready_once_a_kubelet_has_registered_it() {
    let mut node = TestNode::new(Host::bare(SCRIPT));
    node.start();
    assert_eq!(node.metrics("/healthz"), (200, "ok\n".to_owned()));
    let (code, reason) = node.metrics("/readyz");
    assert!(code == 503 && reason.contains("the kubelet has not registered the driver yet"), "{code} {reason}");
    assert!(node.metrics("/metrics").1.contains("hostler_ready 0\n"));
    assert_eq!(node.get("/v1/status")["kubelet"]["registered"], Value::Null);

    node.register();
    assert_eq!(node.metrics("/readyz"), (200, "ready\n".to_owned()));
    assert!(node.metrics("/metrics").1.contains("hostler_ready 1\n"));
    assert_eq!(node.get("/v1/status")["kubelet"]["registered"], true);

    node.allocate("a", &["card-0"]);
    node.prepare("a");
    node.allocate("b", &["card-0"]);
    node.prepare_error("b");
    node.unprepare("a");
    let figures = node.metrics("/metrics").1;
    for line in [
        "hostler_claim_operations_total{operation=\"Prepare\",outcome=\"ok\"} 1",
        "hostler_claim_operations_total{operation=\"Unprepare\",outcome=\"ok\"} 1",
        "hostler_claims{state=\"prepared\"} 0",
        "hostler_backend_stale{backend=\"fake\"} 0",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line} is not in\n{figures}");
    }
}

#[test]
fn changed_hardware_is_seen_by_a_scan_that_is_asked_for_and_by_the_timed_one() {
    let mut node = TestNode::new(Host::bare_with(SCRIPT, "[inventory]\nrescan = \"1s\"\n"));
    node.begin();
    let names = |node: &TestNode| -> Vec<String> {
        let inventory = node.get("/v1/inventory");
        let devices = inventory["devices"].as_array().unwrap().iter();
        devices.map(|device| device["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&node).len(), 9);
    node.script(&SCRIPT.replace("count = 8", "count = 1"));
    assert_eq!(node.request("POST", "/v1/rescan", "").0, 204);
    assert_eq!(names(&node), ["card-0", "pool"]);
    node.script(&SCRIPT.replace("count = 8", "count = 2"));
    wait_for("the timed scan", || (names(&node) == ["card-0", "card-1", "pool"]).then_some(()));

    node.script("[[device]]\nnam = 1");
    assert_eq!(node.request("POST", "/v1/rescan", "").0, 204);
    assert_eq!(names(&node), ["card-0", "card-1", "pool"], "what is known stays");
    let (code, reason) = node.metrics("/readyz");
    assert!(code == 503 && reason.contains("fake.toml") && reason.contains("nam"), "{reason}");
    let status = node.get("/v1/status");
    assert!(status["backends"][0]["stale"].as_str().unwrap().contains("fake.toml"), "{status}");
    node.script(SCRIPT);
    assert_eq!(node.request("POST", "/v1/rescan", "").0, 204);
    assert_eq!((names(&node).len(), node.metrics("/readyz").0), (9, 200));
    let removed = "inventory changed backend=fake pool=\"node/fake\" device=\"card-1\" change=removed";
    wait_for("the removal in the log", || node.log().contains(removed).then_some(()));
}

#[test]
fn a_device_that_goes_while_held_is_unhealthy_until_its_claim_is_taken_back() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-7"]);
    let before = node.prepare("a");
    let mut health = node.block_on(node.connected().health()).unwrap();
    node.block_on(health.wait_for("node/fake", "card-7", HealthStatus::Healthy)).unwrap();
    node.script(&SCRIPT.replace("count = 8", "count = 7"));
    assert_eq!(node.request("POST", "/v1/rescan", "").0, 204);
    node.block_on(health.wait_for("node/fake", "card-7", HealthStatus::Unhealthy)).unwrap();
    let (_, message) = health.of("node/fake", "card-7").unwrap();
    assert!(message.contains("removed") && message.contains(&uid("a")), "{message}");

    // Neither a restart nor the lost device keeps the claim from being taken back.
    node.kill();
    node.begin();
    let claim = node.get(&format!("/v1/claims/{}", uid("a")));
    assert!(claim["problem"].as_str().unwrap().contains("card-7"), "{claim}");
    let mut health = node.block_on(node.connected().health()).unwrap();
    node.block_on(health.wait_for("node/fake", "card-7", HealthStatus::Unhealthy)).unwrap();
    assert!(node.prepare_error("a").contains("card-7 is not there any more"));
    assert!(node.traces("a").is_whole(1), "containers may be running with it");
    node.unprepare("a");
    assert_eq!(node.all_traces(), [""; 0]);
    let mut health = node.block_on(node.connected().health()).unwrap();
    node.block_on(health.next()).unwrap();
    assert_eq!(health.of("node/fake", "card-7"), None);

    node.script(SCRIPT);
    assert_eq!(node.request("POST", "/v1/rescan", "").0, 204);
    assert_eq!(node.prepare("a"), before);
}

#[test]
fn others_are_answered_while_a_prepare_is_stuck() {
    let mut node = TestNode::started();
    node.allocate("slow", &["card-1"]);
    node.allocate("quick", &["card-0"]);
    node.script(&slow_card_1(STUCK_MS));
    let call = call_prepare(&node, "slow");
    wait_for_record(&node, "slow");
    // Registers again, which begins with GetInfo.
    node.register();
    node.prepare("quick");
    assert_eq!(node.request("POST", "/v1/rescan", "").0, 204);
    assert_eq!(node.state("slow").as_deref(), Some("preparing"));
    node.unprepare("quick");
    assert!(!call.is_finished(), "all of this was answered before the slow prepare");
    node.kill();
}

#[test]
fn calls_for_one_claim_at_once_get_one_answer_and_leave_one_claim() {
    let node = TestNode::started();
    node.allocate("a", &["card-1", "pool:1"]);
    node.script(&slow_card_1(200));
    let first = call_prepare(&node, "a");
    wait_for_record(&node, "a");
    let others: Vec<Call> = (0..8).map(|_| call_prepare(&node, "a")).collect();
    let expected = list(&node, "a", first);
    for other in others {
        assert_eq!(list(&node, "a", other), expected);
    }
    assert!(node.traces("a").is_whole(2));
    assert_eq!((node.files("cdi").len(), node.files("hardware").len()), (1, 2));
}

#[test]
fn an_unprepare_during_a_prepare_and_a_prepare_after_it_happen_in_their_order() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-1"]);
    node.script(&slow_card_1(300));
    let prepare = call_prepare(&node, "a");
    wait_for_record(&node, "a");
    node.unprepare("a");
    assert!(node.traces("a").is_gone(), "the unprepare ran after the prepare");
    list(&node, "a", prepare);

    node.script(&script_with("[[fault]]\nstep = \"unprepare\"\ndelay_ms = 300"));
    node.prepare("a");
    let mut plugin = node.connected();
    let unprepare = node.spawn(async move { plugin.unprepare(&[named("a")]).await });
    // The CDI file goes first.
    wait_for("the unprepare", || (!node.path(&node.cdi_path("a")).exists()).then_some(()));
    node.prepare("a");
    assert_eq!(node.block_on(unprepare).unwrap().unwrap()[&uid("a")], Ok(()));
    assert!(node.traces("a").is_whole(1), "the prepare ran after the unprepare");
}

#[test]
fn a_claim_that_could_not_be_taken_back_can_be_prepared_again_whatever_was_undone() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-1", "card-2"]);
    let list = node.prepare("a");
    let whole = node.traces("a").contents();
    for at in ["before", "after"] {
        node.script(&script_with(&format!("[[fault]]\nstep = \"unprepare\"\nat = \"{at}\"\nerror = \"jammed\"")));
        let error = node.unprepare_error("a");
        assert!(error.contains("failed to unprepare device card-") && error.contains("jammed"), "{error}");
        assert_eq!(node.traces("a").cdi, None);
        assert!(node.get("/v1/claims/a")["problem"].as_str().unwrap().contains("jammed"));
        node.script(SCRIPT);
        assert_eq!(node.prepare("a"), list, "{at}");
        assert_eq!(node.traces("a").contents(), whole, "{at}");
        assert_eq!(node.get("/v1/claims/a")["problem"], Value::Null);
    }
    node.script(&script_with("[[fault]]\nstep = \"unprepare\"\nat = \"after\"\nerror = \"jammed\""));
    node.unprepare_error("a");
    node.script(SCRIPT);
    node.unprepare("a");
    assert_eq!(node.all_traces(), [""; 0]);
}

#[test]
fn of_two_claims_in_one_call_that_want_one_device_one_gets_it() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-0"]);
    node.allocate("b", &["card-0", "card-1"]);
    node.allocate("c", &["card-2"]);
    let answers = node.call_prepare(&["a", "b", "c"]).unwrap();
    assert!(answers[&uid("a")].is_ok() && answers[&uid("c")].is_ok(), "{answers:?}");
    assert!(answers[&uid("b")].as_ref().unwrap_err().contains("already prepared for claim a-5f0c (default/a)"));
    assert!(node.traces("b").is_gone());
}

#[test]
fn a_cdi_folder_that_somebody_emptied_is_filled_again_by_the_next_call() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-0"]);
    let list = node.prepare("a");
    let whole = node.traces("a").contents();
    fs::remove_dir_all(node.path("cdi")).unwrap();
    assert_eq!(node.prepare("a"), list);
    assert_eq!(node.traces("a").contents(), whole);
    fs::remove_dir_all(node.path("cdi")).unwrap();
    node.unprepare("a");
    assert_eq!(node.all_traces(), [""; 0]);
}

#[test]
fn a_call_that_the_kubelet_gave_up_is_finished_and_its_repetition_gets_the_answer() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-1"]);
    node.script(&slow_card_1(500));
    for round in 0..2 {
        let call = call_prepare(&node, "a");
        if round == 0 {
            wait_for_record(&node, "a");
        }
        call.abort();
        node.block_on(call).expect_err("the call was cut off");
    }
    let devices = node.prepare("a");
    assert!(node.traces("a").is_whole(1));
    // The log is written by a thread of its own.
    let prepared = || node.log().matches("claim prepared claim.uid=a-5f0c").count();
    wait_for("the claim in the log", || (prepared() > 0).then_some(()));
    assert_eq!(prepared(), 1, "the work was done once");
    assert_eq!(node.prepare("a"), devices);
    node.unprepare("a");
    assert_eq!(node.all_traces(), [""; 0]);
}

#[test]
fn a_claim_made_anew_under_the_same_name_is_another_claim() {
    let mut node = TestNode::started();
    let whole = |device| [("whole", "fake", device, json!(null))];
    let (old, new) = (claim("default", "a", "old-uid"), claim("default", "a", "new-uid"));
    let call = |node: &TestNode, claim: &Claim| {
        let (mut plugin, claim) = (node.connected(), claim.clone());
        node.block_on(async { plugin.prepare(&[claim]).await }).unwrap().into_values().next().unwrap()
    };
    node.manifest("a", "old-uid", &whole("card-0"));
    let first = call(&node, &old).unwrap();
    node.manifest("a", "new-uid", &whole("card-0"));
    let error = call(&node, &new).unwrap_err();
    assert!(error.contains("card-0") && error.contains("old-uid (default/a)"), "{error}");
    assert_eq!(call(&node, &old), Ok(first), "a recorded claim needs no manifest");

    node.manifest("a", "new-uid", &whole("card-1"));
    let second = call(&node, &new).unwrap();
    assert_eq!(node.files("cdi").len(), 2);
    let mut plugin = node.connected();
    assert_eq!(node.block_on(plugin.unprepare(std::slice::from_ref(&old))).unwrap()["old-uid"], Ok(()));
    assert_eq!(call(&node, &new), Ok(second));
    let error = call(&node, &old).unwrap_err();
    assert!(error.contains("new-uid") && error.contains("old-uid") && error.contains("made anew"), "{error}");
    assert_eq!(node.files("hardware"), ["new-uid.card-1"]);
    assert!(node.stop().success());
}

#[test]
fn what_is_wrong_with_a_manifest_is_told_with_file_field_and_fix() {
    let mut node = TestNode::started();
    let path = |name: &str| format!("manifests/default_{name}");
    assert!(node.prepare_error("a").contains(&format!("add {}.yaml", node.path(&path("a")).display())));
    node.allocate("a", &["card-0"]);
    let good = fs::read_to_string(node.path(&path("a")).with_extension("json")).unwrap();
    fs::remove_file(node.path(&path("a")).with_extension("json")).unwrap();
    for (from, to, words) in [
        ("ResourceClaim", "ResourceClass", "field kind: it is \"ResourceClass\"; write ResourceClaim"),
        ("resource.k8s.io/v1", "resource.k8s.io/v9", "field apiVersion"),
        ("\"uid\":\"a-5f0c\"", "\"uid\":\"\"", "field metadata.uid"),
        (",\"uid\":\"a-5f0c\"", "", "field metadata.uid: it is missing"),
        ("\"uid\":\"a-5f0c\"", "\"uid\":\"b\"", "is of claim uid b"),
        ("\"driver\":\"hostler.dev\"", "\"driver\":\"gpu.example\"", "none of them has driver \"hostler.dev\""),
        ("\"device\":\"card-0\"", "\"device\":\"Card 0\"", "status.allocation.devices.results[0].device"),
        ("\"device\":\"card-0\"", "\"device\":\"card-0\",\"consumed\":{}", "results[0]"),
        ("\"status\"", "\"statu\"", "field status.allocation: it is missing"),
        ("{", "", "not valid JSON or YAML"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        fs::write(node.path(&path("a")).with_extension("json"), text).unwrap();
        let error = node.prepare_error("a");
        let file = node.path(&path("a")).with_extension("json").display().to_string();
        assert!(error.contains(words) && error.contains(&file), "{from} → {to}: {error}");
        assert!(node.traces("a").is_gone());
    }
    fs::write(node.path(&path("a")).with_extension("json"), &good).unwrap();
    node.prepare("a");
    node.allocate("far", &["card-99"]);
    assert!(node.prepare_error("far").contains("device card-99 is not in pool node/fake of this host"));
    let answers = node.call_prepare(&["far", "a"]).unwrap();
    assert!(answers[&uid("a")].is_ok() && answers[&uid("far")].is_err(), "one bad claim costs no other: {answers:?}");
}

#[test]
fn logs_are_text_for_people_or_json_for_programs() {
    let logged = |extra: &str, journal: bool| {
        let mut host = Host::bare_with(SCRIPT, extra);
        if journal {
            let log = fs::File::create(host.path("log")).unwrap().metadata().unwrap();
            host.env("JOURNAL_STREAM", format!("{}:{}", log.dev(), log.ino()));
        }
        let mut node = TestNode::new(host);
        node.begin();
        node.allocate("a", &["card-0"]);
        node.prepare("a");
        node.allocate("b", &["card-0"]);
        node.prepare_error("b");
        assert!(node.stop().success());
        node.log()
    };
    let text = logged("", false);
    let line = text.lines().find(|line| line.contains("claim prepared")).unwrap();
    assert!(line.starts_with("20") && line.contains(" INFO "), "{line}");
    assert!(line.ends_with("claim.uid=a-5f0c claim.name=\"default/a\" devices=1"), "{line}");
    assert!(!text.contains('\u{1b}'), "a file is no terminal");

    let journal = logged("", true);
    assert!(journal.lines().all(|line| line.starts_with('<')), "the journal stamps lines itself: {journal}");

    let json = logged("[log]\nformat = \"json\"\n", false);
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let line = lines.iter().find(|line| line["message"] == "claim prepared").unwrap();
    assert_eq!((&line["claim.uid"], &line["devices"], &line["level"]), (&json!("a-5f0c"), &json!(1), &json!("INFO")));

    let quiet = logged("[log]\nlevel = \"warn\"\n", false);
    assert!(quiet.lines().all(|line| line.contains("ERROR") || line.contains("WARN")), "{quiet}");
    assert!(quiet.contains("already prepared for claim a-5f0c"), "{quiet}");
}

#[test]
fn systemd_hears_when_the_daemon_is_ready_alive_and_stopping() {
    let mut host = Host::bare(&script_with("[latency_ms]\nenumerate = 100"));
    let systemd = Systemd::new(&mut host);
    host.spawn();
    let ready = systemd.next();
    assert!(ready.starts_with("READY=1\n"), "the first word is {ready}");
    assert!(are_served(&host), "ready means that all sockets are served");
    assert!(ready.contains("STATUS=9 devices; claims: 0 prepared, 0 preparing, 0 quarantined"), "{ready}");
    for _ in 0..3 {
        assert!(systemd.wait_for("WATCHDOG=1").contains("STATUS="));
    }
    let mut node = TestNode::new(host);
    node.register();
    node.allocate("a", &["card-0"]);
    node.prepare("a");
    systemd.wait_for("STATUS=9 devices; claims: 1 prepared, 0 preparing, 0 quarantined");
    node.signal(Signal::SIGTERM);
    systemd.wait_for("STOPPING=1");
    assert!(node.wait().success());
}

#[test]
fn a_daemon_whose_claims_are_stuck_is_not_alive_for_systemd() {
    let mut host = Host::bare(&script_with(&format!("[latency_ms]\nplan = {STUCK_MS}")));
    let systemd = Systemd::new(&mut host);
    let mut node = TestNode::new(host);
    node.begin();
    node.allocate("a", &["card-0"]);
    systemd.wait_for("WATCHDOG=1");
    let call = call_prepare(&node, "a");
    // Several times what systemd allows, and many more times the period of the daemon.
    systemd.0.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    wait_for("silence", || systemd.0.recv(&mut [0; 4096]).is_err().then_some(()));
    node.kill();
    node.block_on(call).unwrap().expect_err("the daemon is dead");
}

#[test]
fn a_standby_is_ready_and_alive_for_systemd_and_ready_again_when_it_takes_over() {
    let mut first = Host::bare(SCRIPT);
    first.start();
    let systemd = Systemd::new(&mut first);
    let second = first.spawn_beside();
    let ready = systemd.next();
    assert_eq!(ready.trim_end(), "READY=1\nSTATUS=standing by: another daemon is live");
    for _ in 0..3 {
        systemd.wait_for("WATCHDOG=1");
    }
    assert!(first.stop().success());
    first.adopt(second);
    assert!(systemd.wait_for("READY=1").contains("9 devices"));
    assert!(are_served(&first));
}

#[test]
fn a_wrong_configuration_ends_the_daemon_with_a_code_that_systemd_does_not_retry() {
    let mut host =
        Host::bare_with(SCRIPT, "colour = 1\n[inventory]\nrescan = \"1ms\"\n[metric]\n[kubelet]\nenabled = 3\n");
    host.spawn();
    assert_eq!(host.wait().code(), Some(78));
    let log = host.log();
    for words in ["backends.fake.colour", "inventory.rescan", "metric", "kubelet.enabled"] {
        assert!(log.lines().any(|line| line.contains("hostler.toml:") && line.contains(words)), "{words}: {log}");
    }
    assert_eq!((host.path("state").exists(), host.path("run").exists()), (false, false), "nothing was begun");
}

#[test]
fn what_keeps_the_daemon_from_starting_is_told_with_the_path() {
    let mut host = Host::bare(SCRIPT);
    fs::write(host.path("run"), "a file").unwrap();
    host.spawn();
    assert_eq!(host.wait().code(), Some(1));
    let path = host.path("run").display().to_string();
    assert!(host.log().contains(&format!("failed to create {path}: File exists")), "{}", host.log());

    fs::remove_file(host.path("run")).unwrap();
    fs::create_dir_all(host.path(ADMIN)).unwrap();
    host.spawn();
    assert_eq!(host.wait().code(), Some(1));
    assert!(host.log().contains("exists and is not a socket"), "{}", host.log());
    assert!(sockets(&host)[2..].iter().all(|socket| !socket.exists()), "the sockets that were served are gone");
}

/// Returns the files and sockets that the daemon has open.
fn descriptors(host: &Host) -> usize {
    fs::read_dir(format!("/proc/{}/fd", host.pid())).unwrap().count()
}

#[test]
fn a_thousand_cycles_leave_no_file_and_no_descriptor() {
    let mut node = TestNode::started();
    let names: Vec<String> = (0..20).map(|number| format!("claim-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.iter().for_each(|name| node.allocate(name, &["pool:1"]));
    let cycle = |node: &mut TestNode| {
        assert!(node.call_prepare(&names).unwrap().values().all(Result::is_ok));
        assert!(node.call_unprepare(&names).unwrap().values().all(Result::is_ok));
    };
    let create_and_delete = |node: &TestNode| {
        assert_eq!(node.request("POST", "/v1/claims", &create("a", "fake", "card-0")).0, 201);
        assert_eq!(node.request("DELETE", "/v1/claims/a", "").0, 204);
    };
    cycle(&mut node);
    // It opens the watch of the manifests, which stays open.
    create_and_delete(&node);
    // The connections of the harness are closed a moment after their answer.
    let settled = |node: &TestNode| {
        wait_for("no more connections", || {
            let count = descriptors(node);
            (count == descriptors(node)).then_some(count)
        })
    };
    let before = settled(&node);
    for _ in 0..50 {
        cycle(&mut node);
        create_and_delete(&node);
    }
    wait_for("the descriptors of before", || (descriptors(&node) <= before).then_some(()));
    assert_eq!((node.all_traces(), node.files("state/forgotten")), (Vec::new(), Vec::new()));
    assert_eq!(node.get("/v1/status")["claims"], json!({"prepared": 0, "preparing": 0, "quarantined": 0}));
    assert!(node.metrics("/metrics").1.contains("{operation=\"Unprepare\",outcome=\"ok\"} 1071\n"));
}

#[test]
fn a_log_that_nobody_reads_any_more_does_not_end_the_daemon() {
    let mut node = TestNode::new(Host::bare(SCRIPT));
    let (daemon, log) = node.spawn_with_piped_log();
    node.adopt(daemon);
    node.wait_until_served();
    drop(log);
    node.register();
    node.allocate("a", &["card-0"]);
    node.prepare("a");
    node.unprepare("a");
    assert!(node.stop().success());
}

#[test]
fn a_connection_on_which_nobody_calls_does_not_delay_the_stop() {
    let mut node = TestNode::new(Host::bare(SCRIPT));
    node.start();
    let sockets = [node.registration_socket(), node.service_socket()];
    let silent = sockets.map(|socket| UnixStream::connect(socket).unwrap());
    // The kubelet's own patience for a call is longer than a test has.
    assert!(node.stop().success());
    drop(silent);
}
