//! The Eviction API: a pod goes, where no budget is against it.

use hyper::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::core::request;

use super::{ApiClient, json};
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
        let request = Request::post(format!("{}/eviction", pods.path(name)))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(json(step, &eviction)?);
        self.send(step, request.map_err(request::Error::BuildRequest)).await.map(drop)
    }
}
