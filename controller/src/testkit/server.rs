//! An API server in miniature: objects with identities and versions, preconditions, deletion that waits for finalizers, and a
//! log that watchers read when they get to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use hostler_cluster::ObjectVersion;
use hostler_reconcile::WriteOutcome;

/// The reason of a refused call: an HTTP status and a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError(pub(crate) u16, pub(crate) String);

impl From<ApiError> for WriteOutcome {
    fn from(ApiError(status, message): ApiError) -> Self {
        match status {
            404 => Self::Gone,
            409 => Self::Conflict,
            422 => Self::Refused(message),
            _ => Self::Failed(message),
        }
    }
}

/// Metadata that the server keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelMeta {
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) generation: i64,
    pub(crate) finalizers: Vec<String>,
    pub(crate) is_deleting: bool,
}

/// An object on the server. A type that lacks a field of the metadata leaves it out.
pub(crate) trait ModelObject: Clone {
    type Key: Clone + Debug + Ord;

    fn key(&self) -> Self::Key;

    fn meta(&self) -> ModelMeta;

    fn set_meta(&mut self, meta: ModelMeta);

    /// Takes back what a write of this part does not change.
    fn restrict(&mut self, _old: &Self, _part: Part) {}

    /// True if the object ends before it goes, though nothing is in its finalizers.
    fn ends_first(&self) -> bool {
        false
    }

    /// True if the server has nothing to write.
    fn is_same(&self, _old: &Self) -> bool {
        false
    }
}

/// Makes a type the objects of a kind: its key, and which of its fields are which metadata.
macro_rules! model_kind {
    ($kind:ty: $key:ty = |$object:ident| $of:expr, { $($meta:ident: $($field:ident).+),* }) => {
        impl $crate::testkit::ModelObject for $kind {
            type Key = $key;

            fn key(&self) -> $key {
                let $object = self;
                $of
            }

            fn meta(&self) -> $crate::testkit::ModelMeta {
                let meta = $crate::testkit::ModelMeta::default();
                $(let meta = $crate::testkit::ModelMeta { $meta: self.$($field).+.clone(), ..meta };)*
                meta
            }

            fn set_meta(&mut self, meta: $crate::testkit::ModelMeta) {
                let _ = &meta;
                $(self.$($field).+ = meta.$meta;)*
            }
        }
    };
    // With the usual metadata. An object for which the last word is true ends first when it is deleted, as a pod on a node.
    ($kind:ty: metadata, |$object:ident| $ends:expr) => {
        impl $crate::testkit::ModelObject for $kind {
            type Key = hostler_api::ObjectKey;

            fn key(&self) -> hostler_api::ObjectKey {
                hostler_api::ObjectKey::new(&self.metadata.namespace, &self.metadata.name)
            }

            fn meta(&self) -> $crate::testkit::ModelMeta {
                let it = &self.metadata;
                $crate::testkit::ModelMeta {
                    uid: it.uid.clone(),
                    version: it.resource_version.clone(),
                    finalizers: it.finalizers.clone(),
                    is_deleting: it.deletion_timestamp.is_some(),
                    ..$crate::testkit::ModelMeta::default()
                }
            }

            fn set_meta(&mut self, meta: $crate::testkit::ModelMeta) {
                let it = &mut self.metadata;
                (it.uid, it.resource_version, it.finalizers) = (meta.uid, meta.version, meta.finalizers);
                it.deletion_timestamp = meta.is_deleting.then(|| "2026-01-01T00:00:00Z".to_owned());
            }

            fn ends_first(&self) -> bool {
                let $object = self;
                $ends
            }
        }
    };
}

/// Has a cluster serve the kinds in these maps; `|cluster, change|` returns what watchers are told.
macro_rules! serves {
    ($cluster:ty, $($map:ident).+: $kind:ty $(, |$this:ident, $change:ident| $told:expr)?) => {
        impl $crate::testkit::Serves<$kind> for $cluster {
            fn objects(
                &mut self,
            ) -> &mut std::collections::BTreeMap<<$kind as $crate::testkit::ModelObject>::Key, $kind> {
                &mut self.$($map).+
            }

            $(fn changed(&mut self, $change: $crate::testkit::Change<'_, $kind>) -> Vec<Self::Event> {
                let $this = self;
                $told
            })?
        }
    };
}

