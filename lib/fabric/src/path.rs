//! Paths of objects at their manager.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A path of an object at its manager, such as `/redfish/v1/Systems/1`. Without a slash at its end.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ObjectPath(String);

impl ObjectPath {
    /// Makes a path of a text; slashes at its end are dropped.
    pub fn new(path: impl AsRef<str>) -> Self {
        Self(path.as_ref().trim_end_matches('/').to_owned())
    }

    /// The text of the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of an object below this one.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self(format!("{}/{name}", self.0))
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The path itself, and each path above it.
    pub(crate) fn and_above(&self) -> impl Iterator<Item = Self> {
        let next = |path: &Self| path.0.rsplit_once('/').map(|(above, _)| Self(above.to_owned()));
        std::iter::successors(Some(self.clone()), next)
    }

    /// True if the path is `other` or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.strip_prefix(&other.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ObjectPath {
    fn from(path: &str) -> Self {
        Self::new(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_within_another_by_whole_parts() {
        let system = ObjectPath::new("/redfish/v1/Systems/1/");
        assert_eq!(system.as_str(), "/redfish/v1/Systems/1");
        assert_eq!(system.name(), "1");
        assert!(system.below("Processors").is_within(&system));
        assert!(system.is_within(&system));
        assert!(!ObjectPath::new("/redfish/v1/Systems/10").is_within(&system));
    }
}
