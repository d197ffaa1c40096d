//! A snapshot as a `.tar.zst` archive: the same bytes for the same content, on every host and at every time.

use std::{fmt::Write as _, io, path::Path};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{Builder, EntryType, Header};

use super::{
    replay::READ_ERRORS,
    snapshot::{SnapshotEntry, TreeSnapshot},
    unpack::harmless,
};

impl TreeSnapshot {
    /// The archive: entries sorted by path, without times and owners. Files that are not copied are empty, of mode 0.
    ///
    /// # Errors
    /// When a path or its content does not fit into the format.
    pub fn to_archive(&self) -> io::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            append(&mut tar, path, entry)?;
        }
        if !self.errors.is_empty() {
            append(&mut tar, Path::new(READ_ERRORS), &SnapshotEntry::File(self.read_errors().into_bytes()))?;
        }
        Ok(compress_to_vec(tar.into_inner()?.as_slice(), CompressionLevel::Fastest))
    }

    /// A line per file: path of the machine, what was tried, the error's number and its words.
    fn read_errors(&self) -> String {
        let mut text = String::new();
        for (path, number) in &self.errors {
            let words = io::Error::from_raw_os_error(*number);
            // Writing to a string does not fail.
            let _ = writeln!(text, "/{}\tread\t{number}\t{words}", path.display());
        }
        text
    }
}

fn append(tar: &mut Builder<Vec<u8>>, path: &Path, entry: &SnapshotEntry) -> io::Result<()> {
    let (kind, mode, content): (_, _, &[u8]) = match entry {
        SnapshotEntry::Folder => (EntryType::Directory, 0o755, &[]),
        SnapshotEntry::File(content) => (EntryType::Regular, 0o644, content),
        SnapshotEntry::Present => (EntryType::Regular, 0, &[]),
        SnapshotEntry::Link(_) => (EntryType::Symlink, 0o777, &[]),
    };
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(content.len() as u64);
    let SnapshotEntry::Link(target) = entry else { return tar.append_data(&mut header, path, content) };
    // A link that may lead out would be left out when unpacked; nothing that was read lies behind it either.
    match harmless(target, path.components().count().saturating_sub(1)) {
        Some(target) => tar.append_link(&mut header, path, target),
        None => Ok(()),
    }
}
