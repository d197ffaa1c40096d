//! How keeping devices goes: for conditions, figures, and people.

use std::collections::BTreeMap;

/// How far it has come.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum HoldPhase {
    /// Another controller keeps devices, or this one is about to.
    #[default]
    NotLeading,
    /// The server does not have this kind.
    NotServed(String),
    /// The server does not let this controller see them.
    Forbidden(String),
    /// Nobody knows, since the server does not answer.
    Unknown(String),
    /// Kinds of which no complete list was seen yet.
    Listing(Vec<&'static str>),
    /// Devices are kept.
    Keeping,
}

/// How keeping devices goes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct HoldStatus {
    pub(crate) phase: HoldPhase,
    /// Reservations, by phase.
    pub(crate) reservations: BTreeMap<&'static str, usize>,
    /// Writes of this term, by what was written and what came of it.
    pub(crate) writes: BTreeMap<(&'static str, &'static str), u64>,
    /// Pods are not told from which Reservation they have devices: the server does not let this controller write it.
    pub(crate) is_silent_to_pods: bool,
    /// DeviceTaintRules that are known.
    pub(crate) rules: usize,
    /// Why DeviceTaintRules that come close nothing, though they are served.
    pub(crate) rules_doubt: Option<String>,
    /// Objects that cannot be understood.
    pub(crate) unreadable: usize,
}
