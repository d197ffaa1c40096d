//! What is taken out, and what stays.

use std::{path::PathBuf, sync::Arc};

use super::*;
use crate::{
    archive::AccessRecorder,
    testkit::{ConfigSpace, MachineTree},
};

/// A pseudonym that is easy to recognise and tells numbers apart.
fn pseudonym(serial: &[u8]) -> u64 {
    0xfeed_0000_0000_0000 | serial.iter().fold(7, |sum: u64, byte| sum * 31 % 0xffff_ffff + u64::from(*byte))
}

/// A snapshot of files.
fn snapshot(files: &[(&str, &[u8])]) -> TreeSnapshot {
    let tree = MachineTree::new();
    let recorder = Arc::new(AccessRecorder::default());
    let root = tree.root().tapped(recorder.clone());
    for (path, content) in files {
        tree.bytes(path, content);
        root.required_bytes(path, u64::MAX).unwrap();
    }
    TreeSnapshot::take(&tree.root(), &recorder, false).unwrap()
}

fn content<'a>(snapshot: &'a TreeSnapshot, path: &str) -> &'a [u8] {
    match &snapshot.entries[&PathBuf::from(path)] {
        SnapshotEntry::File(content) => content,
        other => panic!("{path}: {other:?}"),
    }
}

fn redacted(path: &str, text: &str) -> String {
    let mut snapshot = snapshot(&[(path, text.as_bytes())]);
    snapshot.redact(Some(&pseudonym));
    String::from_utf8(content(&snapshot, path).to_vec()).unwrap()
}

#[test]
fn one_serial_number_has_one_pseudonym_in_every_form() {
    let serial = 0x0011_2233_4455_6677_u64;
    let mut config = ConfigSpace::new(0x8086, 1);
    config.capability(1, 1, &[1; 8]);
    let at = config.capability(DEVICE_SERIAL_NUMBER, 1, &serial.to_le_bytes());
    let mut snapshot = snapshot(&[
        ("sys/devices/f/config", &config.bytes()),
        ("sys/devices/f/mem0/serial", b"0x11223344556677\n"),
        ("sys/devices/f/serial_number", b"00-11-22-33-44-55-66-77\n"),
    ]);
    let done = snapshot.redact(Some(&pseudonym));
    let new = pseudonym(&serial.to_be_bytes());
    assert_eq!((done.serials, done.addresses), (3, 0));
    assert_eq!(done.replaced["11223344556677"], format!("{new:x}"));
    assert_eq!(done.replaced.len(), 3, "{:?}", done.replaced);
    assert_eq!(content(&snapshot, "sys/devices/f/config")[at + 4..at + 12], new.to_le_bytes());
    assert_eq!(content(&snapshot, "sys/devices/f/mem0/serial"), format!("{new:#x}\n").as_bytes());
    let dashed = new.to_be_bytes().map(|byte| format!("{byte:02x}")).join("-");
    assert_eq!(content(&snapshot, "sys/devices/f/serial_number"), format!("{dashed}\n").as_bytes());
}

#[test]
fn serial_numbers_are_text_too() {
    for (path, text) in
        [("sys/d/serial_num", "XFL1ABC42\n"), ("sys/d/board_serial", "77\n"), ("sys/d/product_uuid", "a-b\n")]
    {
        let new = redacted(path, text);
        assert!(new.starts_with("FEED") && new.len() == 17, "{path}: {new}");
    }
    let cpuinfo = redacted("proc/cpuinfo", "model name\t: x\nSerial\t\t: 00000000abcdef12\nprocessor : 1\n");
    assert!(
        cpuinfo.starts_with("model name\t: x\nSerial\t\t: FEED") && cpuinfo.ends_with("\nprocessor : 1\n"),
        "{cpuinfo}"
    );
    assert!(!redacted("sys/d/uevent", "DRIVER=x\nID_SERIAL=S3Z9\n").contains("S3Z9"));
}

