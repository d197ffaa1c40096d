//! Validation of an object by its schema.

use std::collections::BTreeSet;

use regex::bytes::RegexBuilder;
use serde_json::{Map, Value, json};

use super::{
    super::{fields, refusal::FieldError, slices::items},
    convey,
};

/// Returns the mistakes of an object.
pub(super) fn check(schema: &Value, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let root = object.as_object().cloned().unwrap_or_default();
    // The server itself knows what an object's metadata is.
    let fields = root.into_iter().filter(|(name, _)| name != "metadata").collect::<Map<_, _>>();
    check_at(&mut errors, "", schema, &Value::Object(fields));
    errors
}

/// Returns the mistakes of a part of an object.
pub(super) fn check_value(schema: &Value, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_at(&mut errors, "", schema, value);
    errors
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => {
            value.as_i64().is_some() || value.as_u64().is_some() || value.as_f64().is_some_and(|it| it.fract() == 0.0)
        }
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        _ => true,
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_at(errors: &mut Vec<FieldError>, path: &str, schema: &Value, value: &Value) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let shown = if path.is_empty() { "<nil>" } else { path };
    let is_either = schema["x-kubernetes-int-or-string"] == true;
    let wanted = schema["type"].as_str().unwrap_or_default();
    if is_either && !(value.is_string() || is_of("integer", value)) || !is_of(wanted, value) {
        let wanted = if is_either { "integer,string" } else { wanted };
        let given = name_of(value);
        let why = format!("{shown} in body must be of type {wanted}: {given:?}");
        errors.push(FieldError::wrong_type(shown, &json!(given), &why));
        return;
    }
    check_enum(errors, shown, schema, value);
    match value {
        Value::String(text) => check_text(errors, shown, schema, text),
        Value::Number(_) => check_number(errors, shown, schema, value),
        Value::Array(list) => check_list(errors, path, schema, list),
        Value::Object(object) => check_object(errors, path, schema, object),
        Value::Null | Value::Bool(_) => {}
    }
    check_junctors(errors, shown, schema, value);
}

fn check_enum(errors: &mut Vec<FieldError>, path: &str, schema: &Value, value: &Value) {
    let allowed = items(&schema["enum"]);
    if !allowed.is_empty() && !allowed.contains(value) {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        errors.push(FieldError::unsupported(path, value, &allowed));
    }
}

fn check_text(errors: &mut Vec<FieldError>, path: &str, schema: &Value, text: &str) {
    let value = json!(text);
    let length = u64::try_from(text.chars().count()).expect("a length");
    if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        errors.push(FieldError::too_long(
            path,
            usize::try_from(schema["maxLength"].as_u64().unwrap_or_default()).expect("a length"),
        ));
    }
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        let why = format!("{path} in body should be at least {} chars long", schema["minLength"]);
        errors.push(FieldError::invalid(path, &value, &why));
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let regex = RegexBuilder::new(pattern).unicode(false).build();
        if !regex.is_ok_and(|regex| regex.is_match(text.as_bytes())) {
            errors.push(FieldError::invalid(path, &value, &format!("{path} in body should match '{pattern}'")));
        }
    }
    let format = schema["format"].as_str().unwrap_or_default();
    let is_time = || text.parse::<k8s_openapi::jiff::Timestamp>().is_ok();
    if format == "date-time" && !is_time() {
        errors.push(FieldError::invalid(path, &value, &format!("{path} in body must be of type date-time: {value}")));
    }
}

