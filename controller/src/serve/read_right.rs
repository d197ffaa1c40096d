//! The rights to read that visitors have or lack.

use std::fmt;

use hostler_api::{fabric::FABRIC_ATTACHMENTS, hardware, reservation::RESERVATIONS};

/// A subject that a visitor may read or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReadRight {
    /// Nodes and sums.
    Nodes,
    /// The holders of devices: names of claims, pods and namespaces.
    Holders,
    /// Answers about what would fit.
    Fits,
    /// The Reservations for which devices are held.
    Reservations,
    /// Devices behind switches, and the claims that have them.
    Fabric,
}

impl ReadRight {
    /// Returns the collection that a visitor must be allowed to list in all namespaces.
    pub(super) fn collection(self) -> (&'static str, &'static str) {
        match self {
            Self::Nodes => (hardware::GROUP, hardware::NODE_HARDWARE),
            Self::Holders => (hostler_api::resource::GROUP, "resourceclaims"),
            Self::Fits => (hostler_api::resource::GROUP, "resourceslices"),
            Self::Reservations => (hardware::GROUP, RESERVATIONS),
            Self::Fabric => (hardware::GROUP, FABRIC_ATTACHMENTS),
        }
    }
}

impl fmt::Display for ReadRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, resource) = self.collection();
        write!(f, "list {resource}.{group}")
    }
}
