//! Archives made by people who mean harm, and by people who do not.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{Builder, EntryType, Header};

use super::*;

/// Entries as raw as a forger can write them: names are put into the header unchecked.
struct ForgedArchive(Builder<Vec<u8>>);

impl ForgedArchive {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn entry(mut self, kind: EntryType, name: &str, target: &str, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.entry(EntryType::Regular, name, "", content.as_bytes())
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, b"")
    }

    fn compressed(self) -> Vec<u8> {
        compress_to_vec(self.0.into_inner().unwrap().as_slice(), CompressionLevel::Fastest)
    }

    fn open(self) -> Result<UnpackedCapture, ArchiveError> {
        open(&self.compressed(), MOST_BYTES, MOST_ENTRIES)
    }
}

fn open(bytes: &[u8], most_bytes: u64, most_entries: usize) -> Result<UnpackedCapture, ArchiveError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    UnpackedCapture::open_within(file.path(), most_bytes, most_entries)
}

#[test]
fn a_tree_is_unpacked_and_removed_when_dropped() {
    let forger = ForgedArchive::new().entry(EntryType::Directory, "./", "", b"").file("./sys/a/b", "text\n");
    let capture = forger.link("./sys/l", "a/b").link("sys/gone", "../nowhere").link("sys/self", "self").open().unwrap();
    let root = capture.root();
    assert_eq!(root.text("sys/a/b").unwrap().as_deref(), Some("text"));
    assert_eq!(root.text("sys/l").unwrap().as_deref(), Some("text"));
    assert_eq!(root.names("sys").unwrap(), ["a", "gone", "l", "self"]);
    assert_eq!(capture.warnings(), []);
    assert_eq!(fs::metadata(root.path("")).unwrap().permissions().mode() & 0o777, 0o700);
    drop(capture);
    assert!(!root.path("").exists());
}

