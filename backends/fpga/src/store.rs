//! The store of bitstreams: a folder of root's with two files for each, the content and the record.
//!
//! ```text
//!   <sha256>.bin    the file as it was added
//!   <sha256>.json   name, format, size and ids; written last: without it there is no bitstream
//! ```
//!
//! `hostler bitstream add` writes, the daemon reads. What is in the store ends up in hardware, so a folder or file that
//! others could have changed is refused, links are not followed, and a content is hashed whenever it is used.

mod access;
mod add;
#[cfg(test)]
mod tests;
mod verify;

use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
};

use hostler_files::{FileError, TrustError, read_trusted};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::bitstream::{BitstreamDigest, BitstreamFormat, BitstreamHeader, Guid, HeaderError};

pub use add::{AddedBitstream, BitstreamDetails};
pub use verify::StoreFinding;

/// The largest file that is taken: a multiple of the largest partial image, and held in memory while it is programmed.
pub const MOST_BYTES: u64 = 512 << 20;

/// The version of the `.json` files.
const VERSION: u32 = 1;

/// The store in a folder. Cheap: nothing is opened before the first use.
#[derive(Clone, Debug)]
pub struct BitstreamStore {
    folder: PathBuf,
}

/// Record of a bitstream.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bitstream {
    /// Name of the bitstream, unique in the store.
    pub name: String,
    /// The SHA-256 digest of the file.
    pub digest: BitstreamDigest,
    /// Layout of the file.
    pub format: BitstreamFormat,
    /// The size of the file.
    pub size_bytes: u64,
    /// Interface that a region must offer for this bitstream.
    #[serde(rename = "interfaceID")]
    pub interface_id: Guid,
    /// Value that the kernel shows as `afu_id` once the bitstream is programmed.
    #[serde(rename = "afuID")]
    pub afu_id: Guid,
    /// Time of adding, in seconds since 1970.
    pub added: u64,
}

impl fmt::Display for Bitstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.digest.short())
    }
}

/// The content of a `.json` file.
#[derive(Deserialize, Serialize)]
struct BitstreamRecord {
    version: u32,
    #[serde(flatten)]
    bitstream: Bitstream,
}

/// Reason why the store could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or folder could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file or folder cannot be read, or another user may have changed it.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A `.json` file cannot be read.
    #[error("failed to read {}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Place and cause of the failure.
        #[source]
        source: serde_json::Error,
    },
    /// A `.json` file contradicts itself, its name or another one.
    #[error("{} {reason}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        reason: String,
    },
    /// The file to be added is no bitstream.
    #[error("{} cannot be added", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// Cause of the refusal.
        #[source]
        source: HeaderError,
    },
    /// A request that the store refuses.
    #[error("{0}")]
    Refused(String),
    /// The content is not what its name says.
    #[error("{} is damaged: its digest is {found}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Digest of the content that is there.
        found: BitstreamDigest,
    },
}

impl StoreError {
    fn file(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let failed = FileError::at(step, path);
        move |source| failed(source).into()
    }
}

impl BitstreamStore {
    /// The store in `folder`, which need not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every bitstream, by name. A store that is not there yet is empty.
    ///
    /// # Errors
    /// When the folder or one of its files cannot be read or trusted.
    pub fn list(&self) -> Result<Vec<Bitstream>, StoreError> {
        match self.readable()? {
            (all, None) => Ok(all),
            (_, Some(error)) => Err(error),
        }
    }

