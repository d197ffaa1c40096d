//! The lines of the journal: its head, its entries, and the last word of each claim in them.

use std::{collections::BTreeMap, path::Path};

use hostler_api::ClaimUid;
use hostler_files::JournalContent;
use serde::{Deserialize, Serialize};

use super::{ClaimRecord, StoreError};

/// The version of the entries, and of the records in them.
pub(super) const VERSION: u64 = 1;

/// Head of the journal, common to all entries of a generation.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct JournalHead {
    pub(super) version: u64,
    pub(super) boot: String,
}

/// Records that were written or removed together, as one line of JSON.
#[derive(Debug)]
pub(super) struct JournalEntry {
    pub(super) line: Vec<u8>,
    pub(super) written: Vec<ClaimUid>,
    pub(super) removed: Vec<ClaimUid>,
}

#[derive(Serialize)]
struct EntryWriter<'a> {
    written: &'a [&'a ClaimRecord],
    removed: &'a [&'a ClaimUid],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryReader {
    pub(super) written: Vec<ClaimRecord>,
    pub(super) removed: Vec<ClaimUid>,
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
