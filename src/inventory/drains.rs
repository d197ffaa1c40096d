//! Devices that an operator takes out of service. They stay prepared for whoever holds them; nobody new shall get them.

use std::{collections::BTreeMap, time::SystemTime};

use hostler_backend::{BackendName, DeviceName};
use serde::{Deserialize, Serialize};

/// All drained devices.
pub type Drains = BTreeMap<(BackendName, DeviceName), Drain>;

/// One device's drain.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Drain {
    /// When it began.
    pub since: SystemTime,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// Whether pods that use the device shall go as well.
    pub evict: bool,
}
