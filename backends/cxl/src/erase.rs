//! Erases a memory device: everything that is on it, by the device's own command.

use hostler_linux::{ReadFailure, SysRoot, TreeReading};

use crate::{
    gate::GateError,
    objects::{CxlObjects, Memdev},
    write::{WaitLimits, WriteError, write},
};

/// File of the command, there where device and kernel have it.
const COMMAND: &str = "security/sanitize";
/// Text of `security/state` during an erasure.
const ERASING: &str = "sanitize";

/// Reason why a device is not erased.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EraseError {
    /// The device has no such command.
    #[error("{memdev} cannot be erased: it, or the kernel, has no command for it")]
    NotSupported {
        /// Kernel's name.
        memdev: String,
    },
    /// The kernel erases no device without knowing whether it is mapped.
    #[error("{memdev} cannot be erased: its driver is not bound")]
    Disabled {
        /// Kernel's name.
        memdev: String,
    },
    /// The erasure takes long.
    #[error("{memdev} is being erased and that takes its time; repeat the order to wait on")]
    Erasing {
        /// Kernel's name.
        memdev: String,
    },
    /// The device is mapped, or may be.
    #[error(transparent)]
    Mapped(#[from] GateError),
    /// The progress could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// True if a device could be erased.
pub(crate) fn is_supported(root: &SysRoot, memdev: &Memdev) -> Result<bool, ReadFailure> {
    root.exists(memdev.folder.join(COMMAND))
}

/// As [`is_supported`], of a scan.
pub(crate) fn is_offered(tree: &TreeReading<'_>, memdev: &Memdev) -> bool {
    tree.exists(memdev.folder.join(COMMAND))
}

/// Erases a device none of whose memory is mapped, and waits for the end. An erasure that is under way is waited for.
pub(crate) fn erase(
    root: &SysRoot,
    objects: &CxlObjects,
    memdev: &Memdev,
    waits: &WaitLimits,
) -> Result<(), EraseError> {
    let name = || memdev.name.clone();
    if !is_supported(root, memdev)? {
        return Err(EraseError::NotSupported { memdev: name() });
    }
    let state = || root.attribute(memdev.folder.join("security/state"));
    let is_over = || state().map(|state| state.filter(|state| state != ERASING)).transpose();
    if is_over().transpose()?.is_some() {
        let endpoint = objects.endpoint_of(memdev).ok_or_else(|| EraseError::Disabled { memdev: name() })?;
        if endpoint.decoders_committed != Some(0) {
            let committed = endpoint.decoders_committed.map_or_else(|| "?".to_owned(), |count| count.to_string());
            return Err(GateError::Mapped { memdev: name(), endpoint: endpoint.name.clone(), committed }.into());
        }
        write(root, memdev.folder.join(COMMAND), "1")?;
    }
    waits.wait(waits.erasing, is_over).transpose()?.map(drop).ok_or_else(|| EraseError::Erasing { memdev: name() })
}
