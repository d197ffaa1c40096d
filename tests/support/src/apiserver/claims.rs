//! Validation of ResourceClaims: valid objects, fields that never change, and the right to write device statuses.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    refusal::FieldError,
    resources::{ApiServerRelease, DRA},
    rules::ServerSettings,
    slices::{check_driver, check_label, items},
    verbs::ApiRequest,
};

const MOST_BYTES_OF_DATA: usize = 10 * 1024;

pub(crate) fn check(settings: &ServerSettings, old: Option<&Value>, claim: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(old) = old else {
        check_requests(&mut errors, &claim["spec"]["devices"]);
        return errors;
    };
    if old["spec"] != claim["spec"] {
        errors.push(FieldError::invalid("spec", &claim["spec"], "field is immutable"));
    }
    let (before, after) = (&old["status"]["allocation"], &claim["status"]["allocation"]);
    if !before.is_null() && !after.is_null() && before != after {
        errors.push(FieldError::invalid("status.allocation", after, "field is immutable"));
    }
    check_allocation(&mut errors, after);
    check_reserved(settings, &mut errors, &claim["status"], before);
    if old["status"]["devices"] != claim["status"]["devices"] {
        check_devices(&mut errors, &claim["status"]);
    }
    errors
}

fn check_requests(errors: &mut Vec<FieldError>, devices: &Value) {
    for (field, most) in [("requests", 32), ("constraints", 32), ("config", 32)] {
        let count = items(&devices[field]).len();
        if count > most {
            errors.push(FieldError::too_many(format!("spec.devices.{field}"), count, most));
        }
    }
    let mut names = BTreeSet::new();
    for (at, request) in items(&devices["requests"]).iter().enumerate() {
        let path = format!("spec.devices.requests[{at}]");
        check_label(errors, &format!("{path}.name"), &request["name"]);
        if !names.insert(request["name"].to_string()) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &request["name"]));
        }
        let alternatives = items(&request["firstAvailable"]);
        if alternatives.len() > 8 {
            errors.push(FieldError::too_many(format!("{path}.firstAvailable"), alternatives.len(), 8));
        }
        if request["exactly"].is_null() == alternatives.is_empty() {
            errors.push(FieldError::required(&path, "exactly one of `exactly` or `firstAvailable` is required"));
        } else if alternatives.is_empty() && request["exactly"]["deviceClassName"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{path}.exactly.deviceClassName"), ""));
        }
    }
    for (at, config) in items(&devices["config"]).iter().enumerate() {
        let path = format!("spec.devices.config[{at}].opaque");
        check_driver(errors, &format!("{path}.driver"), &config["opaque"]["driver"]);
        check_data(errors, &format!("{path}.parameters"), &config["opaque"]["parameters"]);
    }
}

fn check_data(errors: &mut Vec<FieldError>, path: &str, data: &Value) {
    if data.to_string().len() > MOST_BYTES_OF_DATA {
        errors.push(FieldError::too_long(path, MOST_BYTES_OF_DATA));
    } else if !data.is_object() {
        errors.push(FieldError::invalid(path, data, "must be a valid JSON object"));
    }
}

