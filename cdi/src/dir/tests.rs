//! Unit tests of the spec directory, on real files.

use std::{fs::File, os::unix::fs::symlink};

use tempfile::TempDir;

use super::*;
use crate::spec::{CdiDevice, ContainerEdits};

fn spec(value: &str) -> CdiSpec {
    let edits = ContainerEdits { env: vec![format!("A={value}")], ..ContainerEdits::default() };
    let device = CdiDevice { name: "d0".to_owned(), container_edits: edits, ..CdiDevice::default() };
    CdiSpec { kind: "hostler.dev/claim".to_owned(), devices: vec![device], ..CdiSpec::default() }.with_minimum_version()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_written_spec_is_read_back_and_open_to_all() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path().join("run/cdi"));
    assert_eq!(dir.write("hostler.dev-claim_1", &spec("1")).unwrap(), WriteOutcome::Replaced);

    let path = dir.file("hostler.dev-claim_1").unwrap();
    assert_eq!(read_spec(&path).unwrap(), spec("1"));
    assert_eq!((mode(&path), mode(dir.path())), (0o644, 0o755));
    assert_eq!(names(dir.path()), ["hostler.dev-claim_1.json"]);
}

#[test]
fn an_unchanged_spec_is_not_written_again() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path());
    dir.write("a", &spec("1")).unwrap();
    // A rename gives a new inode, so the same inode means that nothing was written.
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
    let path = dir.file("a").unwrap();
    let before = inode(&path);
    assert_eq!(dir.write("a", &spec("1")).unwrap(), WriteOutcome::Unchanged);
    assert_eq!(inode(&path), before);
    assert_eq!(dir.write("a", &spec("2")).unwrap(), WriteOutcome::Replaced);
    assert_eq!(read_spec(&path).unwrap(), spec("2"));
}

#[test]
fn a_link_is_replaced_and_its_target_kept() {
    let root = TempDir::new().unwrap();
    let (dir, target) = (SpecDir::new(root.path()), root.path().join("target"));
    fs::write(&target, "x").unwrap();
    symlink(&target, root.path().join("a.json")).unwrap();
    dir.write("a", &spec("1")).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"x");
    assert!(dir.file("a").unwrap().symlink_metadata().unwrap().is_file());
}

#[test]
fn an_invalid_spec_is_not_written() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path());
    let error = dir.write("a", &CdiSpec { kind: "nothing".to_owned(), ..spec("1") }).unwrap_err();
    assert!(error.to_string().starts_with("CDI spec a is invalid: kind: \"nothing\" has no '/'"), "{error}");
    assert!(names(root.path()).is_empty());
}

#[test]
fn stems_that_lead_elsewhere_are_refused() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path());
    let long = "x".repeat(181);
    for stem in ["", ".", "..", ".hidden", "../a", "a/b", "/etc/passwd", "a..b", "a\0", "a b", "a\n", &long] {
        assert!(matches!(dir.write(stem, &spec("1")), Err(DirError::Stem { .. })), "{stem:?}");
        assert!(matches!(dir.remove(stem), Err(DirError::Stem { .. })), "{stem:?}");
    }
    dir.write(&"x".repeat(180), &spec("1")).unwrap();
}

#[test]
fn a_file_that_cannot_be_renamed_leaves_no_temporary() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("a.json")).unwrap();
    assert!(matches!(SpecDir::new(root.path()).write("a", &spec("1")), Err(DirError::Write { .. })));
    assert_eq!(names(root.path()), ["a.json"]);
}

#[test]
fn removing_twice_is_success() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path());
    dir.write("a", &spec("1")).unwrap();
    dir.remove("a").unwrap();
    dir.remove("a").unwrap();
    assert!(names(root.path()).is_empty());
    SpecDir::new(root.path().join("nowhere")).remove("a").unwrap();
}

#[test]
fn a_scan_shows_what_runtimes_see() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path());
    dir.write("good", &spec("1")).unwrap();
    let yaml = "cdiVersion: 0.5.0\nkind: vendor.com/gpu\ndevices:\n- name: 0\n  containerEdits: {env: [A=1]}\n";
    fs::write(root.path().join("vendor.yaml"), yaml).unwrap();
    fs::write(root.path().join(".json"), b"{}").unwrap();
    fs::write(root.path().join("cut.json"), b"{\"cdiVersion\": \"0.3").unwrap();
    fs::write(root.path().join("README"), b"ignored").unwrap();
    fs::write(root.path().join(".good.json.1-1.hostler-tmp"), b"ignored").unwrap();
    fs::create_dir(root.path().join("dir.json")).unwrap();
    symlink("/nowhere", root.path().join("dangling.json")).unwrap();

    let found: Vec<_> = dir
        .scan()
        .unwrap()
        .into_iter()
        .map(|file| (file.stem().unwrap().to_owned(), file.spec.is_ok(), file.usable().is_some()))
        .collect();
    let expected = [
        ("", true, false),
        ("cut", false, false),
        ("dangling", false, false),
        ("good", true, true),
        ("vendor", true, true),
    ];
    assert_eq!(found, expected.map(|(stem, read, usable)| (stem.to_owned(), read, usable)));
}

