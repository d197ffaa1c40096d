//! From the server's texts to events of the core: what is read, what cannot be read, and what is gone without a word. Of an
//! object only its name is kept here, but for what must be said of it again. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::ObjectKey;
use hostler_api::reservation::ReservationMode;
use hostler_cluster::{FollowEvent, RawObject, written_at};
use serde::Deserialize;
use serde_json::Value;
use tracing::warn;

use super::{claims::SeenClaim, kind::HoldKind, read};
use crate::{
    hold::{AllocatedClaim, HoldEvent, HoldTarget, ReservationObject},
    watchers::KindNews,
};

/// Reads objects.
#[derive(Debug, Default)]
pub(super) struct HoldReader {
    kinds: BTreeMap<HoldKind, KnownObjects>,
    /// Where Reservations stand.
    phases: BTreeMap<String, &'static str>,
    is_synced: bool,
    /// Where claims stand for parts of devices.
    namespace: String,
}

/// What is known of the objects of a kind.
#[derive(Debug, Default)]
struct KnownObjects {
    /// UIDs.
    known: BTreeMap<ObjectKey, String>,
    /// What the list that is under way has named so far.
    listed: Option<BTreeSet<ObjectKey>>,
    /// UIDs of those that cannot be understood.
    unreadable: BTreeMap<ObjectKey, String>,
    is_synced: bool,
}

impl HoldReader {
    pub(super) fn new(kinds: impl Iterator<Item = HoldKind>, namespace: &str) -> Self {
        let kinds = kinds.map(|kind| (kind, KnownObjects::default())).collect();
        Self { kinds, namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Kinds of which no complete list was seen yet.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.kinds.iter().filter(|(_, known)| !known.is_synced).map(|(kind, _)| kind.plural()).collect()
    }

    /// Objects that cannot be understood.
    pub(super) fn unreadable(&self) -> usize {
        self.kinds.values().map(|known| known.unreadable.len()).sum()
    }

    /// How many Reservations stand where.
    pub(super) fn phases(&self) -> BTreeMap<&'static str, usize> {
        let mut phases = BTreeMap::new();
        self.phases.values().for_each(|phase| *phases.entry(*phase).or_default() += 1);
        phases
    }

    /// DeviceTaintRules that close devices for Reservations.
    pub(super) fn rules(&self) -> usize {
        self.kinds.get(&HoldKind::Rule).map_or(0, |rules| rules.known.len())
    }

    /// What something that was heard of a kind means.
    pub(super) fn take(&mut self, kind: HoldKind, news: &KindNews) -> Vec<HoldEvent> {
        let mut events = match news {
            // The rules' gate is off now: there are none.
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
            events.push(HoldEvent::Synced);
        }
        events
    }

    /// What the server answered to a write.
    pub(super) fn answered(&mut self, target: &HoldTarget, object: &Value) -> Vec<HoldEvent> {
        let kind = match target {
            HoldTarget::Reservation(_) => HoldKind::Reservation,
            HoldTarget::NodeFences(_) => HoldKind::NodeHardware,
            HoldTarget::Rule(_) => HoldKind::Rule,
            HoldTarget::Pod(_) => return Vec::new(),
            HoldTarget::Claim(_) => HoldKind::Claim,
        };
        let of_server = written_at(&object["metadata"]["managedFields"]).map(HoldEvent::ServerTime);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = ObjectKey { namespace: text("namespace").to_owned(), name: text("name").to_owned() };
        // What the watch has called gone does not come back by the answer to a write that was made before.
        let is_made = matches!(kind, HoldKind::Rule | HoldKind::Claim);
        if !is_made && !self.known(kind).known.contains_key(&key) {
            return of_server.into_iter().collect();
        }
        let read = self.read(kind, object).unwrap_or_default();
        if is_made && !read.is_empty() {
            self.learned(kind, key, text("uid").to_owned());
        }
        of_server.into_iter().chain(read).collect()
    }

    /// All claims that have devices were listed apart from the watch.
    pub(super) fn claims_listed(&mut self, claims: &[AllocatedClaim]) {
        claims.iter().for_each(|claim| self.learned(HoldKind::Claim, claim.key.clone(), claim.uid.clone()));
    }

