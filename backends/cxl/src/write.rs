//! Writes that do no harm, each of them read back: a write that the kernel accepts proves nothing.

use std::{io, path::Path, thread, time::Duration};

use hostler_linux::{ReadFailure, SysRoot};

/// Reason why a file does not read as it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The state could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The kernel refused.
    #[error("failed to write {text} to /{path}")]
    Refused {
        /// File of the write.
        path: String,
        /// Text that was to be written.
        text: String,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The kernel accepted the write, and did something else.
    #[error("/{path} is {found} after {text} was written to /{written}")]
    NotDone {
        /// File that was read.
        path: String,
        /// Text that was found.
        found: String,
        /// Text that was written.
        text: String,
        /// File that was written.
        written: String,
    },
}

impl WriteError {
    /// True if another try may help.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Refused { source, .. } => {
                matches!(source.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock)
            }
            Self::NotDone { .. } => true,
            Self::Read(_) => false,
        }
    }
}

/// Writes `text` to `path`.
pub(crate) fn write(root: &SysRoot, path: impl AsRef<Path>, text: &str) -> Result<(), WriteError> {
    let path = path.as_ref();
    root.write(path, text).map_err(|source| {
        let path = path.display().to_string();
        WriteError::Refused { path, text: text.to_owned(), source }
    })
}

/// Writes `text` to `path`, unless the file is `done` already, and checks that it is so afterwards.
pub(crate) fn write_until(
    root: &SysRoot,
    path: impl AsRef<Path>,
    text: &str,
    done: impl Fn(&str) -> bool,
) -> Result<(), WriteError> {
    let path = path.as_ref();
    if root.attribute(path)?.is_some_and(|now| done(&now)) {
        return Ok(());
    }
    write(root, path, text)?;
    let found = root.required_attribute(path)?;
    if done(&found) {
        return Ok(());
    }
    let path = path.display().to_string();
    Err(WriteError::NotDone { written: path.clone(), path, found, text: text.to_owned() })
}

/// Writes a number, in the form that the file itself has.
pub(crate) fn write_number(root: &SysRoot, path: impl AsRef<Path>, value: u64) -> Result<(), WriteError> {
    write_until(root, path, &value.to_string(), |now| crate::objects::number(now) == Some(value))
}

/// Time that the kernel gets for slow work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// Time between two looks, or two tries.
    pub(crate) step: Duration,
    /// Number of tries to free memory that is busy. The kernel itself moves pages for seconds before it says EBUSY.
    pub(crate) tries: u32,
    /// Number of looks for a thing that should appear: drivers may have to be loaded first.
    pub(crate) looks: u32,
    /// Number of looks for the end of an erasure.
    pub(crate) erasing: u32,
}

impl Default for WaitLimits {
    /// Ten seconds for things that appear; ten minutes for an erasure, after which a repeated order waits on.
    fn default() -> Self {
        Self { step: Duration::from_millis(100), tries: 5, looks: 100, erasing: 6000 }
    }
}

impl WaitLimits {
    /// Looks until there is a result, or time is up.
    pub(crate) fn wait<T>(&self, looks: u32, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 1..looks {
            if let Some(found) = look() {
                return Some(found);
            }
            thread::sleep(self.step);
        }
        look()
    }

    /// Tries until the work succeeds, or no try is left, or another one cannot help.
    pub(crate) fn retry<T, E>(
        &self,
        is_busy: impl Fn(&E) -> bool,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        for _ in 1..self.tries {
            match work() {
                Err(error) if is_busy(&error) => thread::sleep(self.step),
                done => return done,
            }
        }
        work()
    }
}
