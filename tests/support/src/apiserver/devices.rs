//! Validation of devices of a ResourceSlice, by release.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    quantity::NanoQuantity,
    refusal::FieldError,
    resources::ApiServerRelease,
    rules::ServerSettings,
    slices::{check_label, items, members},
    syntax::{is_label_key, is_label_value, is_qualified, is_subdomain, is_version},
};

type FieldErrors = Vec<FieldError>;

pub(crate) fn check(
    settings: &ServerSettings,
    errors: &mut FieldErrors,
    path: &str,
    device: &Value,
    selects_nodes: bool,
) {
    check_label(errors, &format!("{path}.name"), &device["name"]);
    check_attributes(settings, errors, path, device);
    for (name, capacity) in members(&device["capacity"]) {
        let path = format!("{path}.capacity[{name}]");
        check_name(errors, &path, name);
        check_policy(errors, &path, capacity, device["allowMultipleAllocations"] == true);
    }
    check_taints(settings, errors, path, device);
    check_conditions(errors, path, device);
    check_consumption(settings, errors, path, device);
    check_node(errors, path, device, selects_nodes);
}

fn check_name(errors: &mut FieldErrors, path: &str, name: &str) {
    if !is_qualified(name) {
        let why = "must be a C identifier of at most 32 bytes, perhaps behind a DNS subdomain and a slash";
        errors.push(FieldError::invalid(path, &Value::from(name), why));
    }
}

fn check_attributes(settings: &ServerSettings, errors: &mut FieldErrors, path: &str, device: &Value) {
    let named = members(&device["attributes"]).count() + members(&device["capacity"]).count();
    if named > 32 {
        let why = "the total number of attributes and capacities must not exceed 32";
        errors.push(FieldError::invalid(path, &Value::from(named), why));
    }
    let mut values = 0;
    for (name, attribute) in members(&device["attributes"]) {
        let path = format!("{path}.attributes[{name}]");
        check_name(errors, &path, name);
        let given: Vec<(&String, &Value)> = members(attribute).collect();
        match given.as_slice() {
            [] => errors.push(FieldError::required(path, "exactly one value must be specified")),
            [(kind, value)] => values += check_value(errors, &format!("{path}.{kind}"), kind, value),
            _ => errors.push(FieldError::invalid(path, attribute, "exactly one value must be specified")),
        }
    }
    if settings.release >= ApiServerRelease::V1_36 && values > 48 {
        errors.push(FieldError::too_many(format!("{path}.attributes"), values, 48));
    }
}

/// The number of values.
fn check_value(errors: &mut FieldErrors, path: &str, kind: &str, value: &Value) -> usize {
    let single = [value.clone()];
    let values = value.as_array().map_or(single.as_slice(), Vec::as_slice);
    for value in values.iter().filter(|value| value.is_string()) {
        let text = value.as_str().unwrap_or_default();
        if text.len() > 64 {
            errors.push(FieldError::too_long(path, 64));
        } else if kind.starts_with("version") && !is_version(text) {
            errors.push(FieldError::invalid(path, value, "must be a string compatible with semver.org spec 2.0.0"));
        }
    }
    values.len()
}

fn check_policy(errors: &mut FieldErrors, path: &str, capacity: &Value, shared: bool) {
    let policy = &capacity["requestPolicy"];
    if policy.is_null() {
        return;
    }
    let path = format!("{path}.requestPolicy");
    if !shared {
        errors.push(FieldError::forbidden(&path, "must not be specified without `allowMultipleAllocations`"));
    }
    let most = NanoQuantity::of(&capacity["value"]);
    let default = (!policy["default"].is_null()).then(|| NanoQuantity::of(&policy["default"]));
    let (values, range) = (items(&policy["validValues"]), &policy["validRange"]);
    if default.is_none() && (!values.is_empty() || !range.is_null()) {
        errors.push(FieldError::required(format!("{path}.default"), "required with `validValues` or `validRange`"));
    }
    if !values.is_empty() && !range.is_null() {
        errors.push(FieldError::forbidden(&path, "at most one of `validValues` and `validRange` is allowed"));
    }
    check_valid_values(errors, &format!("{path}.validValues"), values, default, most);
    if !range.is_null() {
        check_valid_range(errors, &format!("{path}.validRange"), range, default, most);
    }
}

