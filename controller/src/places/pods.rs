//! Collections of pods, their lists, and the pause that all writes of them share.

use std::time::Duration;

use hostler_api::reservation::PLACES_NAMESPACE;
use hostler_cluster::{ApiClient, ApiFailure, Collection, ListSelector};
use serde::Deserialize;

use super::context::PlacePod;

/// The pause after a write that another one came before.
pub(super) const SOON: Duration = Duration::from_millis(50);

/// Page of a list of pods.
#[derive(Deserialize)]
struct PlacePodPage {
    items: Vec<PlacePod>,
}

/// Returns the pods of a namespace.
pub(super) fn pods(namespace: &str) -> Collection {
    Collection::core("Pod", "pods").of(namespace)
}

/// Returns the place holders.
pub(super) fn place_holders() -> Collection {
    pods(PLACES_NAMESPACE)
}

/// Lists the place holders that are selected.
///
/// # Errors
/// When the server does not answer, or not with pods.
pub(super) async fn list_place_holders(
    client: &ApiClient,
    selector: ListSelector<'_>,
) -> Result<Vec<PlacePod>, ApiFailure> {
    let (mut found, mut wrong) = (Vec::new(), None);
    let mut read = |page: Vec<u8>| match serde_json::from_slice::<PlacePodPage>(&page) {
        Ok(page) => found.extend(page.items),
        Err(error) => wrong = Some(ApiFailure::unusable("list place holders", error)),
    };
    client.list_selected(&place_holders(), selector, &mut read).await?;
    wrong.map_or(Ok(found), Err)
}
