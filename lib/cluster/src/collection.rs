//! Where objects of a kind are on an API server.

use hostler_api::resource::{ApiVersion, GROUP};
use kube::core::{ApiResource, Request};

/// The objects of one kind, in one version: those of a namespace, or all of a kind that has none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Collection {
    group: String,
    version: String,
    kind: String,
    plural: String,
    namespace: Option<String>,
}

impl Collection {
    /// Objects of the core group: `Node` and `nodes`, in v1.
    pub fn core(kind: &str, plural: &str) -> Self {
        Self::new("", "v1", kind, plural)
    }

    /// Objects of `resource.k8s.io`: `ResourceSlice` and `resourceslices`.
    pub fn resource(version: ApiVersion, kind: &str, plural: &str) -> Self {
        Self::new(GROUP, version.as_str(), kind, plural)
    }

    /// Objects of a group that is not the cluster's own: those of a CRD.
    pub fn custom(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self::new(group, version, kind, plural)
    }

    pub(crate) fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        let [group, version, kind, plural] = [group, version, kind, plural].map(str::to_owned);
        Self { group, version, kind, plural, namespace: None }
    }

    /// Only those in `namespace`. It becomes part of a path: it must be a name that Kubernetes would take.
    #[must_use]
    pub fn of(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// `resource.k8s.io/v1`, or `v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `ResourceSlice`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// `resourceslices`.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// The object called `name`, for people: `ResourceClaim default/train`.
    pub(crate) fn title(&self, name: &str) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{name}", self.kind),
            None => format!("{} {name}", self.kind),
        }
    }

    /// What `kube` must know to make requests.
    pub(crate) fn requests(&self) -> Request {
        let api = if self.group.is_empty() { "api" } else { "apis" };
        let namespace = self.namespace.as_ref().map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        Request::new(format!("/{api}/{}{namespace}/{}", self.api_version(), self.plural))
    }

    /// Where the object called `name` is.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.requests().url_path)
    }

    /// What `kube` must know to watch; it watches all namespaces.
    pub(crate) fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let slices = Collection::resource(ApiVersion::V1Beta2, "ResourceSlice", "resourceslices");
        assert_eq!(slices.requests().url_path, "/apis/resource.k8s.io/v1beta2/resourceslices");
        let events = Collection::core("Event", "events").of("ml");
        assert_eq!(events.requests().url_path, "/api/v1/namespaces/ml/events");
        assert_eq!(events.title("a"), "Event ml/a");
    }
}
