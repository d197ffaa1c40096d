//! Conversion between the version of a request and the stored one. `resource.k8s.io/v1beta1` wraps the fields of a
//! device in `basic` and has no `exactly`; `events.k8s.io/v1` has other names for the fields of a core event.

use serde_json::{Map, Value, json};

use super::resources::{GroupVersion, ObjectKind, ServedResource};

/// Fields of an event: the name in the core group, and in its own group.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Fields of a request in v1beta1 that v1 has beside `exactly`.
const REQUEST_FIELDS: [&str; 2] = ["name", "firstAvailable"];

/// Converts an object from the version of `api`; fields that do not fit stay for the pruning.
pub(crate) fn to_stored(api: GroupVersion, resource: &ServedResource, mut object: Value) -> Value {
    if api.version == "v1beta1" {
        each_device(resource, &mut object, unwrap_basic);
        each_request(resource, &mut object, wrap_exactly);
    }
    if api.group == "events.k8s.io" {
        rename(&mut object, EVENT_FIELDS.map(|(core, own)| (own, core)));
    }
    object["apiVersion"] = json!(resource.stored_version());
    object["kind"] = json!(resource.kind_name);
    object
}

/// Converts an object to the version of `api`.
pub(crate) fn from_stored(api: GroupVersion, resource: &ServedResource, object: &Value) -> Value {
    let mut object = object.clone();
    if api.version == "v1beta1" {
        each_device(resource, &mut object, wrap_basic);
        each_request(resource, &mut object, unwrap_exactly);
    }
    if api.group == "events.k8s.io" {
        rename(&mut object, EVENT_FIELDS);
    }
    object["apiVersion"] = json!(api.api_version());
    object
}

fn each_device(resource: &ServedResource, object: &mut Value, change: fn(&mut Map<String, Value>)) {
    if resource.kind == ObjectKind::ResourceSlice {
        each(object.pointer_mut("/spec/devices"), change);
    }
}

fn each_request(resource: &ServedResource, object: &mut Value, change: fn(&mut Map<String, Value>)) {
    match resource.kind {
        ObjectKind::ResourceClaim => each(object.pointer_mut("/spec/devices/requests"), change),
        ObjectKind::ResourceClaimTemplate => each(object.pointer_mut("/spec/spec/devices/requests"), change),
        _ => {}
    }
}

fn each(list: Option<&mut Value>, change: fn(&mut Map<String, Value>)) {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut).for_each(change);
}

fn unwrap_basic(device: &mut Map<String, Value>) {
    let name = device.remove("name");
    let basic = match device.remove("basic") {
        Some(Value::Object(basic)) => basic,
        _ => Map::new(),
    };
    *device = basic;
    device.extend(name.map(|name| ("name".to_owned(), name)));
}

fn wrap_basic(device: &mut Map<String, Value>) {
    let name = device.remove("name").unwrap_or_default();
    let basic = std::mem::take(device);
    device.insert("name".to_owned(), name);
    device.insert("basic".to_owned(), Value::Object(basic));
}

fn wrap_exactly(request: &mut Map<String, Value>) {
    let (own, exactly): (Map<_, _>, Map<_, _>) =
        std::mem::take(request).into_iter().partition(|(field, _)| REQUEST_FIELDS.contains(&field.as_str()));
    *request = own;
    if !exactly.is_empty() {
        request.insert("exactly".to_owned(), Value::Object(exactly));
    }
}

fn unwrap_exactly(request: &mut Map<String, Value>) {
    if let Some(Value::Object(exactly)) = request.remove("exactly") {
        request.extend(exactly);
    }
}

fn rename(object: &mut Value, names: [(&str, &str); 7]) {
    let Some(object) = object.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}
