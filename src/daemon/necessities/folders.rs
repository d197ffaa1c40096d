//! Folders that every prepare writes to. A disk that is full, read-only or broken shows when something is written: by a
//! prepare, or by a file that is made to see it and removed at once.

use std::{
    error::Error,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use hostler_api::Chain;
use hostler_cdi::SpecDir;
use hostler_files::{Durability, FileReplacement, TemporaryName};

use crate::{claims::ClaimError, config::DaemonConfig};

/// The bytes of a probe: a prepare writes a record beside the one that it replaces, and most have less than a page.
const ROOM: [u8; 8 << 10] = [0; 8 << 10];

/// Folders that claims cannot be prepared without.
#[derive(Clone, Debug)]
pub(super) struct ClaimFolders {
    records: PathBuf,
    cdi: PathBuf,
}

impl ClaimFolders {
    pub(super) fn of(config: &DaemonConfig) -> Self {
        Self { records: config.paths.state.join("claims"), cdi: config.paths.cdi.clone() }
    }

    /// Writes to each of the folders, and returns the faults.
    pub(super) fn faults(&self) -> Vec<String> {
        // A CDI folder that is missing is made by the next prepare.
        let cdi = SpecDir::new(&self.cdi).create().map_err(|error| told(&error));
        // Each of the names is one that a start removes, should a crash leave the file behind. Files that must
        // outlive a crash of the machine are put on the disk, and the disk may fail only then.
        let records = probe(&self.records, ".probe.tmp", Durability::Synced);
        let cdi = cdi.and_then(|()| probe(&self.cdi, ".probe.hostler-tmp", Durability::Unsynced));
        [records, cdi].into_iter().filter_map(Result::err).collect()
    }
}

fn probe(folder: &Path, temporary: &str, durability: Durability) -> Result<(), String> {
    let temporary = TemporaryName::Fixed(temporary);
    let file = FileReplacement { path: &folder.join("probe"), temporary, mode: 0o600, content: &ROOM };
    // The file goes when it is dropped.
    file.prepare(durability).map(drop).map_err(|error| told(&error))
}

/// Returns the fault of the folders for which a claim failed, if it failed for one.
pub(super) fn fault_of(error: &ClaimError) -> Option<String> {
    match error {
        ClaimError::Store { .. } | ClaimError::Cdi { .. } if kernel_error(error).is_some() => Some(told(error)),
        ClaimError::RollBack { source, .. } => fault_of(source),
        _ => None,
    }
}

fn told(error: &(dyn Error + 'static)) -> String {
    let advice = match kernel_error(error).map(io::Error::kind) {
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => "make room on its file system",
        Some(ErrorKind::ReadOnlyFilesystem) => {
            "its file system is read-only, as kernels make one whose disk fails: look at the kernel's log, and mount it anew"
        }
        Some(ErrorKind::PermissionDenied) => "give the folder back to the daemon's user",
        Some(ErrorKind::NotFound) => "its folder is gone: start the daemon anew, which makes it",
        _ => "look at the kernel's log for failures of the disk",
    };
    format!("claims cannot be prepared: {}; {advice}", Chain(error))
}

/// Returns the kernel's error, the first in the chain.
fn kernel_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn folders_are_probed_without_a_trace_and_the_missing_one_of_records_is_told() {
        let temp = tempfile::tempdir().unwrap();
        let folders = ClaimFolders { records: temp.path().join("claims"), cdi: temp.path().join("cdi") };
        fs::create_dir(&folders.records).unwrap();
        // Left by a crash.
        fs::write(folders.records.join(".probe.tmp"), "").unwrap();
        assert_eq!(folders.faults(), Vec::<String>::new());
        for folder in [&folders.records, &folders.cdi] {
            assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "{}", folder.display());
        }
        fs::remove_dir(&folders.records).unwrap();
        let faults = folders.faults();
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        let path = folders.records.join(".probe.tmp");
        assert_eq!(
            *fault,
            format!(
                "claims cannot be prepared: failed to write {}: No such file or directory (os error 2); its folder is gone: \
                 start the daemon anew, which makes it",
                path.display()
            )
        );
    }
}
