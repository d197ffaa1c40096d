//! A journal gives back what it promised, whatever became of its end.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use proptest::prelude::*;

use super::*;

const ROOM: u64 = 4096;

fn texts(entries: &[Vec<u8>]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8(entry.clone()).unwrap()).collect()
}

/// A journal in a folder of its own, in its first generation.
fn begun() -> (tempfile::TempDir, PathBuf, Journal) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("journal");
    let (mut journal, content) = Journal::open(&path, ROOM).unwrap();
    assert!(content.head.is_none() && content.entries.is_empty() && content.damaged == 0);
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
    assert_eq!((content.head.as_deref(), content.damaged), (Some(&b"first"[..]), 0));
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
    assert_eq!((texts(&content.entries), content.damaged), (vec!["new".to_owned()], 0));
}

#[test]
fn a_journal_grows_when_it_must_and_shrinks_when_it_can() {
    let (_temp, path, mut journal) = begun();
    let entry = vec![b'x'; 3000];
    for _ in 0..3 {
        journal.append(&entry).unwrap();
    }
    assert!(journal.filling() > 200, "{}", journal.filling());
    assert_eq!(reopened(&path).1.entries, [&entry[..], &entry, &entry]);
    journal.begin(b"second").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), ROOM);
    assert!(reopened(&path).1.entries.is_empty());
}

#[test]
fn damage_costs_the_line_that_it_is_in() {
    let (_temp, path, mut journal) = begun();
    for entry in ["one", "two", "three"] {
        journal.append(entry.as_bytes()).unwrap();
    }
    let whole = fs::read_to_string(&path).unwrap();
    let reads = |text: String| {
        fs::write(&path, text).unwrap();
        let (_, content) = reopened(&path);
        (content.head.is_some(), texts(&content.entries), content.damaged)
    };
    assert_eq!(reads(whole.replace("two", "twa")), (true, vec!["one".into(), "three".into()], 1));
    assert_eq!(
        reads(whole.replace("three", "thr")),
        (true, vec!["one".into(), "two".into()], 0),
        "its end is not damage"
    );
    let headless = reads(whole.replace("first", "f"));
    assert_eq!((headless.0, headless.2), (false, 1));
    assert_eq!(reads("\n\n".into()), (false, vec![], 0));
    assert_eq!(reads(String::new()), (false, vec![], 0));
    assert_eq!(reads("no journal at all\n".into()), (false, vec![], 0));
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
        last in "[a-z]{1,900}",
        landed in prop::collection::vec(any::<bool>(), 16),
    ) {
        const SECTOR: usize = 128;
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
    }
}