    /// The bitstream that a claim calls by its digest, its name, or the path of its file in the folder. A record that
    /// makes no sense does not keep other bitstreams from being found.
    ///
    /// # Errors
    /// When there is none, with a list of those that there are; or when the store cannot be read.
    pub fn find(&self, reference: &str) -> Result<Bitstream, StoreError> {
        let name = self.inside(reference)?;
        let (all, broken) = self.readable()?;
        let digest = BitstreamDigest::parse(name.strip_suffix(".bin").unwrap_or(name));
        let mut found =
            all.iter().filter(|one| digest.as_ref().map_or(one.name == name, |digest| one.digest == *digest));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(one), Some(other)) => {
                let text = format!("{reference:?} is the name of {} and of {}", one.digest, other.digest);
                Err(StoreError::Refused(format!("{text}; write the digest")))
            }
            (None, _) => Err(broken.unwrap_or_else(|| {
                StoreError::Refused(format!("{reference:?} is no bitstream of the store: {}", listed(&all)))
            })),
        }
    }

    /// Takes a bitstream out of the store. One that is not there any more is no error.
    ///
    /// # Errors
    /// When the folder cannot be trusted, or a file not be removed.
    pub fn remove(&self, digest: &BitstreamDigest) -> Result<(), StoreError> {
        // Its existence and its owner are looked at; the names do not matter.
        access::names(&self.folder)?;
        // Without its record there is no bitstream: a crash in between leaves a file that `verify` names.
        access::remove(&self.record_path(digest))?;
        access::remove(&self.content_path(digest))
    }

    /// The bitstreams whose records make sense, and the error of the first other one.
    fn readable(&self) -> Result<(Vec<Bitstream>, Option<StoreError>), StoreError> {
        let (mut all, mut broken) = (Vec::new(), None);
        for digest in self.digests()? {
            match self.record(&digest) {
                Ok(bitstream) => all.push(bitstream),
                Err(error) => broken = broken.or(Some(error)),
            }
        }
        all.sort_by(|a, b| (&a.name, &a.digest).cmp(&(&b.name, &b.digest)));
        Ok((all, broken))
    }

    /// The bytes to program: the content of the file without its header, after its digest was found to be right.
    ///
    /// # Errors
    /// When the content is absent, damaged, or cannot be read or trusted.
    pub fn image(&self, digest: &BitstreamDigest) -> Result<Vec<u8>, StoreError> {
        let (mut bytes, header) = self.content(digest)?;
        drop(bytes.drain(..header.image_at));
        Ok(bytes)
    }

    /// A whole file, hashed, with the facts that its beginning states.
    fn content(&self, digest: &BitstreamDigest) -> Result<(Vec<u8>, BitstreamHeader), StoreError> {
        let path = self.content_path(digest);
        let bytes = read_trusted(&path, MOST_BYTES)?;
        let found = BitstreamDigest::of_bytes(&Sha256::digest(&bytes));
        if found != *digest {
            return Err(StoreError::Damaged { path, found });
        }
        match BitstreamHeader::read(&bytes, bytes.len() as u64) {
            Ok(header) => Ok((bytes, header)),
            Err(source) => Err(StoreError::Header { path, source }),
        }
    }

    /// A reference without the store's folder in front. A reference with another folder in it leads out of the store.
    fn inside<'a>(&self, reference: &'a str) -> Result<&'a str, StoreError> {
        let name = match Path::new(reference).strip_prefix(&self.folder) {
            Ok(name) => name.to_str().unwrap_or_default(),
            Err(_) => reference,
        };
        if name.contains('/') || matches!(name, "" | "." | "..") {
            let text = format!("{reference:?} leads out of the store of bitstreams, {}", self.folder.display());
            return Err(StoreError::Refused(format!(
                "{text}; write a digest or a name that `hostler bitstream list` shows"
            )));
        }
        Ok(name)
    }

    fn digests(&self) -> Result<Vec<BitstreamDigest>, StoreError> {
        let digest = |name: &String| BitstreamDigest::parse(name.strip_suffix(".json")?);
        Ok(access::names(&self.folder)?.iter().filter_map(digest).collect())
    }

    fn record(&self, digest: &BitstreamDigest) -> Result<Bitstream, StoreError> {
        /// Records have a few hundred bytes.
        const MOST_RECORD_BYTES: u64 = 64 * 1024;
        let path = self.record_path(digest);
        let bytes = read_trusted(&path, MOST_RECORD_BYTES)?;
        let record: BitstreamRecord = match serde_json::from_slice(&bytes) {
            Ok(record) => record,
            Err(source) => return Err(StoreError::Record { path, source }),
        };
        if record.version != VERSION {
            let reason = format!("has version {}; this hostler reads {VERSION}", record.version);
            return Err(StoreError::Contradiction { path, reason });
        }
        if record.bitstream.digest != *digest {
            let reason = format!("is about another file, {}", record.bitstream.digest);
            return Err(StoreError::Contradiction { path, reason });
        }
        Ok(record.bitstream)
    }

    fn content_path(&self, digest: &BitstreamDigest) -> PathBuf {
        self.folder.join(format!("{digest}.bin"))
    }

    fn record_path(&self, digest: &BitstreamDigest) -> PathBuf {
        self.folder.join(format!("{digest}.json"))
    }
}

/// Lists the bitstreams of the store, for a message about a reference to none of them.
fn listed(all: &[Bitstream]) -> String {
    /// More would not fit into an event.
    const MOST: usize = 10;
    if all.is_empty() {
        return "it is empty; `hostler bitstream add` fills it".to_owned();
    }
    format!("it has {}", hostler_api::listed(MOST, ", ", all))
}

/// An error with everything below it.
pub(crate) fn chain(error: &dyn Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
