//! What an Event looks like to the API server.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_api::DeviceName;
use k8s_openapi::api::core::v1::Event;

use super::*;
use crate::claims::ClaimError;

#[test]
fn an_event_has_all_that_the_server_asks_for_and_that_people_see() {
    let claim = ClaimRef { namespace: "ml".to_owned(), name: "train".to_owned(), uid: ClaimUid::new("u1").unwrap() };
    let error = ClaimError::Held { device: DeviceName::new("a").unwrap(), holder: "u2 (ml/eval)".to_owned() };
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
    let failure = ClaimFailure { claim, operation: "prepare", error: Arc::new(error), at };
    let event =
        event("train.1", &failure, &notice(&failure.error).unwrap(), "resource.k8s.io/v1", "hostler.dev", "node");
    let event: Event = serde_json::from_value(event).unwrap();
    assert_eq!(event.metadata.namespace, event.involved_object.namespace, "or the server refuses it");
    assert_eq!(event.involved_object.uid.as_deref(), Some("u1"));
    assert_eq!((event.reason.as_deref(), event.type_.as_deref()), (Some("DeviceHeld"), Some("Warning")));
    assert_eq!(event.message.as_deref(), Some("device a is already prepared for claim u2 (ml/eval)"));
    assert_eq!(serde_json::to_value(event.first_timestamp).unwrap(), "1970-01-01T00:00:01Z");
    assert_eq!((event.count, event.source.unwrap().host.as_deref()), (Some(1), Some("node")));
}
