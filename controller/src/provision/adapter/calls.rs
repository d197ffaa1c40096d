//! Writes answers into requests: fields of our own, over the version that was read.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use hostler_api::{
    ObjectKey,
    provisioning::{GROUP, PROVISIONING_REQUEST_KIND, PROVISIONING_REQUESTS, ProvisioningRequestStatus, VERSIONS},
    reservation::RESERVATION_KIND,
};
use hostler_cluster::{
    ApiClient, ApiFailure, Collection, ObjectVersion,
    events::{EventNote, EventSubject},
};
use hostler_reconcile::WriteOutcome;
use serde::Deserialize;
use serde_json::json;

use crate::provision::{
    event::{ProvisionEventNote, StatusWrite, WriteResult},
    status::{stands, taken_back},
};

/// Field manager of this controller's fields. Other writers of a request's conditions have other names.
pub(super) const FIELD_MANAGER: &str = "hostler-controller-provisioning";

/// The result of a write.
#[derive(Debug)]
pub(super) struct WriteAnswer {
    pub(super) object: WrittenObject,
    pub(super) result: WriteResult,
}

/// The object that was written.
#[derive(Clone, Debug)]
pub(super) enum WrittenObject {
    /// A request, and its UID.
    Request(ObjectKey, String),
    /// The Reservation of this name.
    Reservation(String),
}

impl fmt::Display for WrittenObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(key, _) => write!(f, "{PROVISIONING_REQUEST_KIND} {key}"),
            Self::Reservation(name) => write!(f, "{RESERVATION_KIND} {name}"),
        }
    }
}

/// Writes requests in the version that the server has.
#[derive(Clone, Debug)]
pub(super) struct RequestWriter {
    client: ApiClient,
    /// Index of that version.
    place: Arc<AtomicUsize>,
}

/// An object as the server has it after a write.
#[derive(Deserialize)]
pub(super) struct SeenAfter {
    metadata: MetadataAfter,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataAfter {
    uid: String,
    resource_version: String,
}

/// A request as the server returned it after a write, with its status.
#[derive(Deserialize)]
struct WrittenRequest {
    metadata: MetadataAfter,
    #[serde(default)]
    status: ProvisioningRequestStatus,
}

impl SeenAfter {
    pub(super) fn version(self) -> ObjectVersion {
        ObjectVersion { uid: self.metadata.uid, resource_version: self.metadata.resource_version }
    }
}

impl RequestWriter {
    pub(super) fn new(client: ApiClient) -> Self {
        Self { client, place: Arc::default() }
    }

    pub(super) async fn write(&self, write: StatusWrite) -> WriteAnswer {
        let object = WrittenObject::Request(write.key.clone(), write.version.uid.clone());
        let written = self.apply(&write).await;
        WriteAnswer { object, result: written.map_err(|failure| WriteOutcome::of_failure(&failure)) }
    }

    /// Deletes a request. One that is gone by now is none of this controller's.
    pub(super) async fn delete(&self, key: ObjectKey, version: ObjectVersion) -> WriteAnswer {
        let all = Self::collection(self.place.load(Ordering::Relaxed)).of(&key.namespace);
        let deleted = self.client.delete(&all, &key.name, &version).await;
        let result = deleted.map(|()| version.clone()).map_err(|failure| WriteOutcome::of_failure(&failure));
        WriteAnswer { object: WrittenObject::Request(key, version.uid), result }
    }

    /// Returns the subject and the text of an Event.
    pub(super) fn event_of(&self, notice: ProvisionEventNote) -> (EventSubject, EventNote) {
        let ProvisionEventNote { key, uid, is_warning, reason, message } = notice;
        let version = VERSIONS[self.place.load(Ordering::Relaxed)];
        let subject = EventSubject {
            api_version: format!("{GROUP}/{version}"),
            kind: PROVISIONING_REQUEST_KIND,
            namespace: key.namespace,
            name: key.name,
            uid,
        };
        let note = EventNote::new(reason, message);
        (subject, if is_warning { note } else { note.normal() })
    }

    pub(super) fn client(&self) -> &ApiClient {
        &self.client
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

    fn collection(place: usize) -> Collection {
        Collection::custom(GROUP, VERSIONS[place], PROVISIONING_REQUEST_KIND, PROVISIONING_REQUESTS)
    }

    async fn apply_in(&self, place: usize, write: &StatusWrite) -> Result<ObjectVersion, ApiFailure> {
        let StatusWrite { key, version, status } = write;
        let all = Self::collection(place).of(&key.namespace);
        let object = json!({
            "apiVersion": all.api_version(), "kind": all.kind(),
            "metadata": {
                "name": key.name, "namespace": key.namespace,
                "uid": version.uid, "resourceVersion": version.resource_version,
            },
            "status": status,
        });
        let mut written: WrittenRequest = self.client.apply_status(&all, &key.name, FIELD_MANAGER, &object).await?;
        // A field that another writer set as well stays when this controller applies it no more.
        let left = taken_back(status, &written.status);
        if !left.is_empty() {
            let after = written.metadata;
            let patch = json!({
                "metadata": {"uid": after.uid, "resourceVersion": after.resource_version},
                "status": {"provisioningClassDetails": left},
            });
            written = self.client.change_status(&all, &key.name, FIELD_MANAGER, &patch).await?;
        }
        if stands(status, &written.status) {
            return Ok(SeenAfter { metadata: written.metadata }.version());
        }
        // The status would be written again and again.
        let why = "the API server has kept another status than it was given: look for webhooks that change requests";
        Err(ApiFailure::unusable(format!("write the status of {PROVISIONING_REQUEST_KIND} {key}"), why))
    }
}
