//! Results of calls: done, under way, not done, or unknown.

use crate::ObjectPath;

/// The result of a call that changes a fabric, or asks for the result of one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FabricOutcome<T> {
    /// The manager has done it, and was read again afterwards.
    Done(T),
    /// The manager has accepted it and works on it. [`state`](crate::FabricProvider::state) tells the end.
    UnderWay(FabricOperation),
    /// The manager has not done it and does not work on it.
    NotDone {
        /// The reason with the manager's answer and the fix, for people.
        reason: String,
    },
    /// The manager may have done it, or may do it yet. The same call may be repeated with the same key.
    Unknown {
        /// The reason, for people.
        reason: String,
    },
}

/// Work that a manager has accepted and not ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FabricOperation {
    /// The manager's object for the work. `None`: the manager names none, so only the connection tells that the work has
    /// ended, and nothing tells that it has failed.
    pub monitor: Option<ObjectPath>,
    /// The state in the manager's own words, such as `Running`.
    pub state: Option<String>,
    /// The part that is done, in percent, as far as the manager tells.
    pub percent: Option<u64>,
}

/// The way in which a device was taken from the hosts of the expected connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Isolation {
    /// None of the expected connections is left.
    Removed {
        /// Ids of the connections that were removed; none: there was none of them.
        connections: Vec<String>,
    },
    /// The port of the device is disabled. Its connections stay.
    PortDisabled {
        /// The port.
        port: ObjectPath,
    },
}

impl<T> FabricOutcome<T> {
    /// Returns the same outcome with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> FabricOutcome<U> {
        match self {
            Self::Done(value) => FabricOutcome::Done(change(value)),
            Self::UnderWay(operation) => FabricOutcome::UnderWay(operation),
            Self::NotDone { reason } => FabricOutcome::NotDone { reason },
            Self::Unknown { reason } => FabricOutcome::Unknown { reason },
        }
    }

    /// True if the manager has done it.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    pub(crate) fn not_done(reason: impl Into<String>) -> Self {
        Self::NotDone { reason: reason.into() }
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown { reason: reason.into() }
    }
}
