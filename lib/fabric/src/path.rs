//! Paths of objects at their manager.

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// A path of an object at its manager, such as `/redfish/v1/Systems/1`. Without a slash at its end. Clones share the text.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ObjectPath(Arc<str>);

impl ObjectPath {
    /// Makes a path of a text; slashes at its end are dropped.
    pub fn new(path: impl AsRef<str>) -> Self {
        Self(path.as_ref().trim_end_matches('/').into())
    }

    /// The text of the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of an object below this one.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        Self(format!("{}/{name}", self.0).into())
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The path itself, and each path above it.
    pub(crate) fn and_above(&self) -> impl Iterator<Item = Self> {
        let next = |path: &Self| path.0.rsplit_once('/').map(|(above, _)| Self(above.into()));
        std::iter::successors(Some(self.clone()), next)
    }

    /// Paths for people.
    pub(crate) fn list<'a>(paths: impl Iterator<Item = &'a Self>) -> String {
        let paths: Vec<&str> = paths.map(Self::as_str).collect();
        paths.join(", ")
    }

    /// True if the path is `other` or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.strip_prefix(&*other.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Texts of an inventory. Each is in memory once, however many objects say it.
#[derive(Debug, Default)]
pub(crate) struct InternedTexts(BTreeSet<Arc<str>>);

impl InternedTexts {
    /// Puts the known text in the place of an equal one.
    pub(crate) fn share(&mut self, text: &mut Arc<str>) {
        match self.0.get(text) {
            Some(known) => text.clone_from(known),
            None => drop(self.0.insert(text.clone())),
        }
    }

    /// The same for the text of a path.
    pub(crate) fn share_path(&mut self, path: &mut ObjectPath) {
        self.share(&mut path.0);
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
