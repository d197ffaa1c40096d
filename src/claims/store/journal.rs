//! Journal of the record files: repeats their changes since the last checkpoint in one file, with one flush for a
//! change.
//!
//! ```text
//!   changes that wait, together: entry appended, flushed ──► files get their names, not flushed ──► done, and promised
//!              many entries ──► files flushed, folder flushed ──► next generation of the journal: checkpoint
//! ```
//!
//! A process that dies takes no file with it, so a start in the same boot believes the files. A machine that goes
//! down does: after a reboot, the last entry of a claim in the journal counts, and the claim's file is made to say
//! the same, unless the file is as new as a later entry.
//!
//! A version that knows no journal may have worked here in between, on files that the journal says other things of.
//! Such a version removes every file that is named like a half-written one, so one of that name is kept as a witness:
//! if it is gone, the files are believed.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use hostler_api::{Chain, ClaimUid, few};
use hostler_files::{
    Durability, FileError, FileReplacement, FinishedFile, Journal, TemporaryName, open_file, read_trusted, replace,
    sync_folder,
};
use tracing::{info, warn};

use super::{
    ClaimRecord, MOST_RECORD_BYTES, StoreError, damage, decode_numbered,
    entry::{JournalEntry, JournalHead, LastWord, LastWords, RecordChange, VERSION},
    file,
    group::GroupMember,
    recorded, remove_file, write_temporary,
};

/// Name of the journal, beside the folder.
const NAME: &str = "claims.journal";

/// A file among the records that every version without a journal removes when it starts. No claim's file can have the
/// name.
pub(super) const WITNESS: &str = ".journal_kept.tmp";

/// Room for the changes of several hundred claims: a checkpoint flushes a file for each claim that is still there.
const ROOM: u64 = 1 << 20;

/// Filling, in percent of the room, from which a checkpoint is made while no caller waits. The rest is left for calls
/// that come before that.
const TIDY_FROM: u64 = 50;

/// Largest size, in percent of the room: a start reads no more than twice that.
const MOST_FILLING: u64 = 12_800;

/// A change among those that are made together.
type RecordMember = GroupMember<RecordChange, Arc<StoreError>>;

/// The journal of a folder of records, and the files that it still has to vouch for.
#[derive(Debug)]
pub(super) struct RecordJournal {
    folder: PathBuf,
    journal: Journal,
    boot_id: String,
    /// Files that may not be on the disk yet. Their names may not be either, nor that others are gone.
    unflushed: BTreeSet<ClaimUid>,
    /// Filling, in percent of the room, from which nothing is appended before the files have been flushed, or could
    /// not be.
    full_at: u64,
}

impl RecordJournal {
    pub(super) fn open(folder: &Path, boot_id: &str) -> Result<Self, StoreError> {
        let path = folder.with_file_name(NAME);
        let (mut journal, content) = Journal::open(&path, ROOM)?;
        let words = LastWords::read(&path, &content)?;
        let mut unflushed: BTreeSet<ClaimUid> = words.claims.keys().cloned().collect();
        let is_this_boot = words.boot.as_deref() == Some(boot_id);
        if !content.missing.is_empty() {
            damage::keep_evidence(&path)?;
            damage::tell(&path, &content, is_this_boot);
        } else if content.is_cut_off {
            info!(path = %path.display(), "last entry of the journal was cut off, before it was promised");
        }
        if !is_this_boot && content.is_numbered && !folder.join(WITNESS).exists() {
            tell_others_were_here(folder, &path, &words);
        } else if !is_this_boot {
            for (uid, word) in &words.claims {
                replay(folder, uid, word, boot_id)?;
            }
            if !content.missing.is_empty() {
                damage::mend(folder, &content, &words, boot_id)?;
            }
        }
        if !content.missing.is_empty() {
            // The claims of the missing entries may not be on the disk yet, and nothing says which they are.
            unflushed.extend(recorded(folder)?);
        }
        if content.head.is_none() || !content.missing.is_empty() || !content.is_numbered {
            journal.number_above(last_number(folder)?);
        }
        keep_witness(folder)?;
        let (folder, boot_id) = (folder.to_owned(), boot_id.to_owned());
        let mut journal = Self { folder, journal, boot_id, unflushed, full_at: 100 };
        journal.checkpoint()?;
        Ok(journal)
    }

