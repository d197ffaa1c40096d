//! Lists, events of the watch and answers to writes, in the orders in which they come.

use std::sync::Arc;

use hostler_api::resource::{ResourcePool, SliceContent, SliceDevice};
use serde_json::json;

use super::*;

fn version(uid: &str, version: u64) -> ObjectVersion {
    ObjectVersion { uid: uid.to_owned(), resource_version: version.to_string() }
}

/// A slice as the server tells it.
fn object(name: &str, (uid, version): (&str, u64), device: &str) -> RawObject {
    let metadata = json!({"name": name, "uid": uid, "resourceVersion": version.to_string()});
    let pool = json!({"name": "n1/cpu", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "hostler.dev", "nodeName": "n1", "pool": pool, "devices": [{"name": device}]});
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec,
    });
    RawObject::from_text(&slice.to_string()).unwrap()
}

/// A slice as the answer to a write has it.
fn slice(id: (&str, u64), device: &str) -> PublishedSlice {
    let devices = vec![SliceDevice { name: device.into(), ..SliceDevice::default() }];
    let pool = ResourcePool { name: "n1/cpu".to_owned(), generation: 1, resource_slice_count: 1 };
    let content = Arc::new(SliceContent { devices, ..SliceContent::default() });
    PublishedSlice { version: version(id.0, id.1), pool, owner: None, content, sent: None }
}

impl KnownSlices {
    fn list(&mut self, slices: Vec<RawObject>) {
        self.observe(&FollowEvent::ListStarted);
        for slice in slices {
            self.observe(&FollowEvent::Listed(slice));
        }
        assert_eq!(self.observe(&FollowEvent::ListEnded), SliceChange::Changed);
    }

    fn applied(&mut self, name: &str, id: (&str, u64), device: &str) -> SliceChange {
        self.observe(&FollowEvent::Applied(object(name, id, device)))
    }

    fn deleted(&mut self, name: &str, id: (&str, u64)) -> SliceChange {
        self.observe(&FollowEvent::Deleted(object(name, id, "x")))
    }

    fn written(&mut self, name: &str, id: (&str, u64), device: &str) {
        assert_eq!(self.put(name, &slice(id, device)), SliceChange::None);
    }

    fn versions(&self) -> Vec<(&str, &str)> {
        self.store.iter().map(|(key, slice)| (&*key.name, &*slice.version.resource_version)).collect()
    }
}

#[test]
fn the_echo_of_a_write_is_nothing_new() {
    let mut known = KnownSlices::default();
    known.written("a", ("u", 5), "x");
    assert_eq!(known.applied("a", ("u", 5), "x"), SliceChange::None);
    // An earlier write's echo comes after the answer to a later one.
    assert_eq!(known.applied("a", ("u", 4), "y"), SliceChange::None);
    assert_eq!(known.versions(), [("a", "5")]);
}

#[test]
fn what_was_sent_is_known_whether_the_answer_or_its_echo_comes_first() {
    let sent = || Some(Arc::new(SliceContent::default()));
    for echo_first in [false, true] {
        let mut known = KnownSlices::default();
        if echo_first {
            assert_eq!(known.applied("a", ("u", 5), "x"), SliceChange::Changed);
        }
        assert_eq!(known.put("a", &PublishedSlice { sent: sent(), ..slice(("u", 5), "x") }), SliceChange::None);
        for version in [5, 6] {
            assert_eq!(known.applied("a", ("u", version), "x"), SliceChange::None);
            known.list(vec![object("a", ("u", version), "x")]);
        }
        assert_eq!(known.all()["a"].sent, sent(), "echo first: {echo_first}");
    }
}

#[test]
fn a_change_by_another_client_is_seen_unless_it_says_the_same() {
    let mut known = KnownSlices::default();
    known.written("a", ("u", 5), "x");
    assert_eq!(known.applied("a", ("u", 6), "x"), SliceChange::None);
    assert_eq!(known.versions(), [("a", "6")]);
    assert_eq!(known.applied("a", ("u", 7), "y"), SliceChange::Changed);
    assert_eq!(known.applied("b", ("v", 8), "y"), SliceChange::Changed);
}

