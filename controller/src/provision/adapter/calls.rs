//! Writes answers into requests: fields of our own, over the version that was seen.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hostler_allocator::plan::ObjectKey;
use hostler_api::{
    Chain,
    provisioning::{GROUP, PROVISIONING_REQUEST_KIND, PROVISIONING_REQUESTS, VERSIONS},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, ObjectVersion};
use serde::Deserialize;
use serde_json::json;

use crate::provision::event::{StatusOutcome, StatusWrite};

/// Whose fields these are, as the API server remembers it. Others who write conditions of a request have other names.
const FIELD_MANAGER: &str = "hostler-controller-provisioning";

/// What came of a write.
#[derive(Debug)]
pub(super) struct WriteAnswer {
    pub(super) key: ObjectKey,
    pub(super) uid: String,
    pub(super) outcome: StatusOutcome,
    /// What is wrong, if it is not just that somebody else was faster.
    pub(super) trouble: Option<String>,
}

/// Writes in the version that the server has.
#[derive(Clone, Debug)]
pub(super) struct RequestWriter {
    client: ApiClient,
    /// Which of the versions that is.
    place: Arc<AtomicUsize>,
}

/// The object as the server has it after a write.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenRequest {
    metadata: WrittenMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    uid: String,
    resource_version: String,
}

impl RequestWriter {
    pub(super) fn new(client: ApiClient) -> Self {
        Self { client, place: Arc::default() }
    }

    pub(super) async fn write(&self, write: StatusWrite) -> WriteAnswer {
        let (key, uid) = (write.key.clone(), write.version.uid.clone());
        let (outcome, trouble) = match self.apply(&write).await {
            Ok(version) => (StatusOutcome::Done(version), None),
            Err(failure) => outcome(&failure),
        };
        WriteAnswer { key, uid, outcome, trouble }
    }

    async fn apply(&self, write: &StatusWrite) -> Result<ObjectVersion, ApiFailure> {
        let first = self.place.load(Ordering::Relaxed);
        match self.apply_in(first, write).await {
            Err(failure) if failure.is_unknown_resource() => {
                let next = (first + 1) % VERSIONS.len();
                self.place.store(next, Ordering::Relaxed);
                self.apply_in(next, write).await
            }
            applied => applied,
        }
    }

    async fn apply_in(&self, place: usize, write: &StatusWrite) -> Result<ObjectVersion, ApiFailure> {
        let StatusWrite { key, version, status } = write;
        let all = Collection::custom(GROUP, VERSIONS[place], PROVISIONING_REQUEST_KIND, PROVISIONING_REQUESTS)
            .of(&key.namespace);
        let object = json!({
            "apiVersion": all.api_version(), "kind": all.kind(),
            "metadata": {
                "name": key.name, "namespace": key.namespace,
                "uid": version.uid, "resourceVersion": version.resource_version,
            },
            "status": status,
        });
        let written: WrittenRequest = self.client.apply_status(&all, &key.name, FIELD_MANAGER, &object).await?;
        let WrittenMetadata { uid, resource_version } = written.metadata;
        Ok(ObjectVersion { uid, resource_version })
    }
}

fn outcome(failure: &ApiFailure) -> (StatusOutcome, Option<String>) {
    match failure.code() {
        Some(404) if !failure.is_unknown_resource() => (StatusOutcome::Gone, None),
        Some(409) => (StatusOutcome::Conflict, None),
        _ => (StatusOutcome::Failed, Some(Chain(failure).to_string())),
    }
}
