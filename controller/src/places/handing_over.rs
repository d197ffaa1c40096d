//! Places that are being handed over, as one moment shows them.

use std::collections::BTreeSet;

/// A place: the name of its Reservation, and the replica.
pub(super) type PlaceKey = (String, u32);

/// Places that are being handed over.
#[derive(Clone, Debug, Default)]
pub(super) struct HandingOver {
    /// Nodes of these places.
    pub(super) nodes: BTreeSet<String>,
    /// Places whose owners are expected any moment, with their nodes.
    pub(super) fresh: Vec<(PlaceKey, String)>,
}
