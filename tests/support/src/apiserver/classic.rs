//! `resource.k8s.io` of 1.26 to 1.31, where a controller of the driver allocates: which kinds there are, what they may
//! contain, and what the server enforces.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    refusal::FieldError,
    resources::{ApiServerRelease, DRA, ObjectKind, ServedResource, resource},
    slices::{check_driver, check_label, items, members},
};

const CLAIM: ServedResource =
    resource(ObjectKind::ClassicClaim, "ResourceClaim", "resourceclaims", &[], true, true, DRA);
const TEMPLATE: ServedResource = resource(
    ObjectKind::ClassicClaimTemplate,
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    &[],
    true,
    false,
    DRA,
);
const RESOURCE_CLASS: ServedResource =
    resource(ObjectKind::ResourceClass, "ResourceClass", "resourceclasses", &[], false, false, DRA);
const DEVICE_CLASS: ServedResource =
    resource(ObjectKind::ClassicDeviceClass, "DeviceClass", "deviceclasses", &[], false, false, DRA);
const POD_SCHEDULING: ServedResource =
    resource(ObjectKind::SchedulingContext, "PodScheduling", "podschedulings", &[], true, true, DRA);
const SCHEDULING_CONTEXT: ServedResource =
    resource(ObjectKind::SchedulingContext, "PodSchedulingContext", "podschedulingcontexts", &[], true, true, DRA);
const CLAIM_PARAMETERS: ServedResource = resource(
    ObjectKind::ClassicParameters("resourceclaimparameters"),
    "ResourceClaimParameters",
    "resourceclaimparameters",
    &[],
    true,
    false,
    DRA,
);
const CLASS_PARAMETERS: ServedResource = resource(
    ObjectKind::ClassicParameters("resourceclassparameters"),
    "ResourceClassParameters",
    "resourceclassparameters",
    &[],
    true,
    false,
    DRA,
);

const OF_1_26: &[ServedResource] = &[CLAIM, TEMPLATE, RESOURCE_CLASS, POD_SCHEDULING];
const OF_1_28: &[ServedResource] = &[CLAIM, TEMPLATE, RESOURCE_CLASS, SCHEDULING_CONTEXT];
const OF_1_30: &[ServedResource] =
    &[CLAIM, TEMPLATE, RESOURCE_CLASS, SCHEDULING_CONTEXT, CLAIM_PARAMETERS, CLASS_PARAMETERS];
const OF_1_31: &[ServedResource] = &[CLAIM, TEMPLATE, DEVICE_CLASS, SCHEDULING_CONTEXT];

/// Nodes in one list of a negotiation.
const MOST_NODES: usize = 128;
/// Consumers of a claim.
const MOST_CONSUMERS: usize = 32;
const MOST_HANDLES: usize = 32;
const MOST_BYTES_OF_A_HANDLE: usize = 16 * 1024;

/// Returns the resources of the group that a release serves; `None` for releases of today.
pub(crate) fn resources(release: ApiServerRelease) -> Option<&'static [ServedResource]> {
    match release {
        ApiServerRelease::V1_26 => Some(OF_1_26),
        ApiServerRelease::V1_28 => Some(OF_1_28),
        ApiServerRelease::V1_30 => Some(OF_1_30),
        ApiServerRelease::V1_31 => Some(OF_1_31),
        _ => None,
    }
}

/// Gates of 1.31, with the fields of claims that are dropped where they are off.
pub(crate) const GATED_FIELDS_OF_CLAIMS: &[(&str, &[&str])] = &[(
    "DRAControlPlaneController",
    &["spec/controller", "status/allocation/controller", "status/deallocationRequested"],
)];
/// Gates of 1.31, with the fields of classes that are dropped where they are off.
pub(crate) const GATED_FIELDS_OF_CLASSES: &[(&str, &[&str])] =
    &[("DRAControlPlaneController", &["spec/suitableNodes"])];

/// Leaves of a kind what it has in any version. What is not listed inside stays as it is.
pub(crate) fn pruned(kind: ObjectKind, object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let mut pruned = match kind {
        ObjectKind::ClassicClaim => {
            json!({ "spec": claim_spec(&object["spec"]), "status": claim_status(&object["status"]) })
        }
        ObjectKind::ClassicClaimTemplate => {
            let (of_claim, spec) =
                (only(&object["spec"]["metadata"], &["labels", "annotations"]), &object["spec"]["spec"]);
            json!({ "spec": { "metadata": of_claim, "spec": claim_spec(spec) } })
        }
        ObjectKind::SchedulingContext => json!({
            "spec": only(&object["spec"], &["selectedNode", "potentialNodes"]),
            "status": { "resourceClaims": each(&object["status"]["resourceClaims"], &["name", "unsuitableNodes"]) },
        }),
        ObjectKind::ResourceClass => {
            only(object, &["driverName", "parametersRef", "suitableNodes", "structuredParameters"])
        }
        ObjectKind::ClassicDeviceClass => {
            json!({ "spec": only(&object["spec"], &["selectors", "config", "suitableNodes"]) })
        }
        _ => only(object, &["generatedFrom", "shareable", "driverRequests", "vendorParameters", "filters"]),
    };
    for field in ["apiVersion", "kind"] {
        pruned[field] = object[field].clone();
    }
    pruned["metadata"] = metadata;
    pruned
}

