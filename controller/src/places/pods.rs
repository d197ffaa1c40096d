//! Collections of pods, and the pause that all writes of them share.

use std::time::Duration;

use hostler_api::reservation::PLACES_NAMESPACE;
use hostler_cluster::Collection;

/// The pause after a write that another one came before.
pub(super) const SOON: Duration = Duration::from_millis(50);

/// Returns the pods of a namespace.
pub(super) fn pods(namespace: &str) -> Collection {
    Collection::core("Pod", "pods").of(namespace)
}

/// Returns the place holders.
pub(super) fn place_holders() -> Collection {
    pods(PLACES_NAMESPACE)
}