fn check_number(errors: &mut Vec<FieldError>, path: &str, schema: &Value, value: &Value) {
    let number = value.as_f64().unwrap_or_default();
    let limit = |name: &str| schema[name].as_f64();
    let mut refuse = |words: &str, limit: &Value| {
        errors.push(FieldError::invalid(path, value, &format!("{path} in body should be {words} {limit}")));
    };
    if limit("minimum").is_some_and(|least| number < least || (number <= least && schema["exclusiveMinimum"] == true)) {
        refuse("greater than or equal to", &schema["minimum"]);
    }
    if limit("maximum").is_some_and(|most| number > most || (number >= most && schema["exclusiveMaximum"] == true)) {
        refuse("less than or equal to", &schema["maximum"]);
    }
    if limit("multipleOf").is_some_and(|step| (number / step).fract() != 0.0) {
        refuse("a multiple of", &schema["multipleOf"]);
    }
    let fits = match schema["format"].as_str().unwrap_or_default() {
        "int32" => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        "int64" => value.as_i64().is_some(),
        _ => true,
    };
    if !fits {
        let why = format!("{path} in body must be of type {}: {value}", schema["format"].as_str().unwrap_or_default());
        errors.push(FieldError::invalid(path, value, &why));
    }
}

fn check_list(errors: &mut Vec<FieldError>, path: &str, schema: &Value, list: &[Value]) {
    if let Some(most) =
        schema["maxItems"].as_u64().and_then(|most| usize::try_from(most).ok()).filter(|most| list.len() > *most)
    {
        errors.push(FieldError::too_many(path, list.len(), most));
    }
    if schema["minItems"].as_u64().and_then(|least| usize::try_from(least).ok()).is_some_and(|least| list.len() < least)
    {
        let why = format!("{path} in body should have at least {} items", schema["minItems"]);
        errors.push(FieldError::invalid(path, &json!(list.len()), &why));
    }
    let keys: Vec<&str> = items(&schema["x-kubernetes-list-map-keys"]).iter().filter_map(Value::as_str).collect();
    let mut seen = BTreeSet::new();
    for (at, item) in list.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let identity = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Some(item.clone()),
            Some("map") => Some(fields::key_values(&keys, &schema["items"], item)),
            _ => None,
        };
        if let Some(identity) = identity.filter(|identity| !seen.insert(identity.to_string())) {
            errors.push(FieldError::duplicate(&path, &identity));
        }
        check_at(errors, &path, &schema["items"], item);
    }
}

fn check_object(errors: &mut Vec<FieldError>, path: &str, schema: &Value, object: &Map<String, Value>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in items(&schema["required"]).iter().filter_map(Value::as_str) {
        if !object.contains_key(name) {
            errors.push(FieldError::required(below(name), ""));
        }
    }
    if let Some(most) =
        schema["maxProperties"].as_u64().and_then(|most| usize::try_from(most).ok()).filter(|most| object.len() > *most)
    {
        errors.push(FieldError::too_many(path, object.len(), most));
    }
    if schema["minProperties"]
        .as_u64()
        .and_then(|least| usize::try_from(least).ok())
        .is_some_and(|least| object.len() < least)
    {
        let why = format!("{path} in body should have at least {} properties", schema["minProperties"]);
        errors.push(FieldError::invalid(path, &Value::Object(object.clone()), &why));
    }
    for (name, value) in object {
        if let Some(schema) = convey::member(schema, name) {
            check_at(errors, &below(name), schema, value);
        }
    }
}

fn check_junctors(errors: &mut Vec<FieldError>, path: &str, schema: &Value, value: &Value) {
    let fits = |schema: &Value| check_value(schema, value).is_empty();
    let count = |name: &str| items(&schema[name]).iter().filter(|schema| fits(schema)).count();
    let has = |name: &str| !items(&schema[name]).is_empty();
    let mut refuse = |why: String| errors.push(FieldError::invalid(path, value, &why));
    // An integer or a string is written so beside the mark that says the same.
    if has("anyOf") && schema["x-kubernetes-int-or-string"] != true && count("anyOf") == 0 {
        refuse(format!("{path} in body must validate at least one schema (anyOf)"));
    }
    if has("oneOf") && count("oneOf") != 1 {
        refuse(format!("{path} in body must validate one and only one schema (oneOf)"));
    }
    if has("allOf") && schema["x-kubernetes-int-or-string"] != true && count("allOf") != items(&schema["allOf"]).len() {
        refuse(format!("{path} in body must validate all the schemas (allOf)"));
    }
    if schema["not"].is_object() && fits(&schema["not"]) {
        refuse(format!("{path} in body must not validate the schema (not)"));
    }
}