fn claim_spec(spec: &Value) -> Value {
    let fields = ["resourceClassName", "parametersRef", "allocationMode", "devices", "controller"];
    let mut spec = only(spec, &fields);
    if spec["resourceClassName"].is_string() && spec["allocationMode"].is_null() {
        spec["allocationMode"] = json!("WaitForFirstConsumer");
    }
    if let Some(devices) = spec.get_mut("devices") {
        *devices = only(devices, &["requests", "constraints", "config"]);
        devices["requests"] = each(
            &devices["requests"],
            &["name", "deviceClassName", "selectors", "allocationMode", "count", "adminAccess"],
        );
        for request in devices["requests"].as_array_mut().into_iter().flatten() {
            if request["allocationMode"].is_null() {
                request["allocationMode"] = json!("ExactCount");
            }
            if request["allocationMode"] == "ExactCount" && request["count"].is_null() {
                request["count"] = json!(1);
            }
        }
    }
    spec
}

fn claim_status(status: &Value) -> Value {
    let mut status = only(status, &["driverName", "allocation", "reservedFor", "deallocationRequested"]);
    // These are left out where they say nothing.
    if status["deallocationRequested"] == false {
        status["deallocationRequested"] = Value::Null;
    }
    if let Some(allocation) = status.get_mut("allocation").filter(|allocation| allocation.is_object()) {
        let fields = [
            "resourceHandle",
            "resourceHandles",
            "availableOnNodes",
            "shareable",
            "devices",
            "nodeSelector",
            "controller",
        ];
        *allocation = only(allocation, &fields);
        if let Some(devices) = allocation.get_mut("devices") {
            *devices = only(devices, &["results", "config"]);
            devices["results"] = each(&devices["results"], &["request", "driver", "pool", "device"]);
        }
    }
    status
}

/// The fields of an object that are named.
fn only(object: &Value, fields: &[&str]) -> Value {
    let kept = members(object).filter(|(name, _)| fields.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into()
}

fn each(list: &Value, fields: &[&str]) -> Value {
    if list.is_null() { Value::Null } else { items(list).iter().map(|item| only(item, fields)).collect() }
}

/// Keeps the claim sources of a pod of a release before 1.31, which the types of today do not have any more.
pub(crate) fn keep_sources(release: ApiServerRelease, given: &Value, decoded: &mut Value) {
    if release >= ApiServerRelease::V1_31 {
        return;
    }
    let given = items(&given["spec"]["resourceClaims"]);
    let decoded = decoded["spec"].get_mut("resourceClaims").and_then(Value::as_array_mut).into_iter().flatten();
    for (given, decoded) in given.iter().zip(decoded) {
        if given["source"].is_object() {
            decoded["source"] = given["source"].clone();
        }
    }
}

/// Returns the mistakes of an object of one of these kinds.
pub(crate) fn check(release: ApiServerRelease, kind: ObjectKind, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    match kind {
        ObjectKind::ClassicClaim => check_claim(release, old, new),
        ObjectKind::SchedulingContext => check_context(new),
        ObjectKind::ClassicClaimTemplate => {
            let is_other = old.is_some_and(|old| old["spec"] != new["spec"]);
            let immutable = || FieldError::invalid("spec", &new["spec"], "field is immutable");
            is_other.then(immutable).into_iter().collect()
        }
        ObjectKind::ResourceClass if new["driverName"].as_str().is_none_or(str::is_empty) => {
            vec![FieldError::required("driverName", "")]
        }
        _ => Vec::new(),
    }
}

fn check_claim(release: ApiServerRelease, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(old) = old else {
        if release < ApiServerRelease::V1_31 && new["spec"]["resourceClassName"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required("spec.resourceClassName", ""));
        }
        return errors;
    };
    if old["spec"] != new["spec"] {
        errors.push(FieldError::invalid("spec", &new["spec"], "field is immutable"));
    }
    let (was, is) = (&old["status"]["allocation"], &new["status"]["allocation"]);
    if !was.is_null() && !is.is_null() && was != is {
        errors.push(FieldError::invalid("status.allocation", is, "field is immutable"));
    }
    if !is.is_null() {
        match release {
            ApiServerRelease::V1_31 => check_devices(&mut errors, new),
            _ => check_handles(&mut errors, &new["status"]),
        }
    }
    check_consumers(&mut errors, release, old, new);
    check_request(&mut errors, &old["status"], &new["status"]);
    errors
}

