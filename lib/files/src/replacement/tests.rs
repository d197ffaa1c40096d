//! Files that are replaced: the old content or the new one, whatever fails.

use std::{
    fs::{self, File, Permissions},
    io::ErrorKind,
    os::unix::fs::{PermissionsExt, symlink},
};

use proptest::prelude::*;

use super::*;

const TEMPORARY: TemporaryName<'_> = TemporaryName::Fixed(".a.tmp");

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn replace_with(path: &Path, content: &[u8], durability: Durability) -> Result<(), FileError> {
    replace(&FileReplacement { path, temporary: TEMPORARY, mode: 0o600, content }, durability)
}

const BOTH: [Durability; 2] = [Durability::Synced, Durability::Unsynced];

#[test]
fn a_file_is_made_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for (durability, content) in BOTH.into_iter().zip(["one", "two"]) {
        replace_with(&path, content.as_bytes(), durability).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
        assert_eq!(names(folder.path()), ["a"]);
    }
}

#[test]
fn the_mode_of_the_old_file_does_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, "open to all").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    replace_with(&path, b"private", Durability::Synced).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn a_link_is_replaced_and_its_target_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (path, target) = (folder.path().join("a"), folder.path().join("target"));
    fs::write(&target, "old").unwrap();
    symlink(&target, &path).unwrap();
    replace_with(&path, b"new", Durability::Synced).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"old");
    assert!(path.symlink_metadata().unwrap().is_file());
}

#[test]
fn a_reader_who_has_the_old_file_open_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    replace_with(&path, b"old", Durability::Unsynced).unwrap();
    let reader = File::open(&path).unwrap();
    replace_with(&path, b"new and longer", Durability::Unsynced).unwrap();
    assert_eq!(std::io::read_to_string(reader).unwrap(), "old");
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for durability in BOTH {
        let error = replace_with(&folder.path().join("nowhere/a"), b"new", durability).unwrap_err();
        let temporary = folder.path().join("nowhere/.a.tmp");
        assert_eq!(error.to_string(), format!("failed to write {}", temporary.display()));
        assert_eq!(error.source.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn what_cannot_be_replaced_stays_and_so_does_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::create_dir_all(path.join("inside")).unwrap();
    for durability in BOTH {
        let error = replace_with(&path, b"new", durability).unwrap_err();
        assert_eq!((error.step, error.path), ("rename", folder.path().join(".a.tmp")));
        assert_eq!(names(folder.path()), ["a"]);
        assert!(path.join("inside").exists());
    }
}

#[test]
fn a_folder_that_nobody_may_write_to_keeps_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    replace_with(&path, b"old", Durability::Synced).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o500)).unwrap();
    // The super-user may do anything: then there is nothing to see here.
    if !nix::unistd::geteuid().is_root() {
        let error = replace_with(&path, b"new", Durability::Synced).unwrap_err();
        assert_eq!((error.step, error.source.kind()), ("write", ErrorKind::PermissionDenied));
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn several_files_are_written_before_the_first_is_renamed_and_one_failure_leaves_all_old() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    for path in &paths {
        fs::write(path, "old").unwrap();
    }
    fs::create_dir(folder.path().join(".b.tmp")).unwrap();
    let files = [(&paths[0], ".a.tmp"), (&paths[1], ".b.tmp")].map(|(path, name)| FileReplacement {
        path,
        temporary: TemporaryName::Fixed(name),
        mode: 0o600,
        content: b"new",
    });
    let pending: Result<Vec<FinishedFile>, FileError> =
        files.iter().map(|file| file.prepare(Durability::Unsynced)).collect();
    assert_eq!(pending.unwrap_err().path, folder.path().join(".b.tmp"));
    assert!(paths.iter().all(|path| fs::read(path).unwrap() == b"old"));
    assert_eq!(names(folder.path()), [".b.tmp", "a", "b"]);
}

#[test]
fn an_error_can_be_told_as_one_of_a_larger_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere/a");
    let error = replace_with(&path, b"new", Durability::Synced).unwrap_err().as_part_of("save", &path);
    assert_eq!(error.to_string(), format!("failed to save {}", path.display()));
    assert_eq!(error.source.kind(), ErrorKind::NotFound);
}

#[test]
fn a_full_disk_loses_nothing_and_leaves_nothing_behind() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.0.path().join("a");
    replace_with(&path, b"old", Durability::Synced).unwrap();
    for durability in BOTH {
        let error = replace_with(&path, &[0; 100_000], durability).unwrap_err();
        assert_eq!((error.step, error.source.kind()), ("write", ErrorKind::StorageFull));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(disk.0.path()), ["a"]);
    }
}

/// A tmpfs of 64 KiB, gone with the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let temp = tempfile::tempdir().unwrap();
        let (none, flags) = (None::<&str>, nix::mount::MsFlags::empty());
        match nix::mount::mount(none, temp.path(), Some("tmpfs"), flags, Some("size=65536")) {
            Ok(()) => Some(Self(temp)),
            Err(error) => {
                println!("skipped: needs the right to mount a tmpfs ({error})");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.0.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

proptest! {
    #[test]
    fn every_content_is_there_as_it_was_given(contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for content in &contents {
            replace_with(&path, content, Durability::Unsynced).unwrap();
            prop_assert_eq!(&fs::read(&path).unwrap(), content);
        }
        prop_assert_eq!(names(folder.path()), ["a"]);
    }
}
