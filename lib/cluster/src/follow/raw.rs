//! An object as the server's own text, of which only the name and the version are known.

use std::sync::Arc;

use hostler_api::ObjectKey;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::ObjectVersion;

/// An object that was not read yet, and that perhaps cannot be. Copies share the text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RawObject {
    json: Arc<str>,
    metadata: Arc<RawMetadata>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct RawMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

#[derive(Deserialize)]
struct RawHead {
    #[serde(default)]
    metadata: RawMetadata,
}

impl RawObject {
    /// An object whose name cannot be read has none here: it is not one that a server can have.
    pub(super) fn new(json: &RawValue) -> Self {
        let head: Option<RawHead> = serde_json::from_str(json.get()).ok();
        Self { json: json.get().into(), metadata: head.map(|head| head.metadata).unwrap_or_default().into() }
    }

    /// An object of which this is the text.
    ///
    /// # Errors
    /// When the text is no JSON.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<&RawValue>(text).map(Self::new)
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Namespace of the object; empty if its kind has none.
    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// Namespace and name; no namespace where its kind has none.
    pub fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace().to_owned(), name: self.name().to_owned() }
    }

    /// Identity and version of the object.
    pub fn version(&self) -> ObjectVersion {
        let RawMetadata { uid, resource_version, .. } = (*self.metadata).clone();
        ObjectVersion { uid, resource_version }
    }

    /// How long its text is.
    pub fn size_bytes(&self) -> usize {
        self.json.len()
    }

    /// Reads the object.
    ///
    /// # Errors
    /// When the object is no `T`; the error names the field.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
        serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&self.json))
    }

    /// Reads the object of a kind with very many objects. Knowing at all times which field is read takes a third of
    /// [`read`](Self::read): it is found out by a second reading, of an object that is no `T`.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_one_of_many<T: DeserializeOwned>(&self) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
        serde_json::from_str(&self.json).or_else(|_| self.read())
    }
}
