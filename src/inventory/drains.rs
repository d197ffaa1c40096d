//! Devices that an operator takes out of service. They stay prepared for their holders; no other claim shall get them.
//!
//! ```text
//!   in service ──drain──► drained ──undrain──► in service        each arrow is on disk before it is true
//!
//!   a list that cannot be understood is `lost`: until an operator forgets it, every device counts as drained
//! ```
//!
//! Writer: the inventory task, through [`list`]; on disk: [`store`]. Readers find the drains in the inventory.

mod list;
mod store;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{BackendName, DeviceName};
use hostler_files::FileError;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

pub(super) use list::DrainList;

/// All drained devices.
pub type Drains = BTreeMap<(BackendName, DeviceName), Drain>;

/// One device's drain.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Drain {
    /// Time at which the drain began.
    pub since: SystemTime,
    /// Reason, in the operator's words.
    pub reason: Option<String>,
    /// True if pods that use the device shall go as well.
    pub evict: bool,
}

impl Drain {
    /// A drain that begins now, to the second: the resolution of times in Kubernetes.
    pub fn now(reason: Option<String>, evict: bool) -> Self {
        Self { since: to_the_second(SystemTime::now()), reason, evict }
    }

    /// Returns the beginning, in seconds since 1970.
    pub fn since_unix(&self) -> u64 {
        unix(self.since)
    }
}

fn unix(time: SystemTime) -> u64 {
    // No drain began before 1970.
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn to_the_second(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(unix(time))
}

/// A list of drained devices that cannot be understood. Its content is not known, so every device counts as drained.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LostDrains {
    /// The file.
    pub path: PathBuf,
    /// Fault of the file, for people.
    pub reason: String,
    /// Time of the last write.
    pub since: SystemTime,
}

impl LostDrains {
    /// Explains what this means and how to mend it, for people.
    pub fn explain(&self) -> String {
        format!(
            "which devices are drained is not known ({}: {}), so all of them count as drained: drain again what must \
             stay drained (`hostler device drain`), then run `hostler device forget`",
            self.path.display(),
            self.reason
        )
    }
}

/// Why a device could not be drained or put back into service.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// A step on the list failed; what was true before is still true.
    #[error(transparent)]
    File(#[from] FileError),
    /// The list could not be put into JSON.
    #[error("failed to encode the list of drained devices")]
    Encode(#[source] serde_json::Error),
    /// The device counts as drained because the list is lost.
    #[error("{}", .0.explain())]
    Lost(LostDrains),
    /// The daemon is stopping.
    #[error("the daemon is stopping; try again")]
    Stopping,
}

/// Commands to the inventory task about drains.
#[derive(Debug)]
pub(super) enum DrainCommand {
    /// Read the list. The daemon that takes over the node asks for it.
    Load,
    /// Take a device out of service. One that is drained already keeps its beginning.
    Drain(BackendName, DeviceName, Drain),
    /// Put a device back into service. One that is not drained is fine.
    Undrain(BackendName, DeviceName),
    /// Set a lost list aside for good.
    Forget,
}

/// A command, with the channel for the answer: the device's drain before, or for a new one, from now on.
#[derive(Debug)]
pub(super) struct DrainRequest {
    pub(super) command: DrainCommand,
    pub(super) done_tx: oneshot::Sender<Result<Option<Drain>, DrainError>>,
}
