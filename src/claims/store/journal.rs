//! What the record files say since the last checkpoint, once more, in one file that takes one flush for a change.
//!
//! ```text
//!   entry appended, flushed ──► files get their names, not flushed ──► done, and promised
//!                          many entries ──► files flushed, folder flushed ──► next generation of the journal: checkpoint
//! ```
//!
//! A process that dies takes no file with it, so a start in the same boot believes the files. A machine that goes down
//! does: after a reboot, the last word that the journal has of a claim counts, and its file is made to say the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use hostler_api::{Chain, ClaimUid};
use hostler_files::{FileError, Journal, JournalContent, open_file, read_trusted, sync_folder};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{ClaimRecord, MOST_RECORD_BYTES, StoreError, decode, encode, file, remove_file, write_temporary};

/// What the journal is called, beside the folder.
const NAME: &str = "claims.journal";

/// Room for the changes of several hundred claims: a checkpoint flushes a file for each claim that is still there.
const ROOM: u64 = 1 << 20;

/// From here on, in percent of the room, a checkpoint is made when nobody waits. What is above it is left for those who
/// come before that.
const TIDY_FROM: u64 = 50;

/// What it may grow to, in percent of the room: a start reads no more than twice that.
const MOST_FILLING: u64 = 12_800;

/// The version of the entries, and of the records in them.
const VERSION: u64 = 1;

/// What all entries of a generation have in common.
#[derive(Debug, Deserialize, Serialize)]
struct JournalHead {
    version: u64,
    boot: String,
}

/// Records that were written or removed together, as one line of JSON.
#[derive(Debug)]
pub(super) struct JournalEntry {
    line: Vec<u8>,
    written: Vec<ClaimUid>,
    removed: Vec<ClaimUid>,
}

#[derive(Serialize)]
struct EntryWriter<'a> {
    written: &'a [&'a ClaimRecord],
    removed: &'a [&'a ClaimUid],
}

#[derive(Deserialize)]
struct EntryReader {
    written: Vec<ClaimRecord>,
    removed: Vec<ClaimUid>,
}

impl JournalEntry {
    pub(super) fn written(records: &[&ClaimRecord]) -> Result<Self, StoreError> {
        let line = serde_json::to_vec(&EntryWriter { written: records, removed: &[] });
        let written: Vec<ClaimUid> = records.iter().map(|record| record.claim.uid.clone()).collect();
        Self::new(line, written, Vec::new())
    }

    pub(super) fn removed(uids: &[&ClaimUid]) -> Result<Self, StoreError> {
        let line = serde_json::to_vec(&EntryWriter { written: &[], removed: uids });
        Self::new(line, Vec::new(), uids.iter().copied().cloned().collect())
    }

    fn new(
        line: Result<Vec<u8>, serde_json::Error>,
        written: Vec<ClaimUid>,
        removed: Vec<ClaimUid>,
    ) -> Result<Self, StoreError> {
        let line = line.map_err(|source| StoreError::Entry { source })?;
        Ok(Self { line, written, removed })
    }
}

/// The journal of a folder of records, and the files that it still has to vouch for.
#[derive(Debug)]
pub(super) struct RecordJournal {
    folder: PathBuf,
    journal: Journal,
    boot_id: String,
    /// Files that may not be on the disk yet. Their names may not be either, nor that others are gone.
    unflushed: BTreeSet<ClaimUid>,
    /// From how much of its room on, in percent, nothing is appended before the files have been flushed, or could not be.
    full_at: u64,
}

impl RecordJournal {
    pub(super) fn open(folder: &Path, boot_id: &str) -> Result<Self, StoreError> {
        let path = folder.with_file_name(NAME);
        let (journal, content) = Journal::open(&path, ROOM)?;
        if content.damaged > 0 {
            warn!(path = %path.display(), lines = content.damaged, "journal of the claim records is damaged; the records stand");
        }
        let (boot, last_words) = read(&path, &content)?;
        let unflushed = last_words.keys().cloned().collect();
        if boot.as_deref() != Some(boot_id) {
            for (uid, last_word) in &last_words {
                replay(folder, uid, last_word.as_ref(), boot_id)?;
            }
        }
        let (folder, boot_id) = (folder.to_owned(), boot_id.to_owned());
        let mut journal = Self { folder, journal, boot_id, unflushed, full_at: 100 };
        journal.checkpoint()?;
        Ok(journal)
    }

