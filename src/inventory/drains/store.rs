//! The list of drained devices on disk: `<state>/drains.json`, versioned and checksummed, replaced in one step.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use hostler_api::{BackendName, Chain, DeviceName};
use hostler_files::{
    Durability, EnvelopeError, EnvelopeFormat, FileError, FileReplacement, TemporaryName, read_trusted, replace,
    sync_folder,
};
use serde::{Deserialize, Serialize};

use super::{Drain, DrainError, Drains, LostDrains, to_the_second};

const FORMAT: EnvelopeFormat =
    EnvelopeFormat { version: 1, field: "drains", what: "a list of drained devices", remedy: "" };
/// Largest size of the list: far more than every device of a large host, with a reason for each.
const MOST_BYTES: u64 = 16 << 20;
const FILE: &str = "drains.json";
const DAMAGED: &str = "drains.json.damaged";
const TEMPORARY: &str = ".drains.json.tmp";

/// The file and its folder.
#[derive(Clone, Debug)]
pub(super) struct DrainStore {
    state: PathBuf,
}

#[derive(Deserialize, Serialize)]
struct DrainEntry {
    backend: BackendName,
    device: DeviceName,
    #[serde(flatten)]
    drain: Drain,
}

impl DrainStore {
    pub(super) fn new(state: PathBuf) -> Self {
        Self { state }
    }

    /// Reads the list, and what is lost of it. A file that cannot be understood is moved aside, where it stays until
    /// it is forgotten: a restart must not make it seem that nothing was drained.
    pub(super) fn load(&self) -> (Drains, Option<LostDrains>) {
        let (path, damaged) = (self.path(FILE), self.path(DAMAGED));
        let lost = |path: &Path, reason: String| LostDrains { since: written(path), path: path.to_owned(), reason };
        let found = match read_trusted(&path, MOST_BYTES) {
            Ok(bytes) => decode(&bytes).map_err(|error| Chain(&error).to_string()),
            Err(error) if error.is_absent() => Ok(Drains::new()),
            Err(error) => return (Drains::new(), Some(lost(&path, format!("it cannot be read: {}", Chain(&error))))),
        };
        match found {
            Ok(drains) => (drains, damaged.exists().then(|| lost(&damaged, "it was damaged".to_owned()))),
            Err(reason) => {
                let aside = self.set_aside().is_ok();
                (Drains::new(), Some(lost(if aside { &damaged } else { &path }, reason)))
            }
        }
    }

    /// Replaces the list durably. After an error the old one is there, or the new one, whole in either case.
    pub(super) fn write(&self, drains: &Drains) -> Result<(), DrainError> {
        let content = encode(drains).map_err(DrainError::Encode)?;
        let (path, temporary) = (self.path(FILE), TemporaryName::Fixed(TEMPORARY));
        Ok(replace(&FileReplacement { path: &path, temporary, mode: 0o600, content: &content }, Durability::Synced)?)
    }

    /// Moves a list that cannot be understood out of the way of the next one.
    pub(super) fn set_aside(&self) -> Result<PathBuf, DrainError> {
        let (path, damaged) = (self.path(FILE), self.path(DAMAGED));
        fs::rename(&path, &damaged).map_err(FileError::at("move", &path))?;
        sync_folder(&self.state)?;
        Ok(damaged)
    }

    /// Moves a damaged list to the records that nothing reads any more.
    pub(super) fn forget(&self, lost: &Path) -> Result<(), DrainError> {
        let dir = self.path("forgotten");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(FileError::at("create", &dir))?;
        match fs::rename(lost, dir.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::at("move", lost)(error).into()),
            _ => Ok(sync_folder(&self.state)?),
        }
    }

    pub(super) fn is_current(&self, path: &Path) -> bool {
        path == self.path(FILE)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }
}

/// Returns when a file was written last; now, if the file system does not say.
fn written(path: &Path) -> SystemTime {
    let written = fs::metadata(path).and_then(|metadata| metadata.modified());
    to_the_second(written.unwrap_or_else(|_| SystemTime::now()))
}

fn encode(drains: &Drains) -> Result<Vec<u8>, serde_json::Error> {
    let entry = |((backend, device), drain): (&(BackendName, DeviceName), &Drain)| DrainEntry {
        backend: backend.clone(),
        device: device.clone(),
        drain: drain.clone(),
    };
    FORMAT.encode(&drains.iter().map(entry).collect::<Vec<_>>())
}

fn decode(bytes: &[u8]) -> Result<Drains, EnvelopeError> {
    let entries: Vec<DrainEntry> = FORMAT.decode(bytes)?;
    Ok(entries.into_iter().map(|entry| ((entry.backend, entry.device), entry.drain)).collect())
}
