//! Files that are not whole yet: made anew each time, and gone unless they get their name.

use std::os::unix::fs::symlink;

use super::*;

const FIXED: TemporaryName<'_> = TemporaryName::Fixed(".a.tmp");
const UNIQUE: TemporaryName<'_> = TemporaryName::Unique { prefix: ".a.", suffix: ".tmp" };

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_has_its_name_when_it_is_whole_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    for name in [FIXED, UNIQUE] {
        let path = folder.path().join("a");
        let mut pending = PendingFile::create(folder.path(), name, 0o600).unwrap();
        pending.write_all(b"whole").unwrap();
        let finished = pending.finish(Durability::Synced).unwrap();
        assert!(!path.exists());
        finished.publish(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["a"]);
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn one_that_is_given_up_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in [FIXED, UNIQUE] {
        drop(PendingFile::create(folder.path(), name, 0o600).unwrap());
        assert!(names(folder.path()).is_empty());
        let pending = PendingFile::create(folder.path(), name, 0o600).unwrap();
        drop(pending.finish(Durability::Unsynced).unwrap());
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn unique_names_stand_beside_each_other_and_are_recognised_by_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let _two = [0, 1].map(|_| PendingFile::create(folder.path(), UNIQUE, 0o600).unwrap());
    let names = names(folder.path());
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| name.starts_with(".a.") && name.ends_with(".tmp")), "{names:?}");
}

#[test]
fn modes_are_exact_and_nobody_but_the_owner_can_open_a_file_before_it_has_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    for wanted in [0o600, 0o644, 0o755] {
        let pending = PendingFile::create(folder.path(), FIXED, wanted).unwrap();
        assert_eq!(mode(pending.path()), wanted);
    }
}

#[test]
fn a_leftover_is_replaced_whatever_its_mode_and_content() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join(".a.tmp");
    fs::write(&temporary, "longer than what comes now").unwrap();
    fs::set_permissions(&temporary, Permissions::from_mode(0o666)).unwrap();
    let mut pending = PendingFile::create(folder.path(), FIXED, 0o600).unwrap();
    pending.write_all(b"new").unwrap();
    assert_eq!((fs::read(&temporary).unwrap().as_slice(), mode(&temporary)), (b"new".as_slice(), 0o600));
}

#[test]
fn a_link_under_the_temporary_name_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    fs::write(&target, "mine").unwrap();
    symlink(&target, folder.path().join(".a.tmp")).unwrap();
    let mut pending = PendingFile::create(folder.path(), FIXED, 0o644).unwrap();
    pending.write_all(b"new").unwrap();
    pending.finish(Durability::Unsynced).unwrap().publish(&folder.path().join("a")).unwrap();
    assert_eq!((fs::read(&target).unwrap().as_slice(), mode(&folder.path().join("a"))), (b"mine".as_slice(), 0o644));
}

#[test]
fn a_folder_under_the_temporary_name_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".a.tmp")).unwrap();
    let error = PendingFile::create(folder.path(), FIXED, 0o600).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IsADirectory);
    assert_eq!(names(folder.path()), [".a.tmp"]);
}

#[test]
fn what_must_stay_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let publish = |text: &str| {
        let mut pending = PendingFile::create(folder.path(), UNIQUE, 0o600).unwrap();
        pending.write_all(text.as_bytes()).unwrap();
        pending.finish(Durability::Unsynced).unwrap().publish_new(&path)
    };
    publish("first").unwrap();
    assert_eq!(publish("second").unwrap_err().source.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn a_disk_that_is_full_says_so_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    for name in [FIXED, UNIQUE] {
        // The file is made as usual; what is written goes to a device that is always full.
        let create_on_full_disk = |path: &Path| {
            OpenOptions::new().write(true).create_new(true).open(path)?;
            OpenOptions::new().write(true).open("/dev/full")
        };
        let mut pending = PendingFile::create_with(folder.path(), name, create_on_full_disk).unwrap();
        let error = pending.write_all(b"new").unwrap_err();
        assert_eq!(error.to_string(), "No space left on device (os error 28)", "the kernel's words alone");
        drop(pending);
        assert!(names(folder.path()).is_empty());
    }
}