fn check_allocation(errors: &mut Vec<FieldError>, allocation: &Value) {
    let results = items(&allocation["devices"]["results"]);
    if results.len() > 32 {
        errors.push(FieldError::too_many("status.allocation.devices.results", results.len(), 32));
    }
    for (at, result) in results.iter().enumerate() {
        let path = format!("status.allocation.devices.results[{at}]");
        check_driver(errors, &format!("{path}.driver"), &result["driver"]);
        check_label(errors, &format!("{path}.device"), &result["device"]);
        for field in ["request", "pool"].iter().filter(|field| result[**field].as_str().is_none_or(str::is_empty)) {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    }
    let configs = items(&allocation["devices"]["config"]).len();
    if configs > 64 {
        errors.push(FieldError::too_many("status.allocation.devices.config", configs, 64));
    }
}

fn check_reserved(settings: &ServerSettings, errors: &mut Vec<FieldError>, status: &Value, before: &Value) {
    let reserved = items(&status["reservedFor"]);
    let most = if settings.release == ApiServerRelease::V1_32 { 32 } else { 256 };
    if reserved.len() > most {
        errors.push(FieldError::too_many("status.reservedFor", reserved.len(), most));
    }
    if !reserved.is_empty() && status["allocation"].is_null() {
        let (field, why) = if before.is_null() {
            ("status.reservedFor", "may not be specified when `allocated` is not set")
        } else {
            ("status.allocation", "must not be removed while the claim is reserved")
        };
        errors.push(FieldError::forbidden(field, why));
    }
}

/// Returns the key that tells devices of a claim apart.
fn key(device: &Value) -> Value {
    json!([device["driver"], device["pool"], device["device"], device["shareID"]])
}

fn check_devices(errors: &mut Vec<FieldError>, status: &Value) {
    let allocated: Vec<Value> = items(&status["allocation"]["devices"]["results"]).iter().map(key).collect();
    let mut seen = Vec::new();
    for (at, device) in items(&status["devices"]).iter().enumerate() {
        let path = format!("status.devices[{at}]");
        let key = key(device);
        if seen.contains(&key) {
            errors.push(FieldError::duplicate(&path, &key));
        }
        if !allocated.contains(&key) {
            errors.push(FieldError::invalid(&path, &key, "must be an allocated device in the claim"));
        }
        seen.push(key);
        let conditions = items(&device["conditions"]);
        if conditions.len() > 8 {
            errors.push(FieldError::too_many(format!("{path}.conditions"), conditions.len(), 8));
        }
        check_conditions(errors, &format!("{path}.conditions"), conditions);
        if !device["data"].is_null() {
            check_data(errors, &format!("{path}.data"), &device["data"]);
        }
        check_network(errors, &format!("{path}.networkData"), &device["networkData"]);
    }
}

fn check_conditions(errors: &mut Vec<FieldError>, path: &str, conditions: &[Value]) {
    let mut types = BTreeSet::new();
    for (at, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{at}]");
        if !types.insert(condition["type"].to_string()) {
            errors.push(FieldError::duplicate(format!("{path}.type"), &condition["type"]));
        }
        for field in ["type", "reason"].iter().filter(|field| condition[**field].as_str().is_none_or(str::is_empty)) {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
        let statuses = ["False", "True", "Unknown"];
        if !condition["status"].as_str().is_some_and(|status| statuses.contains(&status)) {
            errors.push(FieldError::unsupported(format!("{path}.status"), &condition["status"], &statuses));
        }
        if condition["message"].as_str().is_some_and(|message| message.len() > 32 * 1024) {
            errors.push(FieldError::too_long(format!("{path}.message"), 32 * 1024));
        }
    }
}

fn check_network(errors: &mut Vec<FieldError>, path: &str, data: &Value) {
    let ips = items(&data["ips"]).len();
    if ips > 16 {
        errors.push(FieldError::too_many(format!("{path}.ips"), ips, 16));
    }
    for (field, most) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if data[field].as_str().is_some_and(|text| text.len() > most) {
            errors.push(FieldError::too_long(format!("{path}.{field}"), most));
        }
    }
}

/// Checks the right to write device statuses. Since 1.36 the right to write the status is not enough: the allocation
/// needs one more, and so does each driver. A client without them is told by the validation: the claim is invalid.
pub(crate) fn authorize(settings: &ServerSettings, call: &ApiRequest, old: &Value, claim: &Value) -> Vec<FieldError> {
    if !settings.is_on("DRAResourceClaimGranularStatusAuthorization") || !call.target.is_status() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let (before, after) = (&old["status"], &claim["status"]);
    let name = call.target.name.as_deref().unwrap_or_default();
    let binds = ["allocation", "reservedFor"].iter().any(|field| before[*field] != after[*field]);
    if binds && !call.user.may(call.verb, DRA, "resourceclaims/binding", name) {
        let why = format!(
            "it requires resource=\"resourceclaims/binding\", verb={:?} permission for user {:?}",
            call.verb, call.user.name
        );
        errors.push(FieldError::forbidden("status", &why));
    }
    let nodes = &after["allocation"]["nodeSelector"]["nodeSelectorTerms"];
    let node = match items(nodes) {
        [term] => only_node(term),
        _ => None,
    };
    let (before, after) = (items(&before["devices"]), items(&after["devices"]));
    let changed =
        after.iter().filter(|one| !before.contains(one)).chain(before.iter().filter(|one| !after.contains(one)));
    let drivers: BTreeSet<&str> = changed.filter_map(|device| device["driver"].as_str()).collect();
    let refused = drivers.into_iter().filter_map(|driver| call.user.authorize_driver(call.verb, driver, node).err());
    errors.extend(refused.map(|why| FieldError::forbidden("status.devices", &why)));
    errors
}

/// The node of a term that is for one node only.
fn only_node(term: &Value) -> Option<&str> {
    let ([field], []) = (items(&term["matchFields"]), items(&term["matchExpressions"])) else { return None };
    let ([node], true) = (items(&field["values"]), field["key"] == "metadata.name" && field["operator"] == "In") else {
        return None;
    };
    node.as_str()
}
