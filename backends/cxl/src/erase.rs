//! Erases a memory device: everything that is on it, by its own means.

use hostler_linux::{ReadFailure, SysRoot};

use crate::{
    gate::GateError,
    objects::{CxlObjects, Memdev},
    write::{WaitLimits, WriteError, write},
};

/// What `security/state` says as long as it takes.
const ERASING: &str = "sanitize";

/// Why a device is not erased.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EraseError {
    /// It has no such command.
    #[error("{memdev} cannot be erased: it, or the kernel, has no command for it")]
    NotSupported {
        /// Kernel's name.
        memdev: String,
    },
    /// The kernel erases nothing of which it does not know whether it is mapped.
    #[error("{memdev} cannot be erased: its driver is not bound")]
    Disabled {
        /// Kernel's name.
        memdev: String,
    },
    /// It takes long.
    #[error("{memdev} is being erased and that takes its time; repeat the order to wait on")]
    Erasing {
        /// Kernel's name.
        memdev: String,
    },
    /// Whether it is mapped.
    #[error(transparent)]
    Mapped(#[from] GateError),
    /// How far it is cannot be told.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The write.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Whether a device could be erased.
pub(crate) fn is_supported(root: &SysRoot, memdev: &Memdev) -> Result<bool, ReadFailure> {
    root.exists(memdev.folder.join("security/sanitize"))
}

/// Erases a device none of whose memory is mapped, and waits for the end of it. One that is being erased is waited for.
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
        write(root, memdev.folder.join("security/sanitize"), "1")?;
    }
    waits.wait(waits.erasing, is_over).transpose()?.map(drop).ok_or_else(|| EraseError::Erasing { memdev: name() })
}
