//! Captured machines: a `.tar.zst` file with the parts of `sys`, `proc` and `dev` that a program looked at.
//!
//! Written in steps: an [`AccessRecorder`] sees what is read, a [`TreeSnapshot`] copies it, takes out what identifies
//! the machine, and becomes an archive. Read by [`UnpackedCapture`], which unpacks it into a private folder that goes
//! when the value is dropped.
//!
//! A file to be read is untrusted. Nothing in it can make us write outside the folder, and no link in the unpacked
//! tree leads out of it: a link's folder is always a real one that we made, so the `..` that a target begins with mean
//! what they say, and what follows them can only pass through other links of which the same holds.

use std::{
    fs::Permissions,
    io::{self, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use hostler_files::{FileError, open_file};
use nix::sys::statvfs::statvfs;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use tempfile::TempDir;

use crate::{SysRoot, TreeWarning};

mod pack;
mod policy;
mod record;
mod redact;
mod replay;
mod snapshot;
mod unpack;

pub use record::AccessRecorder;
pub use redact::{Pseudonym, RedactedValues};
use replay::ReplayTap;
pub use snapshot::TreeSnapshot;

/// Limit on bytes. Sysfs and procfs of the largest machines stay far below; it bounds what a small hostile file can
/// cost.
const MOST_BYTES: u64 = 1 << 30;

/// Limit on entries; see [`MOST_BYTES`]. The largest known capture has 16 thousand.
const MOST_ENTRIES: usize = 1_000_000;

/// Folder to unpack into unless `TMPDIR` says otherwise. Ten thousand small files take 0.1 s in memory, and up to 10 s
/// on ext4, which looks again at every inode deleted in the last minutes: those of the capture before.
const MEMORY: &str = "/dev/shm";

/// An unpacked archive.
#[derive(Debug)]
pub struct UnpackedCapture {
    folder: TempDir,
    warnings: Vec<TreeWarning>,
    replay: Option<Arc<ReplayTap>>,
}

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be opened.
    #[error("failed to open {path}")]
    Open {
        /// The archive.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file does not begin as a zstd frame.
    #[error("{path} is not zstd-compressed")]
    NotZstd {
        /// The archive.
        path: PathBuf,
        /// The decoder's error.
        #[source]
        source: io::Error,
    },
    /// No private folder could be made.
    #[error("failed to make a temporary folder")]
    Folder(#[source] io::Error),
    /// The archive is damaged or no tar archive.
    #[error("failed to read the archive after {entries} entries")]
    Read {
        /// Number of entries that were read before.
        entries: usize,
        /// The reader's error.
        #[source]
        source: io::Error,
    },
    /// An entry could not be written.
    #[error("failed to unpack {}", entry.display())]
    Write {
        /// The entry.
        entry: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// An entry's name leads out of the archive.
    #[error("entry {} leads out of the archive", .0.display())]
    Escapes(PathBuf),
    /// An entry is neither a file, a folder nor a symbolic link.
    #[error("entry {} is a {kind}; only files, folders and symbolic links are unpacked", entry.display())]
    Kind {
        /// The entry.
        entry: PathBuf,
        /// Type of the entry, in words.
        kind: &'static str,
    },
    /// Two entries have one name, or one lies under another that is no folder.
    #[error("entry {} is in the way of another", .0.display())]
    Conflict(PathBuf),
    /// Too many entries.
    #[error("the archive has more than {limit} entries")]
    TooManyEntries {
        /// The most that are unpacked.
        limit: usize,
    },
    /// Too much data.
    #[error("the archive unpacks to more than {limit} bytes")]
    TooManyBytes {
        /// The most that are unpacked.
        limit: u64,
    },
    /// Something follows the compressed archive; it would be left out silently.
    #[error("{path} goes on after its first zstd frame; compress it as one")]
    TrailingData {
        /// The archive.
        path: PathBuf,
    },
}

impl UnpackedCapture {
    /// Unpacks a zstd-compressed tar archive of `sys`, `proc` and `dev`. Modes, owners and times are not kept: the
    /// unpacked files are readable by us, whatever they were.
    ///
    /// # Errors
    /// When the archive cannot be read, is larger than 1 GiB or a million entries, or holds what no capture holds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ArchiveError> {
        Self::open_within(path.as_ref(), MOST_BYTES, MOST_ENTRIES)
    }

    /// The unpacked tree. What could not be read on the captured machine, or is not in the archive, fails to be read
    /// here too, until it is written.
    pub fn root(&self) -> SysRoot {
        let root = SysRoot::new(self.folder.path());
        match &self.replay {
            Some(replay) => root.tapped(replay.clone()),
            None => root,
        }
    }

    /// Links that were left out because they may lead out of the tree.
    pub fn warnings(&self) -> &[TreeWarning] {
        &self.warnings
    }

    fn open_within(path: &Path, most_bytes: u64, most_entries: usize) -> Result<Self, ArchiveError> {
        let file = open_file(path).map_err(|FileError { path, source, .. }| ArchiveError::Open { path, source })?.0;
        let mut compressed = BufReader::new(file);
        let decoder = StreamingDecoder::new(&mut compressed);
        let decoder = decoder
            .map_err(|error| ArchiveError::NotZstd { path: path.to_owned(), source: io::Error::other(error) })?;
        let folder = private_folder().map_err(ArchiveError::Folder)?;
        let mut archive = tar::Archive::new(BoundedDecoder { decoder, left: most_bytes, exceeded: false });
        let unpacked = unpack::unpack(&mut archive, folder.path(), most_entries);
        let mut rest = archive.into_inner();
        let drained = unpacked.and_then(|unpacked| {
            io::copy(&mut rest, &mut io::sink())
                .map_err(|source| ArchiveError::Read { entries: unpacked.entries, source })?;
            Ok(unpacked)
        });
        if rest.exceeded {
            return Err(ArchiveError::TooManyBytes { limit: most_bytes });
        }
        let unpack::UnpackedEntries { warnings, unknown, .. } = drained?;
        match compressed.read(&mut [0]) {
            Ok(0) => {
                let replay = ReplayTap::of(folder.path(), unknown).map(Arc::new);
                Ok(Self { folder, warnings, replay })
            }
            Ok(_) => Err(ArchiveError::TrailingData { path: path.to_owned() }),
            Err(source) => Err(ArchiveError::Open { path: path.to_owned(), source }),
        }
    }
}

/// A folder of our own, in memory where there is room.
///
/// # Errors
/// Whatever the kernel says.
pub fn private_folder() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("hostler-capture-").permissions(Permissions::from_mode(0o700));
    if std::env::var_os("TMPDIR").is_none() && has_room(MEMORY) {
        return builder.tempdir_in(MEMORY).or_else(|_| builder.tempdir());
    }
    builder.tempdir()
}

/// True if the folder has room for the largest archive twice; a container's 64 MiB do not count.
fn has_room(folder: &str) -> bool {
    statvfs(folder).is_ok_and(|room| room.blocks_available().saturating_mul(room.fragment_size()) / 2 > MOST_BYTES)
}

/// A decoder that fails beyond a number of bytes, headers and padding included: whatever the archive's own sizes say,
/// neither disk nor memory takes more.
struct BoundedDecoder<R: Read> {
    decoder: StreamingDecoder<R, FrameDecoder>,
    left: u64,
    exceeded: bool,
}

impl<R: Read> Read for BoundedDecoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => {
                self.left = left;
                Ok(read)
            }
            None => {
                self.exceeded = true;
                Err(io::Error::new(io::ErrorKind::FileTooLarge, "the archive is too large"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
