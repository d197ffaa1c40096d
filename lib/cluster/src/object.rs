//! An object as the API server sends it, with the fields that its reader knows.

use serde::{Deserialize, Deserializer, de::IgnoredAny};

/// Identity and version of an object: the server refuses a write or a deletion of any other one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObjectVersion {
    /// Of the object.
    pub uid: String,
    /// Of its version.
    pub resource_version: String,
}

/// True if a version of an object came before another one. Versions are numbers that rise; where they are none, the
/// later word counts.
pub fn is_older(version: &str, known: &str) -> bool {
    matches!((version.parse::<u64>(), known.parse::<u64>()), (Ok(version), Ok(known)) if version < known)
}

/// An object with its `spec` as `S`, and its `status` as `T`, which may be absent.
#[derive(Clone, Debug, Deserialize)]
pub struct ApiObject<S, T: Default = IgnoredAny> {
    metadata: ApiMetadata,
    /// The spec.
    pub spec: S,
    /// The status.
    #[serde(default)]
    pub status: T,
}

/// ObjectMeta: metadata of an object, as far as they are read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(deserialize_with = "or_none")]
    owner_references: Vec<ApiOwner>,
}

/// OwnerReference: an object that another one belongs to.
#[derive(Clone, Debug, Deserialize)]
struct ApiOwner {
    kind: String,
    uid: String,
    controller: Option<bool>,
}

/// Go writes an empty list as `null` too.
fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ApiOwner>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl<S, T: Default> ApiObject<S, T> {
    /// Name of the object.
    pub fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }

    /// Namespace of the object, if its kind has any.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    /// True if the deletion of the object was requested.
    pub fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Identity and version. An object that was only tried out has neither.
    pub fn version(&self) -> ObjectVersion {
        ObjectVersion {
            uid: self.metadata.uid.clone().unwrap_or_default(),
            resource_version: self.metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    /// How often its spec was changed, of kinds that count that; 0 of others.
    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// UID of the object of this kind that owns it.
    pub fn owner(&self, kind: &str) -> Option<&str> {
        self.metadata.owner_references.iter().find(|owner| owner.kind == kind).map(|owner| &*owner.uid)
    }

    /// UID of the object of this kind that controls it.
    pub fn controller(&self, kind: &str) -> Option<&str> {
        let mut owners = self.metadata.owner_references.iter();
        let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == kind)?;
        Some(&owner.uid)
    }
}
