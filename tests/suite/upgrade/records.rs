//! Records of earlier commits: today's daemon keeps every claim on them as it was, and takes it back.
//!
//! `tests/golden/upgrade/COMMIT/state` is what the store of that commit wrote, byte by byte; of a journal without the
//! blank room at its end.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hostler_testing::{
    host::{DaemonProcess, Host, SCRIPT},
    node::{TestNode, uid},
};
use serde_json::Value;

/// The commits, each with whether it had a journal.
const COMMITS: [(&str, bool); 2] = [("7bc55c0", false), ("efcb5b8", true)];

/// Claims that are ready on all records, with their devices.
const PREPARED: [(&str, &[&str]); 2] = [("cards", &["card-1", "card-2"]), ("mixed", &["card-3", "pool"])];

/// Room of a journal.
const ROOM: usize = 1 << 20;

fn golden(commit: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/upgrade").join(commit).join("state")
}

/// A node with the state of a commit; its daemon does not run yet.
fn node_of(commit: &str, has_journal: bool) -> TestNode {
    let node = TestNode::new(Host::bare(SCRIPT));
    fs::create_dir_all(node.path("state/claims")).unwrap();
    for entry in fs::read_dir(golden(commit).join("claims")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), node.path("state/claims").join(entry.file_name())).unwrap();
    }
    if has_journal {
        let mut journal = fs::read(golden(commit).join("claims.journal")).unwrap();
        journal.resize(ROOM, b'\n');
        fs::write(node.path("state/claims.journal"), journal).unwrap();
    }
    node
}

/// Devices of a claim on record.
fn devices(node: &TestNode, name: &str) -> Vec<String> {
    let envelope: Value = serde_json::from_slice(&fs::read(node.path(&node.record_path(name))).unwrap()).unwrap();
    let devices = envelope["record"]["devices"].as_array().unwrap();
    devices.iter().map(|device| device["grant"]["device"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn claims_of_earlier_commits_are_kept_as_they_were_and_taken_back() {
    for (commit, has_journal) in COMMITS {
        let mut node = node_of(commit, has_journal);
        let on_record = PREPARED.map(|(name, _)| devices(&node, name));
        assert_eq!(on_record, PREPARED.map(|(_, devices)| devices.to_vec()), "{commit}");
        node.begin();
        for (name, expected) in PREPARED {
            assert_eq!(node.state(name).as_deref(), Some("prepared"), "{commit}: {name}");
            let ids: Vec<String> = node.prepare(name).into_iter().map(|it| it.cdi_device_ids[0].clone()).collect();
            let id = |(at, device): (usize, &&str)| format!("hostler.dev/claim={}-{at}-{device}", uid(name));
            assert_eq!(ids, expected.iter().enumerate().map(id).collect::<Vec<_>>(), "{commit}: {name}");
        }
        assert!(node.traces("half").is_gone(), "{commit}: it was never promised");
        assert_eq!(node.state("damaged").as_deref(), Some("quarantined"), "{commit}");
        node.allocate("other", &["card-5"]);
        assert!(node.prepare_error("other").contains("damaged"), "{commit}: its device stays taken");
        for (name, _) in PREPARED {
            node.unprepare(name);
            assert!(node.traces(name).is_gone(), "{commit}: {name}");
        }
        assert!(node.stop().success());
    }
}

#[test]
fn claims_that_the_files_of_an_earlier_commit_lost_with_the_power_come_back_from_its_journal() {
    let (commit, has_journal) = COMMITS[1];
    let mut node = node_of(commit, has_journal);
    fs::remove_file(node.path(&node.record_path("mixed"))).unwrap();
    node.reboot("00000000-0000-4000-8000-000000000002");
    node.begin();
    assert_eq!(node.prepare("mixed").len(), 2);
    node.unprepare("mixed");
    assert!(node.traces("mixed").is_gone());
    assert!(node.stop().success());
}

/// Starts the binary of an earlier version on the folders of a node.
fn start_earlier(node: &mut TestNode, binary: &Path) {
    let log = fs::OpenOptions::new().create(true).append(true).open(node.path("earlier.log")).unwrap();
    let mut command = Command::new(binary);
    command.arg("run").arg("--config").arg(node.path("hostler.toml")).stdin(Stdio::null());
    let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    node.adopt(DaemonProcess::of(child));
    node.wait_until_served();
    node.register();
}

#[test]
#[ignore = "needs HOSTLER_OLD_BIN, the binary of an earlier version"]
fn an_earlier_binary_and_this_one_take_over_from_each_other() {
    let earlier = PathBuf::from(std::env::var_os("HOSTLER_OLD_BIN").expect("HOSTLER_OLD_BIN names a binary"));
    let mut node = TestNode::new(Host::bare(SCRIPT));
    for (name, devices) in [("of-earlier", ["card-1", "pool:2"]), ("of-this", ["card-2", "pool:3"])] {
        node.allocate(name, &devices);
    }
    start_earlier(&mut node, &earlier);
    let of_earlier = node.prepare("of-earlier");
    node.kill();
    node.begin();
    assert_eq!(node.prepare("of-earlier"), of_earlier, "there");
    let of_this = node.prepare("of-this");
    node.kill();
    start_earlier(&mut node, &earlier);
    for (name, devices) in [("of-earlier", of_earlier), ("of-this", of_this)] {
        assert_eq!(node.prepare(name), devices, "and back: {name}");
        node.unprepare(name);
        assert!(node.traces(name).is_gone(), "{name}");
    }
    assert!(node.stop().success());
    node.begin();
    assert!(node.traces("of-this").is_gone(), "what the earlier one took back is not made again");
    assert!(node.stop().success());
}