#[test]
fn files_are_readable_whatever_their_mode_was() {
    let capture = ForgedArchive::new().file("proc/x", "1").open().unwrap();
    assert_eq!(fs::metadata(capture.root().path("proc/x")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn names_that_lead_out_are_refused() {
    for name in ["../x", "a/../../x", "/etc/x", "a/.."] {
        let error = ForgedArchive::new().file(name, "x").open().unwrap_err();
        assert!(matches!(&error, ArchiveError::Escapes(entry) if entry == Path::new(name)), "{name}: {error}");
    }
}

#[test]
fn what_is_no_file_folder_or_link_is_refused() {
    for kind in [EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::new(b'Z')] {
        let error = ForgedArchive::new().file("a", "x").entry(kind, "dev/x", "a", b"").open().unwrap_err();
        assert!(matches!(error, ArchiveError::Kind { .. }), "{kind:?}: {error}");
    }
}

#[test]
fn nothing_is_written_through_a_link() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    // The absolute link becomes one inside the tree; even so it is not a folder that entries can lie in.
    let error = ForgedArchive::new().link("sys", target).file("sys/x", "x").open().unwrap_err();
    assert!(matches!(&error, ArchiveError::Conflict(entry) if entry == Path::new("sys")), "{error}");
    let error = ForgedArchive::new().file("a", "x").link("b", "a").file("b", "y").open().unwrap_err();
    assert!(matches!(&error, ArchiveError::Conflict(entry) if entry == Path::new("b")), "{error}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn absolute_links_stay_in_the_tree() {
    let forger = ForgedArchive::new().file("etc/hostname", "captured").link("sys/a/h", "/etc/hostname");
    let capture = forger.link("sys/a/top", "/").open().unwrap();
    assert_eq!(capture.root().text("sys/a/h").unwrap().as_deref(), Some("captured"));
    assert_eq!(capture.root().link("sys/a/h").unwrap().unwrap(), Path::new("../../etc/hostname"));
    assert_eq!(capture.root().names("sys/a/top").unwrap(), ["etc", "sys"]);
    assert_eq!(capture.warnings(), []);
}

#[test]
fn links_do_not_lead_above_the_top() {
    let forger =
        ForgedArchive::new().link("a/b/out", "../../../../etc/passwd").link("top", "..").link("slash", "/../../etc");
    let capture = forger.link("here", "./").open().unwrap();
    let target = |link: &str| capture.root().link(link).unwrap().unwrap().display().to_string();
    assert_eq!(target("a/b/out"), "../../etc/passwd");
    assert_eq!((target("top"), target("slash"), target("here")), (".".into(), "etc".into(), ".".into()));
    assert_eq!(capture.root().names("top").unwrap(), ["a", "here", "slash", "top"]);
    assert_eq!(capture.warnings(), []);
}

#[test]
fn links_that_may_lead_out_are_left_out_with_a_warning() {
    // `up` is harmless by itself, but `up/..` is outside although its text is not.
    let capture = ForgedArchive::new().link("a/b/c/up", "../../..").link("q", "a/b/c/up/../../etc").open().unwrap();
    assert_eq!(capture.root().names("").unwrap(), ["a"]);
    assert_eq!(capture.root().names("a/b/c").unwrap(), ["up"]);
    let [warning] = capture.warnings() else { panic!("{:?}", capture.warnings()) };
    assert_eq!(warning.path, "/q");
    assert!(warning.reason.contains("a/b/c/up/../../etc"), "{}", warning.reason);
}

#[test]
fn limits_are_named_when_exceeded() {
    let many = (0..20).fold(ForgedArchive::new(), |forger, i| forger.file(&format!("f{i}"), ""));
    let error = open(&many.compressed(), MOST_BYTES, 19).unwrap_err();
    assert_eq!(error.to_string(), "the archive has more than 19 entries");
    let large = ForgedArchive::new().entry(EntryType::Regular, "zeros", "", &vec![0; 1 << 20]).compressed();
    assert!(large.len() < 1 << 16, "zeros compress well: {}", large.len());
    let error = open(&large, 1 << 19, MOST_ENTRIES).unwrap_err();
    assert_eq!(error.to_string(), "the archive unpacks to more than 524288 bytes");
}

#[test]
fn bytes_after_the_last_entry_count_too() {
    let mut tar = ForgedArchive::new().file("a", "x").0.into_inner().unwrap();
    tar.extend(vec![0; 1 << 20]);
    let compressed = compress_to_vec(tar.as_slice(), CompressionLevel::Fastest);
    assert!(matches!(open(&compressed, 1 << 16, 9), Err(ArchiveError::TooManyBytes { limit: 65536 })));
    assert!(open(&compressed, 1 << 21, 9).is_ok());
}

#[test]
fn damaged_archives_are_refused() {
    let good = ForgedArchive::new().file("a", &"0123456789".repeat(1000)).compressed();
    assert!(matches!(open(b"", 1 << 20, 9), Err(ArchiveError::NotZstd { .. })));
    assert!(matches!(open(b"PK\x03\x04 and so on", 1 << 20, 9), Err(ArchiveError::NotZstd { .. })));
    assert!(matches!(open(&good[..good.len() / 2], 1 << 20, 9), Err(ArchiveError::Read { .. })));
    let not_tar = compress_to_vec([b'x'; 2000].as_slice(), CompressionLevel::Fastest);
    assert!(matches!(open(&not_tar, 1 << 20, 9), Err(ArchiveError::Read { .. })));
    let twice = [good.clone(), good.clone()].concat();
    assert!(matches!(open(&twice, 1 << 20, 9), Err(ArchiveError::TrailingData { .. })));
    assert!(matches!(UnpackedCapture::open("/nonexistent"), Err(ArchiveError::Open { .. })));
}

#[test]
fn an_archive_may_come_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("real"), ForgedArchive::new().file("a", "x").compressed()).unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    assert!(UnpackedCapture::open(folder.path().join("link")).unwrap().root().exists("a").unwrap());
}
