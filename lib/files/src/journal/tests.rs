//! A journal gives back what it promised, whatever became of its end.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use proptest::prelude::*;

use super::*;

const ROOM: u64 = 4096;

fn texts(entries: &[JournalLine]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8(entry.content.clone()).unwrap()).collect()
}

fn numbers(content: &JournalContent) -> Vec<u64> {
    content.entries.iter().map(|entry| entry.number).collect()
}

/// A journal in a folder of its own, in its first generation.
fn begun() -> (tempfile::TempDir, PathBuf, Journal) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("journal");
    let (mut journal, content) = Journal::open(&path, ROOM).unwrap();
    assert!(content.head.is_none() && content.entries.is_empty() && content.missing.is_empty());
    journal.begin(b"first").unwrap();
    (temp, path, journal)
}

fn reopened(path: &Path) -> (Journal, JournalContent) {
    Journal::open(path, ROOM).unwrap()
}

#[test]
fn what_was_appended_is_read_in_its_order_and_takes_no_more_space() {
    let (_temp, path, mut journal) = begun();
    for entry in ["one", "two", "three"] {
        journal.append(entry.as_bytes()).unwrap();
    }
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.len(), found.permissions().mode() & 0o777), (ROOM, 0o600));
    let (_, content) = reopened(&path);
    assert_eq!((content.head.as_deref(), content.missing), (Some(&b"first"[..]), vec![]));
    assert_eq!(texts(&content.entries), ["one", "two", "three"]);
}

#[test]
fn a_generation_ends_the_one_before_it_whatever_is_left_of_that() {
    let (_temp, path, mut journal) = begun();
    for entry in ["a long entry of the first generation", "short", "b"] {
        journal.append(entry.as_bytes()).unwrap();
    }
    journal.begin(b"second").unwrap();
    let (mut journal, content) = reopened(&path);
    assert_eq!((content.head.as_deref(), content.entries.len()), (Some(&b"second"[..]), 0));
    journal.begin(b"third").unwrap();
    journal.append(b"new").unwrap();
    let (_, content) = reopened(&path);
    assert_eq!(
        (texts(&content.entries), numbers(&content)),
        (vec!["new".to_owned()], vec![4]),
        "numbers grow for ever"
    );
    assert!(content.missing.is_empty() && !content.is_cut_off);
}

#[test]
fn a_journal_grows_when_it_must_and_shrinks_when_it_can() {
    let (_temp, path, mut journal) = begun();
    let entry = vec![b'x'; 3000];
    for _ in 0..3 {
        journal.append(&entry).unwrap();
    }
    assert!(journal.filling() > 200, "{}", journal.filling());
    assert_eq!(
        reopened(&path).1.entries.iter().map(|line| &line.content).collect::<Vec<_>>(),
        [&entry, &entry, &entry]
    );
    journal.begin(b"second").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), ROOM);
    assert!(reopened(&path).1.entries.is_empty());
}

#[test]
fn damage_costs_the_line_that_it_is_in_and_its_number_is_missing() {
    let (_temp, path, mut journal) = begun();
    for entry in ["one", "two", "three"] {
        journal.append(entry.as_bytes()).unwrap();
    }
    let whole = fs::read_to_string(&path).unwrap();
    let reads = |text: String| {
        fs::write(&path, text).unwrap();
        let content = Journal::look(&path, ROOM).unwrap();
        (content.head.is_some(), texts(&content.entries), content.missing)
    };
    let open_end = |from: u64| vec![from..=u64::MAX];
    assert_eq!(reads(whole.replace("two", "twa")), (true, vec!["one".into(), "three".into()], vec![2..=2]));
    assert_eq!(reads(whole.replace("one", "\0\0\0").replace("two", "\n\n\n")).2, vec![1..=2]);
    assert_eq!(
        reads(whole.replace("three", "thr  ")),
        (true, vec!["one".into(), "two".into()], open_end(3)),
        "the last line has all its sectors: it was promised, and damaged later"
    );
    assert!(!reads(whole.replace("first", "firsT")).0);
    assert_eq!(reads("\n".repeat(4096)), (false, vec![], vec![]), "made, and nothing begun");
    for unreadable in [String::new(), "\n\n".into(), "\0".repeat(4096), "no journal at all\n".repeat(300)] {
        assert_eq!(reads(unreadable), (false, vec![], open_end(1)));
    }
    let short: String = whole.chars().take(whole.trim_end().len() + 1).collect();
    assert_eq!(reads(short), (true, vec!["one".into(), "two".into(), "three".into()], open_end(4)), "cut at a line");
}

#[test]
fn a_journal_that_was_shortened_gets_its_room_again() {
    let (_temp, path, mut journal) = begun();
    journal.append(b"one").unwrap();
    drop(journal);
    File::options().write(true).open(&path).unwrap().set_len(60).unwrap();
    let (mut journal, _) = reopened(&path);
    journal.begin(b"second").unwrap();
    journal.append(b"two").unwrap();
    let content = Journal::look(&path, ROOM).unwrap();
    assert_eq!((fs::metadata(&path).unwrap().len(), texts(&content.entries)), (ROOM, vec!["two".to_owned()]));
    assert!(content.missing.is_empty());
}

