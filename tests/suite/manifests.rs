//! Manifests in a folder of many: each change is seen at the next prepare, and their number costs it nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use hostler_files::FolderWatch;
use hostler_testing::{
    host::{Host, SCRIPT, wait_for},
    node::{TestNode, uid},
};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::json;

/// A manifest that gives a card to a claim.
fn text(name: &str, card: &str) -> String {
    let results = json!([{"request": "whole", "driver": "hostler.dev", "pool": "node/fake", "device": card}]);
    let manifest = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": uid(name)},
        "status": {"allocation": {"devices": {"results": results}}},
    });
    manifest.to_string()
}

fn manifest(node: &TestNode, file: &str) -> PathBuf {
    node.path(&format!("manifests/{file}"))
}

/// Prepares a claim and takes it back; returns the card that it had.
fn card(node: &mut TestNode, name: &str) -> String {
    node.prepare(name);
    let hardware = node.files("hardware");
    node.unprepare(name);
    hardware[0].strip_prefix(&format!("{}.", uid(name))).unwrap().to_owned()
}

#[test]
fn a_manifest_under_any_name_is_prepared_as_it_is_now() {
    let mut node = TestNode::started();
    let (folder, aside) = (node.path("manifests"), node.path("aside"));
    fs::create_dir_all(&folder).unwrap();
    let path = |file: &str| folder.join(file);
    fs::write(path("team.yaml"), text("a", "card-0")).unwrap();
    assert_eq!(card(&mut node, "a"), "card-0");
    // In place, and at once: the size is the same, the time of modification may be.
    fs::write(path("team.yaml"), text("a", "card-1")).unwrap();
    assert_eq!(card(&mut node, "a"), "card-1");

    // By a file in its place with the same size and time of modification.
    fs::write(&aside, text("a", "card-2")).unwrap();
    let time = fs::metadata(path("team.yaml")).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&aside).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
    fs::rename(&aside, path("team.yaml")).unwrap();
    assert_eq!(card(&mut node, "a"), "card-2");

    fs::rename(path("team.yaml"), path("other.json")).unwrap();
    assert_eq!(card(&mut node, "a"), "card-2");
    fs::write(&aside, text("b", "card-0")).unwrap();
    fs::rename(&aside, path("moved.yml")).unwrap();
    assert_eq!((card(&mut node, "b"), card(&mut node, "a")), ("card-0".to_owned(), "card-2".to_owned()));
    // Of the names that a file can have, the claim's own goes first.
    fs::write(path("default_a.yaml"), text("a", "card-1")).unwrap();
    assert_eq!(card(&mut node, "a"), "card-1");
    fs::remove_file(path("default_a.yaml")).unwrap();
    fs::remove_file(path("other.json")).unwrap();
    assert!(node.prepare_error("a").contains("no manifest of claim default/a"));

    // Another folder in its place.
    fs::rename(&folder, &aside).unwrap();
    assert!(node.prepare_error("b").contains("no manifest of claim default/b"));
    fs::create_dir(&folder).unwrap();
    fs::write(path("team.yaml"), text("b", "card-2")).unwrap();
    assert_eq!(card(&mut node, "b"), "card-2");
}

#[test]
fn what_is_no_manifest_hides_no_other_and_is_named_where_it_may_be_the_one() {
    let mut node = TestNode::started();
    fs::create_dir_all(node.path("manifests")).unwrap();
    fs::write(manifest(&node, "team.yaml"), text("a", "card-0")).unwrap();
    mkfifo(&manifest(&node, "pipe.yaml"), Mode::S_IRUSR).unwrap();
    assert_eq!(card(&mut node, "a"), "card-0");
    let error = node.prepare_error("b");
    assert!(error.contains("pipe.yaml") && error.contains("it is a FIFO"), "{error}");
    fs::remove_file(manifest(&node, "pipe.yaml")).unwrap();
    fs::write(manifest(&node, "pipe.yaml"), text("b", "card-1")).unwrap();
    assert_eq!(card(&mut node, "b"), "card-1");
}

#[test]
fn the_command_line_finds_manifests_as_the_kubelet_does() {
    let node = TestNode::started();
    fs::create_dir_all(node.path("manifests")).unwrap();
    fs::write(manifest(&node, "team.yaml"), text("a", "card-0")).unwrap();
    assert!(node.run_ok(&["claim", "prepare", "a"]).contains("prepared"));
    assert!(node.run_ok(&["claim", "show", &uid("a")]).contains("card-0"));
    assert!(node.run_refused(&["claim", "create", "a", "-d", "fake/card-1"]).contains("exists already"));
    node.run_ok(&["claim", "delete", "a"]);
    assert_eq!(node.files("manifests"), [""; 0]);
    node.run_ok(&["claim", "create", "a", "-d", "fake/card-1"]);
    fs::write(manifest(&node, "twin.yaml"), text("b", "card-2")).unwrap();
    assert!(node.run_refused(&["claim", "create", "b", "-d", "fake/card-2"]).contains("twin.yaml"));
    assert!(node.run_refused(&["claim", "show", "c"]).contains("no claim with name or uid \"c\""));
}

/// Number of read calls of the daemon so far.
fn reads(node: &TestNode) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", node.pid())).unwrap();
    io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap().parse().unwrap()
}

/// The fewest reads of several runs: every ten seconds the daemon looks at the folder by itself.
fn fewest_reads(node: &mut TestNode, work: impl Fn(&mut TestNode)) -> u64 {
    let run = |_| {
        let before = reads(node);
        work(node);
        reads(node) - before
    };
    (0..3).map(run).min().unwrap()
}

/// Fills a folder with manifests whose files do not bear their claims' names.
fn fill(folder: &Path, number: usize) {
    fs::create_dir_all(folder).unwrap();
    (0..number).for_each(|number| {
        fs::write(folder.join(format!("team-{number}.json")), text(&format!("c{number}"), "card-1")).unwrap();
    });
}

#[test]
fn among_ten_thousand_manifests_a_prepare_reads_its_own() {
    const NUMBER: usize = 10_000;
    let mut node = TestNode::new(Host::bare(SCRIPT));
    fill(&node.path("manifests"), NUMBER);
    fs::write(manifest(&node, "own.yaml"), text("a", "card-0")).unwrap();
    let began = SystemTime::now();
    wait_for("files that have settled", || {
        began.elapsed().is_ok_and(|elapsed| elapsed > Duration::from_secs(2)).then_some(())
    });
    node.begin();
    if let Err(error) = FolderWatch::begin(&node.path("manifests")) {
        return println!("skipped: {:?}", error.source);
    }
    let most = NUMBER as u64 / 20;
    let kubelet = fewest_reads(&mut node, |node| assert_eq!(card(node, "a"), "card-0"));
    assert!(kubelet < most, "{kubelet} reads");
    let admin = fewest_reads(&mut node, |node| {
        assert_eq!(node.request("POST", "/v1/claims/a/prepare", "").0, 200);
        assert_eq!(node.request("GET", "/v1/claims/a", "").0, 200);
        node.unprepare("a");
    });
    assert!(admin < most, "{admin} reads");
    let create = fewest_reads(&mut node, |node| {
        node.run_ok(&["claim", "create", "new", "-d", "fake/card-2"]);
        node.run_ok(&["claim", "delete", "new"]);
    });
    assert!(create < most, "{create} reads");
    // A refusal looks at all files, and reads none of them again.
    let refused = fewest_reads(&mut node, |node| drop(node.prepare_error("absent")));
    assert!(refused < most, "{refused} reads");
    assert_eq!(card(&mut node, "c9999"), "card-1");
}
