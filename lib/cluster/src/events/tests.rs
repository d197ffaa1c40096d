//! What an Event looks like to the API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;

use super::*;

fn subject() -> EventSubject {
    EventSubject {
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceClaim",
        namespace: "ml".to_owned(),
        name: "train".to_owned(),
        uid: "u1".to_owned(),
    }
}

#[tokio::test]
async fn an_event_has_all_that_the_server_asks_for_and_that_people_see() {
    let temp = tempfile::tempdir().unwrap();
    let kubeconfig = temp.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
         clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n",
    )
    .unwrap();
    let recorder = EventRecorder::new(ApiClient::new(Some(&kubeconfig)).unwrap(), "hostler.dev", "node");
    let note = EventNote::new("DeviceHeld", "device a is already prepared for claim u2 (ml/eval)".to_owned());
    let event = recorder.event("train.1", &subject(), &note, SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
    let event: Event = serde_json::from_value(event).unwrap();
    assert_eq!(event.metadata.namespace, event.involved_object.namespace, "or the server refuses it");
    assert_eq!(event.involved_object.uid.as_deref(), Some("u1"));
    assert_eq!((event.reason.as_deref(), event.type_.as_deref()), (Some("DeviceHeld"), Some("Warning")));
    assert_eq!(event.message.as_deref(), Some("device a is already prepared for claim u2 (ml/eval)"));
    assert_eq!(serde_json::to_value(event.first_timestamp).unwrap(), "1970-01-01T00:00:01Z");
    assert_eq!((event.count, event.source.unwrap().host.as_deref()), (Some(1), Some("node")));
}

#[test]
fn a_message_is_cut_where_the_server_would_refuse_it_and_never_inside_a_letter() {
    let note = EventNote::new("DeviceHeld", "ä".repeat(1000));
    assert!(note.message.len() <= 1024 && note.message.ends_with("ä…"), "{}", note.message.len());
    assert_eq!(EventNote::new("DeviceHeld", "held".to_owned()).message, "held");
}
