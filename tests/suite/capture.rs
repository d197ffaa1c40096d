//! Machines captured by the real binary and looked at again.
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use hostler_linux::{
    archive::UnpackedCapture,
    testkit::{
        ConfigSpace, CxlCard, CxlHost, FakeDflCard, FakePciFunction, FakeXrtCard, MachineTree, RegionUse, cxl_function,
    },
};
use hostler_testing::host::{Host, SCRIPT};
use nix::{sys::signal, unistd::Pid};
use serde_json::Value;

const MOMENTS: [&str; 4] = ["boot", "regions", "hotadd", "removed"];

fn hostler(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hostler")).args(args).output().unwrap()
}

fn done(args: &[&str]) -> String {
    let output = hostler(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn emulated(moment: &str) -> PathBuf {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("backends/linux/tests/trees");
    trees.join(format!("qemu-cxl-7.3.4-{moment}.tar.zst"))
}

/// Returns a folder, and the path of a file to be made in it.
fn place() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.tar.zst").to_str().unwrap().to_owned();
    (folder, path)
}

fn inventory(root: &str) -> String {
    done(&["inventory", "-o", "json", "--root", root])
}

/// Returns the part of an inventory that a capture must have in common with its machine: all but the name and figures
/// that change.
fn lasting(inventory: &str) -> Value {
    let mut json: Value = serde_json::from_str(inventory).unwrap();
    json["node"] = Value::Null;
    for device in json["devices"].as_array_mut().unwrap() {
        device["pool"] = Value::Null;
    }
    for node in json["topology"]["numa_nodes"].as_array_mut().unwrap() {
        node["free_bytes"] = Value::Null;
    }
    json
}

#[test]
fn this_machine_replayed_is_this_machine() {
    let (folder, file) = place();
    // The configuration for reading captures.
    let config = folder.path().join("hostler.toml");
    fs::write(&config, "").unwrap();
    let config = config.to_str().unwrap();
    let said = done(&["capture", "-o", &file, "--config", config]);
    assert!(said.starts_with(&format!("{file}: ")) && said.contains("kernel "), "{said}");
    assert!(!said.contains("left out"), "{said}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let here = done(&["inventory", "-o", "json", "--config", config]);
    assert_eq!(lasting(&inventory(&file)), lasting(&here));
}

#[test]
fn emulated_machines_captured_again_are_told_to_the_byte() {
    for moment in MOMENTS {
        let (_folder, file) = place();
        let tree = emulated(moment);
        let tree = tree.to_str().unwrap();
        let said = done(&["capture", "--root", tree, "-o", &file, "--serials"]);
        assert!(!said.contains("left out"), "a backend reads what no capture may hold: {said}");
        assert_eq!(inventory(&file), inventory(tree), "{moment}");
        let judged = |root: &str| text(&hostler(&["doctor", "-o", "json", "--root", root]).stdout);
        assert_eq!(judged(&file), judged(tree), "{moment}");
        assert!(fs::metadata(&file).unwrap().len() < fs::metadata(tree).unwrap().len(), "{moment}: it is a part of it");
    }
}

/// A machine with a card of every kind.
fn every_kind() -> MachineTree {
    let tree = MachineTree::new();
    tree.file("sys/devices/system/cpu/online", "0-1").file("sys/devices/system/node/online", "0-2");
    FakeDflCard::new("0000:b1:00.0").plug(&tree);
    FakeXrtCard::new("0000:b2:00").plug(&tree);
    cxl_function("0000:b3:00.0", 2, true, 1 << 30).plug(&tree);
    let mut host = CxlHost::new(&tree);
    let cards = [0x5a5a_1001, 0x5a5a_1002].map(|serial| host.plug(&CxlCard::new(serial)));
    host.region(&[&cards[0]], RegionUse::DevDax(2));
    tree
}

#[test]
fn cards_of_every_kind_are_in_the_capture_as_they_are_in_the_machine() {
    let (tree, (_folder, file)) = (every_kind(), place());
    let root = tree.path("");
    let root = root.to_str().unwrap();
    let said = done(&["capture", "--root", root, "-o", &file, "--serials"]);
    assert!(!said.contains("left out"), "a backend reads what no capture may hold: {said}");
    let seen = inventory(root);
    for kind in ["region", "xrt", "accelerator", "memory", "dax"] {
        assert!(seen.contains(&format!("\"kind\": \"{kind}\"")), "{kind}: {seen}");
    }
    assert_eq!(inventory(&file), seen);
    done(&["capture", "--root", root, "-o", &file, "--force"]);
    assert!(seen.contains("5a5a1001") && !inventory(&file).contains("5a5a"));
    let devices = |json: &str| serde_json::from_str::<Value>(json).unwrap()["devices"].as_array().unwrap().len();
    assert_eq!(devices(&inventory(&file)), devices(&seen));
}

/// Pool and name of every device, in order.
fn names(devices: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = devices.collect();
    names.sort();
    names
}

#[test]
fn a_capture_says_what_its_machine_would_be_in_a_cluster() {
    let (tree, (_folder, file)) = (every_kind(), place());
    done(&["capture", "--root", tree.path("").to_str().unwrap(), "-o", &file]);
    let objects = UnpackedCapture::open(&file).unwrap().root().first_bytes("hostler-objects.json", 1 << 20).unwrap();
    let objects: Value = serde_json::from_slice(&objects.unwrap()).unwrap();
    let (nodes, slices): (Vec<&Value>, Vec<&Value>) =
        objects["items"].as_array().unwrap().iter().partition(|object| object["kind"] == "Node");
    assert_eq!(nodes[0]["metadata"]["name"], "captured");
    assert_eq!(nodes[0]["status"]["allocatable"]["cpu"], "2");
    let own = |field: &Value| field.as_str().unwrap().to_owned();
    let published = slices.iter().flat_map(|slice| {
        assert_eq!((&slice["apiVersion"], &slice["kind"]), (&"resource.k8s.io/v1".into(), &"ResourceSlice".into()));
        assert_eq!(slice["spec"]["nodeName"], "captured");
        let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
        devices.map(move |device| (own(&slice["spec"]["pool"]["name"]), own(&device["name"])))
    });
    let seen: Value = serde_json::from_str(&inventory(&file)).unwrap();
    let seen = seen["devices"].as_array().unwrap();
    assert!(seen.len() > 4, "{seen:?}");
    assert_eq!(names(published), names(seen.iter().map(|device| (own(&device["pool"]), own(&device["name"])))));
}

/// `docs/planning.md` plans with this example. If published devices have changed, capture it again as this test does.
#[test]
fn the_example_to_plan_with_is_as_it_would_be_made_now() {
    let (_folder, file) = place();
    done(&["capture", "--serials", "--root", emulated("regions").to_str().unwrap(), "-o", &file]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/plan/worker-7.tar.zst");
    let objects = |file: &Path| {
        UnpackedCapture::open(file).unwrap().root().first_bytes("hostler-objects.json", 1 << 20).unwrap().unwrap()
    };
    assert_eq!(text(&objects(&example)), text(&objects(Path::new(&file))));
}

#[test]
fn a_capture_through_a_pipe_is_the_same_file_whoever_makes_it() {
    let (_folder, file) = place();
    let tree = emulated("regions");
    let tree = tree.to_str().unwrap();
    // A capture of a capture is of the machine that was captured first, at that time.
    done(&["capture", "--root", tree, "-o", &file]);
    let again = |root: &str| hostler(&["capture", "--root", root, "-o", "-"]).stdout;
    assert_eq!(again(&file), fs::read(&file).unwrap());
}

/// A CXL card with a serial number in every place that has one, and an address in another.
fn tree_with_secrets() -> MachineTree {
    let tree = MachineTree::new();
    let mut config = ConfigSpace::new(0x8086, 0x0d93);
    config.capability(3, 1, &0x0123_4567_89ab_cdef_u64.to_le_bytes());
    config.dvsec(0x1e98, 0, 1, &[0x1e, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut card = FakePciFunction::new("0000:b1:00.0", 0x8086, 0x0d93);
    card.class = 0x0005_0210;
    card.config = config.bytes();
    card.attributes = vec![("serial_number".to_owned(), "01-23-45-67-89-ab-cd-ef".to_owned())];
    let folder = card.plug(&tree).join("mem0");
    tree.file(folder.join("serial"), "0x123456789abcdef").link("sys/bus/cxl/devices/mem0", &folder);
    tree.files("proc/sys/kernel", &[("hostname", "annas-machine"), ("osrelease", "6.12.0")]);
    tree.file("proc/cpuinfo", "model name : x\nSerial : 0123456789abcdef\nHardware address 02:42:ac:11:00:02");
    tree.file("proc/cmdline", "password=hunter2").file("sys/devices/system/cpu/online", "0");
    tree
}

/// Returns every byte of a capture, in one piece.
fn contents(file: &str) -> Vec<u8> {
    fn gather(folder: &Path, all: &mut Vec<u8>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            all.extend(entry.file_name().as_encoded_bytes());
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => gather(&entry.path(), all),
                kind if kind.is_file() => all.extend(fs::read(entry.path()).unwrap()),
                _ => all.extend(fs::read_link(entry.path()).unwrap().as_os_str().as_encoded_bytes()),
            }
        }
    }
    let mut all = Vec::new();
    gather(&UnpackedCapture::open(file).unwrap().root().path(""), &mut all);
    all
}

fn has(contents: &[u8], part: &[u8]) -> bool {
    contents.windows(part.len()).any(|window| window == part)
}

#[test]
fn nothing_that_identifies_the_machine_is_in_its_capture() {
    let (tree, (_folder, file)) = (tree_with_secrets(), place());
    let root = tree.path("");
    done(&["capture", "--root", root.to_str().unwrap(), "-o", &file]);
    let all = contents(&file);
    let number = 0x0123_4567_89ab_cdef_u64;
    for secret in [
        &b"123456789abcdef"[..],
        b"01-23-45-67",
        &number.to_le_bytes(),
        &number.to_be_bytes(),
        b"02:42:ac",
        b"annas-machine",
        b"hunter2",
    ] {
        assert!(!has(&all, secret), "{}", String::from_utf8_lossy(secret));
    }
}

#[test]
fn what_is_asked_for_is_kept() {
    let (tree, (_folder, file)) = (tree_with_secrets(), place());
    let root = tree.path("");
    let said = done(&["capture", "--root", root.to_str().unwrap(), "-o", &file, "--serials", "--host-name"]);
    assert!(said.contains("serial numbers are in it; the host's name is in it"), "{said}");
    let all = contents(&file);
    assert!(has(&all, b"annas-machine") && has(&all, b"0123456789abcdef"));
    assert!(!has(&all, b"02:42:ac") && !has(&all, b"hunter2"));
}

#[test]
fn a_file_that_is_there_stays_unless_told_otherwise_and_a_device_always() {
    let (_folder, file) = place();
    fs::write(&file, "mine").unwrap();
    let output = hostler(&["capture", "-o", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is there already") && text(&output.stderr).contains("--force"));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    done(&["capture", "-o", &file, "--force"]);
    assert!(UnpackedCapture::open(&file).is_ok());
    let output = hostler(&["capture", "-o", "/dev/null", "--force"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/dev/null is no file"), "{}", text(&output.stderr));
}

#[test]
fn a_full_disk_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostler"));
    let output = command.args(["capture", "-o", "-"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("No space left on device"), "{}", text(&output.stderr));
}

#[test]
fn a_rehearsal_prepares_claims_on_a_captured_machine_and_leaves_nothing() {
    let (folder, file) = place();
    done(&["capture", "--root", emulated("regions").to_str().unwrap(), "-o", &file]);
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_hostler"))
        .args(["run", "--root", &file])
        .env("TMPDIR", folder.path())
        .env_remove("JOURNAL_STREAM")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines().map(Result::unwrap);
    let socket = lines.find_map(|line| Some(line.split_once("socket=")?.1.trim().to_owned())).unwrap();
    assert!(lines.any(|line| line.contains(" ready ")), "it ended before it was ready");
    let status: Value = serde_json::from_str(&done(&["status", "-o", "json", "--socket", &socket])).unwrap();
    assert_eq!((&status["node"], &status["mode"]), (&"rehearsal".into(), &"standalone".into()));
    done(&["claim", "create", "train", "-d", "memory/node0,memory=16Mi", "--socket", &socket]);
    let shown = done(&["claim", "show", "train", "-o", "json", "--socket", &socket]);
    assert!(shown.contains("prepared"), "{shown}");
    signal::kill(Pid::from_raw(daemon.id().try_into().unwrap()), signal::SIGTERM).unwrap();
    lines.for_each(drop);
    assert!(daemon.wait().unwrap().success());
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["c.tar.zst"]);
    let output = hostler(&["run", "--root", "/"]);
    assert!(text(&output.stderr).contains("run without --root"), "{}", text(&output.stderr));
}

#[test]
fn a_disk_that_takes_no_more_leaves_no_half_file() {
    let (folder, file) = place();
    // A limit of the size of files is the disk that is full after eight blocks; it needs no root.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" capture --root \"$1\" -o \"$2\"";
    // A folder, since unpacking an archive would fail first.
    let tree = UnpackedCapture::open(emulated("boot")).unwrap();
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_hostler")])
        .arg(tree.root().path(""))
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("File too large"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Runs `hostler diff`; returns its sentences, in words and as JSON, and the exit code.
fn diff(before: &str, after: &str) -> (String, Value, Option<i32>) {
    let output = hostler(&["diff", before, after]);
    let json = hostler(&["diff", before, after, "-o", "json"]);
    assert_eq!(output.status.code(), json.status.code());
    (text(&output.stdout), serde_json::from_slice(&json.stdout).unwrap(), output.status.code())
}

#[test]
fn every_moment_of_the_emulated_machine_is_told_from_the_one_before() {
    let path = |moment: &str| emulated(moment).to_str().unwrap().to_owned();
    let said = |before: &str, after: &str| diff(&path(before), &path(after));
    let (words, json, code) = said("boot", "regions");
    assert_eq!(code, Some(1));
    for line in [
        "NUMA node 5 came (CPUs none, memory 768 MiB)",
        "NUMA node 6 came (CPUs none, memory 256 MiB)",
        "cxl/memory-2001: use none → persistent",
        "cxl/node5 came (capacity memory 768Mi, kind node)",
    ] {
        assert!(words.lines().any(|said| said == line), "{line}\n{words}");
    }
    assert!(words.contains("; use none → systemRam"), "{words}");
    let node = json["differences"].as_array().unwrap().iter().find(|one| one["kind"] == "node").unwrap();
    assert_eq!((&node["name"], &node["change"]), (&"5".into(), &"came".into()));
    let memory = node["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == "memory").unwrap();
    assert_eq!(memory, &serde_json::json!({"name": "memory", "before": null, "after": 768_u64 << 20}));

    let (words, json, _) = said("regions", "hotadd");
    assert!(words.contains("\ncxl/memory-4001 came (capacity memory 512Mi, kind memory, use none)\n"), "{words}");
    assert_eq!(json["differences"].as_array().unwrap().len(), 1, "{words}");

    let (words, _, _) = said("hotadd", "removed");
    for gone in ["NUMA node 5 went", "NUMA node 6 went", "cxl/memory-4001 went", "cxl/node6 went"] {
        assert!(words.contains(&format!("\n{gone} (")), "{gone}\n{words}");
    }
    let (words, json, code) = said("boot", "removed");
    assert!(words.ends_with(": no difference\n"), "{words}");
    assert_eq!((&json["differences"], code), (&serde_json::json!([]), Some(0)));
}

#[test]
fn a_machine_is_the_same_whether_its_serial_numbers_are_hidden_or_not() {
    if !fs::read_to_string("/etc/machine-id").is_ok_and(|id| id.trim().len() == 32) {
        eprintln!("skipped: this host has no machine id, so that no two captures have one key");
        return;
    }
    let (_folder, file) = place();
    let tree = emulated("regions");
    let tree = tree.to_str().unwrap();
    done(&["capture", "--root", tree, "-o", &file]);
    assert!(!inventory(&file).contains("memory-1001"), "the name says the serial number");
    let (words, _, code) = diff(&file, tree);
    assert_eq!(code, Some(0), "{words}");
    assert_eq!(diff(tree, &file).2, Some(0));
}

#[test]
fn this_machine_is_compared_where_nothing_else_is_named_and_nonsense_is_no_difference() {
    let (_folder, file) = place();
    done(&["capture", "-o", &file]);
    let output = hostler(&["diff", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).ends_with(" → this machine: no difference\n"));
    fs::write(&file, "nonsense").unwrap();
    for (before, problem) in
        [(&*file, "c.tar.zst is no capture: name a .tar.zst"), ("/nonexistent", "/nonexistent is not there: name a")]
    {
        let output = hostler(&["diff", before, "-"]);
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(2), ""), "{before}");
        assert!(text(&output.stderr).contains(problem), "{}", text(&output.stderr));
    }
}

/// A host of its own on `tree`, with a claim that holds the card and has secrets in its configuration.
fn host_with_claim(tree: &MachineTree) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let config = format!(
        "node_name = \"annas-machine\"\n[paths]\nroot = {root:?}\nstate = {state:?}\nrun = {run:?}\ncdi = {cdi:?}\n",
        root = tree.path(""),
        state = at("state"),
        run = at("run"),
        cdi = at("cdi"),
    );
    fs::write(at("hostler.toml"), config).unwrap();
    let grant = serde_json::json!({
        "request": "r", "pool": "annas-machine/cxl", "device": "memory-123456789abcdef",
        "config": [{"kind": "CxlConfig", "note": "hunter2"}],
    });
    let record = serde_json::json!({"version": 1, "checksum": "", "record": {
        "claim": {"uid": "u1", "namespace": "ml", "name": "train"}, "state": "prepared", "boot_id": "b",
        "devices": [{"backend": "cxl", "grant": grant, "plan": {"data": "hunter2"}}],
    }});
    fs::create_dir_all(at("state/claims")).unwrap();
    fs::write(at("state/claims/u1.json"), record.to_string()).unwrap();
    let spec = r#"{"cdiVersion":"0.6.0","kind":"hostler.dev/claim","devices":[{"name":"u1-r",
        "containerEdits":{"env":["PASSWORD=hunter2"]}}]}"#;
    fs::create_dir(at("cdi")).unwrap();
    fs::write(at("cdi/hostler.dev-claim_u1.json"), spec).unwrap();
    let config = at("hostler.toml").to_str().unwrap().to_owned();
    (folder, config)
}

#[test]
fn a_bundle_has_what_helps_and_nothing_that_identifies() {
    let tree = tree_with_secrets();
    let (folder, config) = host_with_claim(&tree);
    let file = folder.path().join("b.tar.zst").to_str().unwrap().to_owned();
    let output = hostler(&["doctor", "--bundle", &file, "--config", &config]);
    assert!(text(&output.stdout).contains(&format!("{file}: its README.txt")), "{}", text(&output.stderr));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let bundle = UnpackedCapture::open(&file).unwrap();
    let read = |name: &str| bundle.root().text(name).unwrap().unwrap_or_else(|| panic!("{name} is missing"));
    for name in ["README.txt", "versions.json", "doctor.json", "config.toml", "daemon/unreachable.json"] {
        assert!(!read(name).is_empty(), "{name}");
    }
    let record: Value = serde_json::from_str(&read("claims/u1.json")).unwrap();
    assert_eq!((&record["claim"]["name"], &record["state"]), (&"train".into(), &"prepared".into()));
    assert!(read("cdi/hostler.dev-claim_u1.json").contains("u1-r"));
    // The device has one name in the whole bundle.
    let machine = bundle.root().path("machine.tar.zst");
    let seen: Value = serde_json::from_str(&inventory(machine.to_str().unwrap())).unwrap();
    let name = record["devices"][0]["grant"]["device"].as_str().unwrap();
    assert!(seen["devices"].as_array().unwrap().iter().any(|device| device["name"] == name), "{name}: {seen}");
    for all in [contents(&file), contents(machine.to_str().unwrap())] {
        for secret in ["123456789abcdef", "annas-machine", "hunter2", "02:42:ac"] {
            assert!(!has(&all, secret.as_bytes()), "{secret}");
        }
    }
    done_or_not_in_order(&["doctor", "--bundle", &file, "--config", &config, "--full", "--force"]);
    let all = contents(&file);
    assert!(has(&all, b"PASSWORD=hunter2") && !has(&all, b"annas-machine"));
}

/// The findings about the host that runs the test are not its subject.
fn done_or_not_in_order(args: &[&str]) {
    let output = hostler(args);
    assert_eq!(text(&output.stderr), "", "{args:?}");
}

#[test]
fn a_bundle_has_the_answers_of_a_daemon_that_runs() {
    let mut host = Host::bare(SCRIPT);
    host.start();
    host.run_ok(&["claim", "create", "train", "-d", "fake/card-0"]);
    let file = host.path("b.tar.zst");
    host.run(&["doctor", "--bundle", file.to_str().unwrap()]);
    let bundle = UnpackedCapture::open(&file).unwrap();
    let json = |name: &str| -> Value { serde_json::from_str(&bundle.root().text(name).unwrap().unwrap()).unwrap() };
    assert_eq!(json("daemon/status.json")["claims"]["prepared"], 1);
    assert_eq!(json("daemon/devices.json").as_array().unwrap().len(), 9);
    let uid = json("daemon/claims.json")[0]["uid"].as_str().unwrap().to_owned();
    assert_eq!(json(&format!("daemon/explain/{uid}.json"))["state"], "prepared");
    assert_eq!(json(&format!("claims/{uid}.json"))["devices"][0]["grant"]["device"], "card-0");
}
