//! The files that hostler itself keeps. Every one of them is written here, in one way, and those that a start must be
//! able to trust carry a checksum:
//!
//! - [`PendingFile`] and [`replace`]: at no moment does a reader see half a file, and after a failure the old one is
//!   there, whole.
//! - [`EnvelopeFormat`]: JSON with its version and a checksum.
//! - [`Journal`]: many small durable writes for the price of one flush each.
//! - [`read_trusted`]: nothing is believed that others can have changed, and nothing is waited for.
//! - [`InstanceLock`]: one process works on a folder, and knows when that is no longer so.
//! - [`FileError`]: which step failed on which file.
//!
//! Nothing of hostler is known here but that.

mod envelope;
mod error;
mod journal;
mod lock;
mod pending;
mod replacement;
mod trusted;

pub use envelope::{EnvelopeError, EnvelopeFormat};
pub use error::FileError;
pub use lock::{InstanceLock, LockError};
pub use journal::{Journal, JournalContent};
pub use pending::{FinishedFile, PendingFile, TemporaryName};
pub use replacement::{Durability, FileReplacement, replace, sync_folder};
pub use trusted::{TrustError, open_trusted, read_trusted, trust};
