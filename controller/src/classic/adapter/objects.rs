//! Turns the server's JSON into events of the core: objects that are there, objects that cannot be read, and objects
//! that vanished between two lists. Of an object only its name is kept here, and the event that reports its end. No
//! I/O.

use std::collections::BTreeMap;

use hostler_api::ObjectKey;
use hostler_cluster::{FollowEvent, RawObject};
use hostler_reconcile::{ReflectorEvent, Store};
use serde::Deserialize;
use serde_json::Value;
use tracing::warn;

use super::kind::ClassicKind;
use crate::classic::{
    dialect::{ClassicDialect, ClassicNode},
    event::{ClassicEvent, WriteTarget},
    model::ParametersKey,
};

/// Reads objects of one version.
#[derive(Debug)]
pub(super) struct ObjectReader {
    dialect: ClassicDialect,
    kinds: BTreeMap<ClassicKind, Store<KnownObject>>,
    is_synced: bool,
}

/// An object that was seen, with the event that reports its end.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct KnownObject {
    uid: String,
    parameters: Option<ParametersKey>,
}

impl ObjectReader {
    pub(super) fn new(dialect: ClassicDialect) -> Self {
        let kinds = ClassicKind::of(dialect.version).iter().map(|kind| (*kind, Store::default())).collect();
        Self { dialect, kinds, is_synced: false }
    }

    /// Returns the kinds of which no complete list was seen yet.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let missing = self.kinds.iter().filter(|(_, known)| !known.is_synced());
        missing.map(|(kind, _)| kind.plural(self.dialect.version)).collect()
    }

    /// Returns the number of objects that cannot be understood.
    pub(super) fn unreadable(&self) -> usize {
        self.kinds.values().map(|known| known.unreadable().len()).sum()
    }

    /// Returns the events of the core that follow from a reflector's event of a kind. A kind that is optional and not
    /// served has no objects.
    pub(super) fn take(&mut self, kind: ClassicKind, news: &ReflectorEvent) -> Vec<ClassicEvent> {
        let mut events = match news {
            ReflectorEvent::NotServed => {
                let gone = self.known(kind).not_served();
                all_gone(kind, gone)
            }
            ReflectorEvent::Followed(FollowEvent::ListStarted) => {
                self.known(kind).list_started();
                Vec::new()
            }
            ReflectorEvent::Followed(FollowEvent::ListEnded) => {
                let gone = self.known(kind).list_ended();
                all_gone(kind, gone)
            }
            ReflectorEvent::Followed(FollowEvent::Listed(object) | FollowEvent::Applied(object)) => {
                self.seen(kind, object)
            }
            ReflectorEvent::Followed(FollowEvent::Deleted(object)) => {
                let key = object.key();
                let known = self.known(kind).remove(&key, (&object.version()).into());
                known.and_then(|known| gone(kind, &key, known)).into_iter().collect()
            }
            ReflectorEvent::Followed(FollowEvent::UpToDate) | ReflectorEvent::Interrupted(_) => Vec::new(),
        };
        if !self.is_synced && self.missing().is_empty() {
            self.is_synced = true;
            events.push(ClassicEvent::Synced);
        }
        events
    }

    /// Returns the core's event for the object that the server returned to a write.
    pub(super) fn answered(&self, target: &WriteTarget, object: &Value) -> Option<ClassicEvent> {
        let kind = match target {
            WriteTarget::Claim(_) => ClassicKind::Claim,
            WriteTarget::Context(_) => ClassicKind::Context,
            WriteTarget::Source(_) => ClassicKind::Source,
            WriteTarget::Node(_) => ClassicKind::Node,
        };
        self.read(kind, object).ok()?.map(|(event, _)| event)
    }

    fn known(&mut self, kind: ClassicKind) -> &mut Store<KnownObject> {
        self.kinds.entry(kind).or_default()
    }

    fn seen(&mut self, kind: ClassicKind, object: &RawObject) -> Vec<ClassicEvent> {
        let (key, uid, stamp) = (object.key(), object.version().uid, (&object.version()).into());
        if !self.known(kind).is_news(&key, stamp) {
            return Vec::new();
        }
        let read = match kind {
            ClassicKind::Node => object.read().map(|node| Some((node_event(node), None))).map_err(|it| it.to_string()),
            _ => match object.read::<Value>() {
                Ok(object) => self.read(kind, &object).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
        };
        let name = kind.name(self.dialect.version);
        let known = self.known(kind);
        match read {
            Ok(Some((event, parameters))) => {
                let before = known.see(&key, stamp, KnownObject { uid, parameters: parameters.clone() }).flatten();
                // Parameters that have another name now are gone under their old name.
                let renamed =
                    before.filter(|before| before.parameters != parameters).and_then(|before| before.parameters);
                renamed.map(ClassicEvent::ParametersGone).into_iter().chain([event]).collect()
            }
            Ok(None) => Vec::new(),
            // The last version that could be read counts until the object is mended.
            Err(reason) => {
                let unreadable =
                    known.see_unreadable(&key, stamp, reason.clone(), KnownObject { uid, parameters: None });
                if unreadable.as_ref().is_some_and(|unreadable| unreadable.is_first) {
                    warn!(kind = name, object = %key, reason, "an object cannot be understood and is left out");
                }
                let replaced = unreadable.and_then(|unreadable| unreadable.replaced);
                replaced.and_then(|known| gone(kind, &key, known)).into_iter().collect()
            }
        }
    }

    /// Reads an object; parameters come with the name that claims or classes call them by.
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

fn all_gone(kind: ClassicKind, all: Vec<(ObjectKey, KnownObject)>) -> Vec<ClassicEvent> {
    all.into_iter().filter_map(|(key, known)| gone(kind, &key, known)).collect()
}

fn gone(kind: ClassicKind, key: &ObjectKey, known: KnownObject) -> Option<ClassicEvent> {
    let KnownObject { uid, parameters } = known;
    match (kind, parameters) {
        (_, Some(parameters)) => Some(ClassicEvent::ParametersGone(parameters)),
        (ClassicKind::Node, _) => Some(ClassicEvent::NodeGone(key.name.clone())),
        (ClassicKind::Source, _) => Some(ClassicEvent::SourceGone(key.name.clone())),
        (ClassicKind::Class, _) => Some(ClassicEvent::ClassGone(key.name.clone())),
        (ClassicKind::Claim, _) => Some(ClassicEvent::ClaimGone(key.clone(), uid)),
        (ClassicKind::Context, _) => Some(ClassicEvent::ContextGone(key.clone(), uid)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
