//! Watches: what happened since, then what happens, until the client or the server has had enough.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, sleep_until},
};

use super::{
    SharedServerState, convert, opaque,
    refusal::StatusError,
    rules::ServerSettings,
    selectors::ObjectSelector,
    store::{ObjectChange, ObjectKey, ObjectMap, ObjectStore},
    verbs::ApiRequest,
};

/// Longest watch of a client that names no time; the real server takes half an hour and up to twice that.
const LONGEST: Duration = Duration::from_secs(1800);
const BETWEEN_BOOKMARKS: Duration = Duration::from_secs(60);

/// A signal of a test to all watches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WatchSignal {
    /// End, as after a timeout.
    Close,
    /// Report 410 and end.
    Expire,
    /// Sends a bookmark to each watch that asked for them.
    Bookmark,
}

/// A watch that goes on.
#[derive(Debug)]
pub(crate) struct ObjectWatch {
    call: ApiRequest,
    selector: ObjectSelector,
    /// The state up to which the client knows everything.
    seen: u64,
    bookmarks: bool,
    ready: VecDeque<Value>,
    ends_at: Instant,
    ended: bool,
    bookmark_at: Instant,
    changed: watch::Receiver<(u64, usize)>,
    signals: broadcast::Receiver<WatchSignal>,
}

impl ObjectWatch {
    /// Starts a watch. Its first events are computed under the lock of the state.
    pub(crate) fn start(
        store: &ObjectStore,
        settings: &ServerSettings,
        call: &ApiRequest,
        changed: watch::Receiver<(u64, usize)>,
        signals: broadcast::Receiver<WatchSignal>,
    ) -> Result<Self, StatusError> {
        let seconds = call.parameter("timeoutSeconds").parse().map_or(LONGEST, Duration::from_secs);
        let now = Instant::now();
        let mut watch = Self {
            call: call.clone(),
            selector: call.selector(settings)?,
            seen: store.rv(),
            bookmarks: is_true(call.parameter("allowWatchBookmarks")),
            ready: VecDeque::new(),
            ends_at: now + seconds,
            ended: false,
            bookmark_at: now + BETWEEN_BOOKMARKS,
            changed,
            signals,
        };
        watch.begin(store, settings)?;
        Ok(watch)
    }

    fn begin(&mut self, store: &ObjectStore, settings: &ServerSettings) -> Result<(), StatusError> {
        let (rv, matching) = (self.call.parameter("resourceVersion"), self.call.parameter("resourceVersionMatch"));
        let initial = is_true(self.call.parameter("sendInitialEvents"));
        if initial && (!settings.is_on("WatchList") || matching != "NotOlderThan") {
            return Err(StatusError::bad_watch(settings.is_on("WatchList")));
        }
        let from = match rv {
            "" | "0" => None,
            text => Some(
                text.parse::<u64>()
                    .map_err(|_| StatusError::bad_request(format!("invalid resource version {text:?}")))?,
            ),
        };
        match from {
            Some(from) if !initial => {
                self.seen = from;
                if store.since(from).is_err() {
                    let oldest = store.oldest();
                    self.fail(&StatusError::expired(format!("too old resource version: {from} ({oldest})")));
                }
            }
            _ if initial || !self.call.parameter("sendInitialEvents").eq("false") => {
                self.send_all(store.objects());
                if initial && self.bookmarks {
                    let bookmark = self.bookmark(true);
                    self.ready.push_back(bookmark);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn send_all(&mut self, objects: &ObjectMap) {
        let chosen = objects.iter().filter(|(key, object)| self.wants(key) && self.selector.matches(object));
        let events: Vec<Value> = chosen.map(|(_, object)| self.event("ADDED", object)).collect();
        self.ready.extend(events);
    }

    fn wants(&self, key: &ObjectKey) -> bool {
        let target = &self.call.target;
        key.kind == target.resource.kind
            && target.namespace.as_ref().is_none_or(|namespace| key.namespace == *namespace)
            && target.name.as_ref().is_none_or(|name| key.name == *name)
    }

    fn event(&self, kind: &str, object: &Value) -> Value {
        let target = &self.call.target;
        let object = convert::from_stored(target.api, target.resource, object);
        json!({ "type": kind, "object": opaque::shown(&object) })
    }

    /// An object that comes or goes for the selector comes or goes for the client.
    fn event_of(&self, change: &ObjectChange) -> Option<Value> {
        if !self.wants(&change.key) {
            return None;
        }
        let matching = |object: &Option<Arc<Value>>| object.clone().filter(|object| self.selector.matches(object));
        let with_rv = |object: &Value| {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = json!(change.rv.to_string());
            object
        };
        match (matching(&change.old), matching(&change.new)) {
            (None, Some(new)) => Some(self.event("ADDED", &new)),
            (Some(_), Some(new)) => Some(self.event("MODIFIED", &new)),
            (Some(old), None) => Some(self.event("DELETED", &with_rv(&old))),
            (None, None) => None,
        }
    }

    fn bookmark(&self, end_of_initial: bool) -> Value {
        let target = &self.call.target;
        let mut metadata = json!({ "resourceVersion": self.seen.to_string(), "creationTimestamp": null });
        if end_of_initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let (kind, version) = (target.resource.kind_name, target.api.api_version());
        json!({ "type": "BOOKMARK", "object": { "kind": kind, "apiVersion": version, "metadata": metadata } })
    }

    fn fail(&mut self, refusal: &StatusError) {
        self.ready.push_back(json!({ "type": "ERROR", "object": refusal.status() }));
        self.ended = true;
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self, shared: &SharedServerState) -> Option<Value> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            self.catch_up(shared);
            if !self.ready.is_empty() || self.ended {
                continue;
            }
            // All arms are cancel safe: what they would report is still there in the next round.
            tokio::select! {
                biased;
                signal = self.signals.recv() => self.heed(signal),
                changed = self.changed.changed() => self.ended |= changed.is_err(),
                () = sleep_until(self.bookmark_at) => self.heed(Ok(WatchSignal::Bookmark)),
                () = sleep_until(self.ends_at) => self.heed(Ok(WatchSignal::Close)),
            }
        }
    }

    fn catch_up(&mut self, shared: &SharedServerState) {
        self.changed.mark_unchanged();
        shared.read(|state| {
            let Ok(changes) = state.store.since(self.seen) else {
                let oldest = state.store.oldest();
                return self.fail(&StatusError::expired(format!("too old resource version: {} ({oldest})", self.seen)));
            };
            let events: Vec<Value> = changes.iter().filter_map(|change| self.event_of(change)).collect();
            self.seen = changes.last().map_or(self.seen, |change| change.rv);
            self.ready.extend(events);
        });
    }

    fn heed(&mut self, signal: Result<WatchSignal, broadcast::error::RecvError>) {
        match signal {
            Ok(WatchSignal::Close) | Err(broadcast::error::RecvError::Closed) => self.ended = true,
            Ok(WatchSignal::Expire) => {
                self.fail(&StatusError::expired("The resourceVersion for the provided watch is too old."))
            }
            Ok(WatchSignal::Bookmark) => {
                self.bookmark_at = Instant::now() + BETWEEN_BOOKMARKS;
                if self.bookmarks {
                    let bookmark = self.bookmark(false);
                    self.ready.push_back(bookmark);
                }
            }
            Err(broadcast::error::RecvError::Lagged(_)) => {}
        }
    }
}

fn is_true(text: &str) -> bool {
    matches!(text, "true" | "1" | "True")
}
