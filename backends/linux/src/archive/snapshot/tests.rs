//! Machines copied, packed, unpacked and read again.

use std::sync::Arc;

use nix::errno::Errno;

use super::*;
use crate::{
    archive::UnpackedCapture,
    testkit::{AttributeFaults, MachineTree},
};

/// What a reader that does `look` leaves behind, unpacked again.
fn replayed(root: &SysRoot, look: impl Fn(&SysRoot)) -> (TreeSnapshot, UnpackedCapture) {
    let recorder = Arc::new(AccessRecorder::default());
    look(&root.clone().tapped(recorder.clone()));
    let snapshot = TreeSnapshot::take(root, &recorder, false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.tar.zst");
    std::fs::write(&path, snapshot.to_archive().unwrap()).unwrap();
    (snapshot, UnpackedCapture::open(&path).unwrap())
}

/// A card behind a link, as sysfs has it.
fn machine() -> MachineTree {
    let tree = MachineTree::new();
    let folder = "sys/devices/pci0000:00/0000:00:01.0";
    tree.files(folder, &[("vendor", "0x8086"), ("secret", "s"), ("empty", "")]).folder(format!("{folder}/net/eth0"));
    tree.link("sys/bus/pci/devices/0000:00:01.0", folder).link(format!("{folder}/driver"), "sys/bus/pci/drivers/x");
    tree.file("proc/cpuinfo", "model name : x").file("dev/card", "never read").file("etc/shadow", "root:x");
    tree
}

#[test]
fn what_was_read_reads_the_same_and_nothing_else_is_there() {
    let tree = machine();
    let card = "sys/bus/pci/devices/0000:00:01.0";
    let look = |root: &SysRoot| {
        assert_eq!(root.attribute(format!("{card}/vendor")).unwrap().as_deref(), Some("0x8086"));
        assert_eq!(root.attribute(format!("{card}/net/../empty")).unwrap().as_deref(), Some(""));
        assert_eq!(root.names("sys/bus/pci/devices").unwrap(), ["0000:00:01.0"]);
        assert_eq!(root.names(card).unwrap(), ["driver", "empty", "net", "secret", "vendor"]);
        assert_eq!(root.link_name(format!("{card}/driver")).unwrap().as_deref(), Some("x"));
        assert!(root.exists("dev/card").unwrap() && !root.exists("dev/other").unwrap());
    };
    let (snapshot, capture) = replayed(&tree.root(), look);
    look(&capture.root());
    assert_eq!(capture.warnings(), []);
    assert_eq!((capture.root().text("proc/cpuinfo").unwrap(), capture.root().exists("etc").unwrap()), (None, false));
    assert_eq!(snapshot.entries[Path::new("dev/card")], SnapshotEntry::Present);
    // Known by name only: an empty answer would be a wrong one.
    let failure = capture.root().required_attribute(format!("{card}/secret")).unwrap_err();
    assert_eq!(failure.error().raw_os_error(), Some(Errno::ENODATA as i32));
}

#[test]
fn what_fails_on_the_machine_fails_in_its_capture_with_the_same_error() {
    let tree = machine();
    let faults = Arc::new(AttributeFaults::default());
    faults.set("sys/devices/pci0000:00/0000:00:01.0/vendor", Errno::EBUSY);
    let attribute = "sys/bus/pci/devices/0000:00:01.0/vendor";
    let (snapshot, capture) = replayed(&tree.root().tapped(faults), |root| drop(root.attribute(attribute)));
    assert_eq!(snapshot.unreadable(), 1);
    let root = capture.root();
    assert!(root.exists(attribute).unwrap());
    assert_eq!(root.attribute(attribute).unwrap_err().error().raw_os_error(), Some(Errno::EBUSY as i32));
    let listed = root.text("READ_ERRORS.tsv").unwrap().unwrap();
    assert!(listed.starts_with("/sys/devices/pci0000:00/0000:00:01.0/vendor\tread\t16\t"), "{listed}");
    root.write(attribute, "1").unwrap();
    assert_eq!(root.attribute(attribute).unwrap().as_deref(), Some("1"));
}

#[test]
fn the_reader_itself_is_no_process_in_its_capture() {
    let tree = machine();
    tree.file("proc/4711/cpuset", "/own").file("proc/4711/environ", "PASSWORD=x").file("proc/1/cpuset", "/");
    tree.raw_link("proc/self", "4711").raw_link("proc/mounts", "self/mounts").file("proc/4711/mounts", "");
    let look = |root: &SysRoot| {
        assert_eq!(root.attribute("proc/self/cpuset").unwrap().as_deref(), Some("/own"));
        assert!(root.text("proc/mounts").unwrap().is_some());
        drop((root.text("proc/self/environ"), root.text("proc/1/cpuset"), root.names("proc")));
    };
    let (snapshot, capture) = replayed(&tree.root(), look);
    assert_eq!(capture.root().attribute("proc/self/cpuset").unwrap().as_deref(), Some("/own"));
    assert_eq!(capture.root().text("proc/mounts").unwrap().as_deref(), Some(""));
    assert_eq!(capture.root().names("proc").unwrap(), ["cpuinfo", "mounts", "self"]);
    assert_eq!(snapshot.left_out().collect::<Vec<_>>(), [Path::new("proc/self/environ")]);
}

#[test]
fn links_lead_nowhere_but_into_the_tree() {
    let tree = machine();
    tree.raw_link("sys/out", "/etc/shadow").raw_link("sys/climb", "../../../../etc/shadow");
    tree.raw_link("sys/loop", "loop").raw_link("sys/absolute", "/sys/devices").raw_link("sys/odd", "bus/../devices");
    let read = ["out", "climb", "loop"].map(|name| format!("sys/{name}"));
    let look = |root: &SysRoot| {
        read.iter().for_each(|path| drop(root.first_bytes(path, u64::MAX)));
        drop((root.names("sys/absolute"), root.names("sys/odd")));
    };
    let (snapshot, capture) = replayed(&tree.root(), look);
    assert!(snapshot.entries.keys().all(|path| path.starts_with("sys")), "{:?}", snapshot.entries.keys());
    assert_eq!(capture.root().names("sys/absolute").unwrap(), ["pci0000:00"]);
    assert_eq!(capture.warnings(), []);
}

#[test]
fn the_same_machine_gives_the_same_bytes() {
    let tree = machine();
    let archive = || {
        let recorder = Arc::new(AccessRecorder::default());
        drop(tree.root().tapped(recorder.clone()).names("sys/bus/pci/devices"));
        TreeSnapshot::take(&tree.root(), &recorder, false).unwrap().to_archive().unwrap()
    };
    assert_eq!(archive(), archive());
}
