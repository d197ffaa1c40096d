//! Ledger of the CPUs that claims keep free of interrupts, and of where the lines were: `<state>/irqs.json`, versioned
//! and checksummed, replaced in one step. The file is not flushed: a machine that goes down forgets where lines are,
//! and so may we.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use hostler_backend::BackendError;
use hostler_files::{
    Durability, EnvelopeError, EnvelopeFormat, FileError, FileReplacement, TemporaryName, TrustError, read_trusted,
    replace,
};
use hostler_linux::{IdSet, irq::IrqLine};
use serde::{Deserialize, Serialize};

const FORMAT: EnvelopeFormat =
    EnvelopeFormat { version: 1, field: "irqs", what: "a ledger of interrupts", remedy: ": upgrade hostler" };
/// Largest size of the file: far more than the lines of the largest machines.
const MOST_BYTES: u64 = 16 << 20;
const FILE: &str = "irqs.json";
const TEMPORARY: &str = ".irqs.json.tmp";
const DAMAGED: &str = "irqs.json.damaged";

/// Changes that claims have made to interrupts in one boot.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct IrqLedger {
    boot_id: String,
    /// The CPUs that each grant keeps free.
    pub(super) kept: BTreeMap<String, IdSet>,
    /// The lines that are not where they were, or may be.
    pub(super) lines: BTreeMap<LineKey, LineEntry>,
    /// The lines that were there all the time and needed nothing: any other has come since.
    pub(super) untouched: BTreeSet<LineKey>,
}

/// Places of a line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct LineEntry {
    /// CPUs that the line was on before.
    pub(super) before: IdSet,
    /// CPUs that we have sent the line to; two sets while it is under way. Any other place is another program's doing.
    pub(super) ours: BTreeSet<IdSet>,
}

/// A line's name in JSON, where keys are text.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(super) struct LineKey(String);

impl From<IrqLine> for LineKey {
    fn from(line: IrqLine) -> Self {
        Self(match line {
            IrqLine::Default => "default".to_owned(),
            IrqLine::Number(number) => number.to_string(),
        })
    }
}

impl IrqLedger {
    /// Replaces the entries by these, which are of all lines that there are: of no other line anything is known.
    pub(super) fn replace(&mut self, lines: impl Iterator<Item = (IrqLine, LineEntry)>) {
        let at_home = |(_, entry): &(IrqLine, LineEntry)| entry.ours.iter().all(|cpus| *cpus == entry.before);
        let (untouched, touched): (Vec<_>, Vec<_>) = lines.partition(at_home);
        self.untouched = untouched.into_iter().map(|(line, _)| line.into()).collect();
        self.lines = touched.into_iter().map(|(line, entry)| (line.into(), entry)).collect();
    }

    fn is_needed(&self) -> bool {
        !self.kept.is_empty() || !self.lines.is_empty()
    }
}

/// The file of the ledger.
#[derive(Clone, Debug)]
pub(super) struct LedgerFile {
    folder: PathBuf,
}

/// Why the ledger cannot be kept.
#[derive(Debug, thiserror::Error)]
enum LedgerError {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("failed to encode it")]
    Encode(#[source] serde_json::Error),
    #[error("it was damaged and is {} now; interrupts stay where they are until the next reboot: try again", aside.display())]
    Damaged {
        aside: PathBuf,
        #[source]
        source: EnvelopeError,
    },
}

impl LedgerFile {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// True if there may be something to undo.
    pub(super) fn is_there(&self) -> bool {
        self.path().exists()
    }

    /// Reads what was done in this boot; nothing where there is no ledger or only one of an earlier boot. A damaged
    /// ledger is moved aside and told of once.
    pub(super) fn load(&self, boot_id: &str) -> Result<IrqLedger, BackendError> {
        let none = IrqLedger { boot_id: boot_id.to_owned(), ..IrqLedger::default() };
        let found =
            self.read().map_err(|error| BackendError::step(format!("read {}", self.path().display()), error))?;
        Ok(found.filter(|found| found.boot_id == boot_id).unwrap_or(none))
    }

    /// Replaces the ledger; one that says nothing is removed.
    pub(super) fn write(&self, ledger: &IrqLedger) -> Result<(), BackendError> {
        let written = if ledger.is_needed() { self.put(ledger) } else { self.remove() };
        written.map_err(|error| BackendError::step(format!("write {}", self.path().display()), error))
    }

    fn read(&self) -> Result<Option<IrqLedger>, LedgerError> {
        let path = self.path();
        let bytes = match read_trusted(&path, MOST_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        FORMAT.decode(&bytes).map(Some).or_else(|source| {
            let aside = self.folder.join(DAMAGED);
            fs::rename(&path, &aside).map_err(FileError::at("move", &path))?;
            Err(LedgerError::Damaged { aside, source })
        })
    }

    fn put(&self, ledger: &IrqLedger) -> Result<(), LedgerError> {
        let (path, content) = (self.path(), FORMAT.encode(ledger).map_err(LedgerError::Encode)?);
        let file =
            FileReplacement { path: &path, temporary: TemporaryName::Fixed(TEMPORARY), mode: 0o600, content: &content };
        Ok(replace(&file, Durability::Unsynced)?)
    }

    fn remove(&self) -> Result<(), LedgerError> {
        let path = self.path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::at("remove", &path)(error).into()),
            _ => Ok(()),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }
}
