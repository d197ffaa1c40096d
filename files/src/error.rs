//! The error of a step on a file.

use std::{
    io,
    path::{Path, PathBuf},
};

/// A step on one file or folder failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {step} {path}")]
pub struct FileError {
    /// `write`, `rename`, `sync`, …
    pub step: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// For `map_err`: what was tried, and with what.
    pub fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { step, path, source }
    }

    /// The same failure, told as one of a larger step. For those whom the temporary file says nothing.
    #[must_use]
    pub fn as_part_of(self, step: &'static str, path: &Path) -> Self {
        Self { step, path: path.to_owned(), ..self }
    }
}
