//! State of the offer of devices behind switches, for conditions and figures.

use std::collections::BTreeMap;

/// Reason of devices that failed too often.
pub(super) const QUARANTINED: &str = "Quarantined";

/// State of the offer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct FabricStatus {
    /// State of publishing.
    pub(crate) phase: FabricPhase,
    /// Managers by name, with the reason why one cannot be read now.
    pub(crate) managers: BTreeMap<String, Option<String>>,
    /// Contradictions in what managers and nodes tell, one sentence each.
    pub(crate) contradictions: Vec<String>,
    /// Devices and domains that are not offered, and why.
    pub(crate) left_out: Vec<String>,
    /// Number of devices by pool and state.
    pub(crate) devices: BTreeMap<(String, &'static str), usize>,
}

/// State of publishing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum FabricPhase {
    /// Another controller publishes.
    #[default]
    NotLeading,
    /// The slices on the server are not known yet; holds the reason where there is one.
    Listing(Option<String>),
    /// The server has no FabricAttachments: devices could not be attached.
    NotServed,
    /// The server drops these fields of devices.
    FieldsDropped(String),
    /// Slices cannot be written; holds the reason.
    Failed(String),
    /// The devices are published.
    Offering,
}
