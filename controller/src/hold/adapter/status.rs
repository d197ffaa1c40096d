//! The state of keeping devices: for conditions, figures, and people.

use std::collections::BTreeMap;

/// The phase of keeping devices.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum HoldPhase {
    /// Another controller keeps devices, or this one is about to.
    #[default]
    NotLeading,
    /// The server does not serve this kind.
    NotServed(String),
    /// The role does not allow this controller to read Reservations.
    Forbidden(String),
    /// The server does not answer; the text says why.
    Unknown(String),
    /// Kinds of which no complete list was seen yet.
    Listing(Vec<&'static str>),
    /// Devices are kept.
    Keeping,
}

/// Phase and figures of keeping devices.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct HoldStatus {
    pub(crate) phase: HoldPhase,
    /// Reservations, by phase.
    pub(crate) reservations: BTreeMap<&'static str, usize>,
    /// Writes of this term, by kind and outcome.
    pub(crate) writes: BTreeMap<(&'static str, &'static str), u64>,
    /// True if pods are not annotated with the Reservation of their devices: the role does not allow it.
    pub(crate) is_silent_to_pods: bool,
    /// DeviceTaintRules that are known.
    pub(crate) rules: usize,
    /// The reason why new DeviceTaintRules close nothing, though they are served.
    pub(crate) rules_doubt: Option<String>,
    /// Objects that cannot be understood.
    pub(crate) unreadable: usize,
}
