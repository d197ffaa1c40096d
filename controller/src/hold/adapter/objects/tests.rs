//! Objects of a list, of a watch, and those that are gone without a word.

use serde_json::json;

use super::*;

const KINDS: [HoldKind; 3] = [HoldKind::Reservation, HoldKind::NodeHardware, HoldKind::Slice];

fn object(value: &Value) -> RawObject {
    RawObject::from_text(&value.to_string()).unwrap()
}

fn reservation(name: &str, uid: &str) -> RawObject {
    object(&json!({"metadata": {"name": name, "uid": uid, "resourceVersion": "1"}, "spec": {"owners": []}}))
}

fn word(event: &HoldEvent) -> String {
    match event {
        HoldEvent::Reservation(it) => format!("reservation {}", it.name),
        HoldEvent::ReservationGone(name, uid) => format!("gone {name} {uid}"),
        HoldEvent::NodeFences(it) => format!("fences {}", it.fences.len()),
        HoldEvent::Slice(it) => {
            format!("slice {:?}", it.devices.iter().map(|it| it.held_for.clone()).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}

fn tell(reader: &mut HoldReader, kind: HoldKind, news: Vec<FollowEvent>) -> Vec<String> {
    news.into_iter().flat_map(|news| reader.take(kind, &KindNews::Followed(news))).map(|event| word(&event)).collect()
}

fn list(objects: Vec<RawObject>) -> Vec<FollowEvent> {
    let listed = objects.into_iter().map(FollowEvent::Listed);
    [FollowEvent::ListStarted].into_iter().chain(listed).chain([FollowEvent::ListEnded]).collect()
}

#[test]
fn what_is_not_in_a_list_any_more_is_gone_and_what_cannot_be_read_stays_as_it_was() {
    let mut reader = HoldReader::new([HoldKind::Reservation].into_iter());
    let told = tell(&mut reader, HoldKind::Reservation, list(vec![reservation("a", "1"), reservation("b", "2")]));
    assert_eq!(told, ["reservation a", "reservation b", "Synced"]);
    let broken = object(&json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "2"}, "spec": {"owners": 7}}));
    assert_eq!(tell(&mut reader, HoldKind::Reservation, list(vec![broken])), ["gone b 2"]);
    assert_eq!(reader.unreadable(), 1);
    assert_eq!(
        tell(&mut reader, HoldKind::Reservation, vec![FollowEvent::Deleted(reservation("a", "1"))]),
        ["gone a 1"]
    );
    assert_eq!(reader.unreadable(), 0);
}

#[test]
fn all_is_told_once_every_kind_was_listed() {
    let mut reader = HoldReader::new(KINDS.into_iter());
    assert!(tell(&mut reader, HoldKind::Reservation, list(Vec::new())).is_empty());
    assert_eq!(reader.missing(), ["nodehardware", "resourceslices"]);
    assert!(tell(&mut reader, HoldKind::Slice, list(Vec::new())).is_empty());
    assert_eq!(tell(&mut reader, HoldKind::NodeHardware, list(Vec::new())), ["Synced"]);
}

#[test]
fn for_whom_an_attribute_says_that_a_device_is_held_is_what_the_node_was_told() {
    let mut reader = HoldReader::new(KINDS.into_iter());
    let slice = object(&json!({
        "metadata": {"name": "s", "uid": "s", "resourceVersion": "1"},
        "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [
            {"name": "a", "attributes": {"hostler.dev/held": {"bool": true}}}, {"name": "b"},
        ]},
    }));
    assert_eq!(tell(&mut reader, HoldKind::Slice, vec![FollowEvent::Applied(slice)]), ["slice [None, None]"]);
    let hardware = object(&json!({
        "metadata": {"name": "n", "uid": "h", "resourceVersion": "2"},
        "spec": {"nodeName": "n", "holds": [{"pool": "p", "device": "a", "value": "v"}, {"pool": "p", "device": "b", "value": "w"}]},
    }));
    assert_eq!(
        tell(&mut reader, HoldKind::NodeHardware, vec![FollowEvent::Applied(hardware)]),
        ["fences 2", "slice [Some(\"v\"), None]"]
    );
}
