//! The slices of a pool, as they were found for a node, and the reasons why they cannot be used.

use hostler_api::resource::ResourceSlice;

/// A pool as it was found.
#[derive(Debug, Default)]
pub(super) struct FoundPool<'a> {
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    pub(super) state: PoolState,
    /// Slices with devices for the node.
    pub(super) device_slices: Vec<&'a ResourceSlice>,
    /// Slices with devices for other nodes.
    pub(super) other_slices: Vec<&'a ResourceSlice>,
    /// Slices with counters.
    pub(super) counter_slices: Vec<&'a ResourceSlice>,
    pub(super) has_binding_conditions: bool,
}

/// State of a pool: reasons why its devices cannot be used, if there are any.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct PoolState {
    /// True if some of its slices are missing.
    pub(super) is_incomplete: bool,
    /// Contradiction within the pool, in words.
    pub(super) contradiction: Option<String>,
}

impl PoolState {
    pub(super) fn is_usable(&self) -> bool {
        !self.is_incomplete && self.contradiction.is_none()
    }

    /// Returns the reason why devices cannot be used, in words.
    pub(super) fn problem(&self) -> Option<String> {
        let incomplete = self.is_incomplete.then(|| "incomplete: some of its slices are missing".to_owned());
        incomplete.or_else(|| self.contradiction.as_ref().map(|contradiction| format!("invalid: {contradiction}")))
    }
}
