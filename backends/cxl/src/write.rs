//! Writes that harm nobody, each of them read back: a write that the kernel says yes to proves nothing.

use std::{io, path::Path, thread, time::Duration};

use hostler_linux::{ReadFailure, SysRoot};

/// Why something is not as it was to be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// How it is cannot be told.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The kernel refused.
    #[error("failed to write {text} to /{path}")]
    Refused {
        /// Where.
        path: String,
        /// What.
        text: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel said yes, and did something else.
    #[error("/{path} is {found} after {text} was written to /{written}")]
    NotDone {
        /// What was read.
        path: String,
        /// What it says.
        found: String,
        /// What was written.
        text: String,
        /// Where.
        written: String,
    },
}

impl WriteError {
    /// Whether another try may help.
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

/// Writes `text` to `path`, unless it is `done` already, and checks that it is then.
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

/// How long the kernel gets for what takes its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// Between two looks, or two tries.
    pub(crate) step: Duration,
    /// Tries to free memory that is busy. The kernel itself moves pages for seconds before it says EBUSY.
    pub(crate) tries: u32,
    /// Looks whether something has appeared: drivers may have to be loaded first.
    pub(crate) looks: u32,
    /// Looks whether an erasure is over.
    pub(crate) erasing: u32,
}

impl Default for WaitLimits {
    /// Ten seconds for what appears; ten minutes for an erasure, and whoever repeats the order waits on.
    fn default() -> Self {
        Self { step: Duration::from_millis(100), tries: 5, looks: 100, erasing: 6000 }
    }
}

impl WaitLimits {
    /// Looks until there is something, or time is up.
    pub(crate) fn wait<T>(&self, looks: u32, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 1..looks {
            if let Some(found) = look() {
                return Some(found);
            }
            thread::sleep(self.step);
        }
        look()
    }

    /// Tries until it works, or no try is left, or another one cannot help.
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
