//! Requests: the verbs of the API as methods, headers and bodies; and the answers that refuse them.

use hyper::{
    Method, Request,
    header::{ACCEPT, CONTENT_TYPE},
    http::Result,
};
use serde_json::json;

use crate::{ObjectVersion, StatusError, failure::Status, protobuf};

/// Media type of nearly all answers.
pub(super) const JSON: &str = "application/json";
/// Media type of an answer with nothing but the metadata of an object.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A request and its body.
pub(super) type ApiRequest = Result<Request<Vec<u8>>>;

/// Changes that a PATCH makes, by the media type of its body.
#[derive(Clone, Copy, Debug)]
pub(super) enum PatchKind {
    /// Fields become what they are in the body.
    Merge,
    /// Fields become what they are in the body, and are owned by who applies them.
    Apply,
    /// Operations, one after the other.
    Operations,
}

impl PatchKind {
    fn media_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            // JSON is YAML too.
            Self::Apply => "application/apply-patch+yaml",
            Self::Operations => "application/json-patch+json",
        }
    }
}

/// Reads what a path leads to.
pub(super) fn get(path: &str) -> ApiRequest {
    Request::get(path).header(ACCEPT, JSON).body(Vec::new())
}

/// Reads nothing but the metadata.
pub(super) fn get_metadata(path: &str) -> ApiRequest {
    Request::get(path).header(ACCEPT, METADATA).body(Vec::new())
}

/// Adds an object to a collection, or puts a question.
pub(super) fn post(path: &str, object: Vec<u8>) -> ApiRequest {
    with_body(Method::POST, path, JSON, object)
}

/// Replaces an object.
pub(super) fn put(path: &str, object: Vec<u8>) -> ApiRequest {
    with_body(Method::PUT, path, JSON, object)
}

/// Changes an object.
pub(super) fn patch(path: &str, kind: PatchKind, patch: Vec<u8>) -> ApiRequest {
    with_body(Method::PATCH, path, kind.media_type(), patch)
}

/// Deletes an object in this version only.
pub(super) fn delete(path: &str, ObjectVersion { uid, resource_version }: &ObjectVersion) -> ApiRequest {
    let preconditions = json!({ "preconditions": { "uid": uid, "resourceVersion": resource_version } });
    with_body(Method::DELETE, path, JSON, preconditions.to_string().into_bytes())
}

fn with_body(method: Method, path: &str, media_type: &str, body: Vec<u8>) -> ApiRequest {
    Request::builder().method(method).uri(path).header(ACCEPT, JSON).header(CONTENT_TYPE, media_type).body(body)
}

/// Reads a refusal. Some proxies have words of their own.
pub(super) fn refusal(code: u16, retry_after: Option<u64>, body: &[u8]) -> StatusError {
    let said = protobuf::refusal(body).or_else(|| serde_json::from_slice(body).ok()).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(body);
        Status { message: text.trim().to_owned(), ..Status::default() }
    });
    StatusError::new(code, retry_after, said)
}
