//! Claim records on disk: one readable JSON file per claim, versioned and checksummed, written so that a crash at any
//! moment leaves the old record or the new one.
//!
//! ```text
//! <state>/claims/<uid>.json   {"version": 1, "checksum": "crc32:…", "record": {…}}
//! <state>/claims.journal      what the files say since the last checkpoint, once more: see [`journal`]
//! ```
//!
//! All readers read the files, people too. They are not flushed one by one: the journal is, and a start after the
//! machine went down writes from it whatever the files have lost.
//!
//! A record says which entry of the journal it is as new as, so that nothing older ever replaces it.
//!
//! A record of a claim that is made ready again after a reboot has version 2: versions of hostler that do not know this
//! state must not take it for another.
//!
//! Writer: the claims task, through [`RecordDir`]. The checksum is taken over the compact JSON of `record` as it stands
//! in the file, so a field that a later version adds does not break it.

mod damage;
mod entry;
mod group;
mod journal;

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hostler_api::{
    BackendName, Chain, ClaimRef, ClaimUid, DeviceName, Grant, QualifiedName, Quantity,
    resource::ResourceClaimConsumerReference,
};
use hostler_backend::{ContainerEdits, CounterUse, DevicePlan};
use hostler_files::{
    Durability, EnvelopeError, EnvelopeFormat, FileError, FileReplacement, FinishedFile, TemporaryName, TrustError,
    read_trusted, trust,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::{
    entry::{EncodedRecord, RecordChange},
    group::GroupCommit,
    journal::RecordJournal,
};

const FORMAT: EnvelopeFormat =
    EnvelopeFormat { version: 2, field: "record", what: "a claim record", remedy: ": upgrade hostler" };

/// Format for versions of hostler that know no [`RecordState::Restoring`].
const FORMAT_1: EnvelopeFormat = EnvelopeFormat { version: 1, ..FORMAT };

/// The field of a record that says which entry of the journal it is as new as. Records of earlier versions have none.
const ENTRY: &str = "journal_entry";

/// Largest size of a record: far more than 128 grants with all the configuration that the API server takes.
pub const MOST_RECORD_BYTES: u64 = 16 << 20;

/// Complete record of a claim: nothing else is needed to take the claim back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ClaimRecord {
    /// The claim.
    pub claim: ClaimRef,
    /// Progress of the claim.
    pub state: RecordState,
    /// The boot in which the claim reached that state; hardware state does not outlive it.
    pub boot_id: String,
    /// Devices as given, chosen and prepared, in the order of the allocation.
    pub devices: Vec<RecordDevice>,
    /// Attributes of the devices that containers can read, where they were asked for. Absent in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<DeviceMetadata>,
    /// Time at which the claim came onto record, seconds since 1970. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Consumers that might use the claim when it came onto record. Later ones are not here: the kubelet does not ask
    /// again. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<ResourceClaimConsumerReference>,
}

impl ClaimRecord {
    /// True if the claim was ready in an earlier boot and is not ready in this one.
    pub fn awaits_prepare(&self, boot_id: &str) -> bool {
        match self.state {
            RecordState::Preparing => false,
            RecordState::Prepared => self.boot_id != boot_id,
            RecordState::Restoring => true,
        }
    }
}

/// Progress of a claim.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordState {
    /// Everything is chosen; the hardware may be untouched, half changed or ready.
    Preparing,
    /// The claim is ready, and the kubelet may have been told so.
    Prepared,
    /// Was ready in an earlier boot, and is made ready again. The hardware may be untouched, half changed or ready;
    /// what was chosen stands, whatever becomes of that.
    Restoring,
}

/// One grant of a claim, with the backend's choice and its result.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RecordDevice {
    /// The backend that owns the device.
    pub backend: BackendName,
    /// The grant of the allocation.
    pub grant: Grant,
    /// Name of the device on this node, where the allocation has another one: that of a device behind a switch. Absent
    /// in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<DeviceName>,
    /// The backend's choice.
    pub plan: DevicePlan,
    /// Amounts that the device takes of the counters that it shares with others. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterUse>,
    /// The capacity of a shared device for all of its users when it was given: it may have less by now, and no claim is
    /// wrong for that. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<QualifiedName, Quantity>,
    /// Edits that containers need; empty until the hardware is ready.
    #[serde(default, skip_serializing_if = "ContainerEdits::is_empty")]
    pub edits: ContainerEdits,
    /// Preferences that could not be met, with the reasons. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<String>,
}