pub(crate) use model_kind;
pub(crate) use serves;

impl<T: ModelObject> ModelObject for Arc<T> {
    type Key = T::Key;

    fn key(&self) -> T::Key {
        T::key(self)
    }

    fn meta(&self) -> ModelMeta {
        T::meta(self)
    }

    fn set_meta(&mut self, meta: ModelMeta) {
        Self::make_mut(self).set_meta(meta);
    }
}

/// The part of an object that a write is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Metadata,
    Spec,
    Status,
}

/// A change of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a, T> {
    Put(&'a T),
    Gone(&'a T),
}

/// Objects of a server: a map for each kind.
pub(crate) trait ModelCluster {
    /// An entry of the log.
    type Event: Clone;
}

/// A kind that a server holds.
pub(crate) trait Serves<T: ModelObject>: ModelCluster {
    fn objects(&mut self) -> &mut BTreeMap<T::Key, T>;

    /// Completes an object that is to be stored, and returns what is wrong with it.
    fn admit(&self, _old: Option<&T>, _new: &mut T) -> Vec<String> {
        Vec::new()
    }

    /// Takes notice of a change, and returns what watchers are told.
    fn changed(&mut self, _change: Change<'_, T>) -> Vec<Self::Event> {
        Vec::new()
    }
}

/// The server.
#[derive(Clone, Debug)]
pub(crate) struct ModelServer<C: ModelCluster> {
    pub(crate) cluster: C,
    pub(crate) log: Vec<C::Event>,
    last: u64,
}

impl<C: ModelCluster + Default> Default for ModelServer<C> {
    fn default() -> Self {
        Self::new(C::default())
    }
}

impl<C: ModelCluster> Deref for ModelServer<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.cluster
    }
}

impl<C: ModelCluster> DerefMut for ModelServer<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.cluster
    }
}

/// Identity and version that a write names.
pub(crate) fn over(uid: &str, version: &str) -> ObjectVersion {
    ObjectVersion { uid: uid.to_owned(), resource_version: version.to_owned() }
}

impl<C: ModelCluster> ModelServer<C> {
    pub(crate) fn new(cluster: C) -> Self {
        Self { cluster, log: Vec::new(), last: 0 }
    }

    /// Returns a version that is newer than all others.
    pub(crate) fn next(&mut self) -> String {
        self.last += 1;
        self.last.to_string()
    }

    /// Returns how many versions there were.
    pub(crate) fn versions(&self) -> u64 {
        self.last
    }

    /// Makes an object. An existing one of its name is a conflict.
    pub(crate) fn create<T: ModelObject>(&mut self, mut object: T) -> Result<T, ApiError>
    where
        C: Serves<T>,
    {
        let key = object.key();
        if self.cluster.objects().contains_key(&key) {
            return Err(ApiError(409, format!("{key:?} exists")));
        }
        let uid = format!("uid-{}", self.next());
        object.set_meta(ModelMeta { uid, generation: 1, ..object.meta() });
        let problems = self.cluster.admit(None, &mut object);
        if problems.is_empty() { Ok(self.put(object)) } else { Err(ApiError(422, problems.join("; "))) }
    }

    /// Returns the object, if it is this one in this version.
    pub(crate) fn find<T: ModelObject>(&mut self, key: &T::Key, over: Option<&ObjectVersion>) -> Result<T, ApiError>
    where
        C: Serves<T>,
    {
        let found = self.cluster.objects().get(key).cloned();
        let object = found.ok_or_else(|| ApiError(404, format!("{key:?} not found")))?;
        let meta = object.meta();
        match over {
            Some(over) if over.uid != meta.uid => Err(ApiError(409, format!("{key:?} is another one"))),
            Some(over) if over.resource_version != meta.version => {
                Err(ApiError(409, format!("{key:?} has been modified")))
            }
            _ => Ok(object),
        }
    }