#[test]
fn what_is_no_serial_number_stays() {
    for (path, text) in [
        ("sys/d/serial", "0x0\n"),
        ("sys/d/serial", "0xffffffffffffffff\n"),
        ("sys/d/serial_number", "00-00-00-00-00-00-00-00\n"),
        ("sys/d/serial_num", "N/A\n"),
        ("sys/d/serial_num", "\n"),
        ("sys/d/vendor", "0x8086\n"),
        ("sys/d/serialized", "17\n"),
        ("proc/cpuinfo", "model name : serial 5\n"),
        ("sys/d/uevent", "PCI_SLOT_NAME=0000:b1:00.0\n"),
    ] {
        assert_eq!(redacted(path, text), text, "{path}");
    }
}

#[test]
fn serial_numbers_stay_on_request_and_addresses_never_do() {
    let mut snapshot = snapshot(&[("sys/d/serial", b"0x17\n"), ("sys/d/mac_address", b"de:ad:be:ef:00:01\n")]);
    assert_eq!(snapshot.redact(None), RedactedValues { addresses: 1, ..RedactedValues::default() });
    assert_eq!(content(&snapshot, "sys/d/serial"), b"0x17\n");
    assert_eq!(content(&snapshot, "sys/d/mac_address"), b"00:00:00:00:00:00\n");
}

#[test]
fn addresses_are_found_in_any_text_and_other_numbers_are_none() {
    let text = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        let found = addresses(&mut bytes);
        (found, String::from_utf8(bytes).unwrap())
    };
    assert_eq!(text("a DE-AD-BE-EF-00-01, b"), (1, "a 00-00-00-00-00-00, b".to_owned()));
    assert_eq!(text("x=02:42:ac:11:00:02:02:42 y"), (1, "x=00:00:00:00:00:00:00:00 y".to_owned()));
    assert_eq!(text("02:42:ac:11:00:02\n02:42:ac:11:00:03").0, 2);
    for other in [
        "0000:b1:00.0 10000:e1:00.0",
        "12:34:56",
        "00000000-0009fbff : System RAM",
        "a7b2c3d4-0011-2233-4455-66778899aabb",
        "ff,ffffffff",
        "02:42:ac:11:00:02:02:42:ac",
        "de:ad:be:ef:00:0g",
        "02:42:ac-11:00:02",
        "0-3,8-11",
    ] {
        assert_eq!(text(other), (0, other.to_owned()));
    }
}

#[test]
fn mount_tables_keep_the_kernels_own_lines() {
    let mounts = "sysfs /sys sysfs rw 0 0\n//server/share /mnt/x cifs rw,username=anna 0 0\n\
                  cgroup2 /mnt/cg cgroup2 rw 0 0\nlxcfs /proc/meminfo fuse.lxcfs rw 0 0\n";
    let kept = "sysfs /sys sysfs rw 0 0\ncgroup2 /mnt/cg cgroup2 rw 0 0\nlxcfs /proc/meminfo fuse.lxcfs rw 0 0\n";
    assert_eq!(redacted("proc/mounts", mounts), kept);
    let info = "22 1 0:20 / /proc rw shared:5 - proc proc rw\n40 1 8:1 / /home rw - ext4 /dev/vg-anna/home rw\n\
                35 31 0:32 / /mnt/cs rw - cgroup cgroup rw,cpuset\n";
    let kept = "22 1 0:20 / /proc rw shared:5 - proc proc rw\n35 31 0:32 / /mnt/cs rw - cgroup cgroup rw,cpuset\n";
    assert_eq!(redacted("proc/self/mountinfo", info), kept);
}

proptest::proptest! {
    #[test]
    fn no_bytes_upset_the_search_for_addresses(bytes in proptest::collection::vec("[0-9a-f:\\- ]", 0..40)) {
        let mut content = bytes.concat().into_bytes();
        let length = content.len();
        addresses(&mut content);
        proptest::prop_assert_eq!(content.len(), length);
        proptest::prop_assert_eq!(addresses(&mut content.clone()), addresses(&mut content));
    }
}