    /// An object was heard of apart from the watch, which may never tell of it: if it is gone by the next list, that is told.
    fn learned(&mut self, kind: HoldKind, key: ObjectKey, uid: String) {
        let known = self.known(kind);
        // The list that is under way may have begun before.
        if let Some(listed) = &mut known.listed {
            listed.insert(key.clone());
        }
        known.known.insert(key, uid);
    }

    fn known(&mut self, kind: HoldKind) -> &mut KnownObjects {
        self.kinds.entry(kind).or_default()
    }

    fn seen(&mut self, kind: HoldKind, object: &RawObject) -> Vec<HoldEvent> {
        let (key, uid) = (key(object), object.version().uid);
        let read = object.read::<Value>().map_err(|error| error.to_string());
        let read = read.and_then(|object| self.read(kind, &object).map_err(|error| error.to_string()));
        let known = self.known(kind);
        if let Some(listed) = &mut known.listed {
            listed.insert(key.clone());
        }
        match read {
            Ok(events) => {
                known.unreadable.remove(&key);
                known.known.insert(key, uid);
                events
            }
            // What was known of it counts until it is mended.
            Err(reason) => {
                let is_other = known.known.get(&key).is_some_and(|known| *known != uid);
                let mut events = if is_other { self.gone(kind, &key) } else { Vec::new() };
                if self.known(kind).unreadable.insert(key.clone(), uid.clone()).is_none() {
                    warn!(kind = kind.plural(), object = %key, reason, "an object cannot be understood and is left out");
                }
                // What is closed for it is not opened.
                events.extend((kind == HoldKind::Reservation).then_some(HoldEvent::ReservationUnreadable(uid)));
                events
            }
        }
    }

    fn gone(&mut self, kind: HoldKind, key: &ObjectKey) -> Vec<HoldEvent> {
        let known = self.known(kind);
        let unreadable = known.unreadable.remove(key);
        let Some(uid) = known.known.remove(key).or(unreadable) else { return Vec::new() };
        let name = key.name.clone();
        vec![match kind {
            HoldKind::Reservation => {
                self.phases.remove(&name);
                HoldEvent::ReservationGone(name, uid)
            }
            HoldKind::NodeHardware => HoldEvent::NodeFencesGone(name),
            HoldKind::Node => HoldEvent::NodeGone(name),
            HoldKind::Slice => HoldEvent::SliceGone(name),
            HoldKind::Rule => HoldEvent::RuleGone(name),
            HoldKind::Claim => HoldEvent::ClaimGone(key.clone(), uid),
        }]
    }

    fn list_ended(&mut self, kind: HoldKind) -> Vec<HoldEvent> {
        let known = self.known(kind);
        known.is_synced = true;
        let Some(listed) = known.listed.take() else { return Vec::new() };
        let all: BTreeSet<&ObjectKey> = known.known.keys().chain(known.unreadable.keys()).collect();
        let gone: Vec<ObjectKey> = all.into_iter().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().flat_map(|key| self.gone(kind, key)).collect()
    }

    fn read(&mut self, kind: HoldKind, object: &Value) -> Result<Vec<HoldEvent>, serde_json::Error> {
        Ok(match kind {
            HoldKind::Reservation => {
                let read = ReservationObject::deserialize(object)?;
                self.phases.insert(read.name.clone(), read.status.phase.as_str());
                match read.spec.mode() {
                    ReservationMode::Fence => vec![HoldEvent::Reservation(Box::new(read))],
                    // Claims keep its devices, and nothing is closed for it.
                    ReservationMode::SharedClaim => vec![HoldEvent::ReservationGone(read.name, read.uid)],
                }
            }
            HoldKind::NodeHardware => vec![HoldEvent::NodeFences(Box::new(read::node_fences(object)?))],
            HoldKind::Node => {
                object["metadata"]["name"].as_str().map(|name| HoldEvent::Node(name.to_owned())).into_iter().collect()
            }
            HoldKind::Slice => vec![HoldEvent::Slice(Box::new(read::slice(object)?))],
            HoldKind::Rule => read::rule_event(object).into_iter().collect(),
            HoldKind::Claim => {
                vec![HoldEvent::Claim(Box::new(SeenClaim::deserialize(object)?.allocated(&self.namespace)))]
            }
        })
    }
}

fn key(object: &RawObject) -> ObjectKey {
    ObjectKey { namespace: object.namespace().to_owned(), name: object.name().to_owned() }
}

#[cfg(test)]
mod tests;