    /// Changes a part of an object, if it is this one in this version.
    pub(crate) fn update<T: ModelObject>(
        &mut self,
        key: &T::Key,
        over: Option<&ObjectVersion>,
        part: Part,
        change: impl FnOnce(&mut T),
    ) -> Result<T, ApiError>
    where
        C: Serves<T>,
    {
        let old = self.find::<T>(key, over)?;
        let mut new = old.clone();
        change(&mut new);
        new.restrict(&old, part);
        let mut problems = self.cluster.admit(Some(&old), &mut new);
        let (known, mut meta) = (old.meta(), new.meta());
        if known.is_deleting && meta.finalizers.iter().any(|it| !known.finalizers.contains(it)) {
            problems.push("metadata.finalizers: no new finalizers while it is deleted".to_owned());
        }
        if !problems.is_empty() {
            return Err(ApiError(422, problems.join("; ")));
        }
        if new.is_same(&old) {
            return Ok(old);
        }
        meta.uid = known.uid;
        meta.is_deleting = known.is_deleting;
        meta.generation = known.generation + i64::from(part == Part::Spec);
        new.set_meta(meta);
        Ok(self.put(new))
    }

    /// Deletes an object, if it is this one in this version. It stays as long as it has finalizers.
    pub(crate) fn delete<T: ModelObject>(&mut self, key: &T::Key, over: Option<&ObjectVersion>) -> Result<T, ApiError>
    where
        C: Serves<T>,
    {
        let mut object = self.find::<T>(key, over)?;
        let meta = object.meta();
        if meta.is_deleting {
            return Ok(object);
        }
        object.set_meta(ModelMeta { is_deleting: true, ..meta });
        Ok(self.put(object))
    }

    /// Another writer, which fears no third one, has the object be this one. One that is deleted goes with its last finalizer.
    pub(crate) fn put<T: ModelObject>(&mut self, mut object: T) -> T
    where
        C: Serves<T>,
    {
        let version = self.next();
        object.set_meta(ModelMeta { version, ..object.meta() });
        let meta = object.meta();
        let is_gone = meta.is_deleting && meta.finalizers.is_empty() && !object.ends_first();
        let objects = self.cluster.objects();
        if is_gone {
            objects.remove(&object.key());
        } else {
            objects.insert(object.key(), object.clone());
        }
        let change = if is_gone { Change::Gone(&object) } else { Change::Put(&object) };
        let events = self.cluster.changed(change);
        self.log.extend(events);
        object
    }

    /// Another writer changes something about an object that is of no interest here.
    pub(crate) fn touch<T: ModelObject>(&mut self, key: &T::Key)
    where
        C: Serves<T>,
    {
        if let Some(object) = self.cluster.objects().get(key).cloned() {
            self.put(object);
        }
    }

    /// An object goes at once, if it is there.
    pub(crate) fn remove<T: ModelObject>(&mut self, key: &T::Key) -> Option<T>
    where
        C: Serves<T>,
    {
        let mut object = self.cluster.objects().remove(key)?;
        let version = self.next();
        object.set_meta(ModelMeta { version, ..object.meta() });
        let events = self.cluster.changed(Change::Gone(&object));
        self.log.extend(events);
        Some(object)
    }
}

/// A place in the log of a server: what a watcher has heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelWatch {
    seen: usize,
    /// Entries that were heard before others that were not.
    ahead: BTreeSet<usize>,
}

impl ModelWatch {
    /// Begins after a list: all that comes from now on is heard.
    pub(crate) fn from_now<E>(log: &[E]) -> Self {
        Self { seen: log.len(), ahead: BTreeSet::new() }
    }

    /// Returns the next entry.
    pub(crate) fn next<'a, E>(&mut self, log: &'a [E]) -> Option<&'a E> {
        while self.ahead.remove(&self.seen) {
            self.seen += 1;
        }
        let event = log.get(self.seen)?;
        self.seen += 1;
        Some(event)
    }

    /// Returns the next entry of a kind, before those of others: each kind has a watch of its own.
    pub(crate) fn next_of<'a, E>(&mut self, log: &'a [E], is_of: impl Fn(&E) -> bool) -> Option<&'a E> {
        let at = (self.seen..log.len()).find(|at| !self.ahead.contains(at) && is_of(&log[*at]))?;
        self.ahead.insert(at);
        Some(&log[at])
    }

    /// Returns how many entries wait.
    pub(crate) fn waiting<E>(&self, log: &[E]) -> usize {
        log.len() - self.seen - self.ahead.len()
    }

    /// Returns how many entries were heard in their order.
    pub(crate) fn heard(&self) -> usize {
        self.seen
    }
}
