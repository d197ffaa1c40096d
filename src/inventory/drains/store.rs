//! The list of drained devices on disk: `<state>/drains.json`, versioned and checksummed, replaced in one step.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use hostler_api::{BackendName, Chain, DeviceName};
use serde::{Deserialize, Serialize};

use super::{Drain, DrainError, Drains, LostDrains, to_the_second};

/// Version of the file format. Readers accept every version up to their own.
const VERSION: u64 = 1;
const FILE: &str = "drains.json";
const DAMAGED: &str = "drains.json.damaged";
const TEMPORARY: &str = ".drains.json.tmp";

/// The file and its folder.
#[derive(Clone, Debug)]
pub(super) struct Store {
    state: PathBuf,
}

#[derive(Deserialize, Serialize)]
struct Envelope {
    version: u64,
    checksum: String,
    drains: serde_json::Value,
}

#[derive(Deserialize, Serialize)]
struct Entry {
    backend: BackendName,
    device: DeviceName,
    #[serde(flatten)]
    drain: Drain,
}

/// Why the content of the file is no list.
#[derive(Debug, thiserror::Error)]
enum DecodeError {
    #[error("it is not the JSON of a list of drained devices")]
    Json(#[source] serde_json::Error),
    #[error("it has format version {0}, this version of hostler reads up to {VERSION}")]
    Version(u64),
    #[error("its checksum is {found}, its content gives {computed}")]
    Checksum { found: String, computed: String },
}

impl Store {
    pub(super) fn new(state: PathBuf) -> Self {
        Self { state }
    }

    /// The list, and what is lost of it. A file that cannot be understood is moved aside, where it stays until it is
    /// forgotten: a restart must not make it seem that nothing was drained.
    pub(super) fn load(&self) -> (Drains, Option<LostDrains>) {
        let (path, damaged) = (self.path(FILE), self.path(DAMAGED));
        let lost = |path: &Path, reason: String| LostDrains { since: written(path), path: path.to_owned(), reason };
        let found = match fs::read(&path) {
            Ok(bytes) => decode(&bytes).map_err(|error| Chain(&error).to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Drains::new()),
            Err(error) => return (Drains::new(), Some(lost(&path, format!("it cannot be read: {error}")))),
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
        let bytes = encode(drains).map_err(DrainError::Encode)?;
        let (temporary, path) = (self.path(TEMPORARY), self.path(FILE));
        let written = write_durably(&temporary, &bytes)
            .map_err(step("write", &temporary))
            .and_then(|()| fs::rename(&temporary, &path).map_err(step("rename", &temporary)));
        written.inspect_err(|_| {
            // The error that is being reported matters more; the next write begins with an empty file anyway.
            let _ = fs::remove_file(&temporary);
        })?;
        self.sync()
    }

    /// Moves a list that cannot be understood out of the way of the next one.
    pub(super) fn set_aside(&self) -> Result<PathBuf, DrainError> {
        let (path, damaged) = (self.path(FILE), self.path(DAMAGED));
        fs::rename(&path, &damaged).map_err(step("move", &path))?;
        self.sync()?;
        Ok(damaged)
    }

    /// Moves a damaged list to the records that nothing reads any more.
    pub(super) fn forget(&self, lost: &Path) -> Result<(), DrainError> {
        let dir = self.path("forgotten");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(step("create", &dir))?;
        match fs::rename(lost, dir.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(step("move", lost)(error)),
            _ => self.sync(),
        }
    }

    pub(super) fn is_current(&self, path: &Path) -> bool {
        path == self.path(FILE)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }

    fn sync(&self) -> Result<(), DrainError> {
        File::open(&self.state).and_then(|dir| dir.sync_all()).map_err(step("sync", &self.state))
    }
}

fn step(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DrainError {
    let path = path.to_owned();
    move |source| DrainError::Step { step, path, source }
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// When a file was written last; now, if the file system does not say.
fn written(path: &Path) -> SystemTime {
    let written = fs::metadata(path).and_then(|metadata| metadata.modified());
    to_the_second(written.unwrap_or_else(|_| SystemTime::now()))
}

fn encode(drains: &Drains) -> Result<Vec<u8>, serde_json::Error> {
    let entry = |((backend, device), drain): (&(BackendName, DeviceName), &Drain)| Entry {
        backend: backend.clone(),
        device: device.clone(),
        drain: drain.clone(),
    };
    let drains = serde_json::to_value(drains.iter().map(entry).collect::<Vec<_>>())?;
    let mut bytes = serde_json::to_vec_pretty(&Envelope { version: VERSION, checksum: checksum(&drains), drains })?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<Drains, DecodeError> {
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(DecodeError::Json)?;
    if envelope.version > VERSION {
        return Err(DecodeError::Version(envelope.version));
    }
    let computed = checksum(&envelope.drains);
    if computed != envelope.checksum {
        return Err(DecodeError::Checksum { found: envelope.checksum, computed });
    }
    let entries: Vec<Entry> = serde_json::from_value(envelope.drains).map_err(DecodeError::Json)?;
    Ok(entries.into_iter().map(|entry| ((entry.backend, entry.device), entry.drain)).collect())
}

fn checksum(drains: &serde_json::Value) -> String {
    format!("crc32:{:08x}", crc32fast::hash(drains.to_string().as_bytes()))
}