    /// Puts an entry on the disk; its files are about to be written, or have been removed. Where files cannot be flushed
    /// the journal goes on and grows: what they have is in it.
    pub(super) fn append(&mut self, entry: &JournalEntry) -> Result<(), StoreError> {
        let filling = self.journal.filling();
        if filling >= self.full_at {
            match self.checkpoint() {
                Err(error) if filling < MOST_FILLING => {
                    self.full_at = filling + 100;
                    warn!(error = %Chain(&error), "records are not flushed; their journal goes on");
                }
                done => done?,
            }
        }
        self.unflushed.extend(entry.written.iter().cloned());
        self.journal.append(&entry.line)?;
        for uid in &entry.removed {
            self.unflushed.remove(uid);
        }
        Ok(())
    }

    pub(super) fn tidy(&mut self) -> Result<(), StoreError> {
        if self.journal.filling() >= TIDY_FROM { self.checkpoint() } else { Ok(()) }
    }

    pub(super) fn checkpoint(&mut self) -> Result<(), StoreError> {
        for uid in &self.unflushed {
            flush(&file(&self.folder, uid))?;
        }
        sync_folder(&self.folder)?;
        let head = JournalHead { version: VERSION, boot: self.boot_id.clone() };
        let head = serde_json::to_vec(&head).map_err(|source| StoreError::Entry { source })?;
        self.journal.begin(&head)?;
        self.unflushed.clear();
        self.full_at = 100;
        Ok(())
    }
}

fn flush(path: &Path) -> Result<(), FileError> {
    match open_file(path) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.0.sync_all().map_err(FileError::at("sync", path)),
    }
}

/// In which boot a journal was written, and the last that it says of each claim: its record, or that it has none.
type LastWords = (Option<String>, BTreeMap<ClaimUid, Option<ClaimRecord>>);

fn read(path: &Path, content: &JournalContent) -> Result<LastWords, StoreError> {
    let head: Option<JournalHead> = content.head.as_deref().and_then(|head| serde_json::from_slice(head).ok());
    if let Some(JournalHead { version: found, .. }) = head
        && found > VERSION
    {
        return Err(StoreError::JournalVersion { path: path.to_owned(), found, known: VERSION });
    }
    let mut last_words = BTreeMap::new();
    for entry in &content.entries {
        let entry: EntryReader = serde_json::from_slice(entry).map_err(|source| StoreError::Entry { source })?;
        let written = entry.written.into_iter().map(|record| (record.claim.uid.clone(), Some(record)));
        last_words.extend(written.chain(entry.removed.into_iter().map(|uid| (uid, None))));
    }
    Ok((head.map(|head| head.boot), last_words))
}

/// The last records that the journal beside `folder` has of claims, for those who only look.
pub(super) fn last_records(folder: &Path) -> Result<(PathBuf, Vec<ClaimRecord>), StoreError> {
    let path = folder.with_file_name(NAME);
    let content = Journal::look(&path)?;
    if content.damaged > 0 {
        return Err(StoreError::JournalDamaged { path, lines: content.damaged });
    }
    let (_, last_words) = read(&path, &content)?;
    Ok((path, last_words.into_values().flatten().collect()))
}

/// Makes the file of a claim say what the journal says; not one that was written in this boot, by a version of hostler that
/// knows no journal.
fn replay(folder: &Path, uid: &ClaimUid, last_word: Option<&ClaimRecord>, boot_id: &str) -> Result<(), StoreError> {
    let path = file(folder, uid);
    let is_newer = |found: Vec<u8>| decode(&found).is_ok_and(|record| record.boot_id == boot_id);
    if read_trusted(&path, MOST_RECORD_BYTES).is_ok_and(is_newer) {
        return Ok(());
    }
    let Some(record) = last_word else { return remove_file(&path) };
    let content = encode(record).map_err(|source| StoreError::Encode { uid: uid.clone(), source })?;
    match read_trusted(&path, MOST_RECORD_BYTES) {
        Ok(found) if found == content => return Ok(()),
        Ok(_) => info!(claim.uid = %uid, "record written again from the journal"),
        Err(error) => info!(claim.uid = %uid, error = %Chain(&error), "record written again from the journal"),
    }
    let (file, path) = write_temporary(folder, record)?;
    Ok(file.publish(&path)?)
}
