//! From reflector events to events of the core: objects that are read, that cannot be read, and that are gone without a
//! deletion. Of each object only its UID is kept here, and of a Reservation its phase. No I/O.

use std::collections::BTreeMap;

use hostler_api::{ObjectKey, reservation::ReservationMode};
use hostler_cluster::{FollowEvent, ObjectVersion, RawObject, written_at};
use hostler_reconcile::{ObjectStamp, ReflectorEvent, Store, Unreadable};
use serde::Deserialize;
use serde_json::Value;
use tracing::warn;

use super::{claims::SeenClaim, kind::HoldKind, read};
use crate::{
    hold::{AllocatedClaim, HoldEvent, HoldTarget},
    reservation_object::ReservationObject,
};

/// Reads objects from reflector events.
#[derive(Debug, Default)]
pub(super) struct HoldReader {
    /// UIDs of objects, by kind.
    kinds: BTreeMap<HoldKind, Store<String>>,
    /// Phases of Reservations.
    phases: BTreeMap<String, &'static str>,
    is_synced: bool,
    /// Namespace of the claims that stand for parts of devices.
    namespace: String,
}

impl HoldReader {
    pub(super) fn new(kinds: impl Iterator<Item = HoldKind>, namespace: &str) -> Self {
        let kinds = kinds.map(|kind| (kind, Store::default())).collect();
        Self { kinds, namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Kinds of which no complete list was seen yet.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.kinds.iter().filter(|(_, known)| !known.is_synced()).map(|(kind, _)| kind.plural()).collect()
    }

    /// Objects that cannot be understood.
    pub(super) fn unreadable(&self) -> usize {
        self.kinds.values().map(|known| known.unreadable().len()).sum()
    }

    /// Number of Reservations in each phase.
    pub(super) fn phases(&self) -> BTreeMap<&'static str, usize> {
        let mut phases = BTreeMap::new();
        self.phases.values().for_each(|phase| *phases.entry(*phase).or_default() += 1);
        phases
    }

    /// DeviceTaintRules that close devices for Reservations.
    pub(super) fn rules(&self) -> usize {
        self.kinds.get(&HoldKind::Rule).map_or(0, Store::len)
    }

    /// Returns the events of the core that follow from news of a kind.
    pub(super) fn take(&mut self, kind: HoldKind, news: &ReflectorEvent) -> Vec<HoldEvent> {
        let mut events = match news {
            // The feature gate of rules is off now: there are no rules.
            ReflectorEvent::NotServed => {
                let gone = self.known(kind).not_served();
                self.all_gone(kind, gone)
            }
            ReflectorEvent::Followed(FollowEvent::ListStarted) => {
                self.known(kind).list_started();
                Vec::new()
            }
            ReflectorEvent::Followed(FollowEvent::ListEnded) => {
                let gone = self.known(kind).list_ended();
                self.all_gone(kind, gone)
            }
            ReflectorEvent::Followed(FollowEvent::Listed(object) | FollowEvent::Applied(object)) => {
                self.seen(kind, object)
            }
            ReflectorEvent::Followed(FollowEvent::Deleted(object)) => {
                let (key, last) = (object.key(), (&object.version()).into());
                let gone = self.known(kind).remove(&key, last);
                gone.map(|uid| self.gone(kind, &key, uid)).into_iter().collect()
            }
            ReflectorEvent::Followed(FollowEvent::UpToDate) | ReflectorEvent::Interrupted(_) => Vec::new(),
        };
        if !self.is_synced && self.missing().is_empty() {
            self.is_synced = true;
            events.push(HoldEvent::Synced);
        }
        events
    }

