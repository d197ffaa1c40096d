//! The key of an object among the objects of its kind.

use std::fmt;

/// Namespace and name of an object; objects of kinds without namespaces have none.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// Namespace; empty where the kind has none.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Returns the key of an object of a namespaced kind; without a namespace the object is in `default`.
    pub fn new(namespace: &str, name: &str) -> Self {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
