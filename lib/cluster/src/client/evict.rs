//! The Eviction API: a pod goes, where no budget is against it.

use super::{ApiClient, json, request};
use crate::{ApiFailure, Collection};

impl ApiClient {
    /// Asks that a pod goes, if it is the one with this UID and no budget is against it.
    ///
    /// # Errors
    /// As [`get`](Self::get): 429 where a budget is against it, 409 where another pod has its name, 404 where none has.
    pub async fn evict(&self, pods: &Collection, name: &str, uid: &str) -> Result<(), ApiFailure> {
        let step = || format!("evict {}", pods.title(name));
        let eviction = serde_json::json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let request = request::post(&format!("{}/eviction", pods.path(name)), json(step, &eviction)?);
        self.send(step, request).await.map(drop)
    }
}