/// The results of 1.31 are for requests of the claim.
fn check_devices(errors: &mut Vec<FieldError>, claim: &Value) {
    let requests = items(&claim["spec"]["devices"]["requests"]);
    for (at, result) in items(&claim["status"]["allocation"]["devices"]["results"]).iter().enumerate() {
        let path = format!("status.allocation.devices.results[{at}]");
        if !requests.iter().any(|request| request["name"] == result["request"]) {
            errors.push(FieldError::invalid(
                format!("{path}.request"),
                &result["request"],
                "must be the name of a request in the claim",
            ));
        }
        check_driver(errors, &format!("{path}.driver"), &result["driver"]);
        check_label(errors, &format!("{path}.device"), &result["device"]);
        if result["pool"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{path}.pool"), ""));
        }
    }
}

/// Checks resource handles, the texts for the node until 1.30.
fn check_handles(errors: &mut Vec<FieldError>, status: &Value) {
    if status["driverName"].as_str().is_none_or(str::is_empty) {
        errors.push(FieldError::required("status.driverName", "must be specified when `allocation` is set"));
    }
    let allocation = &status["allocation"];
    let handles = items(&allocation["resourceHandles"]);
    if handles.len() > MOST_HANDLES {
        errors.push(FieldError::too_many("status.allocation.resourceHandles", handles.len(), MOST_HANDLES));
    }
    let texts = handles.iter().map(|handle| &handle["data"]).chain([&allocation["resourceHandle"]]);
    if texts.filter_map(Value::as_str).any(|text| text.len() > MOST_BYTES_OF_A_HANDLE) {
        errors.push(FieldError::too_long("status.allocation.resourceHandles.data", MOST_BYTES_OF_A_HANDLE));
    }
}

fn check_consumers(errors: &mut Vec<FieldError>, release: ApiServerRelease, old: &Value, new: &Value) {
    let field = "status.reservedFor";
    let uids = |claim: &Value| -> Vec<String> {
        items(&claim["status"]["reservedFor"])
            .iter()
            .map(|it| it["uid"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let (was, is) = (uids(old), uids(new));
    if is.len() > MOST_CONSUMERS {
        errors.push(FieldError::too_many(field, is.len(), MOST_CONSUMERS));
    }
    let distinct: BTreeSet<&String> = is.iter().collect();
    if distinct.len() < is.len() {
        errors.push(FieldError::duplicate(format!("{field}.uid"), &json!(is)));
    }
    for (at, consumer) in items(&new["status"]["reservedFor"]).iter().enumerate() {
        for part in
            ["resource", "name", "uid"].iter().filter(|part| consumer[**part].as_str().is_none_or(str::is_empty))
        {
            errors.push(FieldError::required(format!("{field}[{at}].{part}"), ""));
        }
    }
    let allocation = &new["status"]["allocation"];
    if !is.is_empty() && allocation.is_null() {
        errors.push(FieldError::forbidden(field, "may not be specified when `allocated` is not set"));
    }
    if release < ApiServerRelease::V1_31 && allocation["shareable"] != true && is.len() > 1 {
        errors.push(FieldError::forbidden(field, "may not be reserved more than once"));
    }
    let is_going = old["metadata"]["deletionTimestamp"].is_string() || new["status"]["deallocationRequested"] == true;
    if is_going && is.iter().any(|uid| !was.contains(uid)) {
        let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.push(FieldError::forbidden(field, why));
    }
}

fn check_request(errors: &mut Vec<FieldError>, was: &Value, is: &Value) {
    let field = "status.deallocationRequested";
    let (was_requested, is_requested) = (was["deallocationRequested"] == true, is["deallocationRequested"] == true);
    let is_allocated = !is["allocation"].is_null();
    if was_requested && !is_requested && is_allocated {
        errors.push(FieldError::forbidden(field, "may not be cleared when `allocation` is set"));
    }
    if is_requested && !was_requested && !is_allocated {
        errors.push(FieldError::forbidden(field, "needs an allocation"));
    }
    if is_requested && !items(&is["reservedFor"]).is_empty() {
        let why = "deallocation cannot be requested while `reservedFor` is set";
        errors.push(FieldError::forbidden(field, why));
    }
}

fn check_context(context: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_nodes(&mut errors, "spec.potentialNodes", &context["spec"]["potentialNodes"]);
    let mut names = BTreeSet::new();
    for (at, entry) in items(&context["status"]["resourceClaims"]).iter().enumerate() {
        let path = format!("status.resourceClaims[{at}]");
        if !names.insert(entry["name"].to_string()) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &entry["name"]));
        }
        check_nodes(&mut errors, &format!("{path}.unsuitableNodes"), &entry["unsuitableNodes"]);
    }
    errors
}

fn check_nodes(errors: &mut Vec<FieldError>, path: &str, nodes: &Value) {
    let nodes = items(nodes);
    if nodes.len() > MOST_NODES {
        errors.push(FieldError::too_many(path, nodes.len(), MOST_NODES));
    }
    let distinct: BTreeSet<String> = nodes.iter().map(Value::to_string).collect();
    if distinct.len() < nodes.len() {
        errors.push(FieldError::duplicate(path, &json!(nodes)));
    }
}
