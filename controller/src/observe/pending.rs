//! What was seen of a kind and not taken yet: so much and no more, and of each object only the latest.
//!
//! A storm of changes of a few objects costs their number, not that of the changes; one of many objects waits on the server.

use std::collections::{HashMap, VecDeque};

use hostler_api::ObjectKey;
use hostler_cluster::{FollowEvent, RawObject};

/// Objects that wait. Few hundred megabytes would be a mistake; a few hundred objects are 20 MB at the very most that the API
/// allows, and usually a hundredth of that.
pub(super) const MOST_PENDING: usize = 256;
/// Bytes of them that wait, as long as it is not one alone.
pub(super) const MOST_PENDING_BYTES: usize = 16 << 20;

/// Events in order, where those of one object between the same two ends of lists are one.
#[derive(Debug, Default)]
pub(crate) struct PendingEvents {
    events: VecDeque<FollowEvent>,
    /// Where the event of an object is, counted from the first event that ever came.
    places: HashMap<ObjectKey, u64>,
    /// How many events have been taken.
    taken: u64,
    bytes: usize,
}

impl PendingEvents {
    /// Whether no more shall come for now.
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= MOST_PENDING || self.bytes >= MOST_PENDING_BYTES
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Something was seen.
    pub(crate) fn push(&mut self, event: FollowEvent) {
        let Some(key) = object(&event).map(key) else {
            // What stands before it was said before it.
            self.places.clear();
            self.events.push_back(event);
            return;
        };
        self.bytes += size(&event);
        let place = self.places.get(&key).and_then(|place| usize::try_from(place.checked_sub(self.taken)?).ok());
        if let Some(earlier) = place.and_then(|place| self.events.get_mut(place)) {
            self.bytes -= size(earlier);
            *earlier = merged(earlier, event);
            return;
        }
        self.places.insert(key, self.taken + self.events.len() as u64);
        self.events.push_back(event);
    }

    /// What was seen first.
    pub(crate) fn pop(&mut self) -> Option<FollowEvent> {
        let event = self.events.pop_front()?;
        self.bytes -= size(&event);
        self.taken += 1;
        if let Some(key) = object(&event).map(key)
            && self.places.get(&key).is_some_and(|place| *place < self.taken)
        {
            self.places.remove(&key);
        }
        Some(event)
    }
}

/// The later one counts. One that belongs to a list belongs to it still.
fn merged(earlier: &FollowEvent, later: FollowEvent) -> FollowEvent {
    match (earlier, later) {
        (FollowEvent::Listed(_), FollowEvent::Applied(object)) => FollowEvent::Listed(object),
        (_, later) => later,
    }
}

fn object(event: &FollowEvent) -> Option<&RawObject> {
    match event {
        FollowEvent::Listed(object) | FollowEvent::Applied(object) | FollowEvent::Deleted(object) => Some(object),
        FollowEvent::ListStarted | FollowEvent::ListEnded | FollowEvent::UpToDate => None,
    }
}

fn size(event: &FollowEvent) -> usize {
    object(event).map_or(0, RawObject::size_bytes)
}

/// Its name; without a namespace where its kind has none.
pub(super) fn key(object: &RawObject) -> ObjectKey {
    ObjectKey { namespace: object.namespace().to_owned(), name: object.name().to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: u64, bytes: usize) -> RawObject {
        let annotations = json!({ "x": "y".repeat(bytes) });
        let text = json!({
            "metadata": { "name": name, "uid": name, "resourceVersion": version.to_string(), "annotations": annotations },
        });
        RawObject::from_text(&text.to_string()).unwrap()
    }

    fn words(mut waiting: PendingEvents) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(event) = waiting.pop() {
            let word = |verb: &str, object: &RawObject| {
                format!("{verb} {} {}", object.name(), object.version().resource_version)
            };
            words.push(match &event {
                FollowEvent::Listed(object) => word("listed", object),
                FollowEvent::Applied(object) => word("applied", object),
                FollowEvent::Deleted(object) => word("deleted", object),
                other => format!("{other:?}"),
            });
        }
        words
    }

    #[test]
    fn a_storm_of_changes_of_a_few_objects_costs_their_number() {
        let mut waiting = PendingEvents::default();
        for version in 0..100_000 {
            waiting.push(FollowEvent::Applied(object(&format!("s{}", version % 7), version, 10)));
            assert!(waiting.events.len() <= 7 && waiting.places.len() <= 7 && !waiting.is_full());
        }
        let words = words(waiting);
        assert_eq!(words.len(), 7);
        assert!(words.contains(&"applied s3 99998".to_owned()), "{words:?}");
    }

    #[test]
    fn of_many_objects_so_many_wait_and_of_large_ones_fewer() {
        let mut waiting = PendingEvents::default();
        let mut pushed = 0;
        while !waiting.is_full() {
            waiting.push(FollowEvent::Applied(object(&pushed.to_string(), 1, 10)));
            pushed += 1;
        }
        assert_eq!(pushed, MOST_PENDING);
        let mut large = PendingEvents::default();
        let mut bytes = 0;
        while !large.is_full() {
            large.push(FollowEvent::Applied(object(&bytes.to_string(), 1, 1 << 20)));
            bytes += 1 << 20;
        }
        assert!(bytes <= MOST_PENDING_BYTES + (1 << 20) && large.events.len() < 20, "{bytes}");
        while large.pop().is_some() {}
        assert_eq!((large.bytes, large.places.len()), (0, 0));
    }

    #[test]
    fn nothing_is_moved_over_the_ends_of_a_list() {
        let mut waiting = PendingEvents::default();
        for event in [
            FollowEvent::Applied(object("a", 1, 0)),
            FollowEvent::ListStarted,
            FollowEvent::Listed(object("a", 2, 0)),
            FollowEvent::Listed(object("b", 2, 0)),
            FollowEvent::Applied(object("a", 3, 0)),
            FollowEvent::ListEnded,
            FollowEvent::Deleted(object("b", 4, 0)),
            FollowEvent::Applied(object("b", 5, 0)),
        ] {
            waiting.push(event);
        }
        let expected = ["applied a 1", "ListStarted", "listed a 3", "listed b 2", "ListEnded", "applied b 5"];
        assert_eq!(words(waiting), expected);
    }

    #[test]
    fn what_was_taken_is_not_changed_any_more() {
        let mut waiting = PendingEvents::default();
        waiting.push(FollowEvent::Applied(object("a", 1, 0)));
        waiting.push(FollowEvent::Applied(object("b", 1, 0)));
        waiting.pop();
        waiting.push(FollowEvent::Applied(object("a", 2, 0)));
        waiting.push(FollowEvent::Applied(object("b", 2, 0)));
        assert_eq!(words(waiting), ["applied b 2", "applied a 2"]);
    }
}