#[test]
fn a_missing_directory_is_empty() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path().join("nowhere"));
    assert!(dir.scan().unwrap().is_empty());
    assert!(dir.list("hostler.dev").unwrap().is_empty());
    assert_eq!(dir.remove_leftovers().unwrap(), 0);
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(SpecDir::new(file).scan(), Err(DirError::List { .. })));
}

#[test]
fn what_is_no_regular_file_is_not_opened() {
    let root = TempDir::new().unwrap();
    // The standard library cannot make a FIFO, where opening would wait for ever; a socket stands for it.
    let _listener = std::os::unix::net::UnixListener::bind(root.path().join("a.json")).unwrap();
    let files = SpecDir::new(root.path()).scan().unwrap();
    assert!(matches!(files[0].spec, Err(ReadError::Read { .. })));
}

#[test]
fn a_huge_file_is_not_read() {
    let root = TempDir::new().unwrap();
    File::create(root.path().join("a.json")).unwrap().set_len(crate::MAX_FILE_BYTES + 1).unwrap();
    let files = SpecDir::new(root.path()).scan().unwrap();
    assert!(matches!(files[0].spec, Err(ReadError::Read { .. })));
}

#[test]
fn our_files_are_listed_with_the_broken_ones_and_without_the_neighbours() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path());
    dir.write("hostler.dev-claim_1", &spec("1")).unwrap();
    fs::write(root.path().join("hostler.dev-claim_2.json"), b"").unwrap();
    let neighbour = CdiSpec { kind: "hostler.dev-x/claim".to_owned(), ..spec("1") };
    dir.write("hostler.dev-x-claim_1", &neighbour).unwrap();
    dir.write("other", &spec("1")).unwrap();
    let files = dir.list("hostler.dev").unwrap();
    let stems: Vec<_> = files.iter().map(|file| file.stem().unwrap()).collect();
    assert_eq!(stems, ["hostler.dev-claim_1", "hostler.dev-claim_2"]);
}

#[test]
fn only_our_leftovers_are_removed() {
    let root = TempDir::new().unwrap();
    let dir = SpecDir::new(root.path());
    dir.write("a", &spec("1")).unwrap();
    for name in [".a.json.1-0.hostler-tmp", ".b.json.77-3.hostler-tmp", "spec.1.tmp", "c.hostler-tmp"] {
        fs::write(root.path().join(name), b"half").unwrap();
    }
    assert_eq!(dir.remove_leftovers().unwrap(), 2);
    assert_eq!(names(root.path()), ["a.json", "c.hostler-tmp", "spec.1.tmp"]);
}

/// A file system of 64 KiB, unmounted at the end.
struct SmallDisk(TempDir);

impl SmallDisk {
    #[expect(clippy::disallowed_methods, reason = "tests may start mount(8); the crate itself starts nothing")]
    fn mount() -> Option<Self> {
        let root = TempDir::new().unwrap();
        let arguments = ["-t", "tmpfs", "-o", "size=64k", "tmpfs"];
        let output = std::process::Command::new("mount").args(arguments).arg(root.path()).output();
        output.is_ok_and(|output| output.status.success()).then_some(Self(root))
    }
}

impl Drop for SmallDisk {
    #[expect(clippy::disallowed_methods, reason = "tests may start umount(8); the crate itself starts nothing")]
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_spec_that_does_not_fit_leaves_the_old_one_on_a_real_disk() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    };
    let dir = SpecDir::new(disk.0.path());
    dir.write("a", &spec("1")).unwrap();
    let Err(DirError::Write { source, .. }) = dir.write("a", &spec(&"x".repeat(100_000))) else {
        panic!("100 kB went into 64 KiB");
    };
    assert_eq!(source.kind(), ErrorKind::StorageFull);
    assert_eq!(read_spec(&dir.file("a").unwrap()).unwrap(), spec("1"));
    assert_eq!(names(dir.path()), ["a.json"]);
}
