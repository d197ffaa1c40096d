//! Validation of ResourceSlices, by release: the pool, the nodes, the number of devices, the shared counters.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    devices,
    refusal::FieldError,
    resources::ApiServerRelease,
    rules::ServerSettings,
    syntax::{is_label, is_pool_name, is_subdomain},
};

/// Members of a list; none if it is missing.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Members of a map; none if it is missing.
pub(crate) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn check(settings: &ServerSettings, old: Option<&Value>, slice: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &slice["spec"];
    check_driver(&mut errors, "spec.driver", &spec["driver"]);
    check_pool(&mut errors, &spec["pool"]);
    check_nodes(&mut errors, spec);
    check_counter_sets(settings, &mut errors, spec);
    check_devices(settings, &mut errors, spec);
    if let Some(old) = old {
        for path in ["/spec/driver", "/spec/pool/name", "/spec/nodeName"] {
            if old.pointer(path) != slice.pointer(path) {
                let given = slice.pointer(path).cloned().unwrap_or_default();
                errors.push(FieldError::invalid(path[1..].replace('/', "."), &given, "field is immutable"));
            }
        }
    }
    errors
}

pub(crate) fn check_driver(errors: &mut Vec<FieldError>, path: &str, driver: &Value) {
    match text(driver) {
        "" => errors.push(FieldError::required(path, "")),
        name if name.len() > 63 => errors.push(FieldError::too_long(path, 63)),
        // Upper case gives a warning only.
        name if !is_subdomain(&name.to_lowercase()) => {
            errors.push(FieldError::invalid(path, driver, "must be a DNS subdomain"));
        }
        _ => {}
    }
}

fn check_pool(errors: &mut Vec<FieldError>, pool: &Value) {
    match text(&pool["name"]) {
        "" => errors.push(FieldError::required("spec.pool.name", "")),
        name if name.len() > 253 => errors.push(FieldError::too_long("spec.pool.name", 253)),
        name if !is_pool_name(name) => errors.push(FieldError::invalid(
            "spec.pool.name",
            &pool["name"],
            "must be DNS subdomains with slashes between them",
        )),
        _ => {}
    }
    if pool["resourceSliceCount"].as_i64().unwrap_or_default() <= 0 {
        let why = "must be greater than zero";
        errors.push(FieldError::invalid("spec.pool.resourceSliceCount", &pool["resourceSliceCount"], why));
    }
    if pool["generation"].as_i64().unwrap_or_default() < 0 {
        let why = "must be greater than or equal to zero";
        errors.push(FieldError::invalid("spec.pool.generation", &pool["generation"], why));
    }
}

/// Exactly one of the ways to say which nodes.
fn check_nodes(errors: &mut Vec<FieldError>, spec: &Value) {
    const WAYS: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    if let Some(name) = spec["nodeName"].as_str().filter(|name| !is_subdomain(name)) {
        let why = if name.is_empty() {
            "must be either unset or set to a non-empty string"
        } else {
            "must be a DNS subdomain"
        };
        errors.push(FieldError::invalid("spec.nodeName", &spec["nodeName"], why));
    }
    for flag in ["allNodes", "perDeviceNodeSelection"] {
        if spec[flag] == false {
            let why = "must be either unset or set to true";
            errors.push(FieldError::invalid(format!("spec.{flag}"), &spec[flag], why));
        }
    }
    if !spec["nodeSelector"].is_null() && items(&spec["nodeSelector"]["nodeSelectorTerms"]).len() != 1 {
        let terms = &spec["nodeSelector"]["nodeSelectorTerms"];
        errors.push(FieldError::invalid("spec.nodeSelector.nodeSelectorTerms", terms, "must have exactly one term"));
    }
    let ways = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    match ways.iter().filter(|way| !spec[**way].is_null()).count() {
        1 => {}
        0 => errors.push(FieldError::required("spec", WAYS)),
        _ => errors.push(FieldError::invalid("spec", &Value::Null, WAYS)),
    }
}

fn check_counter_sets(settings: &ServerSettings, errors: &mut Vec<FieldError>, spec: &Value) {
    let sets = items(&spec["sharedCounters"]);
    let modern = settings.release >= ApiServerRelease::V1_35;
    if modern && !sets.is_empty() && !items(&spec["devices"]).is_empty() {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        errors.push(FieldError::invalid("spec", &Value::Null, why));
    }
    if modern && sets.len() > 8 {
        errors.push(FieldError::too_many("spec.sharedCounters", sets.len(), 8));
    }
    let mut names = BTreeSet::new();
    for (at, set) in sets.iter().enumerate() {
        let path = format!("spec.sharedCounters[{at}]");
        check_label(errors, &format!("{path}.name"), &set["name"]);
        if !names.insert(text(&set["name"])) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &set["name"]));
        }
        devices::check_counters(errors, &format!("{path}.counters"), &set["counters"], modern.then_some(32));
    }
    let counters: usize = sets.iter().map(|set| members(&set["counters"]).count()).sum();
    if !modern && counters > 32 {
        errors.push(FieldError::too_many("spec.sharedCounters", counters, 32));
    }
}

/// A name that must be there and be a DNS label.
pub(crate) fn check_label(errors: &mut Vec<FieldError>, path: &str, name: &Value) {
    match text(name) {
        "" => errors.push(FieldError::required(path, "")),
        given if !is_label(given) => errors.push(FieldError::invalid(path, name, "must be a DNS label")),
        _ => {}
    }
}

fn check_devices(settings: &ServerSettings, errors: &mut Vec<FieldError>, spec: &Value) {
    let devices = items(&spec["devices"]);
    let most = if devices.iter().any(|device| is_advanced(settings.release, device)) { 64 } else { 128 };
    if devices.len() > most {
        errors.push(FieldError::too_many("spec.devices", devices.len(), most));
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, device) in devices.iter().enumerate() {
        let path = format!("spec.devices[{at}]");
        if seen.insert(text(&device["name"]), at).is_some() {
            errors.push(FieldError::duplicate(&path, &device["name"]));
        }
        devices::check(settings, errors, &path, device, spec["perDeviceNodeSelection"] == true);
    }
    let counters = |device: &Value| -> usize {
        items(&device["consumesCounters"]).iter().map(|one| members(&one["counters"]).count()).sum()
    };
    let total: usize = devices.iter().map(counters).sum();
    if settings.release < ApiServerRelease::V1_35 && total > 1024 {
        errors.push(FieldError::too_many("spec.devices", total, 1024));
    }
}

/// Returns true if only half as many such devices fit into a slice.
fn is_advanced(release: ApiServerRelease, device: &Value) -> bool {
    let lists = ["ints", "bools", "strings", "versions"];
    let has_list = members(&device["attributes"]).any(|(_, value)| lists.iter().any(|list| !value[*list].is_null()));
    let heavy = !items(&device["taints"]).is_empty() || !items(&device["consumesCounters"]).is_empty();
    (release >= ApiServerRelease::V1_35 && heavy) || (release >= ApiServerRelease::V1_36 && has_list)
}
