//! Changes of an object before it is stored: fields that the server sets, keeps, or refuses to change.

use serde_json::{Value, json};

use super::{
    custom,
    refusal::{FieldError, StatusError},
    resources::{ObjectKind, RequestTarget, ServedResource},
    schema::now,
    slices::items,
    store::meta,
};

/// Fields of the metadata that only the server writes.
const OURS: [&str; 5] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];
/// A generated name is cut here, for its random end.
const GENERATED_BASE: usize = 58;

/// A new object.
pub(crate) fn created(target: &RequestTarget, mut object: Value) -> Result<Value, StatusError> {
    let resource = target.resource;
    let refuse = |field: &str, name: &str, why: &str| {
        StatusError::invalid(resource, target.api.group, name, &[FieldError::required(field, why)])
    };
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(StatusError::trouble_with("resourceVersion should not be set on objects to be created"));
    }
    let metadata = object["metadata"].as_object_mut().expect("decoded");
    for field in OURS {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".to_owned(), json!(now()));
    if counts_generations(resource) {
        metadata.insert("generation".to_owned(), json!(1));
    }
    if meta(&object, "name").is_empty() {
        let base = meta(&object, "generateName");
        if base.is_empty() {
            return Err(refuse("metadata.name", "", "name or generateName is required"));
        }
        let base: String = base.chars().take(GENERATED_BASE).collect();
        object["metadata"]["name"] = json!(format!("{base}{}", random_end()));
    }
    match resource.kind {
        ObjectKind::ResourceClaim | ObjectKind::ClassicClaim | ObjectKind::SchedulingContext => {
            object["status"] = json!({});
        }
        ObjectKind::Pod => object["status"] = json!({ "phase": "Pending" }),
        ObjectKind::Namespace => {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"] = json!({ "phase": "Active" });
        }
        ObjectKind::CustomResourceDefinition => object["status"] = custom::established(&object),
        ObjectKind::Custom(_) if resource.has_status => keep(&mut object, "status", Value::Null),
        _ => {}
    }
    Ok(object)
}

/// An object that replaces `old`: of it, what the request may change.
pub(crate) fn updated(target: &RequestTarget, old: &Value, mut new: Value) -> Value {
    let resource = target.resource;
    if target.is_status() {
        let (status, mut metadata) = (new["status"].take(), new["metadata"].take());
        new = old.clone();
        keep(&mut new, "status", status);
        if !keeps_metadata_from_status(resource.kind) {
            for field in ["labels", "annotations"] {
                keep(&mut new["metadata"], field, metadata[field].take());
            }
        }
        keep(&mut new["metadata"], "managedFields", metadata["managedFields"].take());
    } else if resource.has_status {
        keep(&mut new, "status", old["status"].clone());
    }
    for field in OURS {
        let value = old["metadata"].get(field).cloned().unwrap_or_default();
        keep(&mut new["metadata"], field, value);
    }
    if resource.kind == ObjectKind::ResourceClaim && target.is_status() {
        forget_deallocated(old, &mut new);
    }
    if resource.kind == ObjectKind::CustomResourceDefinition && !target.is_status() {
        new["status"] = custom::established(&new);
    }
    if counts_generations(resource) && !is_same_generation(resource, old, &new) {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_u64().unwrap_or_default() + 1);
    }
    new
}

/// Returns true if a write of an object's status leaves its metadata as it is.
pub(crate) fn keeps_metadata_from_status(kind: ObjectKind) -> bool {
    use ObjectKind::{ClassicClaim, Custom, ResourceClaim, SchedulingContext};
    matches!(kind, ResourceClaim | ClassicClaim | SchedulingContext | Custom(_))
}

/// Removes statuses of devices that the claim has no longer.
fn forget_deallocated(old: &Value, new: &mut Value) {
    let results = |claim: &Value| items(&claim["status"]["allocation"]["devices"]["results"]).to_vec();
    let (before, after) = (results(old), results(new));
    let is_same = |one: &Value, two: &Value| {
        ["driver", "pool", "device", "shareID"].iter().all(|field| one[*field] == two[*field])
    };
    let is_gone = |device: &Value| {
        before.iter().any(|result| is_same(result, device)) && !after.iter().any(|result| is_same(result, device))
    };
    let Some(status) = new["status"].as_object_mut() else { return };
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|device| !is_gone(device));
    if devices.is_empty() {
        status.remove("devices");
    }
}

fn keep(object: &mut Value, field: &str, value: Value) {
    let Some(object) = object.as_object_mut() else { return };
    if value.is_null() {
        object.remove(field);
    } else {
        object.insert(field.to_owned(), value);
    }
}

fn counts_generations(resource: &ServedResource) -> bool {
    use ObjectKind::{Custom, CustomResourceDefinition, DeviceClass, Pod, ResourceSlice};
    matches!(resource.kind, ResourceSlice | DeviceClass | Pod | CustomResourceDefinition | Custom(_))
}

/// A defined kind can have more than a spec.
fn is_same_generation(resource: &ServedResource, old: &Value, new: &Value) -> bool {
    if resource.custom.is_none() {
        return old["spec"] == new["spec"];
    }
    let counts = |name: &&String| *name != "metadata" && !(resource.has_status && *name == "status");
    let fields = |object: &Value| object.as_object().cloned().unwrap_or_default();
    let (old, new) = (fields(old), fields(new));
    old.keys().chain(new.keys()).filter(counts).all(|name| old.get(name) == new.get(name))
}

fn random_end() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = uuid::Uuid::new_v4();
    random.as_bytes().iter().take(5).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}
