//! Observations of claims that may not be needed any more, on disk: `<state>/doubts.json`, versioned and checksummed,
//! replaced in one step.
//!
//! Writer and reader: the janitor. Losing the file costs time and nothing else.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use hostler_api::{Chain, ClaimUid};
use hostler_files::{
    Durability, EnvelopeError, EnvelopeFormat, FileError, FileReplacement, TemporaryName, TrustError, read_trusted,
    replace,
};
use tracing::warn;

use super::verdict::ReleaseDoubt;

const FORMAT: EnvelopeFormat =
    EnvelopeFormat { version: 1, field: "doubts", what: "a list of claims that may not be needed", remedy: "" };
/// Largest size of the file: far more than a node has claims.
const MOST_BYTES: u64 = 4 << 20;
const FILE: &str = "doubts.json";
const TEMPORARY: &str = ".doubts.json.tmp";

/// Doubts by claim.
pub(super) type Doubts = BTreeMap<ClaimUid, ReleaseDoubt>;

/// Error of reading or keeping the observations.
#[derive(Debug, thiserror::Error)]
pub(super) enum DoubtsError {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{path} is not understood")]
    Envelope {
        path: PathBuf,
        #[source]
        source: EnvelopeError,
    },
    #[error("failed to encode what was seen of claims")]
    Encode(#[source] serde_json::Error),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The observations' file.
#[derive(Clone, Debug)]
pub(super) struct DoubtFile {
    state: PathBuf,
}

impl DoubtFile {
    /// Returns the file in the folder of the daemon's state.
    pub(super) fn new(state: PathBuf) -> Self {
        Self { state }
    }

    /// Observations of earlier daemons; none, and a warning, if they cannot be read.
    pub(super) fn load(&self) -> Doubts {
        self.read().unwrap_or_else(|error| {
            warn!(error = %Chain(&error), "what was seen of claims before is lost: their wait begins anew");
            Doubts::new()
        })
    }

    fn read(&self) -> Result<Doubts, DoubtsError> {
        let path = self.state.join(FILE);
        match read_trusted(&path, MOST_BYTES) {
            Err(error) if error.is_absent() => Ok(Doubts::new()),
            bytes => FORMAT.decode(&bytes?).map_err(|source| DoubtsError::Envelope { path, source }),
        }
    }

    /// Writes the observations; without any, there is no file.
    pub(super) fn write(&self, doubts: &Doubts) -> Result<(), DoubtsError> {
        let path = self.state.join(FILE);
        if doubts.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(FileError::at("remove", &path)(error).into())
                }
                _ => Ok(()),
            };
        }
        let content = FORMAT.encode(doubts).map_err(DoubtsError::Encode)?;
        let temporary = TemporaryName::Fixed(TEMPORARY);
        Ok(replace(&FileReplacement { path: &path, temporary, mode: 0o600, content: &content }, Durability::Synced)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, time::Duration};

    use super::{
        super::{super::testing::uid, verdict::ReleaseReason},
        *,
    };

    fn doubts() -> Doubts {
        let doubt = ReleaseDoubt { why: ReleaseReason::OtherUid, seen_for: Duration::from_millis(5250) };
        [(uid("a"), doubt)].into()
    }

    #[test]
    fn what_was_seen_is_read_back_and_no_file_stays_behind() {
        let temp = tempfile::tempdir().unwrap();
        let file = DoubtFile::new(temp.path().to_owned());
        assert_eq!(file.read().unwrap(), Doubts::new());
        file.write(&doubts()).unwrap();
        assert_eq!(file.read().unwrap(), doubts());
        file.write(&Doubts::new()).unwrap();
        file.write(&Doubts::new()).unwrap();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_kill_at_any_step_of_a_write_leaves_the_old_or_the_new_one_twice_in_a_row() {
        let temp = tempfile::tempdir().unwrap();
        let file = DoubtFile::new(temp.path().to_owned());
        file.write(&doubts()).unwrap();
        let whole = fs::read(temp.path().join(FILE)).unwrap();
        for length in [0, 1, whole.len() / 2, whole.len()] {
            for _ in 0..2 {
                fs::write(temp.path().join(TEMPORARY), &whole[..length]).unwrap();
                assert_eq!(file.load(), doubts(), "killed after {length} bytes");
            }
            file.write(&doubts()).unwrap();
            assert_eq!(file.load(), doubts());
        }
    }

    #[test]
    fn a_file_that_is_damaged_or_others_made_begins_the_wait_anew_and_is_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join(FILE);
        let file = DoubtFile::new(temp.path().to_owned());
        file.write(&doubts()).unwrap();
        let whole = String::from_utf8(fs::read(&path).unwrap()).unwrap();
        let (cut, changed) =
            (&whole[..whole.len() / 2], whole.replace("5250", "9950").replace("250000000", "950000000"));
        for damaged in ["", cut, &changed, "{}", "\0\0\0"] {
            fs::write(&path, damaged).unwrap();
            file.read().unwrap_err();
            assert_eq!(file.load(), Doubts::new(), "{damaged:?}");
            file.write(&doubts()).unwrap();
            assert_eq!(file.load(), doubts());
        }
        fs::rename(&path, temp.path().join("elsewhere")).unwrap();
        symlink(temp.path().join("elsewhere"), &path).unwrap();
        assert_eq!(file.load(), Doubts::new(), "a link");
        file.write(&doubts()).unwrap();
        assert_eq!(file.load(), doubts());
    }
}