#[test]
fn an_answer_that_comes_after_later_news_of_the_watch_changes_nothing() {
    let mut known = KnownSlices::default();
    assert_eq!(known.applied("a", ("u", 6), "y"), SliceChange::Changed);
    assert_eq!(known.put("a", &slice(("u", 5), "x")), SliceChange::Changed);
    assert_eq!(known.versions(), [("a", "6")]);

    assert_eq!(known.deleted("b", ("v", 8)), SliceChange::None);
    assert_eq!(known.put("b", &slice(("v", 7), "x")), SliceChange::Deleted);
    assert_eq!(known.deleted("a", ("u", 9)), SliceChange::Deleted);
    assert_eq!(known.put("a", &slice(("u", 8), "x")), SliceChange::Deleted);
    assert_eq!(known.count(), 0);
    known.written("a", ("w", 10), "x");
    assert_eq!(known.versions(), [("a", "10")]);
}

#[test]
fn only_the_deletion_of_what_stands_there_counts() {
    let mut known = KnownSlices::default();
    known.written("a", ("new", 9), "x");
    assert_eq!(known.deleted("a", ("old", 8)), SliceChange::None);
    assert_eq!(known.deleted("a", ("new", 10)), SliceChange::Deleted);
    assert_eq!(known.deleted("a", ("new", 10)), SliceChange::None);
}

#[test]
fn a_slice_that_the_publisher_deletes_is_not_missed() {
    let mut known = KnownSlices::default();
    known.written("a", ("u", 1), "x");
    known.written("b", ("v", 2), "x");
    known.deleting(&version("u", 1));
    assert_eq!(known.deleted("a", ("u", 3)), SliceChange::None);
    assert_eq!(known.versions(), [("b", "2")]);
    assert_eq!(known.deleted("b", ("v", 4)), SliceChange::Deleted);
    // The answer may come first.
    known.written("c", ("w", 5), "x");
    known.deleting(&version("w", 5));
    known.remove("c", &version("w", 5));
    assert_eq!(known.deleted("c", ("w", 6)), SliceChange::None);
}

#[test]
fn a_slice_that_was_missed_and_made_anew_stays() {
    let mut known = KnownSlices::default();
    known.written("a", ("u", 1), "x");
    assert_eq!(known.applied("a", ("v", 4), "y"), SliceChange::Changed);
    // The answer to a write of the first one: not found.
    known.remove("a", &version("u", 1));
    assert_eq!(known.versions(), [("a", "4")]);
}

#[test]
fn a_list_replaces_what_was_known_but_not_what_was_written_meanwhile() {
    let mut known = KnownSlices::default();
    known.list(vec![object("a", ("u", 1), "x"), object("gone", ("v", 2), "x")]);
    known.observe(&FollowEvent::ListStarted);
    known.observe(&FollowEvent::Listed(object("a", ("u", 1), "x")));
    known.written("a", ("u", 5), "y");
    known.written("new", ("w", 6), "y");
    known.observe(&FollowEvent::ListEnded);
    assert_eq!(known.versions(), [("a", "5"), ("new", "6")]);
}

#[test]
fn nothing_is_listed_until_the_list_is_complete() {
    let mut known = KnownSlices::default();
    known.observe(&FollowEvent::ListStarted);
    assert!(!known.is_listed());
    known.observe(&FollowEvent::ListEnded);
    assert!(known.is_listed());
    known.relist();
    assert!(!known.is_listed());
}

#[test]
fn a_slice_that_makes_no_sense_hides_no_other_and_stays_as_it_was_known() {
    let mut known = KnownSlices::default();
    known.written("a", ("u", 1), "x");
    let odd = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "3"}, "spec": {"pool": 7}});
    let odd = RawObject::from_text(&odd.to_string()).unwrap();
    known.list(vec![odd, object("b", ("v", 2), "x")]);
    assert_eq!(known.versions(), [("a", "1"), ("b", "2")]);
}

#[test]
fn a_server_that_was_restored_has_slices_again_that_were_deleted() {
    let mut known = KnownSlices::default();
    known.written("a", ("u", 5), "x");
    assert_eq!(known.deleted("a", ("u", 9)), SliceChange::Deleted);
    known.relist();
    known.list(vec![object("a", ("u", 5), "x")]);
    assert_eq!(known.versions(), [("a", "5")]);
}
