//! Objects of a list, of a watch, and those that are gone without a word.

use serde_json::json;

use super::*;

const KINDS: [HoldKind; 3] = [HoldKind::Reservation, HoldKind::NodeHardware, HoldKind::Slice];

fn object(value: &Value) -> RawObject {
    RawObject::from_text(&value.to_string()).unwrap()
}

fn reservation(name: &str, uid: &str) -> RawObject {
    reservation_at(name, uid, 1)
}

fn reservation_at(name: &str, uid: &str, version: u32) -> RawObject {
    let metadata = json!({"name": name, "uid": uid, "resourceVersion": version.to_string()});
    object(&json!({"metadata": metadata, "spec": {"owners": []}}))
}

fn word(event: &HoldEvent) -> String {
    match event {
        HoldEvent::Reservation(it) => format!("reservation {}", it.name),
        HoldEvent::ReservationGone(name, uid) => format!("gone {name} {uid}"),
        HoldEvent::ReservationUnreadable(uid) => format!("unreadable {uid}"),
        HoldEvent::NodeFences(it) => format!("fences {}", it.fences.len()),
        HoldEvent::Slice(it) => {
            format!("slice {:?}", it.devices.iter().map(|it| it.held_for.clone()).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}

fn tell(reader: &mut HoldReader, kind: HoldKind, news: Vec<FollowEvent>) -> Vec<String> {
    news.into_iter()
        .flat_map(|news| reader.take(kind, &ReflectorEvent::Followed(news)))
        .map(|event| word(&event))
        .collect()
}

fn list(objects: Vec<RawObject>) -> Vec<FollowEvent> {
    let listed = objects.into_iter().map(FollowEvent::Listed);
    [FollowEvent::ListStarted].into_iter().chain(listed).chain([FollowEvent::ListEnded]).collect()
}

#[test]
fn what_is_not_in_a_list_any_more_is_gone_and_what_cannot_be_read_stays_as_it_was() {
    let mut reader = HoldReader::new([HoldKind::Reservation].into_iter(), "n");
    let told = tell(&mut reader, HoldKind::Reservation, list(vec![reservation("a", "1"), reservation("b", "2")]));
    assert_eq!(told, ["reservation a", "reservation b", "Synced"]);
    let broken = |uid: &str| {
        object(&json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": "2"}, "spec": {"owners": 7}}))
    };
    let told = tell(&mut reader, HoldKind::Reservation, list(vec![broken("1")]));
    assert_eq!(told, ["unreadable 1", "gone b 2"]);
    assert_eq!(reader.unreadable(), 1);
    assert_eq!(
        tell(&mut reader, HoldKind::Reservation, vec![FollowEvent::Deleted(reservation_at("a", "1", 3))]),
        ["gone a 1"]
    );
    assert_eq!(reader.unreadable(), 0);
    // One that was never understood, and is another one than before, or gone.
    tell(&mut reader, HoldKind::Reservation, vec![FollowEvent::Applied(reservation("a", "3"))]);
    let told = tell(&mut reader, HoldKind::Reservation, vec![FollowEvent::Applied(broken("4"))]);
    assert_eq!(told, ["gone a 3", "unreadable 4"]);
    assert_eq!(tell(&mut reader, HoldKind::Reservation, list(Vec::new())), ["gone a 4"]);
}

#[test]
fn all_is_told_once_every_kind_was_listed() {
    let mut reader = HoldReader::new(KINDS.into_iter(), "n");
    assert!(tell(&mut reader, HoldKind::Reservation, list(Vec::new())).is_empty());
    assert_eq!(reader.missing(), ["nodehardware", "resourceslices"]);
    assert!(tell(&mut reader, HoldKind::Slice, list(Vec::new())).is_empty());
    assert_eq!(tell(&mut reader, HoldKind::NodeHardware, list(Vec::new())), ["Synced"]);
}

#[test]
fn what_was_heard_of_beside_the_watch_is_gone_when_a_list_lacks_it() {
    let mut reader = HoldReader::new([HoldKind::Claim, HoldKind::Rule].into_iter(), "n");
    let key = ObjectKey::new("default", "c");
    let claim = AllocatedClaim { key, uid: "1".to_owned(), ..AllocatedClaim::default() };
    tell(&mut reader, HoldKind::Claim, vec![FollowEvent::ListStarted]);
    reader.claims_listed(vec![claim]);
    assert!(tell(&mut reader, HoldKind::Claim, vec![FollowEvent::ListEnded]).is_empty(), "that list may be older");
    let told = tell(&mut reader, HoldKind::Claim, list(Vec::new()));
    assert!(told[0].starts_with("ClaimGone(") && told[0].contains("\"c\""), "{told:?}");
    let rule = json!({
        "metadata": {"name": "hold-1", "uid": "2"},
        "spec": {"deviceSelector": {"driver": "d", "pool": "p", "device": "a"}, "taint": {"key": "hostler.dev/held", "value": "v", "effect": "NoSchedule"}},
    });
    assert_eq!(reader.answered(&HoldTarget::Rule("hold-1".to_owned()), &rule).len(), 1);
    assert_eq!(tell(&mut reader, HoldKind::Rule, list(Vec::new())), ["RuleGone(\"hold-1\")", "Synced"]);
}

#[test]
fn an_answer_brings_nothing_back_that_the_watch_has_called_gone() {
    let mut reader = HoldReader::new([HoldKind::Reservation].into_iter(), "n");
    tell(&mut reader, HoldKind::Reservation, list(vec![reservation("a", "1")]));
    let (target, written) =
        (HoldTarget::Reservation("a".to_owned()), reservation_at("a", "1", 2).read::<Value>().unwrap());
    assert_eq!(reader.answered(&target, &written).len(), 1);
    tell(&mut reader, HoldKind::Reservation, vec![FollowEvent::Deleted(reservation_at("a", "1", 3))]);
    assert!(reader.answered(&target, &written).is_empty());
}