/// Holdings of a claim, without its state: what can still be known when the record is damaged or lost.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ClaimHoldings {
    /// The claim.
    pub claim: ClaimRef,
    /// Devices as given and chosen.
    pub devices: Vec<RecordDevice>,
}

/// The part of a record that the files with the attributes of its devices are made of.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DeviceMetadata {
    /// Grows with every change.
    pub generation: u64,
    /// Name by which the pod calls the claim, if it was made from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim_name: Option<String>,
    /// The attributes of each device, in the order of the record, as they stand in the files.
    pub attributes: Vec<Attributes>,
}

/// Attributes of one device, with the type of each value: `{"resource.kubernetes.io/numaNode": {"int": 0}}`.
pub type Attributes = BTreeMap<String, Value>;

/// Reason why records could not be written, removed or listed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A step on one file or folder failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Others can change the folder: what is in it is not believed.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The journal is of a later version of hostler, and holds what the files have lost.
    #[error("{} has format version {found}, this version of hostler reads up to {known}: upgrade hostler", path.display())]
    JournalVersion {
        /// The journal.
        path: PathBuf,
        /// The journal's version.
        found: u64,
        /// The latest that is known.
        known: u64,
    },
    /// Entries of the journal cannot be read, and the next start has to put it right.
    #[error("{} is damaged ({entries} cannot be read): start the daemon, whose log says what that costs", path.display())]
    JournalDamaged {
        /// The journal.
        path: PathBuf,
        /// Numbers of these entries, in words.
        entries: String,
    },
    /// An entry of the journal is whole and says what this version does not know.
    #[error(
        "entry {number} of {} is not understood: start the version of hostler that wrote it, or move the file away and \
         compare `hostler claim list` with what runs",
        path.display()
    )]
    JournalEntry {
        /// The journal.
        path: PathBuf,
        /// The entry.
        number: u64,
        /// The mistake in its text.
        #[source]
        source: serde_json::Error,
    },
    /// An entry of the journal could not be put into JSON.
    #[error("failed to encode an entry of the journal")]
    Entry {
        /// Error of the encoder.
        #[source]
        source: serde_json::Error,
    },
    /// A record could not be put into JSON.
    #[error("failed to encode the record of claim {uid}")]
    Encode {
        /// The claim.
        uid: ClaimUid,
        /// Error of the encoder.
        #[source]
        source: serde_json::Error,
    },
}

/// Reason why the content of a file is not a record.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The content is damaged, or of a later version of hostler.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The record is of another claim than the file's name says.
    #[error("it holds the record of claim {found}")]
    WrongClaim {
        /// UID in the record.
        found: ClaimUid,
    },
}

/// A record as the bytes of its file.
///
/// # Errors
/// When the record cannot be put into JSON.
pub fn encode(record: &ClaimRecord) -> Result<Vec<u8>, serde_json::Error> {
    format_of(record).encode(record)
}

fn format_of(record: &ClaimRecord) -> EnvelopeFormat {
    if record.state == RecordState::Restoring { FORMAT } else { FORMAT_1 }
}

/// The record in the bytes of a file, and the number of the journal's entry that it is as new as: zero where it has
/// none.
fn decode_numbered(bytes: &[u8]) -> Option<(ClaimRecord, u64)> {
    #[derive(Deserialize)]
    struct Numbered {
        #[serde(default)]
        journal_entry: u64,
    }
    let record = decode(bytes).ok()?;
    let Numbered { journal_entry } = FORMAT.salvage(bytes)?;
    Some((record, journal_entry))
}

/// The record in the bytes of a file.
///
/// # Errors
/// When the bytes are not a whole, unchanged record of a version that is known.
pub fn decode(bytes: &[u8]) -> Result<ClaimRecord, EnvelopeError> {
    FORMAT.decode(bytes)
}