fn check_valid_values(
    errors: &mut FieldErrors,
    path: &str,
    values: &[Value],
    default: Option<NanoQuantity>,
    most: NanoQuantity,
) {
    if values.len() > 10 {
        errors.push(FieldError::too_many(path, values.len(), 10));
    }
    let quantities: Vec<NanoQuantity> = values.iter().map(NanoQuantity::of).collect();
    for (at, pair) in quantities.windows(2).enumerate().filter(|(_, pair)| pair[0] >= pair[1]) {
        let why = if pair[0] == pair[1] { "is a duplicate" } else { "values must be sorted in ascending order" };
        errors.push(FieldError::invalid(format!("{path}[{}]", at + 1), &values[at + 1], why));
    }
    for (at, _) in quantities.iter().enumerate().filter(|(_, value)| **value > most) {
        errors.push(FieldError::invalid(format!("{path}[{at}]"), &values[at], "must not exceed the capacity"));
    }
    if default.is_some_and(|default| !values.is_empty() && !quantities.contains(&default)) {
        errors.push(FieldError::invalid(path, &Value::from(values), "the default must be one of the values"));
    }
}

fn check_valid_range(
    errors: &mut FieldErrors,
    path: &str,
    range: &Value,
    default: Option<NanoQuantity>,
    most: NanoQuantity,
) {
    let min = NanoQuantity::of(&range["min"]);
    let of = |field: &str| (!range[field].is_null()).then(|| NanoQuantity::of(&range[field]));
    let mut refuse = |field: &str, why: &str| {
        errors.push(FieldError::invalid(format!("{path}.{field}"), &range[field], why));
    };
    if range["min"].is_null() {
        refuse("min", "a minimum is required");
    }
    if min > most {
        refuse("min", "must not exceed the capacity");
    }
    if default.is_some_and(|default| default < min) {
        refuse("min", "the default is smaller");
    }
    if let Some(max) = of("max") {
        if max > most {
            refuse("max", "must not exceed the capacity");
        }
        if max < min {
            refuse("max", "must not be smaller than the minimum");
        }
        if default.is_some_and(|default| default > max) {
            refuse("max", "the default is larger");
        }
    }
    let Some(step) = of("step") else { return };
    if step.nanos <= 0 {
        return refuse("step", "must be greater than zero");
    }
    let fits = |value: NanoQuantity| (value.nanos - min.nanos) % step.nanos == 0;
    if min.nanos + step.nanos > most.nanos {
        refuse("step", "one step above the minimum must not exceed the capacity");
    }
    if of("max").is_some_and(|max| !fits(max)) {
        refuse("max", "must be a multiple of the step away from the minimum");
    }
    if default.is_some_and(|default| !fits(default)) {
        refuse("step", "the default must be a multiple of the step away from the minimum");
    }
}

fn check_taints(settings: &ServerSettings, errors: &mut FieldErrors, path: &str, device: &Value) {
    let modern = settings.release >= ApiServerRelease::V1_35;
    let effects: &[&str] = if modern { &["NoExecute", "NoSchedule", "None"] } else { &["NoExecute", "NoSchedule"] };
    let most = if modern { 16 } else { 4 };
    let taints = items(&device["taints"]);
    if taints.len() > most {
        errors.push(FieldError::too_many(format!("{path}.taints"), taints.len(), most));
    }
    for (at, taint) in taints.iter().enumerate() {
        let path = format!("{path}.taints[{at}]");
        let (key, value) = (taint["key"].as_str().unwrap_or_default(), taint["value"].as_str().unwrap_or_default());
        if !is_label_key(key) {
            errors.push(FieldError::invalid(format!("{path}.key"), &taint["key"], "must be the key of a label"));
        }
        if !is_label_value(value) {
            errors.push(FieldError::invalid(format!("{path}.value"), &taint["value"], "must be the value of a label"));
        }
        match taint["effect"].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(format!("{path}.effect"), "")),
            effect if !effects.contains(&effect) => {
                errors.push(FieldError::unsupported(format!("{path}.effect"), &taint["effect"], effects));
            }
            _ => {}
        }
    }
}

