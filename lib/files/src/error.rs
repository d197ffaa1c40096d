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
    /// Error of the kernel.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Makes an error, for `map_err`: the step that was tried, and its file.
    pub fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { step, path, source }
    }

    /// The same failure, told as one of a larger step, for readers to whom the temporary file means nothing.
    #[must_use]
    pub fn as_part_of(self, step: &'static str, path: &Path) -> Self {
        Self { step, path: path.to_owned(), ..self }
    }
}