/// Salvages what a file that is not a valid record still says about its claim, if it is JSON at all. Used only to
/// keep devices taken, never to prepare or undo.
pub fn salvage(bytes: &[u8]) -> Option<ClaimHoldings> {
    FORMAT.salvage(bytes)
}

/// A record that was read.
#[derive(Debug)]
pub struct LoadedRecord {
    /// UID in the file's name, or in the journal.
    pub uid: ClaimUid,
    /// The file in which it was found.
    pub path: PathBuf,
    /// Content of the file as far as it could be read; empty if not at all.
    pub bytes: Vec<u8>,
    /// The record, or what is wrong, for people.
    pub record: Result<ClaimRecord, String>,
}

/// The folder of the records.
#[derive(Debug)]
pub struct RecordDir {
    path: PathBuf,
    journal: Mutex<RecordJournal>,
    /// Changes that wait for the journal, which takes them together.
    changes: GroupCommit<RecordChange, Arc<StoreError>>,
}

impl RecordDir {
    /// Opens the folder, makes it if it is absent (mode 0700), removes what a crash left half written, and writes again
    /// what the files have lost when the machine went down: that is when `boot_id` is not the one of the journal.
    ///
    /// # Errors
    /// When the folder or the journal cannot be made, opened or read.
    pub fn open(path: impl Into<PathBuf>, boot_id: &str) -> Result<Self, StoreError> {
        let path = path.into();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(FileError::at("create", &path))?;
        let found = fs::metadata(&path).map_err(FileError::at("look at", &path))?;
        trust(&path, &found)?;
        fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(FileError::at("set the mode of", &path))?;
        let is_leftover =
            |name: &&String| name.starts_with('.') && name.ends_with(".tmp") && **name != journal::WITNESS;
        for name in names(&path)?.iter().filter(is_leftover) {
            remove_file(&path.join(name))?;
        }
        let journal = Mutex::new(RecordJournal::open(&path, boot_id)?);
        Ok(Self { path, journal, changes: GroupCommit::default() })
    }

    /// Writes records durably: all of them are on disk when this returns. Writes that come while one is under way share
    /// one entry and one flush; the failure of a flush is that of all writes that share it.
    ///
    /// # Errors
    /// When any step fails. Each record is then the old or the new one, whole in either case.
    pub fn write(&self, records: &[&ClaimRecord]) -> Result<(), Arc<StoreError>> {
        let written: Result<_, StoreError> = records.iter().map(|record| EncodedRecord::new(record)).collect();
        self.change(RecordChange::Written(written?))
    }

    /// Removes records durably. A record that is already gone is fine: the kubelet repeats calls.
    ///
    /// # Errors
    /// When a file cannot be removed or the disk fails.
    pub fn remove<'a>(&self, uids: impl IntoIterator<Item = &'a ClaimUid>) -> Result<(), Arc<StoreError>> {
        let uids: Vec<ClaimUid> = uids.into_iter().cloned().collect();
        if uids.is_empty() {
            return Ok(());
        }
        for uid in &uids {
            remove_file(&file(&self.path, uid))?;
        }
        self.change(RecordChange::Removed(uids))
    }

    fn change(&self, change: RecordChange) -> Result<(), Arc<StoreError>> {
        self.changes.join(change, |group| self.journal().change(group))
    }

    /// True if there are many files that the journal vouches for. They are flushed after an answer.
    pub fn are_due(&self) -> bool {
        self.journal().is_due()
    }

    /// Flushes the files themselves, if they are due.
    ///
    /// # Errors
    /// When the disk fails. Nothing is lost: the journal goes on.
    pub fn tidy(&self) -> Result<(), StoreError> {
        self.journal().tidy()
    }

    /// Flushes the files themselves: the journal is not needed after this.
    ///
    /// # Errors
    /// When the disk fails. Nothing is lost: the journal goes on.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.journal().checkpoint()
    }

    /// Moves a record that cannot be understood out of the way, into the folder `forgotten` beside the records.
    ///
    /// # Errors
    /// When the folder cannot be made or the file cannot be moved.
    pub fn set_aside(&self, uid: &ClaimUid) -> Result<PathBuf, Arc<StoreError>> {
        let from = file(&self.path, uid);
        let dir = self.path.with_file_name("forgotten");
        let made =
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(FileError::at("create", &dir));
        made.map_err(StoreError::from)?;
        let to = dir.join(format!("{uid}.json"));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::from(FileError::at("move", &from)(error)).into());
            }
            _ => self.change(RecordChange::Removed(vec![uid.clone()]))?,
        }
        Ok(to)
    }

    /// Every record, by UID. A file that cannot be read or understood is in the answer too. Other files are not ours
    /// and are left alone.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn load(&self) -> Result<Vec<LoadedRecord>, StoreError> {
        load(&self.path)
    }

    fn journal(&self) -> MutexGuard<'_, RecordJournal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns every record of a folder in which another process may be at work, or none since the machine went down:
/// first the files, then the last record that the journal has of each claim, which the files may have lost. A folder
/// that is absent holds none.
///
/// # Errors
/// When the folder or the journal cannot be read.
pub fn look(folder: &Path) -> Result<Vec<LoadedRecord>, StoreError> {
    let mut all = match load(folder) {
        Err(StoreError::File(error)) if error.source.kind() == io::ErrorKind::NotFound => Vec::new(),
        loaded => loaded?,
    };
    let (path, records) = journal::last_records(folder)?;
    for record in records {
        let uid = record.claim.uid.clone();
        let bytes = encode(&record).map_err(|source| StoreError::Encode { uid: uid.clone(), source })?;
        all.push(LoadedRecord { uid, path: path.clone(), bytes, record: Ok(record) });
    }
    Ok(all)
}

fn load(folder: &Path) -> Result<Vec<LoadedRecord>, StoreError> {
    let mut names = names(folder)?;
    names.sort_unstable();
    Ok(names.iter().filter_map(|name| load_one(folder, name)).collect())
}

fn load_one(folder: &Path, name: &str) -> Option<LoadedRecord> {
    let uid = ClaimUid::new(name.strip_suffix(".json")?).ok()?;
    let path = folder.join(name);
    let (bytes, record) = match read_trusted(&path, MOST_RECORD_BYTES) {
        Err(error) => (Vec::new(), Err(format!("it cannot be read: {}", Chain(&error)))),
        Ok(bytes) => {
            let record = decode(&bytes)
                .map_err(DecodeError::from)
                .and_then(|record| {
                    let found = record.claim.uid.clone();
                    if found == uid { Ok(record) } else { Err(DecodeError::WrongClaim { found }) }
                })
                .map_err(|error| Chain(&error).to_string());
            (bytes, record)
        }
    };
    Some(LoadedRecord { uid, path, bytes, record })
}

/// Path of a claim's record. A UID holds no character that could lead elsewhere.
fn file(folder: &Path, uid: &ClaimUid) -> PathBuf {
    folder.join(format!("{uid}.json"))
}

fn write_temporary(folder: &Path, record: &ClaimRecord, entry: u64) -> Result<(FinishedFile, PathBuf), StoreError> {
    EncodedRecord::new(record)?.write_temporary(folder, entry)
}

fn prepare_file(path: &Path, uid: &ClaimUid, content: &[u8]) -> Result<FinishedFile, FileError> {
    let temporary = format!(".{uid}.tmp");
    let temporary = TemporaryName::Fixed(&temporary);
    FileReplacement { path, temporary, mode: 0o600, content }.prepare(Durability::Unsynced)
}

fn remove_file(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::at("remove", path)(error).into()),
        _ => Ok(()),
    }
}

/// The claims that have a file.
fn recorded(folder: &Path) -> Result<Vec<ClaimUid>, StoreError> {
    let uid = |name: String| ClaimUid::new(name.strip_suffix(".json")?).ok();
    Ok(names(folder)?.into_iter().filter_map(uid).collect())
}

fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    };
    Ok(list().map_err(FileError::at("list", folder))?)
}

#[cfg(test)]
mod tests;
