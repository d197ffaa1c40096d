//! Objects that are deployed: those of a cluster, or those of manifests.

use serde_json::Value;

/// The namespace of the daemons.
pub(super) const DAEMON_NAMESPACE: &str = "hostler-system";

/// The namespace of the controller.
pub(super) const CONTROLLER_NAMESPACE: &str = "hostler-controller";

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct DeployedObjects {
    /// Minor release of the API server; `None` for manifests.
    pub(super) minor: Option<u32>,
    /// True if the API server serves a version of `resource.k8s.io` that hostler speaks; `None` for manifests.
    pub(super) serves_claims: Option<bool>,
    /// Objects, each with `apiVersion` and `kind`.
    pub(super) objects: Vec<Value>,
}

impl DeployedObjects {
    /// True if what was not read is not there.
    pub(super) fn is_cluster(&self) -> bool {
        self.serves_claims.is_some()
    }

    /// Returns the objects of a kind.
    pub(super) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Returns an object.
    pub(super) fn named<'a>(&'a self, kind: &'a str, name: &str) -> Option<&'a Value> {
        self.of(kind).find(|object| name_of(object) == name)
    }

    /// True if something of the kind is known to be absent: in manifests, only if others of the kind are there.
    pub(super) fn lacks(&self, kind: &str, name: &str) -> bool {
        self.named(kind, name).is_none() && (self.is_cluster() || self.of(kind).next().is_some())
    }
}

/// Returns the name of an object.
pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the elements of a list; none for what is no list.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the texts of a list.
pub(super) fn texts(value: &Value) -> impl Iterator<Item = &str> {
    list(value).filter_map(Value::as_str)
}
