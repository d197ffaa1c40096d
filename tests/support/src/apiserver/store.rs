//! The objects and their history: one counter for all of them, and every state that is not compacted away.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::resources::ObjectKind;

/// The key of an object. Cluster-wide objects have an empty namespace.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct ObjectKey {
    pub kind: ObjectKind,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub(crate) fn new(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// A change by one write.
#[derive(Clone, Debug)]
pub(crate) struct ObjectChange {
    /// The counter after it.
    pub rv: u64,
    pub key: ObjectKey,
    pub old: Option<Arc<Value>>,
    /// `None`: deleted.
    pub new: Option<Arc<Value>>,
}

/// Objects in the version in which they are stored, `v1`.
pub(crate) type ObjectMap = BTreeMap<ObjectKey, Arc<Value>>;

/// The objects and how they became so.
#[derive(Debug)]
pub(crate) struct ObjectStore {
    rv: u64,
    /// Changes up to this one are forgotten.
    compacted: u64,
    objects: ObjectMap,
    history: Vec<ObjectChange>,
    /// Counts the writes of definitions of kinds.
    definitions: u64,
}

/// The history that is asked for is forgotten.
#[derive(Debug)]
pub(crate) struct CompactedHistory;

impl ObjectStore {
    pub(crate) fn new() -> Self {
        Self { rv: 100, compacted: 100, objects: ObjectMap::new(), history: Vec::new(), definitions: 0 }
    }

    /// Returns the counter of versions.
    pub(crate) fn rv(&self) -> u64 {
        self.rv
    }

    /// Changes with every change of a definition.
    pub(crate) fn definitions(&self) -> u64 {
        self.definitions
    }

    fn count(&mut self, key: &ObjectKey) {
        self.rv += 1;
        self.definitions += u64::from(key.kind == ObjectKind::CustomResourceDefinition);
    }

    /// The oldest state that is still known.
    pub(crate) fn oldest(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    /// Returns the present objects.
    pub(crate) fn objects(&self) -> &ObjectMap {
        &self.objects
    }

    /// Returns the objects as they were when the counter was at `rv`.
    pub(crate) fn objects_at(&self, rv: u64) -> Result<ObjectMap, CompactedHistory> {
        let mut objects = self.objects.clone();
        for change in self.since(rv)?.iter().rev() {
            match &change.old {
                Some(old) => objects.insert(change.key.clone(), Arc::clone(old)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// Returns the changes after `rv`.
    pub(crate) fn since(&self, rv: u64) -> Result<&[ObjectChange], CompactedHistory> {
        if rv < self.compacted {
            return Err(CompactedHistory);
        }
        Ok(&self.history[self.history.partition_point(|change| change.rv <= rv)..])
    }

    /// Writes, and sets the object's `resourceVersion`.
    pub(crate) fn put(&mut self, key: ObjectKey, mut object: Value) -> Arc<Value> {
        self.count(&key);
        object["metadata"]["resourceVersion"] = json!(self.rv.to_string());
        let object = Arc::new(object);
        let old = self.objects.insert(key.clone(), Arc::clone(&object));
        self.history.push(ObjectChange { rv: self.rv, key, old, new: Some(Arc::clone(&object)) });
        object
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Value>> {
        let old = self.objects.remove(key)?;
        self.count(key);
        let change = ObjectChange { rv: self.rv, key: key.clone(), old: Some(Arc::clone(&old)), new: None };
        self.history.push(change);
        Some(old)
    }

    /// Forgets the history, of the present too: who saw the newest object is behind.
    pub(crate) fn compact(&mut self) {
        self.rv += 1;
        self.compacted = self.rv;
        self.history.clear();
    }
}

/// A string in the metadata; empty if there is none.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The key of an object.
pub(crate) fn key_of(kind: ObjectKind, object: &Value) -> ObjectKey {
    ObjectKey::new(kind, meta(object, "namespace"), meta(object, "name"))
}
