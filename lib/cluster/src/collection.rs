//! Addresses of the objects of a kind on an API server.

use std::fmt::Write;

use hostler_api::resource::{ApiVersion, GROUP};

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

    /// Name of the definition of a kind that is not the cluster's own: `reservations.hostler.dev`.
    pub fn definition(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The object called `name`, for people: `ResourceClaim default/train`.
    pub(crate) fn title(&self, name: &str) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{name}", self.kind),
            None => format!("{} {name}", self.kind),
        }
    }

    /// Path of the collection.
    pub(crate) fn url_path(&self) -> String {
        let api = if self.group.is_empty() { "api" } else { "apis" };
        let namespace = self.namespace.as_ref().map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        format!("/{api}/{}{namespace}/{}", self.api_version(), self.plural)
    }

    /// Path of the object with this name.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.url_path())
    }
}

/// The text as a value in a query: everything but letters, digits and four marks is escaped.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut query, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => query.push(char::from(byte)),
            // Writing to a text does not fail.
            _ => drop(write!(query, "%{byte:02X}")),
        }
        query
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let slices = Collection::resource(ApiVersion::V1Beta2, "ResourceSlice", "resourceslices");
        assert_eq!(slices.url_path(), "/apis/resource.k8s.io/v1beta2/resourceslices");
        let events = Collection::core("Event", "events").of("ml");
        assert_eq!(events.url_path(), "/api/v1/namespaces/ml/events");
        assert_eq!(events.title("a"), "Event ml/a");
    }

    #[test]
    fn a_selector_ends_where_it_ends() {
        assert_eq!(
            encoded("spec.driver=a-b_c~,metadata.name=ä&x"),
            "spec.driver%3Da-b_c~%2Cmetadata.name%3D%C3%A4%26x"
        );
    }
}
