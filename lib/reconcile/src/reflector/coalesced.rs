//! Events of a kind that wait for one subscriber: of each object only the latest, and no more than a bound.
//!
//! A storm of changes of a few objects costs their number, not that of the changes; one of many objects waits on the API server.

use std::collections::{HashMap, VecDeque};

use hostler_api::ObjectKey;
use hostler_cluster::{FollowEvent, RawObject};

use super::ReflectorEvent;

/// Objects that may wait. A few hundred are 20 MB at the very most that the API allows, and usually a hundredth of that.
const MOST_WAITING: usize = 256;
/// Bytes of objects that may wait, as long as it is not one alone.
const MOST_WAITING_BYTES: usize = 16 << 20;

/// Events in order. Those of one object between the same two ends of lists are one event.
#[derive(Debug, Default)]
pub(super) struct CoalescedEvents {
    events: VecDeque<ReflectorEvent>,
    /// Place of an object's event, counted from the first event that ever came.
    places: HashMap<ObjectKey, u64>,
    /// Number of events that were taken.
    taken: u64,
    bytes: usize,
}

impl CoalescedEvents {
    /// True if no more events are to be added for now.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= MOST_WAITING || self.bytes >= MOST_WAITING_BYTES
    }

    /// True if no event waits.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Adds an event.
    pub(super) fn push(&mut self, event: ReflectorEvent) {
        let Some(key) = object(&event).map(key) else {
            // Events of objects do not pass it.
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

    /// Takes the event that waits for longest.
    pub(super) fn pop(&mut self) -> Option<ReflectorEvent> {
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

/// Returns the later one. An object that belongs to a list still belongs to it.
fn merged(earlier: &ReflectorEvent, later: ReflectorEvent) -> ReflectorEvent {
    match (earlier, later) {
        (ReflectorEvent::Followed(FollowEvent::Listed(_)), ReflectorEvent::Followed(FollowEvent::Applied(object))) => {
            ReflectorEvent::Followed(FollowEvent::Listed(object))
        }
        (_, later) => later,
    }
}

fn object(event: &ReflectorEvent) -> Option<&RawObject> {
    match event {
        ReflectorEvent::Followed(
            FollowEvent::Listed(object) | FollowEvent::Applied(object) | FollowEvent::Deleted(object),
        ) => Some(object),
        _ => None,
    }
}

fn size(event: &ReflectorEvent) -> usize {
    object(event).map_or(0, RawObject::size_bytes)
}

fn key(object: &RawObject) -> ObjectKey {
    object.key()
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

    fn push(waiting: &mut CoalescedEvents, event: FollowEvent) {
        waiting.push(ReflectorEvent::Followed(event));
    }

    fn words(mut waiting: CoalescedEvents) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(event) = waiting.pop() {
            let word = |verb: &str, object: &RawObject| {
                format!("{verb} {} {}", object.name(), object.version().resource_version)
            };
            let ReflectorEvent::Followed(event) = event else { panic!("{event:?}") };
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
        let mut waiting = CoalescedEvents::default();
        for version in 0..100_000 {
            push(&mut waiting, FollowEvent::Applied(object(&format!("s{}", version % 7), version, 10)));
            assert!(waiting.events.len() <= 7 && waiting.places.len() <= 7 && !waiting.is_full());
        }
        let words = words(waiting);
        assert_eq!(words.len(), 7);
        assert!(words.contains(&"applied s3 99998".to_owned()), "{words:?}");
    }

    #[test]
    fn of_many_objects_so_many_wait_and_of_large_ones_fewer() {
        let mut waiting = CoalescedEvents::default();
        let mut pushed = 0;
        while !waiting.is_full() {
            push(&mut waiting, FollowEvent::Applied(object(&pushed.to_string(), 1, 10)));
            pushed += 1;
        }
        assert_eq!(pushed, MOST_WAITING);
        let mut large = CoalescedEvents::default();
        let mut bytes = 0;
        while !large.is_full() {
            push(&mut large, FollowEvent::Applied(object(&bytes.to_string(), 1, 1 << 20)));
            bytes += 1 << 20;
        }
        assert!(bytes <= MOST_WAITING_BYTES + (1 << 20) && large.events.len() < 20, "{bytes}");
        while large.pop().is_some() {}
        assert_eq!((large.bytes, large.places.len()), (0, 0));
    }

    #[test]
    fn nothing_is_moved_over_the_ends_of_a_list() {
        let mut waiting = CoalescedEvents::default();
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
            push(&mut waiting, event);
        }
        let expected = ["applied a 1", "ListStarted", "listed a 3", "listed b 2", "ListEnded", "applied b 5"];
        assert_eq!(words(waiting), expected);
    }

    #[test]
    fn what_was_taken_is_not_changed_any_more() {
        let mut waiting = CoalescedEvents::default();
        push(&mut waiting, FollowEvent::Applied(object("a", 1, 0)));
        push(&mut waiting, FollowEvent::Applied(object("b", 1, 0)));
        waiting.pop();
        push(&mut waiting, FollowEvent::Applied(object("a", 2, 0)));
        push(&mut waiting, FollowEvent::Applied(object("b", 2, 0)));
        assert_eq!(words(waiting), ["applied b 2", "applied a 2"]);
    }
}
