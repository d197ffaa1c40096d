//! Reading and writing files. What hostler itself keeps is written here, in one way, and what a start must be able to trust
//! carries a checksum; whatever is read, its own or others', is read here:
//!
//! - [`PendingFile`] and [`replace`]: at no moment does a reader see half a file, and after a failure the old one is
//!   there, whole.
//! - [`EnvelopeFormat`]: JSON with its version and a checksum.
//! - [`Journal`]: many small durable writes for the price of one flush each.
//! - [`read_trusted`]: nothing is believed that others can have changed, and nothing is waited for.
//! - [`InstanceLock`]: one process works on a folder, and knows when that is no longer so.
//! - [`read_file`] and its like: what others put there is believed, and neither waited for nor read without end.
//! - [`FolderWatch`]: which entries of a folder changed since the last question.
//! - [`FileError`]: which step failed on which file.
//!
//! Nothing of hostler is known here but that.

mod bounded;
mod envelope;
mod error;
mod folder_watch;
mod journal;
mod lock;
mod pending;
mod replacement;
mod trusted;

pub use bounded::{expect_file, expect_size, open_file, open_folder, read_argument, read_file, read_stream, read_text};
pub use envelope::{EnvelopeError, EnvelopeFormat};
pub use error::FileError;
pub use folder_watch::{FolderChanges, FolderWatch};
pub use journal::{Journal, JournalContent, JournalLine};
pub use lock::{InstanceLock, LockError};
pub use pending::{FinishedFile, PendingFile, TemporaryName};
pub use replacement::{Durability, FileReplacement, replace, sync_folder};
pub use trusted::{TrustError, open_trusted, read_trusted, trust, trust_folder};
