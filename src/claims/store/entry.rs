//! The lines of the journal: its head, its entries, and the last word of each claim in them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hostler_api::ClaimUid;
use hostler_files::{EnvelopeFormat, FinishedFile, JournalContent};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClaimRecord, ENTRY, StoreError, file, format_of, prepare_file};

/// The version of the entries, and of the records in them.
pub(super) const VERSION: u64 = 1;

/// Head of the journal, common to all entries of a generation.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct JournalHead {
    pub(super) version: u64,
    pub(super) boot: String,
}

/// A record as JSON, for the journal and for its file.
#[derive(Debug)]
pub(super) struct EncodedRecord {
    uid: ClaimUid,
    format: EnvelopeFormat,
    content: Value,
}

impl EncodedRecord {
    pub(super) fn new(record: &ClaimRecord) -> Result<Self, StoreError> {
        let uid = record.claim.uid.clone();
        match serde_json::to_value(record) {
            Ok(content) => Ok(Self { uid, format: format_of(record), content }),
            Err(source) => Err(StoreError::Encode { uid, source }),
        }
    }

    /// Writes the record's file under its temporary name, with the number of the entry that it is as new as.
    pub(super) fn write_temporary(&mut self, folder: &Path, entry: u64) -> Result<(FinishedFile, PathBuf), StoreError> {
        self.content[ENTRY] = entry.into();
        let encoded = self.format.encode_value(&self.content);
        // The journal has it in its own place.
        self.content.as_object_mut().and_then(|content| content.remove(ENTRY));
        let content = encoded.map_err(|source| StoreError::Encode { uid: self.uid.clone(), source })?;
        let path = file(folder, &self.uid);
        Ok((prepare_file(&path, &self.uid, &content)?, path))
    }
}

/// A change of records that is on the disk as a whole or not at all.
#[derive(Debug)]
pub(super) enum RecordChange {
    Written(Vec<EncodedRecord>),
    Removed(Vec<ClaimUid>),
}

impl RecordChange {
    /// Writes the files that the change brings, under their temporary names.
    pub(super) fn write_temporaries(
        &mut self,
        folder: &Path,
        entry: u64,
    ) -> Result<Vec<(FinishedFile, PathBuf)>, StoreError> {
        match self {
            Self::Written(records) => records.iter_mut().map(|record| record.write_temporary(folder, entry)).collect(),
            Self::Removed(_) => Ok(Vec::new()),
        }
    }

    fn written(&self) -> &[EncodedRecord] {
        match self {
            Self::Written(records) => records,
            Self::Removed(_) => &[],
        }
    }

    fn removed(&self) -> &[ClaimUid] {
        match self {
            Self::Written(_) => &[],
            Self::Removed(uids) => uids,
        }
    }
}

/// Changes that are on the disk together, as one line of JSON.
#[derive(Debug)]
pub(super) struct JournalEntry {
    pub(super) line: Vec<u8>,
    pub(super) written: Vec<ClaimUid>,
    pub(super) removed: Vec<ClaimUid>,
}

#[derive(Serialize)]
struct EntryWriter<'a> {
    written: Vec<&'a Value>,
    removed: &'a [ClaimUid],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryReader {
    pub(super) written: Vec<ClaimRecord>,
    pub(super) removed: Vec<ClaimUid>,
}

impl JournalEntry {
    pub(super) fn of<'a>(changes: impl Iterator<Item = &'a RecordChange> + Clone) -> Result<Self, StoreError> {
        let written = changes.clone().flat_map(RecordChange::written);
        let removed: Vec<ClaimUid> = changes.flat_map(RecordChange::removed).cloned().collect();
        let entry = EntryWriter { written: written.clone().map(|record| &record.content).collect(), removed: &removed };
        let line = serde_json::to_vec(&entry).map_err(|source| StoreError::Entry { source })?;
        Ok(Self { line, written: written.map(|record| record.uid.clone()).collect(), removed })
    }
}

/// Last record of each claim in a journal.
pub(super) struct LastWords {
    /// The boot in which the journal was written.
    pub(super) boot: Option<String>,
    pub(super) claims: BTreeMap<ClaimUid, LastWord>,
}

/// Last record of one claim in a journal.
pub(super) struct LastWord {
    /// The number of the entry, where the version that wrote it numbered them.
    pub(super) number: Option<u64>,
    /// Absent if the claim was taken back.
    pub(super) record: Option<ClaimRecord>,
}

impl LastWords {
    pub(super) fn read(path: &Path, content: &JournalContent) -> Result<Self, StoreError> {
        let head: Option<JournalHead> = content.head.as_deref().and_then(|head| serde_json::from_slice(head).ok());
        if let Some(JournalHead { version: found, .. }) = head
            && found > VERSION
        {
            return Err(StoreError::JournalVersion { path: path.to_owned(), found, known: VERSION });
        }
        let mut claims = BTreeMap::new();
        for line in &content.entries {
            let number = line.number;
            let entry: EntryReader = serde_json::from_slice(&line.content)
                .map_err(|source| StoreError::JournalEntry { path: path.to_owned(), number, source })?;
            let written = entry.written.into_iter().map(|record| (record.claim.uid.clone(), Some(record)));
            let words = written.chain(entry.removed.into_iter().map(|uid| (uid, None)));
            let number = content.is_numbered.then_some(number);
            claims.extend(words.map(|(uid, record)| (uid, LastWord { number, record })));
        }
        Ok(Self { boot: head.map(|head| head.boot), claims })
    }
}
