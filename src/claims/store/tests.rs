//! Records on disk: whole or not at all, read back as written, damage noticed.

use std::{fs::File, io::Write as _};

use hostler_api::{Chain, DeviceName, opaque::MemoryMode};
use hostler_backend::{MemoryPolicy, Pinning};
use proptest::prelude::*;

use super::{super::testing::*, *};

fn dir() -> (tempfile::TempDir, RecordDir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = RecordDir::open(temp.path().join("claims"), "boot").unwrap();
    (temp, dir)
}

fn reasons(loaded: &[LoadedRecord]) -> Vec<String> {
    loaded.iter().map(|loaded| loaded.record.as_ref().err().cloned().unwrap_or_default()).collect()
}

#[test]
fn records_come_back_as_they_were_written() {
    let (_temp, dir) = dir();
    let records: Vec<ClaimRecord> =
        ["a", "b", "c", "d", "e"].map(|text| record(text, RecordState::Preparing, "boot")).into();
    dir.write(&[&records[0]]).unwrap();
    dir.write(&records.iter().collect::<Vec<_>>()).unwrap();
    let loaded = dir.load().unwrap();
    assert_eq!(loaded.into_iter().map(|loaded| loaded.record.unwrap()).collect::<Vec<_>>(), records);
}

#[test]
fn files_and_folder_belong_to_the_owner_alone() {
    let (temp, dir) = dir();
    dir.write(&[&record("a", RecordState::Prepared, "boot")]).unwrap();
    let mode = |path: &str| fs::metadata(temp.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("claims"), mode("claims/a.json")), (0o700, 0o600));
}