fn check_conditions(errors: &mut FieldErrors, path: &str, device: &Value) {
    let (wanted, failed) = (items(&device["bindingConditions"]), items(&device["bindingFailureConditions"]));
    for (field, list, other) in [
        ("bindingConditions", wanted, "bindingFailureConditions"),
        ("bindingFailureConditions", failed, "bindingConditions"),
    ] {
        let path = format!("{path}.{field}");
        if list.len() > 4 {
            errors.push(FieldError::too_many(&path, list.len(), 4));
        }
        if list.is_empty() != (wanted.is_empty() && failed.is_empty()) {
            errors.push(FieldError::required(&path, &format!("required with `{other}`")));
        }
        let mut seen = BTreeSet::new();
        for (at, condition) in list.iter().enumerate() {
            let text = condition.as_str().unwrap_or_default();
            if !is_label_key(text) {
                errors.push(FieldError::invalid(format!("{path}[{at}]"), condition, "must be the key of a label"));
            }
            if !seen.insert(text) {
                errors.push(FieldError::duplicate(format!("{path}[{at}]"), condition));
            }
        }
    }
    for (at, condition) in failed.iter().enumerate().filter(|(_, condition)| wanted.contains(condition)) {
        let why = "must not be a binding condition too";
        errors.push(FieldError::invalid(format!("{path}.bindingFailureConditions[{at}]"), condition, why));
    }
}

fn check_consumption(settings: &ServerSettings, errors: &mut FieldErrors, path: &str, device: &Value) {
    let modern = settings.release >= ApiServerRelease::V1_35;
    let consumed = items(&device["consumesCounters"]);
    let path = format!("{path}.consumesCounters");
    if modern && consumed.len() > 2 {
        errors.push(FieldError::too_many(&path, consumed.len(), 2));
    }
    let mut sets = BTreeSet::new();
    for (at, consumption) in consumed.iter().enumerate() {
        check_label(errors, &format!("{path}[{at}].counterSet"), &consumption["counterSet"]);
        if !sets.insert(consumption["counterSet"].as_str().unwrap_or_default()) {
            errors.push(FieldError::duplicate(format!("{path}[{at}].counterSet"), &consumption["counterSet"]));
        }
        let most = modern.then_some(32);
        check_counters(errors, &format!("{path}[{at}].counters"), &consumption["counters"], most);
    }
    let all: usize = consumed.iter().map(|one| members(&one["counters"]).count()).sum();
    if !modern && all > 32 {
        errors.push(FieldError::too_many(&path, all, 32));
    }
}

/// Counters of a set, or of a consumption.
pub(crate) fn check_counters(errors: &mut FieldErrors, path: &str, counters: &Value, most: Option<usize>) {
    let count = members(counters).count();
    if count == 0 {
        errors.push(FieldError::required(path, ""));
    }
    if let Some(most) = most.filter(|most| count > *most) {
        errors.push(FieldError::too_many(path, count, most));
    }
    for (name, _) in members(counters) {
        check_label(errors, &format!("{path}[{name}]"), &Value::from(name.as_str()));
    }
}

fn check_node(errors: &mut FieldErrors, path: &str, device: &Value, selects_nodes: bool) {
    let ways = ["nodeName", "nodeSelector", "allNodes"];
    let given = ways.iter().filter(|way| !device[**way].is_null()).count();
    if selects_nodes && given != 1 {
        let why = "exactly one of `nodeName`, `nodeSelector`, `allNodes` is required with `perDeviceNodeSelection`";
        errors.push(FieldError::required(path, why));
    }
    if !selects_nodes && given > 0 {
        errors.push(FieldError::forbidden(path, "nodes of a device need `perDeviceNodeSelection` in the slice"));
    }
    if device["nodeName"].as_str().is_some_and(|name| !is_subdomain(name)) {
        errors.push(FieldError::invalid(format!("{path}.nodeName"), &device["nodeName"], "must be a DNS subdomain"));
    }
}
