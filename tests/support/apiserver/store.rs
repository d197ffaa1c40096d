//! The objects and their history: one counter for all of them, and every state that is not compacted away.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::resources::Kind;

/// What an object is found by. Cluster-wide objects have an empty namespace.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Key {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One write.
#[derive(Clone, Debug)]
pub struct Change {
    /// The counter after it.
    pub rv: u64,
    pub key: Key,
    pub old: Option<Arc<Value>>,
    /// `None`: deleted.
    pub new: Option<Arc<Value>>,
}

/// Objects in the version in which they are stored, `v1`.
pub type Objects = BTreeMap<Key, Arc<Value>>;

/// The objects and how they became so.
#[derive(Debug)]
pub struct Store {
    rv: u64,
    /// Changes up to this one are forgotten.
    compacted: u64,
    objects: Objects,
    history: Vec<Change>,
}

/// The history that is asked for is forgotten.
#[derive(Debug)]
pub struct Compacted;

impl Store {
    pub fn new() -> Self {
        Self { rv: 100, compacted: 100, objects: Objects::new(), history: Vec::new() }
    }

    /// Where the counter is.
    pub fn rv(&self) -> u64 {
        self.rv
    }

    /// The oldest state that is still known.
    pub fn oldest(&self) -> u64 {
        self.compacted
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    /// As it is now.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// As it was when the counter was at `rv`.
    pub fn objects_at(&self, rv: u64) -> Result<Objects, Compacted> {
        let mut objects = self.objects.clone();
        for change in self.since(rv)?.iter().rev() {
            match &change.old {
                Some(old) => objects.insert(change.key.clone(), Arc::clone(old)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// What happened after `rv`.
    pub fn since(&self, rv: u64) -> Result<&[Change], Compacted> {
        if rv < self.compacted {
            return Err(Compacted);
        }
        Ok(&self.history[self.history.partition_point(|change| change.rv <= rv)..])
    }

    /// Writes, and sets the object's `resourceVersion`.
    pub fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.rv += 1;
        object["metadata"]["resourceVersion"] = json!(self.rv.to_string());
        let object = Arc::new(object);
        let old = self.objects.insert(key.clone(), Arc::clone(&object));
        self.history.push(Change { rv: self.rv, key, old, new: Some(Arc::clone(&object)) });
        object
    }

    pub fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let old = self.objects.remove(key)?;
        self.rv += 1;
        let change = Change { rv: self.rv, key: key.clone(), old: Some(Arc::clone(&old)), new: None };
        self.history.push(change);
        Some(old)
    }

    /// Forgets the history, of the present too: who saw the newest object is behind.
    pub fn compact(&mut self) {
        self.rv += 1;
        self.compacted = self.rv;
        self.history.clear();
    }
}

/// A string in the metadata; empty if there is none.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The key of an object.
pub fn key_of(kind: Kind, object: &Value) -> Key {
    Key::new(kind, meta(object, "namespace"), meta(object, "name"))
}
