//! The archive that the kernel unpacks into its first file system: format `newc` of cpio, uncompressed.

use std::fmt::Write as _;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that grows by what is added to it. Folders have to be added before what is in them.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    folders: std::collections::BTreeSet<String>,
}

impl Archive {
    /// Adds a file, and the folders above it that are not there yet. `path` is absolute.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(path, FILE, (0, 0), content);
    }

    /// As [`Archive::file`], executable.
    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(path, PROGRAM, (0, 0), content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.parents(path);
        self.entry(path, LINK, (0, 0), target.as_bytes());
    }

    /// Adds an empty folder.
    pub fn folder(&mut self, path: &str) {
        self.parents(&format!("{path}/x"));
    }

    /// Adds the node of a character device.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.parents(path);
        self.entry(path, CHARACTER_DEVICE, (major, minor), b"");
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("/TRAILER!!!", 0, (0, 0), b"");
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).collect();
        for at in slashes {
            if self.folders.insert(path[..at].to_owned()) {
                self.entry(&path[..at], FOLDER, (0, 0), b"");
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.inode += 1;
        let name = path.trim_start_matches('/');
        let size = u32::try_from(content.len()).expect("a file is smaller than 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a name is short");
        // Inode, mode, user, group, links, time, size, device of the archive (2), of the node (2), size of the name, checksum.
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let mut header = String::from("070701");
        for field in fields {
            write!(header, "{field:08X}").expect("a string takes everything");
        }
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Names and contents end at multiples of four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[test]
fn an_archive_has_every_folder_once_and_ends_with_its_trailer() {
    let mut archive = Archive::default();
    archive.file("/a/b/one", b"12345");
    archive.file("/a/b/two", b"");
    let bytes = archive.finish();
    assert_eq!(bytes.len() % 4, 0);
    let text = String::from_utf8_lossy(&bytes);
    let names: Vec<&str> = text.split("070701").skip(1).map(|entry| entry[104..].split('\0').next().unwrap()).collect();
    assert_eq!(names, ["a", "a/b", "a/b/one", "a/b/two", "TRAILER!!!"]);
    assert!(text.contains("12345\0\0\0"), "{text}");
}