#[test]
fn an_operator_can_read_a_record() {
    let bytes = encode(&record("a", RecordState::Prepared, "boot")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    for line in ["\"version\": 1", "\"state\": \"prepared\"", "\"device\": \"one\"", "\"name\": \"name-a\""] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn removing_twice_is_fine() {
    let (_temp, dir) = dir();
    dir.write(&[&record("a", RecordState::Prepared, "boot")]).unwrap();
    dir.remove([&uid("a")]).unwrap();
    dir.remove([&uid("a")]).unwrap();
    assert!(dir.load().unwrap().is_empty());
}

#[test]
fn what_a_crash_left_half_written_goes_at_the_next_start_and_foreign_files_stay() {
    let (temp, dir) = dir();
    let folder = temp.path().join("claims");
    fs::write(folder.join(".a.tmp"), "half").unwrap();
    fs::write(folder.join("README"), "mine").unwrap();
    drop(dir);
    let dir = RecordDir::open(&folder, "boot").unwrap();
    assert!(!folder.join(".a.tmp").exists());
    assert!(folder.join("README").exists());
    assert!(dir.load().unwrap().is_empty());
}

#[test]
fn damage_of_every_kind_is_named_and_costs_one_record() {
    let (temp, dir) = dir();
    for text in ["a", "b", "c", "d", "e"] {
        dir.write(&[&record(text, RecordState::Prepared, "boot")]).unwrap();
    }
    let path = |text: &str| temp.path().join(format!("claims/{text}.json"));
    let change = |text: &str, from: &str, to: &str| {
        let content = fs::read_to_string(path(text)).unwrap();
        assert!(content.contains(from));
        fs::write(path(text), content.replace(from, to)).unwrap();
    };
    let whole = fs::read(path("a")).unwrap();
    fs::write(path("a"), &whole[..whole.len() / 2]).unwrap();
    change("b", "\"device\": \"one\"", "\"device\": \"two\"");
    change("c", "\"version\": 1", "\"version\": 99");
    fs::copy(path("e"), path("d")).unwrap();
    let loaded = dir.load().unwrap();
    let reasons = reasons(&loaded);
    for (reason, expected) in reasons.iter().zip([
        "it is not the JSON of a claim record: EOF",
        "its checksum is crc32:",
        "it has format version 99, this version of hostler reads up to 2",
        "it holds the record of claim e",
        "",
    ]) {
        assert!(reason.starts_with(expected), "{reason:?} does not begin with {expected:?}");
    }
    assert!(loaded[4].record.is_ok());
    assert_eq!(salvage(&loaded[1].bytes).unwrap().devices[0].grant.device, DeviceName::new("two").unwrap());
    assert!(salvage(&loaded[0].bytes).is_none());
}

#[test]
fn a_field_of_a_later_version_breaks_neither_checksum_nor_reading() {
    let mut value = serde_json::to_value(record("a", RecordState::Prepared, "boot")).unwrap();
    value["future"] = serde_json::json!({"x": [1, 2]});
    let file = FORMAT.encode(&value).unwrap();
    assert_eq!(decode(&file).unwrap(), record("a", RecordState::Prepared, "boot"));
}

#[test]
fn what_a_device_takes_of_counters_is_kept_and_stands_in_no_record_without() {
    let mut taking = record("a", RecordState::Prepared, "boot");
    let without = String::from_utf8(encode(&taking).unwrap()).unwrap();
    assert!(!without.contains("counters"), "an earlier version wrote this very record: {without}");
    let name = |text| DeviceName::new(text).unwrap();
    let counters = [(name("slots"), "2".parse().unwrap())].into();
    taking.devices[0].counters = vec![hostler_backend::CounterUse { set: name("card"), counters }];
    assert_eq!(decode(&encode(&taking).unwrap()).unwrap(), taking);
}

#[test]
fn a_full_disk_loses_nothing_and_leaves_nothing_behind() {
    let Some(disk) = SmallDisk::mount(2 << 20) else { return };
    let dir = RecordDir::open(disk.path().join("claims"), "boot").unwrap();
    let old = record("a", RecordState::Preparing, "boot");
    dir.write(&[&old]).unwrap();
    disk.fill();
    let many: Vec<ClaimRecord> =
        ["a", "b", "c", "d", "e"].map(|text| record(text, RecordState::Prepared, "boot")).into();
    for batch in [&many[..1], &many[..]] {
        let error = dir.write(&batch.iter().collect::<Vec<_>>()).unwrap_err();
        let chain = Chain(&error).to_string();
        assert!(chain.contains("failed to write") && chain.contains("No space left"), "{chain}");
    }
    let loaded = dir.load().unwrap();
    assert_eq!(loaded.len(), 1);
    assert_eq!(loaded[0].record.as_ref().unwrap(), &old);
    let kept = names(&disk.path().join("claims")).unwrap().into_iter().filter(|name| name != journal::WITNESS);
    assert_eq!(kept.collect::<Vec<_>>(), ["a.json"]);
    dir.remove([&uid("a")]).unwrap();
    drop(dir);
    let dir = RecordDir::open(disk.path().join("claims"), "next boot").unwrap();
    assert!(dir.load().unwrap().is_empty(), "taking back needs no room on the disk");
}

/// Begins a change on each of these threads, while the first of them waits for the journal; returns what came of each.
fn at_once<T: Send>(dir: &RecordDir, count: usize, change: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let held = dir.journal();
        let change = &change;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || change(number))).collect();
        while dir.changes.waiting() < count - 1 {
            std::thread::yield_now();
        }
        drop(held);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn writers_at_once_share_a_flush_and_each_record_is_durable_when_its_call_returns() {
    let (temp, dir) = dir();
    let journal = temp.path().join("claims.journal");
    let lines = || fs::read_to_string(&journal).unwrap().lines().filter(|line| !line.is_empty()).count();
    let before = lines();
    at_once(&dir, 16, |number| {
        let record = record(&format!("c{number}"), RecordState::Prepared, "boot");
        dir.write(&[&record]).unwrap();
        assert!(fs::read_to_string(&journal).unwrap().contains(&format!("\"uid\":\"c{number}\"")));
        assert_eq!(decode(&fs::read(file(&temp.path().join("claims"), &record.claim.uid)).unwrap()).unwrap(), record);
    });
    assert_eq!(lines() - before, 2, "one entry for the first, and one for all that waited");
    drop(dir);
    fs::remove_dir_all(temp.path().join("claims")).unwrap();
    fs::DirBuilder::new().mode(0o700).create(temp.path().join("claims")).unwrap();
    File::create(temp.path().join("claims").join(journal::WITNESS)).unwrap();
    let dir = RecordDir::open(temp.path().join("claims"), "next boot").unwrap();
    assert_eq!(dir.load().unwrap().len(), 16, "the machine went down, and the journal has all of them");
}

#[test]
fn a_journal_that_has_no_room_on_the_disk_fails_the_changes_that_waited_for_it_and_no_later_ones() {
    let Some(disk) = SmallDisk::mount(3 << 20) else { return };
    let dir = RecordDir::open(disk.path().join("claims"), "boot").unwrap();
    // The disk is taken away from under the journal: its room has no blocks any more.
    let journal = File::options().write(true).open(disk.path().join("claims.journal")).unwrap();
    let room = journal.metadata().unwrap().len();
    journal.set_len(0).unwrap();
    journal.set_len(room).unwrap();
    disk.fill();
    let remove = |number| dir.remove([&uid(&format!("c{number}"))]);
    for result in at_once(&dir, 5, remove) {
        let chain = Chain(&*result.unwrap_err()).to_string();
        assert!(chain.contains("claims.journal") && chain.contains("No space left"), "{chain}");
    }
    fs::remove_file(disk.path().join("ballast")).unwrap();
    assert!(at_once(&dir, 5, remove).iter().all(Result::is_ok));
}

#[test]
fn a_record_whose_file_cannot_be_written_fails_alone_among_those_that_share_a_flush() {
    let (temp, dir) = dir();
    fs::create_dir_all(temp.path().join("claims/.c3.tmp/in-the-way")).unwrap();
    let results =
        at_once(&dir, 6, |number| dir.write(&[&record(&format!("c{number}"), RecordState::Prepared, "boot")]).is_ok());
    assert_eq!(results, [true, true, true, false, true, true]);
    assert_eq!(dir.load().unwrap().len(), 5);
}

/// A tmpfs of its own, gone with the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(bytes: u64) -> Option<Self> {
        let temp = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let mounted = nix::mount::mount(
            Some("hostler-test"),
            temp.path(),
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            Some(options.as_str()),
        );
        if let Err(error) = mounted {
            println!("skipped: needs the right to mount a tmpfs ({error})");
            return None;
        }
        Some(Self(temp))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn fill(&self) {
        let mut file = File::create(self.path().join("ballast")).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_memory_policy_is_recorded_and_older_records_have_none() {
    let mut record = record("a", RecordState::Prepared, "boot");
    let without = serde_json::to_value(&record).unwrap();
    assert_eq!(without["devices"][0]["plan"]["pinning"], serde_json::json!({"cpus": [0, 1, 2, 5], "mems": [1]}));
    let policy = MemoryPolicy { mode: MemoryMode::Interleave, nodes: [0, 1].into() };
    record.devices[0].plan.pinning.policy = Some(policy);
    let with = serde_json::to_value(&record).unwrap();
    let expected = serde_json::json!({"mode": "interleave", "nodes": [0, 1]});
    assert_eq!(with["devices"][0]["plan"]["pinning"]["policy"], expected);
    assert_eq!(decode(&encode(&record).unwrap()).unwrap(), record);
}

proptest! {
    #[test]
    fn every_record_survives_the_way_to_disk(
        cpus in proptest::collection::btree_set(0_u32..1024, 0..40),
        name in "[a-z][a-z0-9-]{0,20}",
        env in proptest::collection::vec("\\PC{0,30}", 0..4),
        prepared in any::<bool>(),
    ) {
        let state = if prepared { RecordState::Prepared } else { RecordState::Preparing };
        let mut record = record("a", state, "boot");
        record.claim.name = name;
        record.devices[0].plan.pinning = Pinning { cpus, ..Pinning::default() };
        record.devices[0].edits.env = env;
        prop_assert_eq!(decode(&encode(&record).unwrap()).unwrap(), record);
    }

    #[test]
    fn one_flipped_byte_never_gives_another_record(at in 0_usize..600, bit in 0_u8..8) {
        let record = record("a", RecordState::Prepared, "boot");
        let mut bytes = encode(&record).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(read) = decode(&bytes) {
            // White space between tokens may change; what it says may not.
            prop_assert_eq!(read, record);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = salvage(&bytes);
    }
}

#[test]
fn versions_that_know_no_restoring_refuse_such_a_record_and_read_all_others() {
    let version = |state| {
        let envelope: serde_json::Value =
            serde_json::from_slice(&encode(&record("a", state, "boot")).unwrap()).unwrap();
        envelope["version"].as_u64().unwrap()
    };
    assert_eq!([RecordState::Preparing, RecordState::Prepared, RecordState::Restoring].map(version), [1, 1, 2]);
    let restoring = record("a", RecordState::Restoring, "boot");
    assert_eq!(decode(&encode(&restoring).unwrap()).unwrap(), restoring);
}

#[test]
fn a_folder_that_others_can_change_is_not_used_and_says_how_to_mend_it() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("claims");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let error = RecordDir::open(&folder, "boot").unwrap_err().to_string();
    assert!(error.ends_with("claims can be changed by others (mode 777); chmod go-w it"), "{error}");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o777, "it is left as evidence");
}

#[test]
fn what_is_named_like_a_record_and_cannot_be_ours_costs_its_claim_alone() {
    let temp = tempfile::tempdir().unwrap();
    let dir = RecordDir::open(temp.path().join("claims"), "boot").unwrap();
    let path = |name: &str| temp.path().join(format!("claims/{name}.json"));
    dir.write(&[&record("whole", RecordState::Prepared, "boot")]).unwrap();
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink(path("whole"), path("link")).unwrap();
    fs::copy(path("whole"), path("open")).unwrap();
    fs::set_permissions(path("open"), Permissions::from_mode(0o666)).unwrap();
    File::create(path("sparse")).unwrap().set_len(3 << 30).unwrap();
    let loaded = dir.load().unwrap();
    let reasons: Vec<(&str, String)> =
        loaded.iter().map(|it| (it.uid.as_str(), it.record.as_ref().err().cloned().unwrap_or_default())).collect();
    for ((uid, reason), (expected_uid, expected)) in reasons.iter().zip([
        ("fifo", "is not a file; remove it"),
        ("link", "is a link; remove it"),
        ("open", "can be changed by others (mode 666); chmod go-w it"),
        ("sparse", "bytes; 16777216 are the most; remove it"),
        ("whole", ""),
    ]) {
        assert!(*uid == expected_uid && reason.ends_with(expected), "{uid}: {reason}");
    }
    assert!(loaded[..4].iter().all(|it| it.bytes.is_empty()), "nothing of them is believed");
}

/// What a machine that goes down may do to files that are not flushed: they are empty, gone, or there again.
#[test]
fn what_the_files_lose_when_the_machine_goes_down_is_written_again_from_the_journal() {
    let (temp, dir) = dir();
    let path = |text: &str| temp.path().join(format!("claims/{text}.json"));
    let records = ["a", "b", "c", "d", "e"].map(|text| record(text, RecordState::Prepared, "boot"));
    dir.write(&[&record("a", RecordState::Preparing, "boot")]).unwrap();
    let preparing = fs::read(path("a")).unwrap();
    dir.write(&records.iter().collect::<Vec<_>>()).unwrap();
    let gone = fs::read(path("e")).unwrap();
    dir.remove([&uid("e")]).unwrap();
    // Not the daemon's end: nothing is flushed.
    drop(dir);
    fs::write(path("a"), preparing).unwrap();
    fs::write(path("b"), "").unwrap();
    fs::remove_file(path("c")).unwrap();
    fs::write(path("e"), gone).unwrap();
    for _ in 0..2 {
        let dir = RecordDir::open(temp.path().join("claims"), "next boot").unwrap();
        let loaded: Vec<ClaimRecord> = dir.load().unwrap().into_iter().map(|loaded| loaded.record.unwrap()).collect();
        assert_eq!(loaded, records[..4], "and the second time there is nothing to do");
    }
}

#[test]
fn a_process_that_dies_takes_no_file_with_it_so_the_files_are_believed() {
    let (temp, dir) = dir();
    dir.write(&[&record("a", RecordState::Prepared, "boot")]).unwrap();
    drop(dir);
    // Another version ran in between, which knows no journal.
    fs::remove_file(temp.path().join("claims/a.json")).unwrap();
    let dir = RecordDir::open(temp.path().join("claims"), "boot").unwrap();
    assert!(dir.load().unwrap().is_empty());
    drop(dir);
    let dir = RecordDir::open(temp.path().join("claims"), "next boot").unwrap();
    assert!(dir.load().unwrap().is_empty(), "the first start has ended what the journal said");
}

#[test]
fn a_checkpoint_makes_the_files_all_there_is() {
    let (temp, dir) = dir();
    dir.write(&[&record("a", RecordState::Prepared, "boot")]).unwrap();
    dir.checkpoint().unwrap();
    fs::remove_file(temp.path().join("claims/a.json")).unwrap();
    let dir = RecordDir::open(temp.path().join("claims"), "next boot").unwrap();
    assert!(dir.load().unwrap().is_empty());
}

#[test]
fn a_journal_that_is_full_is_begun_anew_and_loses_nothing() {
    let (temp, dir) = dir();
    let journal = temp.path().join("claims.journal");
    for number in 0..40 {
        let batch: Vec<ClaimRecord> =
            (0..100).map(|of| record(&format!("c{}", (number + of) % 110), RecordState::Prepared, "boot")).collect();
        dir.write(&batch.iter().collect::<Vec<_>>()).unwrap();
    }
    let head = fs::read_to_string(&journal).unwrap();
    let generation: u64 = head.split([' ', '.']).nth(1).unwrap().parse().unwrap();
    assert!(generation > 1, "generation {generation}");
    assert_eq!(RecordDir::open(temp.path().join("claims"), "next boot").unwrap().load().unwrap().len(), 110);
}

#[test]
fn files_that_cannot_be_flushed_stop_nobody_and_their_journal_grows() {
    let (temp, dir) = dir();
    let bad = temp.path().join("claims/bad.json");
    dir.write(&[&record("bad", RecordState::Prepared, "boot")]).unwrap();
    fs::remove_file(&bad).unwrap();
    fs::create_dir(&bad).unwrap();
    let batch: Vec<ClaimRecord> =
        (0..100).map(|number| record(&format!("c{number}"), RecordState::Prepared, "boot")).collect();
    let journal = || fs::metadata(temp.path().join("claims.journal")).unwrap().len();
    while journal() <= 2 << 20 {
        dir.write(&batch.iter().collect::<Vec<_>>()).unwrap();
    }
    dir.remove([&uid("c0")]).unwrap();
    fs::remove_dir(&bad).unwrap();
    dir.checkpoint().unwrap();
    dir.write(&[&record("last", RecordState::Prepared, "boot")]).unwrap();
    assert_eq!(journal(), 1 << 20);
    drop(dir);
    assert_eq!(RecordDir::open(temp.path().join("claims"), "next boot").unwrap().load().unwrap().len(), 100);
}

#[test]
fn a_file_without_a_word_in_the_journal_cannot_come_to_be() {
    let (temp, dir) = dir();
    let (path, old) = (temp.path().join("claims/a.json"), record("a", RecordState::Preparing, "boot"));
    dir.write(&[&old]).unwrap();
    dir.checkpoint().unwrap();
    let before = fs::read(&path).unwrap();
    // What a process leaves that dies after its word is in the journal and before the file has its name.
    dir.write(&[&record("a", RecordState::Prepared, "boot")]).unwrap();
    fs::write(&path, &before).unwrap();
    drop(dir);
    for boot_id in ["boot", "next boot"] {
        let loaded = RecordDir::open(temp.path().join("claims"), boot_id).unwrap().load().unwrap();
        assert_eq!(loaded[0].record, Ok(old.clone()), "nobody was told of the other one");
    }
}

#[test]
fn removing_nothing_writes_nothing() {
    let (temp, dir) = dir();
    let journal = temp.path().join("claims.journal");
    let before = fs::read(&journal).unwrap();
    dir.remove([]).unwrap();
    assert_eq!(fs::read(&journal).unwrap(), before);
}

#[test]
fn what_a_version_without_a_journal_wrote_in_this_boot_is_newer_than_the_journal() {
    let (temp, dir) = dir();
    dir.write(&[&record("a", RecordState::Preparing, "boot")]).unwrap();
    drop(dir);
    let newer = record("a", RecordState::Prepared, "next boot");
    fs::write(temp.path().join("claims/a.json"), encode(&newer).unwrap()).unwrap();
    let dir = RecordDir::open(temp.path().join("claims"), "next boot").unwrap();
    assert_eq!(dir.load().unwrap()[0].record, Ok(newer));
}

#[test]
fn a_journal_of_a_later_version_is_not_guessed_at() {
    let (temp, dir) = dir();
    drop(dir);
    let path = temp.path().join("claims.journal");
    let (mut later, _) = hostler_files::Journal::open(&path, 4096).unwrap();
    later.begin(br#"{"version":2,"boot":"boot"}"#).unwrap();
    let error = RecordDir::open(temp.path().join("claims"), "next boot").unwrap_err().to_string();
    assert!(
        error.ends_with("claims.journal has format version 2, this version of hostler reads up to 1: upgrade hostler"),
        "{error}"
    );
}

/// What a start finds of each claim: its record, or that it is quarantined.
fn found(folder: &Path, boot_id: &str) -> std::collections::BTreeMap<String, Result<ClaimRecord, String>> {
    let loaded = RecordDir::open(folder, boot_id).unwrap().load().unwrap();
    loaded.into_iter().map(|loaded| (loaded.uid.to_string(), loaded.record)).collect()
}

/// A folder in memory: these tests start some thousand times.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The state of a machine that went down, as often as it is needed.
struct Wreck {
    files: Vec<(String, Vec<u8>)>,
}

impl Wreck {
    fn of(folder: &Path) -> Self {
        let mut files = Vec::new();
        for name in ["claims.journal".to_owned()]
            .into_iter()
            .chain(names(&folder.join("claims")).unwrap().into_iter().map(|name| format!("claims/{name}")))
        {
            files.push((name.clone(), fs::read(folder.join(&name)).unwrap()));
        }
        Self { files }
    }

    fn journal(&self) -> &[u8] {
        &self.files[0].1
    }

    /// Makes it anew with this journal, without the files of these claims.
    fn place(&self, journal: &[u8], without: &[&str]) -> tempfile::TempDir {
        let temp = in_memory();
        fs::create_dir(temp.path().join("claims")).unwrap();
        for (name, bytes) in &self.files {
            if !without.iter().any(|uid| *name == format!("claims/{uid}.json")) {
                fs::write(temp.path().join(name), bytes).unwrap();
            }
        }
        fs::write(temp.path().join("claims.journal"), journal).unwrap();
        temp
    }
}

/// Claims `a` to `d` are ready, `e` was taken back; `a` was recorded twice, in two entries.
fn storm() -> (Wreck, Vec<ClaimRecord>) {
    let temp = in_memory();
    let dir = RecordDir::open(temp.path().join("claims"), "boot").unwrap();
    let ready = ["a", "b", "c", "d"].map(|text| record(text, RecordState::Prepared, "boot"));
    dir.write(&[&record("a", RecordState::Preparing, "boot")]).unwrap();
    dir.write(&[&record("e", RecordState::Prepared, "boot"), &ready[1]]).unwrap();
    dir.write(&[&ready[0]]).unwrap();
    dir.write(&[&ready[2]]).unwrap();
    dir.remove([&uid("e")]).unwrap();
    dir.write(&[&ready[3]]).unwrap();
    (Wreck::of(temp.path()), ready.into())
}

fn used(journal: &[u8]) -> usize {
    journal.iter().rposition(|byte| *byte != b'\n').unwrap() + 1
}

#[test]
fn one_damaged_line_never_has_an_older_word_replace_a_newer_record() {
    let (wreck, ready) = storm();
    // Every byte has its turn in the tests of the journal itself; here each is a start with a disk.
    for at in (0..used(wreck.journal())).step_by(5) {
        let mut journal = wreck.journal().to_vec();
        journal[at] ^= 1 << (at % 8);
        let temp = wreck.place(&journal, &[]);
        for boot_id in ["next boot", "boot after that"] {
            let found = found(&temp.path().join("claims"), boot_id);
            for record in &ready {
                assert_eq!(found[record.claim.uid.as_str()].as_ref(), Ok(record), "byte {at}, {boot_id}");
            }
        }
    }
}

/// The files are lost as well, one at a time: what is known of the claim is told, and it is not taken for gone.
#[test]
fn a_claim_whose_file_and_last_entry_are_lost_is_not_taken_for_gone() {
    let (wreck, ready) = storm();
    let line_of = |uid: &str| {
        let text = String::from_utf8(wreck.journal().to_vec()).unwrap();
        let line = text.lines().rfind(|line| line.contains(&format!("\"uid\":\"{uid}\""))).unwrap();
        let from = text.find(line).unwrap();
        from..from + line.len()
    };
    let mut quarantined = 0;
    for uid in ["a", "c", "d"] {
        for at in line_of(uid).step_by(5) {
            let mut journal = wreck.journal().to_vec();
            journal[at] ^= 1 << (at % 8);
            let temp = wreck.place(&journal, &[uid]);
            let first = found(&temp.path().join("claims"), "next boot");
            assert_eq!(
                found(&temp.path().join("claims"), "boot after that"),
                first,
                "byte {at}: the second start as well"
            );
            let of_others = first.iter().filter(|(found, _)| !["a", "b", "c", "d"].contains(&found.as_str()));
            match first.get(uid) {
                Some(Ok(record)) => assert!(
                    matches!(record.state, RecordState::Prepared | RecordState::Restoring),
                    "byte {at}: it would be forgotten"
                ),
                Some(Err(reason)) => {
                    quarantined += 1;
                    assert!(!reason.is_empty());
                }
                // Where its very UID is damaged another name is told, and its devices stay taken all the same.
                None => assert!(
                    of_others.count() > 0 || !told(&temp).is_empty(),
                    "byte {at} of claim {uid}: nobody is told"
                ),
            }
            for record in ready.iter().filter(|record| record.claim.uid.as_str() != uid) {
                assert_eq!(
                    first[record.claim.uid.as_str()].as_ref(),
                    Ok(record),
                    "byte {at} costs {}",
                    record.claim.uid
                );
            }
        }
    }
    assert!(quarantined > 100, "{quarantined}");
}

/// What is kept for people to look at.
fn told(temp: &tempfile::TempDir) -> Vec<u8> {
    fs::read(temp.path().join("claims.journal.damaged")).unwrap_or_default()
}

#[test]
fn an_empty_a_zeroed_a_random_and_a_shortened_journal_cost_no_record_and_are_kept_for_people() {
    let (wreck, ready) = storm();
    let whole = wreck.journal();
    let random: Vec<u8> =
        (0..whole.len() as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let mut broken = vec![Vec::new(), vec![0; whole.len()], random];
    for size in [512, 4096] {
        for at in (0..used(whole)).step_by(size) {
            let mut zeroed = whole.to_vec();
            zeroed[at..at + size].fill(0);
            broken.push(zeroed);
        }
    }
    broken.extend((0..used(whole)).step_by(37).map(|length| whole[..length].to_vec()));
    for (case, journal) in broken.iter().enumerate() {
        let temp = wreck.place(journal, &[]);
        for boot_id in ["next boot", "boot after that"] {
            let found = found(&temp.path().join("claims"), boot_id);
            for record in &ready {
                assert_eq!(found[record.claim.uid.as_str()].as_ref(), Ok(record), "case {case}, {boot_id}");
            }
        }
        assert_eq!(told(&temp), *journal, "case {case}");
        let dir = RecordDir::open(temp.path().join("claims"), "boot after that").unwrap();
        dir.remove([&uid("a")]).unwrap();
        drop(dir);
        assert!(!found(&temp.path().join("claims"), "a later boot").contains_key("a"), "case {case}: it works again");
    }
}

#[test]
fn a_claim_that_was_being_prepared_before_a_missing_entry_keeps_its_devices() {
    let (_temp, dir) = dir();
    let half = record("half", RecordState::Preparing, "boot");
    dir.write(&[&half]).unwrap();
    dir.write(&[&record("other", RecordState::Prepared, "boot")]).unwrap();
    let wreck = Wreck::of(_temp.path());
    let whole = wreck.place(wreck.journal(), &[]);
    assert_eq!(found(&whole.path().join("claims"), "next boot")["half"], Ok(half.clone()), "nothing is missing");
    let text = String::from_utf8(wreck.journal().to_vec()).unwrap();
    let damaged = wreck.place(text.replace("name-other", "name-othex").as_bytes(), &[]);
    for boot_id in ["next boot", "boot after that"] {
        let kept = ClaimRecord { state: RecordState::Restoring, ..half.clone() };
        assert_eq!(found(&damaged.path().join("claims"), boot_id)["half"], Ok(kept), "{boot_id}");
    }
}

#[test]
fn what_a_version_without_a_journal_did_meanwhile_is_not_overruled() {
    let (temp, dir) = dir();
    for text in ["a", "b", "c"] {
        dir.write(&[&record(text, RecordState::Prepared, "boot")]).unwrap();
    }
    drop(dir);
    let claims = temp.path().join("claims");
    // As 0.1.0 begins, whose own records have no number, and what it does then.
    for name in names(&claims).unwrap().iter().filter(|name| name.starts_with('.') && name.ends_with(".tmp")) {
        fs::remove_file(claims.join(name)).unwrap();
    }
    fs::remove_file(claims.join("a.json")).unwrap();
    let theirs = record("b", RecordState::Preparing, "boot");
    fs::write(claims.join("b.json"), encode(&theirs).unwrap()).unwrap();
    for boot_id in ["next boot", "boot after that"] {
        let found = found(&claims, boot_id);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["b", "c"], "{boot_id}");
        assert_eq!(found["b"], Ok(theirs.clone()));
    }
}

#[test]
fn an_entry_that_is_not_understood_is_told_with_the_file_and_what_to_do() {
    for unknown in [
        r#"{"written":[],"removed":[],"moved":[]}"#.to_owned(),
        serde_json::json!({"written": [record("a", RecordState::Prepared, "boot")], "removed": []})
            .to_string()
            .replace("prepared", "paused"),
    ] {
        let (temp, dir) = dir();
        drop(dir);
        let path = temp.path().join("claims.journal");
        let (mut later, _) = hostler_files::Journal::open(&path, 1 << 20).unwrap();
        later.begin(br#"{"version":1,"boot":"boot"}"#).unwrap();
        later.append(unknown.as_bytes()).unwrap();
        let error = RecordDir::open(temp.path().join("claims"), "next boot").unwrap_err();
        let chain = Chain(&error).to_string();
        assert!(
            chain.starts_with("entry 1 of /") && chain.contains("claims.journal is not understood: start the version")
        );
        assert!(chain.contains("unknown field `moved`") || chain.contains("unknown variant `paused`"), "{chain}");
    }
}
