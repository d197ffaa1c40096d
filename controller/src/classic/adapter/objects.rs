//! From the server's texts to events of the core: what is read, what cannot be read, and what is gone without a word. Of an
//! object only its name is kept here, and what is to be said when it is gone. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::ObjectKey;
use hostler_cluster::{FollowEvent, RawObject};
use serde::Deserialize;
use serde_json::Value;
use tracing::warn;

use super::kind::ClassicKind;
use crate::{
    classic::{
        dialect::{ClassicDialect, ClassicNode},
        event::{ClassicEvent, WriteTarget},
        model::ParametersKey,
    },
    watchers::KindNews,
};

/// Reads objects of one version.
#[derive(Debug)]
pub(super) struct ObjectReader {
    dialect: ClassicDialect,
    kinds: BTreeMap<ClassicKind, KnownObjects>,
    is_synced: bool,
}

/// What is known of the objects of a kind.
#[derive(Debug, Default)]
struct KnownObjects {
    known: BTreeMap<ObjectKey, KnownObject>,
    /// What the list that is under way has named so far.
    listed: Option<BTreeSet<ObjectKey>>,
    unreadable: BTreeSet<ObjectKey>,
    is_synced: bool,
}

/// What is to be said when it is gone.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct KnownObject {
    uid: String,
    parameters: Option<ParametersKey>,
}

impl ObjectReader {
    pub(super) fn new(dialect: ClassicDialect) -> Self {
        let kinds = ClassicKind::of(dialect.version).iter().map(|kind| (*kind, KnownObjects::default())).collect();
        Self { dialect, kinds, is_synced: false }
    }

