//! Validation of Events: the rules that reporters tend to forget.

use serde_json::Value;

use super::{refusal::FieldError, store::meta};

/// `own` is for events that come by `events.k8s.io`, which asks for more. Fields have their core names here.
pub(crate) fn check(own: bool, event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let about = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let namespace = meta(event, "namespace");
    if !(about == namespace || (about.is_empty() && namespace == "default")) {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &event["involvedObject"]["namespace"], why));
    }
    if !own {
        return errors;
    }
    if event["eventTime"].is_null() {
        errors.push(FieldError::required("eventTime", ""));
    }
    for (field, name, most) in [
        ("reportingComponent", "reportingController", 316),
        ("reportingInstance", "reportingInstance", 128),
        ("action", "action", 128),
        ("reason", "reason", 128),
    ] {
        match event[field].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(name, "")),
            text if text.len() > most => errors.push(FieldError::too_long(name, most)),
            _ => {}
        }
    }
    if event["message"].as_str().is_some_and(|note| note.len() > 1024) {
        errors.push(FieldError::too_long("note", 1024));
    }
    if !matches!(event["type"].as_str(), Some("Normal" | "Warning")) {
        errors.push(FieldError::invalid("type", &event["type"], "has invalid value"));
    }
    errors
}
