//! Objects of a list, of a watch, and those that are gone without a word.

use hostler_api::classic::ClassicVersion;
use serde_json::json;

use super::*;

fn reader() -> ObjectReader {
    ObjectReader::new(ClassicDialect { version: ClassicVersion::V1Alpha2, driver: "hostler.dev".to_owned() })
}

fn object(value: &Value) -> RawObject {
    RawObject::from_text(&value.to_string()).unwrap()
}

fn claim(name: &str, uid: &str) -> RawObject {
    claim_at(name, uid, 1)
}

fn claim_at(name: &str, uid: &str, version: u32) -> RawObject {
    object(&json!({
        "metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {"resourceClassName": "card"},
    }))
}

fn words(events: &[ClassicEvent]) -> Vec<String> {
    let word = |event: &ClassicEvent| match event {
        ClassicEvent::Claim(claim) => format!("claim {}", claim.uid),
        ClassicEvent::ClaimGone(_, uid) => format!("gone {uid}"),
        ClassicEvent::Parameters(key, read) => format!("{key} {}", read.is_ok()),
        ClassicEvent::ParametersGone(key) => format!("gone {key}"),
        ClassicEvent::Node(name, state) => format!("node {name} {} {:?}", state.labels.len(), state.access),
        other => format!("{other:?}"),
    };
    events.iter().map(word).collect()
}

fn tell(reader: &mut ObjectReader, kind: ClassicKind, news: Vec<FollowEvent>) -> Vec<String> {
    let events = news.into_iter().flat_map(|news| reader.take(kind, &ReflectorEvent::Followed(news)));
    words(&events.collect::<Vec<_>>())
}

#[test]
fn what_a_list_does_not_name_any_more_is_gone() {
    let mut reader = reader();
    let first = vec![
        FollowEvent::ListStarted,
        FollowEvent::Listed(claim("a", "1")),
        FollowEvent::Listed(claim("b", "2")),
        FollowEvent::ListEnded,
        FollowEvent::Applied(claim("c", "3")),
    ];
    assert_eq!(tell(&mut reader, ClassicKind::Claim, first), ["claim 1", "claim 2", "claim 3"]);
    let second = vec![FollowEvent::ListStarted, FollowEvent::Listed(claim("c", "3")), FollowEvent::ListEnded];
    assert_eq!(tell(&mut reader, ClassicKind::Claim, second), ["gone 1", "gone 2"]);
    assert_eq!(tell(&mut reader, ClassicKind::Claim, vec![FollowEvent::Deleted(claim("c", "3"))]), ["gone 3"]);
}

#[test]
fn all_is_told_once_every_kind_was_listed_or_can_be_done_without() {
    let mut reader = reader();
    let listed =
        |reader: &mut ObjectReader, kind| tell(reader, kind, vec![FollowEvent::ListStarted, FollowEvent::ListEnded]);
    for kind in [ClassicKind::Node, ClassicKind::Source, ClassicKind::Class, ClassicKind::Claim] {
        assert_eq!(listed(&mut reader, kind), Vec::<String>::new());
    }
    for kind in ClassicKind::of(ClassicVersion::V1Alpha2).iter().filter(|kind| kind.is_optional()) {
        assert!(reader.take(*kind, &ReflectorEvent::NotServed).is_empty());
    }
    assert_eq!(reader.missing(), ["podschedulingcontexts"]);
    assert_eq!(listed(&mut reader, ClassicKind::Context), ["Synced"]);
    assert_eq!(listed(&mut reader, ClassicKind::Context), Vec::<String>::new(), "it is said once");
}

#[test]
fn an_object_that_cannot_be_understood_counts_as_it_was_and_is_counted() {
    let mut reader = reader();
    let broken = object(
        &json!({"metadata": {"name": "a", "namespace": "default", "uid": "1", "resourceVersion": "2"}, "spec": 7}),
    );
    let news = vec![FollowEvent::Applied(claim("a", "1")), FollowEvent::Applied(broken)];
    assert_eq!(tell(&mut reader, ClassicKind::Claim, news), ["claim 1"]);
    assert_eq!(reader.unreadable(), 1);
    assert_eq!(tell(&mut reader, ClassicKind::Claim, vec![FollowEvent::Applied(claim_at("a", "1", 3))]), ["claim 1"]);
    assert_eq!(reader.unreadable(), 0);
}

#[test]
fn parameters_that_are_called_otherwise_are_gone_under_their_old_name() {
    let mut reader = reader();
    let parameters = |from: &str, version: &str| {
        FollowEvent::Applied(object(&json!({
            "metadata": {"name": "generated", "namespace": "default", "uid": "1", "resourceVersion": version},
            "generatedFrom": {"apiGroup": "example.org", "kind": "Wish", "name": from},
            "driverRequests": [{"driverName": "hostler.dev", "requests": [{"namedResources": {"selector": "true"}}]}],
        })))
    };
    let kind = ClassicKind::GeneratedClaimParameters;
    assert_eq!(tell(&mut reader, kind, vec![parameters("x", "1")]), ["Wish default/x true"]);
    assert_eq!(tell(&mut reader, kind, vec![parameters("y", "2")]), ["gone Wish default/x", "Wish default/y true"]);
}

#[test]
fn of_a_node_labels_and_which_pods_it_takes_count() {
    let node = object(&json!({
        "metadata": {"name": "n", "uid": "1", "labels": {"a": "b"}}, "status": {"images": [{"names": ["x"]}]},
    }));
    assert_eq!(tell(&mut reader(), ClassicKind::Node, vec![FollowEvent::Applied(node)]), ["node n 1 Open"]);
}