    /// Makes changes with one entry and one flush. A change whose own files cannot be written fails alone; where the
    /// entry cannot be put on the disk all of them fail, and none has changed a file.
    ///
    /// The journal has the word before any file has its name: a file that a start finds is one that the journal
    /// vouches for, also when this process dies in between and the machine a moment later.
    pub(super) fn change(&mut self, group: &mut [RecordMember]) {
        let number = self.journal.next_number();
        let mut files = Vec::with_capacity(group.len());
        for member in &mut *group {
            let written = member.job.write_temporaries(&self.folder, number).map_err(Arc::new);
            files.push(written.map_err(|error| member.result = Err(error)).unwrap_or_default());
        }
        let mut sound: Vec<_> = group.iter_mut().zip(files).filter(|(member, _)| member.result.is_ok()).collect();
        if sound.is_empty() {
            return;
        }
        let entry = JournalEntry::of(sound.iter().map(|(member, _)| &member.job));
        let appended = entry.and_then(|entry| self.append(&entry)).map_err(Arc::new);
        for (member, files) in &mut sound {
            let publish = |(file, path): (FinishedFile, PathBuf)| Ok(file.publish(&path).map_err(StoreError::from)?);
            member.result = appended.clone().and_then(|()| files.drain(..).try_for_each(publish));
        }
    }

    /// Puts an entry on the disk; its files are about to be written, or have been removed. If files cannot be flushed
    /// the journal goes on and grows: it has their content.
    fn append(&mut self, entry: &JournalEntry) -> Result<(), StoreError> {
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

    pub(super) fn is_due(&self) -> bool {
        self.journal.filling() >= TIDY_FROM
    }

    pub(super) fn tidy(&mut self) -> Result<(), StoreError> {
        if self.is_due() { self.checkpoint() } else { Ok(()) }
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

/// The last records of claims in the journal beside `folder`, for processes that only look.
pub(super) fn last_records(folder: &Path) -> Result<(PathBuf, Vec<ClaimRecord>), StoreError> {
    let path = folder.with_file_name(NAME);
    let mut content = Journal::look(&path, ROOM)?;
    if !content.missing.is_empty() {
        // A line that was half written is whole a moment later.
        content = Journal::look(&path, ROOM)?;
    }
    if !content.missing.is_empty() {
        return Err(StoreError::JournalDamaged { path, entries: damage::missing_entries(&content) });
    }
    let words = LastWords::read(&path, &content)?;
    Ok((path, words.claims.into_values().filter_map(|word| word.record).collect()))
}

/// Makes the file of a claim say what the journal says; not a file that is as new, and not one that was written in
/// this boot, by a version of hostler that knows no journal.
fn replay(folder: &Path, uid: &ClaimUid, word: &LastWord, boot_id: &str) -> Result<(), StoreError> {
    let path = file(folder, uid);
    let found = read_trusted(&path, MOST_RECORD_BYTES);
    let sound = found.as_ref().ok().and_then(|bytes| decode_numbered(bytes)).filter(|(file, _)| file.claim.uid == *uid);
    if sound.is_some_and(|(file, entry)| file.boot_id == boot_id || word.number.is_some_and(|number| entry >= number)) {
        return Ok(());
    }
    let Some(record) = &word.record else { return remove_file(&path) };
    match found {
        Ok(_) => info!(claim.uid = %uid, "record written again from the journal"),
        Err(error) => info!(claim.uid = %uid, error = %Chain(&error), "record written again from the journal"),
    }
    let (file, path) = write_temporary(folder, record, word.number.unwrap_or_default())?;
    Ok(file.publish(&path)?)
}

/// Logs the claims of which a version without a journal left no record: it took them back, or they were lost before.
fn tell_others_were_here(folder: &Path, path: &Path, words: &LastWords) {
    let recorded = words.claims.iter().filter(|(_, word)| word.record.is_some());
    let gone: Vec<&ClaimUid> = recorded.map(|(uid, _)| uid).filter(|uid| !file(folder, uid).exists()).collect();
    let path = path.display();
    if gone.is_empty() {
        info!(%path, "a version without a journal worked here since; the records stand as it left them");
    } else {
        warn!(%path, claims = few(gone), "a version without a journal worked here since, and these claims have no record");
    }
}

/// The highest number that a file of the folder has.
fn last_number(folder: &Path) -> Result<u64, StoreError> {
    let number = |uid: &ClaimUid| Some(decode_numbered(&read_trusted(&file(folder, uid), MOST_RECORD_BYTES).ok()?)?.1);
    Ok(recorded(folder)?.iter().filter_map(number).max().unwrap_or_default())
}

/// Makes the witness anew where it is gone. The flush of the folder puts its name on the disk.
fn keep_witness(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(WITNESS);
    if path.exists() {
        return Ok(());
    }
    let temporary = TemporaryName::Fixed(".witness.tmp");
    // Empty: a full disk has room for it.
    Ok(replace(&FileReplacement { path: &path, temporary, mode: 0o600, content: b"" }, Durability::Synced)?)
}