    /// Kinds of which no complete list was seen yet.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let missing = self.kinds.iter().filter(|(_, known)| !known.is_synced);
        missing.map(|(kind, _)| kind.plural(self.dialect.version)).collect()
    }

    /// Objects that cannot be understood.
    pub(super) fn unreadable(&self) -> usize {
        self.kinds.values().map(|known| known.unreadable.len()).sum()
    }

    /// What something that was heard of a kind means. A kind that can be done without, and is not there, has no objects.
    pub(super) fn take(&mut self, kind: ClassicKind, news: &KindNews) -> Vec<ClassicEvent> {
        let mut events = match news {
            KindNews::NotServed => {
                self.known(kind).listed = Some(BTreeSet::new());
                self.list_ended(kind)
            }
            KindNews::Followed(FollowEvent::ListStarted) => {
                self.known(kind).listed = Some(BTreeSet::new());
                Vec::new()
            }
            KindNews::Followed(FollowEvent::Listed(object) | FollowEvent::Applied(object)) => self.seen(kind, object),
            KindNews::Followed(FollowEvent::Deleted(object)) => self.gone(kind, &key(object)),
            KindNews::Followed(FollowEvent::ListEnded) => self.list_ended(kind),
            KindNews::Followed(FollowEvent::UpToDate) => Vec::new(),
        };
        if !self.is_synced && self.missing().is_empty() {
            self.is_synced = true;
            events.push(ClassicEvent::Synced);
        }
        events
    }

    /// What the server answered to a write.
    pub(super) fn answered(&self, target: &WriteTarget, object: &Value) -> Option<ClassicEvent> {
        let kind = match target {
            WriteTarget::Claim(_) => ClassicKind::Claim,
            WriteTarget::Context(_) => ClassicKind::Context,
            WriteTarget::Source(_) => ClassicKind::Source,
            WriteTarget::Node(_) => ClassicKind::Node,
        };
        self.read(kind, object).ok()?.map(|(event, _)| event)
    }

    fn known(&mut self, kind: ClassicKind) -> &mut KnownObjects {
        self.kinds.entry(kind).or_default()
    }

    fn seen(&mut self, kind: ClassicKind, object: &RawObject) -> Vec<ClassicEvent> {
        let key = key(object);
        let read = match kind {
            ClassicKind::Node => object.read().map(|node| Some((node_event(node), None))).map_err(|it| it.to_string()),
            _ => match object.read::<Value>() {
                Ok(object) => self.read(kind, &object).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
        };
        let name = kind.name(self.dialect.version);
        let known = self.known(kind);
        if let Some(listed) = &mut known.listed {
            listed.insert(key.clone());
        }
        match read {
            Ok(Some((event, parameters))) => {
                known.unreadable.remove(&key);
                let new = KnownObject { uid: object.version().uid, parameters };
                let old = known.known.insert(key.clone(), new.clone());
                // Parameters that are called otherwise now are gone under their old name.
                let renamed = old.filter(|old| old.parameters != new.parameters).and_then(|old| old.parameters);
                renamed.map(ClassicEvent::ParametersGone).into_iter().chain([event]).collect()
            }
            Ok(None) => Vec::new(),
            Err(error) => {
                // What was known of it counts until it is mended.
                if known.unreadable.insert(key.clone()) {
                    warn!(kind = name, object = %key, reason = error, "an object cannot be understood and is left out");
                }
                Vec::new()
            }
        }
    }

    fn gone(&mut self, kind: ClassicKind, key: &ObjectKey) -> Vec<ClassicEvent> {
        let known = self.known(kind);
        known.unreadable.remove(key);
        let Some(KnownObject { uid, parameters }) = known.known.remove(key) else { return Vec::new() };
        let event = match (kind, parameters) {
            (_, Some(parameters)) => ClassicEvent::ParametersGone(parameters),
            (ClassicKind::Node, _) => ClassicEvent::NodeGone(key.name.clone()),
            (ClassicKind::Source, _) => ClassicEvent::SourceGone(key.name.clone()),
            (ClassicKind::Class, _) => ClassicEvent::ClassGone(key.name.clone()),
            (ClassicKind::Claim, _) => ClassicEvent::ClaimGone(key.clone(), uid),
            (ClassicKind::Context, _) => ClassicEvent::ContextGone(key.clone(), uid),
            _ => return Vec::new(),
        };
        vec![event]
    }

    fn list_ended(&mut self, kind: ClassicKind) -> Vec<ClassicEvent> {
        let known = self.known(kind);
        known.is_synced = true;
        let Some(listed) = known.listed.take() else { return Vec::new() };
        known.unreadable.retain(|key| listed.contains(key));
        let gone: Vec<ObjectKey> = known.known.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().flat_map(|key| self.gone(kind, key)).collect()
    }

    /// What an object says, and under which name, where it is parameters.
    fn read(
        &self,
        kind: ClassicKind,
        object: &Value,
    ) -> Result<Option<(ClassicEvent, Option<ParametersKey>)>, serde_json::Error> {
        let dialect = &self.dialect;
        let event = match kind {
            ClassicKind::Node => node_event(ClassicNode::deserialize(object)?),
            ClassicKind::Source => ClassicEvent::Source(Box::new(dialect.source(object)?)),
            ClassicKind::Class => ClassicEvent::Class(Box::new(dialect.class(object)?)),
            ClassicKind::Claim => ClassicEvent::Claim(Box::new(dialect.claim(object)?)),
            ClassicKind::Context => {
                let (key, context) = dialect.context(object)?;
                ClassicEvent::Context(key, Box::new(context))
            }
            _ => {
                let read = dialect.parameters(kind.name(dialect.version), object);
                return Ok(read.map(|(key, read)| (ClassicEvent::Parameters(key.clone(), read), Some(key))));
            }
        };
        Ok(Some((event, None)))
    }
}

fn node_event(node: ClassicNode) -> ClassicEvent {
    let (name, state) = node.named_state();
    ClassicEvent::Node(name, Box::new(state))
}

fn key(object: &RawObject) -> ObjectKey {
    ObjectKey { namespace: object.namespace().to_owned(), name: object.name().to_owned() }
}

#[cfg(test)]
mod tests;
