//! The status of an object as a whole, with the fields of all writers.

use hyper::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use super::{
    ApiClient, managed_by,
    request::{self, PatchKind},
};
use crate::{
    ApiFailure, Collection,
    protobuf::{self, ProtobufObject},
};

impl ApiClient {
    /// Replaces the status of an object, if the object is still in this version; gives it as the server has it then.
    /// `manager` owns the fields from then on. Where fields are applied instead, one that is not named any more stays
    /// if another client has written it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn write_status<T: DeserializeOwned>(
        &self,
        all: &Collection,
        name: &str,
        manager: &str,
        (version, status): (&str, &impl Serialize),
    ) -> Result<T, ApiFailure> {
        let step = || format!("write the status of {}", all.title(name));
        // A `test` that fails is told as a mistake of the caller; another version than the object's as the conflict
        // that it is.
        let operations = json!([
            {"op": "add", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let path = managed_by(manager, &format!("{}/status", all.path(name)));
        self.call(step, request::patch(&path, PatchKind::Operations, super::json(step, &operations)?)).await
    }

    /// Replaces the status of an object that was read with [`get_protobuf`](Self::get_protobuf), unless it has changed
    /// since; gives it as the server has it then. `manager` is who owns the fields from then on.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn replace_status(
        &self,
        all: &Collection,
        name: &str,
        manager: &str,
        object: &ProtobufObject,
    ) -> Result<ProtobufObject, ApiFailure> {
        let request = Request::put(managed_by(manager, &format!("{}/status", all.path(name))))
            .header(ACCEPT, protobuf::MEDIA_TYPE)
            .header(CONTENT_TYPE, protobuf::MEDIA_TYPE)
            .body(object.encode());
        self.call_protobuf(|| format!("write the status of {}", all.title(name)), request).await
    }
}
