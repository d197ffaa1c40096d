//! Recovery from a journal with entries that cannot be read any more, after the machine went down.
//!
//! The claims of a lost entry are known in part: from the rest of the entry, and from files that are as new as it is.
//! For all others two rules keep every promise. A claim that was being prepared, as far as is known, may have been
//! ready since: it is taken for one that was, and keeps its devices. A claim that a damaged entry still names, and of
//! which nothing else is known, is quarantined, with the devices that can still be read. A claim that a lost entry
//! took back may be there again: the kubelet or the API server says so later, and two claims of one device are
//! quarantined.

use std::{io::ErrorKind, ops::RangeInclusive, path::Path};

use hostler_api::{ClaimUid, listed};
use hostler_files::{Durability, FileReplacement, JournalContent, TemporaryName, read_trusted, replace};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{
    ClaimRecord, FORMAT, MOST_RECORD_BYTES, RecordState, StoreError, decode_numbered,
    entry::{EntryReader, LastWords},
    file, prepare_file, recorded, write_temporary,
};

/// Size limit of a journal: far more than one has.
const MOST_JOURNAL_BYTES: u64 = 256 << 20;

/// Ranges of entries that are listed: more make a log line too long to read.
const MOST_RANGES: usize = 8;

/// Copies the damaged journal to beside itself, as it was found, for people.
pub(super) fn keep_evidence(path: &Path) -> Result<(), StoreError> {
    let content = read_trusted(path, MOST_JOURNAL_BYTES)?;
    let (copy, temporary) = (evidence(path), TemporaryName::Fixed(".journal-damaged.tmp"));
    match replace(&FileReplacement { path: &copy, temporary, mode: 0o600, content: &content }, Durability::Unsynced) {
        Err(error) if error.source.kind() == ErrorKind::StorageFull => {
            warn!(path = %copy.display(), "no room for a copy of the damaged journal");
            Ok(())
        }
        done => Ok(done?),
    }
}

fn evidence(path: &Path) -> std::path::PathBuf {
    path.with_extension("journal.damaged")
}

/// Names the missing entries: `entries 7 to 9, entry 12 and all after entry 20`.
pub(super) fn missing_entries(content: &JournalContent) -> String {
    let words = |range: &RangeInclusive<u64>| match (*range.start(), *range.end()) {
        (1, u64::MAX) => "all entries".to_owned(),
        (from, u64::MAX) => format!("entry {from} and all after it"),
        (from, to) if from == to => format!("entry {from}"),
        (from, to) => format!("entries {from} to {to}"),
    };
    listed(MOST_RANGES, ", ", content.missing.iter().map(words))
}

/// Logs what cannot be read, and what that costs.
pub(super) fn tell(path: &Path, content: &JournalContent, is_this_boot: bool) {
    let (copy, missing) = (evidence(path), missing_entries(content));
    let (path, copy) = (path.display(), copy.display());
    if is_this_boot {
        warn!(%path, %copy, missing, "journal of the claim records is damaged; it was not needed, since the records are whole");
    } else {
        warn!(
            %path, %copy, missing,
            "journal of the claim records is damaged: claims may be missing or there again; compare `hostler claim list` with what runs"
        );
    }
}

/// Keeps the promises that missing entries may have made.
pub(super) fn mend(
    folder: &Path,
    content: &JournalContent,
    words: &LastWords,
    boot_id: &str,
) -> Result<(), StoreError> {
    for uid in recorded(folder)? {
        let found = read_trusted(&file(folder, &uid), MOST_RECORD_BYTES).ok();
        let Some((record, entry)) = found.as_deref().and_then(decode_numbered) else { continue };
        let is_half = record.state == RecordState::Preparing && record.boot_id != boot_id && record.claim.uid == uid;
        if is_half && content.is_missing_after(entry) {
            info!(claim.uid = %uid, "claim is taken for one that was ready: the journal's last word of it may be missing");
            let (file, path) =
                write_temporary(folder, &ClaimRecord { state: RecordState::Restoring, ..record }, entry)?;
            file.publish(&path)?;
        }
    }
    for (uid, bytes) in content.remains.iter().flat_map(|remains| named(remains)) {
        let path = file(folder, &uid);
        if words.claims.contains_key(&uid) || path.exists() {
            continue;
        }
        warn!(claim.uid = %uid, path = %path.display(), "claim stands in a damaged entry of the journal alone");
        prepare_file(&path, &uid, &bytes)?.publish(&path)?;
    }
    Ok(())
}

/// The claims that the remains of an entry have records of, each with a file that says what is left, and is no sound
/// record.
fn named(remains: &[u8]) -> Vec<(ClaimUid, Vec<u8>)> {
    let json = remains.iter().position(|byte| *byte == b'{').map_or(&[][..], |at| &remains[at..]);
    if let Ok(entry) = serde_json::from_slice::<EntryReader>(json) {
        let file = |record: ClaimRecord| Some((record.claim.uid.clone(), unsound(&serde_json::to_value(record).ok()?)));
        return entry.written.into_iter().filter_map(file).collect();
    }
    let text = String::from_utf8_lossy(remains);
    // Within the claim: pods have UIDs as well.
    let claims = text.split("\"claim\":").skip(1).filter_map(|rest| rest.split('}').next());
    let uids = claims.filter_map(|claim| claim.split_once("\"uid\":\"")?.1.split('"').next());
    uids.filter_map(|uid| Some((ClaimUid::new(uid).ok()?, remains.to_vec()))).collect()
}

/// A file with a record in it whose checksum says why it is not believed.
fn unsound(record: &Value) -> Vec<u8> {
    let checksum = "that of a damaged entry of claims.journal";
    let envelope = json!({"version": FORMAT.version, "checksum": checksum, FORMAT.field: record});
    format!("{envelope:#}\n").into_bytes()
}