#[test]
fn the_lines_of_a_version_that_did_not_number_them_are_read() {
    let (_temp, path, journal) = begun();
    drop(journal);
    let old = |content: &str| {
        let counted = format!("7 {content}");
        format!("{:08x} {counted}\n", crc32fast::hash(counted.as_bytes()))
    };
    let room = "\n".repeat(4096);
    fs::write(&path, [old("head"), old("one"), old("two"), room.clone()].concat()).unwrap();
    let content = Journal::look(&path, ROOM).unwrap();
    assert_eq!(
        (content.head.as_deref(), texts(&content.entries)),
        (Some(&b"head"[..]), vec!["one".into(), "two".into()])
    );
    assert!(content.missing.is_empty() && !content.is_numbered);
    fs::write(&path, [old("head"), old("one").replace("one", "on_"), old("two"), room].concat()).unwrap();
    assert_eq!(Journal::look(&path, ROOM).unwrap().missing, [1..=u64::MAX]);
}

#[test]
fn a_crash_before_the_room_is_blank_is_neither_damage_nor_a_line_that_was_cut_off() {
    let (_temp, path, mut journal) = begun();
    for entry in ["a long entry of the first generation", "short", "b"] {
        journal.append(entry.as_bytes()).unwrap();
    }
    let before = fs::read(&path).unwrap();
    journal.begin(b"second").unwrap();
    let mut torn = fs::read(&path).unwrap();
    let head = torn.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    torn[head..].copy_from_slice(&before[head..]);
    fs::write(&path, torn).unwrap();
    let (_, content) = reopened(&path);
    assert_eq!((content.head.as_deref(), texts(&content.entries)), (Some(&b"second"[..]), vec![]));
    assert!(content.missing.is_empty() && !content.is_cut_off);
}

/// Every byte, every sector, every page and every length: nothing that was appended is read as something else, and
/// nothing of it is missing without a word.
#[test]
fn whatever_is_damaged_no_entry_goes_without_its_number_being_missing() {
    let (_temp, path, mut journal) = begun();
    for index in 0..8 {
        journal.append(format!("entry {index} {}", "x".repeat(120 * index)).as_bytes()).unwrap();
    }
    let whole = fs::read(&path).unwrap();
    let appended = reopened(&path).1.entries;
    let used = whole.iter().rposition(|byte| *byte != b'\n').unwrap();
    let check = |bytes: &[u8], case: String| {
        let content = JournalContent::read(bytes, ROOM);
        for entry in &appended {
            let read = content.entries.iter().find(|read| read.number == entry.number);
            let is_missing = content.missing.iter().any(|missing| missing.contains(&entry.number));
            assert!(read.map_or(is_missing, |read| read == entry), "{case}: entry {}: {content:?}", entry.number);
        }
    };
    for at in 0..=used {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            check(&damaged, format!("bit {bit} of byte {at}"));
        }
        check(&whole[..at], format!("the first {at} bytes"));
    }
    for size in [512, 4096] {
        for (at, byte) in (0..=used).step_by(size).flat_map(|at| [(at, 0), (at, 0xff), (at, b'x')]) {
            let mut damaged = whole.clone();
            damaged[at..(at + size).min(4096)].fill(byte);
            check(&damaged, format!("{size} bytes of {byte} from {at}"));
        }
    }
}

#[test]
fn a_journal_that_others_can_have_changed_is_refused() {
    let (temp, path, journal) = begun();
    drop(journal);
    let refusal = |path: &Path| Journal::open(path, ROOM).unwrap_err().to_string();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(&path).ends_with("journal can be changed by others (mode 666); chmod go-w it"));
    let link = temp.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(refusal(&link).ends_with("link is a link; remove it"));
    let sparse = temp.path().join("sparse");
    File::create(&sparse).unwrap().set_len(3 << 30).unwrap();
    assert!(refusal(&sparse).ends_with("bytes; 268435456 are the most; remove it"));
}

proptest! {
    // Each case flushes a dozen times.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The machine goes down while a line is being written: any part of its blocks is on the disk, the rest is what was
    /// there before.
    #[test]
    fn a_line_that_was_cut_off_costs_nothing_that_was_promised(
        before in prop::collection::vec("[a-z]{0,300}", 0..6),
        promised in prop::collection::vec("[a-z]{0,300}", 0..6),
        last in "[a-z]{1,1900}",
        landed in prop::collection::vec(any::<bool>(), 16),
    ) {
        const SECTOR: usize = 512;
        let (_temp, path, mut journal) = begun();
        for entry in &before {
            journal.append(entry.as_bytes()).unwrap();
        }
        journal.begin(b"second").unwrap();
        for entry in &promised {
            journal.append(entry.as_bytes()).unwrap();
        }
        let old = fs::read(&path).unwrap();
        journal.append(last.as_bytes()).unwrap();
        let mut torn = fs::read(&path).unwrap();
        for (at, sector) in torn.chunks_mut(SECTOR).enumerate() {
            let from = at * SECTOR;
            if !landed[at % landed.len()] && from + sector.len() <= old.len() {
                sector.copy_from_slice(&old[from..from + sector.len()]);
            }
        }
        fs::write(&path, &torn).unwrap();
        let (_, content) = reopened(&path);
        let read = texts(&content.entries);
        prop_assert!(read == promised || (read.len() == promised.len() + 1 && read.ends_with(&[last])), "{read:?}");
        prop_assert_eq!(&read[..promised.len()], &promised[..]);
        prop_assert_eq!(content.missing, []);
        prop_assert_eq!(content.is_cut_off, read.len() == promised.len() && torn != old);
    }
}