    /// Returns the events that follow from the answer to a write.
    pub(super) fn answered(&mut self, target: &HoldTarget, object: &Value) -> Vec<HoldEvent> {
        let kind = match target {
            HoldTarget::Reservation(_) => HoldKind::Reservation,
            HoldTarget::NodeFences(_) => HoldKind::NodeHardware,
            HoldTarget::Rule(_) => HoldKind::Rule,
            HoldTarget::Pod(_) => return Vec::new(),
            HoldTarget::Claim(_) => HoldKind::Claim,
        };
        let of_server = written_at(&object["metadata"]["managedFields"]).map(HoldEvent::ServerTime);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey { namespace: text("namespace"), name: text("name") };
        let version = ObjectVersion { uid: text("uid"), resource_version: text("resourceVersion") };
        let stamp = ObjectStamp::from(&version);
        // Other kinds are not created here: an object that the watch has deleted does not come back by an answer.
        let is_created = matches!(kind, HoldKind::Rule | HoldKind::Claim);
        let known = self.known(kind);
        if !known.is_news(&key, stamp) || (!is_created && known.get(&key).is_none()) {
            return of_server.into_iter().collect();
        }
        let read = self.read(kind, object).unwrap_or_default();
        if !read.is_empty() {
            self.known(kind).see(&key, stamp, version.uid);
        }
        of_server.into_iter().chain(read).collect()
    }

    /// Takes a list of all claims that have devices, made apart from the watch; returns the claims that are news.
    pub(super) fn claims_listed(&mut self, mut claims: Vec<AllocatedClaim>) -> Vec<AllocatedClaim> {
        let known = self.known(HoldKind::Claim);
        claims.retain(|claim| {
            let version = ObjectVersion { uid: claim.uid.clone(), resource_version: claim.version.clone() };
            known.see(&claim.key, (&version).into(), version.uid).is_some()
        });
        claims
    }

    fn known(&mut self, kind: HoldKind) -> &mut Store<String> {
        self.kinds.entry(kind).or_default()
    }

    fn seen(&mut self, kind: HoldKind, object: &RawObject) -> Vec<HoldEvent> {
        let (key, uid, stamp) = (object.key(), object.version().uid, (&object.version()).into());
        if !self.known(kind).is_news(&key, stamp) {
            return Vec::new();
        }
        let read = object.read::<Value>().map_err(|error| error.to_string());
        match read.and_then(|object| self.read(kind, &object).map_err(|error| error.to_string())) {
            Ok(events) => {
                self.known(kind).see(&key, stamp, uid);
                events
            }
            // The object as it was before counts until a later version can be read.
            Err(reason) => {
                let news = self.known(kind).see_unreadable(&key, stamp, reason.clone(), uid.clone());
                let Some(Unreadable { is_first, replaced }) = news else { return Vec::new() };
                if is_first {
                    warn!(kind = kind.plural(), object = %key, reason, "an object cannot be understood and is left out");
                }
                let gone = replaced.map(|uid| self.gone(kind, &key, uid));
                // Devices that are closed for this Reservation are not opened.
                let unreadable = (kind == HoldKind::Reservation).then_some(HoldEvent::ReservationUnreadable(uid));
                gone.into_iter().chain(unreadable).collect()
            }
        }
    }

    fn all_gone(&mut self, kind: HoldKind, gone: Vec<(ObjectKey, String)>) -> Vec<HoldEvent> {
        gone.into_iter().map(|(key, uid)| self.gone(kind, &key, uid)).collect()
    }

    fn gone(&mut self, kind: HoldKind, key: &ObjectKey, uid: String) -> HoldEvent {
        let name = key.name.clone();
        match kind {
            HoldKind::Reservation => {
                self.phases.remove(&name);
                HoldEvent::ReservationGone(name, uid)
            }
            HoldKind::NodeHardware => HoldEvent::NodeFencesGone(name),
            HoldKind::Node => HoldEvent::NodeGone(name),
            HoldKind::Slice => HoldEvent::SliceGone(name),
            HoldKind::Rule => HoldEvent::RuleGone(name),
            HoldKind::Claim => HoldEvent::ClaimGone(key.clone(), uid),
            HoldKind::Attachment => HoldEvent::AttachmentGone(name),
        }
    }

    fn read(&mut self, kind: HoldKind, object: &Value) -> Result<Vec<HoldEvent>, serde_json::Error> {
        Ok(match kind {
            HoldKind::Reservation => {
                let read = ReservationObject::deserialize(object)?;
                self.phases.insert(read.name.clone(), read.status.phase.as_str());
                match read.spec.mode() {
                    ReservationMode::Fence => vec![HoldEvent::Reservation(Box::new(read))],
                    // Claims keep the devices of this Reservation, and nothing is closed for it.
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
            HoldKind::Attachment => vec![HoldEvent::Attachment(Box::new(read::attachment(object)?))],
        })
    }
}

#[cfg(test)]
mod tests;
