//! Adding a bitstream: content first, under its digest, then the record that makes it one.

use std::{
    io::{self, Read, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use hostler_files::{Durability, PendingFile, TemporaryName, open_file};
use sha2::{Digest as _, Sha256};

use super::{Bitstream, BitstreamRecord, BitstreamStore, MOST_BYTES, StoreError, VERSION, access};
use crate::bitstream::{BitstreamDigest, BitstreamHeader, Guid};

/// The longest name. It has to fit on a line with everything else.
const MOST_NAME_BYTES: usize = 64;

/// Details that the operator gives with a file.
#[derive(Clone, Debug, Default)]
pub struct BitstreamDetails {
    /// Name for the bitstream; by default that of the file, without its suffix.
    pub name: Option<String>,
    /// Interface that a region must offer: needed where the file does not name it.
    pub interface_id: Option<Guid>,
    /// Value that the kernel will show as `afu_id`: needed where the file does not name it.
    pub afu_id: Option<Guid>,
}

/// Result of adding a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddedBitstream {
    /// The bitstream, as it is in the store now.
    pub bitstream: Bitstream,
    /// True if the store had the bitstream already.
    pub already: bool,
}

/// A copy of a file in the store's folder, without a name yet.
struct BitstreamCopy {
    file: PendingFile,
    digest: BitstreamDigest,
    header: BitstreamHeader,
    size_bytes: u64,
}

impl BitstreamStore {
    /// Adds a copy of `path`. A bitstream that is there already, under the same name, is left as it is.
    ///
    /// # Errors
    /// When the file is no bitstream, contradicts the details or says too little; when the name is taken; or when a
    /// file or folder cannot be used.
    pub fn add(&self, path: &Path, details: &BitstreamDetails) -> Result<AddedBitstream, StoreError> {
        let name = match &details.name {
            Some(name) => name.clone(),
            None => path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned(),
        };
        check_name(&name)?;
        let folder = access::make(&self.folder)?;
        // Held until the end: of two processes that add under one name, the second finds the first's bitstream.
        folder.lock().map_err(StoreError::file("lock", &self.folder))?;
        let copy = self.copy(path)?;
        let bitstream = describe(name, &copy, details)?;
        if let Some(known) = self.known(&bitstream)? {
            return Ok(AddedBitstream { bitstream: known, already: true });
        }
        persist(copy.file, &self.content_path(&bitstream.digest))?;
        self.write_record(&bitstream)?;
        folder.sync_all().map_err(StoreError::file("sync", &self.folder))?;
        Ok(AddedBitstream { bitstream, already: false })
    }

    /// The same bitstream, where the store has it. A record that makes no sense is mended by adding its file again.
    fn known(&self, new: &Bitstream) -> Result<Option<Bitstream>, StoreError> {
        let (all, _) = self.readable()?;
        if let Some(known) = all.iter().find(|known| known.digest == new.digest) {
            let same = Bitstream { added: known.added, ..new.clone() } == *known;
            // A content that was lost or damaged since is mended by adding it again.
            let whole = || self.image(&known.digest).is_ok();
            return match same {
                true => Ok(whole().then(|| known.clone())),
                false => Err(StoreError::Refused(format!(
                    "the store has this file already, as {} with interface id {} and AFU id {}",
                    known.name, known.interface_id, known.afu_id
                ))),
            };
        }
        match all.iter().find(|known| known.name == new.name) {
            Some(known) => Err(StoreError::Refused(format!(
                "the name {} is taken by {}; choose another one with --name",
                known.name, known.digest
            ))),
            None => Ok(None),
        }
    }

    fn copy(&self, path: &Path) -> Result<BitstreamCopy, StoreError> {
        let (mut source, _) = open_file(path)?;
        let mut file = self.pending()?;
        let mut beginning = Vec::new();
        let first = (&mut source).take(BitstreamHeader::MOST_BYTES as u64).read_to_end(&mut beginning);
        first.map_err(StoreError::file("read", path))?;
        let mut hash = HashingWriter { file: &mut file, hash: Sha256::new() };
        // One byte more than may be: a longer file is noticed, also one that grows.
        let rest = (&mut source).take(MOST_BYTES + 1 - beginning.len() as u64);
        let copied = hash.write_all(&beginning).and_then(|()| io::copy(&mut { rest }, &mut hash));
        let size_bytes = copied.map_err(StoreError::file("copy", path))? + beginning.len() as u64;
        if size_bytes > MOST_BYTES {
            return Err(StoreError::Refused(format!("{} has more than {MOST_BYTES} bytes", path.display())));
        }
        let digest = BitstreamDigest::of_bytes(&hash.hash.finalize());
        let header = BitstreamHeader::read(&beginning, size_bytes);
        let header = header.map_err(|source| StoreError::Header { path: path.to_owned(), source })?;
        Ok(BitstreamCopy { file, digest, header, size_bytes })
    }

    fn pending(&self) -> Result<PendingFile, StoreError> {
        let name = TemporaryName::Unique { prefix: ".adding-", suffix: "" };
        PendingFile::create(&self.folder, name, 0o600).map_err(StoreError::file("make a file in", &self.folder))
    }

    pub(super) fn write_record(&self, bitstream: &Bitstream) -> Result<(), StoreError> {
        let path = self.record_path(&bitstream.digest);
        let record = BitstreamRecord { version: VERSION, bitstream: bitstream.clone() };
        let text = serde_json::to_string_pretty(&record)
            .map_err(|source| StoreError::Record { path: path.clone(), source })?;
        let mut file = self.pending()?;
        writeln!(file, "{text}").map_err(StoreError::file("write", file.path()))?;
        persist(file, &path)
    }
}

/// Gives a whole file its name. The caller syncs the folder, once for both files.
fn persist(file: PendingFile, path: &Path) -> Result<(), StoreError> {
    let failed = StoreError::file("sync", file.path());
    let file = file.finish(Durability::Synced).map_err(failed)?;
    Ok(file.publish(path).map_err(|error| error.as_part_of("write", path))?)
}

fn describe(name: String, copy: &BitstreamCopy, details: &BitstreamDetails) -> Result<Bitstream, StoreError> {
    let BitstreamHeader { format, interface_id, afu_id, .. } = &copy.header;
    Ok(Bitstream {
        name,
        digest: copy.digest.clone(),
        format: *format,
        size_bytes: copy.size_bytes,
        interface_id: agreed("interface id", "--interface-id", interface_id.as_ref(), details.interface_id.as_ref())?,
        afu_id: agreed("AFU id", "--afu-id", afu_id.as_ref(), details.afu_id.as_ref())?,
        added: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    })
}

/// Merges the id in the file with the id that was given with it; both must agree.
fn agreed(what: &str, option: &str, file: Option<&Guid>, given: Option<&Guid>) -> Result<Guid, StoreError> {
    match (file, given) {
        (Some(file), Some(given)) if file != given => {
            Err(StoreError::Refused(format!("the file says {what} {file}, and {option} says {given}")))
        }
        (Some(id), _) | (None, Some(id)) => Ok(id.clone()),
        (None, None) => Err(StoreError::Refused(format!("the file does not say its {what}; give it with {option}"))),
    }
}

fn check_name(name: &str) -> Result<(), StoreError> {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !(first && rest && name.len() <= MOST_NAME_BYTES) {
        let rule =
            format!("1 to {MOST_NAME_BYTES} of a-z, A-Z, 0-9, '.', '_' and '-', beginning with a letter or digit");
        return Err(StoreError::Refused(format!("{name:?} is not a name: {rule}; choose one with --name")));
    }
    if BitstreamDigest::parse(name.strip_suffix(".bin").unwrap_or(name)).is_some() {
        return Err(StoreError::Refused(format!("{name:?} looks like a digest; choose another name with --name")));
    }
    Ok(())
}

/// Hashes what is written to the file.
struct HashingWriter<'a> {
    file: &'a mut PendingFile,
    hash: Sha256,
}

impl Write for HashingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
