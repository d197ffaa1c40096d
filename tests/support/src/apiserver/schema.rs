//! Normal form of an object: unknown fields are pruned, empty lists and maps left out, quantities and times written the
//! canonical way.

use k8s_openapi::{
    api::{
        admissionregistration::v1 as admission, authentication::v1 as authentication,
        authorization::v1 as authorization, coordination::v1 as coordination, core::v1 as core, policy::v1 as policy,
        resource::v1 as dra, scheduling::v1 as scheduling,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions,
    apimachinery::pkg::apis::meta::v1 as common,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    classic, quantity,
    refusal::StatusError,
    resources::{ObjectKind, ServedResource},
    topology,
};

/// Maps that are left out when they are empty, as lists are. An empty structure says something.
const MAPS: [&str; 9] = [
    "annotations",
    "attributes",
    "capacity",
    "consumedCapacity",
    "counters",
    "labels",
    "matchLabels",
    "nodeAllocatableResources",
    "requests",
];
/// Fields of other owners, which stay as they are.
const OPAQUE: [&str; 4] = ["parameters", "data", "managedFields", "default"];
/// Fields with times, which are cut to the second.
const TIMES: [&str; 6] =
    ["timeAdded", "lastTransitionTime", "allocationTimestamp", "creationTimestamp", "firstTimestamp", "lastTimestamp"];

/// The object without what its kind does not have.
pub(crate) fn decode(resource: &ServedResource, object: &Value) -> Result<Value, StatusError> {
    let decoded = match resource.kind {
        ObjectKind::Custom(_) => return custom(resource, object),
        ObjectKind::ClassicClaim
        | ObjectKind::ClassicClaimTemplate
        | ObjectKind::ClassicDeviceClass
        | ObjectKind::ResourceClass
        | ObjectKind::SchedulingContext
        | ObjectKind::ClassicParameters(_) => return classic_object(resource, object),
        ObjectKind::Namespace => through::<core::Namespace>(object),
        ObjectKind::Node => through::<core::Node>(object),
        ObjectKind::Pod => through::<core::Pod>(object),
        ObjectKind::PodTemplate => through::<core::PodTemplate>(object),
        ObjectKind::ResourceQuota => through::<core::ResourceQuota>(object),
        ObjectKind::Event => through::<core::Event>(object),
        ObjectKind::ResourceSlice => through::<dra::ResourceSlice>(object),
        ObjectKind::ResourceClaim => through::<dra::ResourceClaim>(object),
        ObjectKind::ResourceClaimTemplate => through::<dra::ResourceClaimTemplate>(object),
        ObjectKind::DeviceClass => through::<dra::DeviceClass>(object),
        ObjectKind::NodeResourceTopology => through::<topology::NodeResourceTopology>(object),
        ObjectKind::TokenReview => through::<authentication::TokenReview>(object),
        ObjectKind::SubjectAccessReview => through::<authorization::SubjectAccessReview>(object),
        ObjectKind::SelfSubjectAccessReview => through::<authorization::SelfSubjectAccessReview>(object),
        ObjectKind::ConfigMap => through::<core::ConfigMap>(object),
        ObjectKind::ServiceAccount => through::<core::ServiceAccount>(object),
        ObjectKind::Secret => through::<core::Secret>(object),
        ObjectKind::MutatingWebhookConfiguration => through::<admission::MutatingWebhookConfiguration>(object),
        ObjectKind::Lease => through::<coordination::Lease>(object),
        ObjectKind::PodDisruptionBudget => through::<policy::PodDisruptionBudget>(object),
        ObjectKind::PriorityClass => through::<scheduling::PriorityClass>(object),
        ObjectKind::CustomResourceDefinition => through::<extensions::CustomResourceDefinition>(object),
    };
    let fail = |why: String| cannot_be_handled(resource, &why);
    let mut decoded = decoded.map_err(|error| fail(error.to_string()))?;
    tidy(&mut decoded);
    match resource.kind {
        ObjectKind::ResourceClaim => default_requests(&mut decoded["spec"]["devices"]["requests"]),
        ObjectKind::ResourceClaimTemplate => default_requests(&mut decoded["spec"]["spec"]["devices"]["requests"]),
        _ => {}
    }
    if resource.group == super::resources::DRA
        || matches!(resource.kind, ObjectKind::Node | ObjectKind::Pod | ObjectKind::PodTemplate)
    {
        quantity::canonicalize(&mut decoded).map_err(fail)?;
    }
    Ok(decoded)
}

/// Sets the defaults of device requests.
fn default_requests(requests: &mut Value) {
    for request in requests.as_array_mut().into_iter().flatten() {
        let alternatives = match request.get_mut("exactly") {
            Some(exactly) => std::slice::from_mut(exactly),
            None => {
                request.get_mut("firstAvailable").and_then(Value::as_array_mut).map_or(&mut [][..], Vec::as_mut_slice)
            }
        };
        for wanted in alternatives {
            if wanted["allocationMode"].is_null() {
                wanted["allocationMode"] = json!("ExactCount");
            }
            if wanted["allocationMode"] == "ExactCount" && wanted["count"].as_i64().unwrap_or_default() == 0 {
                wanted["count"] = json!(1);
            }
            for toleration in wanted.get_mut("tolerations").and_then(Value::as_array_mut).into_iter().flatten() {
                if toleration["operator"].is_null() {
                    toleration["operator"] = json!("Equal");
                }
            }
        }
    }
}

fn cannot_be_handled(resource: &ServedResource, why: &str) -> StatusError {
    let kind = resource.kind_name;
    StatusError::bad_request(format!("{kind} in version {:?} cannot be handled as a {kind}: {why}", "v1"))
}

/// Reads an object of a custom kind: only its metadata is known here; the definition knows the rest.
fn custom(resource: &ServedResource, object: &Value) -> Result<Value, StatusError> {
    let mut decoded = object.clone();
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let mut metadata =
        through::<common::ObjectMeta>(&metadata).map_err(|error| cannot_be_handled(resource, &error.to_string()))?;
    tidy(&mut metadata);
    decoded["metadata"] = metadata;
    let definition = resource.custom.expect("of a defined kind");
    definition.prune(&mut decoded);
    definition.fill_in(&mut decoded);
    Ok(decoded)
}

/// Reads an object of a kind of 1.26 to 1.31.
fn classic_object(resource: &ServedResource, object: &Value) -> Result<Value, StatusError> {
    let mut pruned = classic::pruned(resource.kind, object);
    let metadata = through::<common::ObjectMeta>(&pruned["metadata"]);
    pruned["metadata"] = metadata.map_err(|error| cannot_be_handled(resource, &error.to_string()))?;
    tidy(&mut pruned);
    Ok(pruned)
}

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(object.clone())?)
}

/// Leaves out what is empty, and cuts times to the second.
pub(crate) fn tidy(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|field, value| {
                if OPAQUE.contains(&field.as_str()) {
                    return true;
                }
                tidy(value);
                match value {
                    Value::Null => false,
                    Value::Array(list) => !list.is_empty(),
                    Value::Object(map) => !(map.is_empty() && MAPS.contains(&field.as_str())),
                    Value::String(time) if TIMES.contains(&field.as_str()) => {
                        to_seconds(time);
                        true
                    }
                    _ => true,
                }
            });
        }
        Value::Array(list) => list.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// `2026-01-02T03:04:05.6Z` is `2026-01-02T03:04:05Z`.
fn to_seconds(time: &mut String) {
    if let Some(point) = time.find('.') {
        time.replace_range(point..time.len() - usize::from(time.ends_with('Z')), "");
    }
}

/// The time now, as the server writes it.
pub(crate) fn now() -> String {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let mut now = now;
    to_seconds(&mut now);
    now
}
