//! Validation of schemas: structural, with lists whose members can be told apart, and with rules that can be compiled.

use regex::bytes::RegexBuilder;
use serde_json::Value;

use super::{
    super::{
        refusal::FieldError,
        slices::{items, members},
    },
    convey, rules, validation,
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

pub(super) fn check(errors: &mut Vec<FieldError>, path: &str, schema: &Value) {
    if schema["type"] != "object" {
        errors.push(FieldError::invalid(format!("{path}.type"), &schema["type"], "must be object at the root"));
    }
    check_node(errors, path, schema);
}

fn check_node(errors: &mut Vec<FieldError>, path: &str, schema: &Value) {
    check_type(errors, path, schema);
    check_list(errors, path, schema);
    let pattern = schema["pattern"].as_str().map(|pattern| RegexBuilder::new(pattern).unicode(false).build());
    if pattern.is_some_and(|regex| regex.is_err()) {
        let why = "must be a valid regular expression";
        errors.push(FieldError::invalid(format!("{path}.pattern"), &schema["pattern"], why));
    }
    if let Some(default) = schema.get("default") {
        let mut pruned = default.clone();
        convey::prune_root(schema, &mut pruned);
        let wrong = validation::check_value(schema, default);
        if pruned != *default || !wrong.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.default"), default, "must be valid by its schema"));
        }
    }
    for (at, rule) in items(&schema["x-kubernetes-validations"]).iter().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{at}].rule");
        if let Err(why) = rules::compile(rule) {
            errors.push(FieldError::invalid(path, &rule["rule"], &format!("compilation failed: {why}")));
        }
    }
    for (name, schema) in members(&schema["properties"]) {
        // Of the metadata, a schema may say little, and has no need to say of what type it is.
        if !(name == "metadata" && path.ends_with("openAPIV3Schema")) {
            check_node(errors, &format!("{path}.properties[{name}]"), schema);
        }
    }
    if schema["additionalProperties"].is_object() {
        check_node(errors, &format!("{path}.additionalProperties"), &schema["additionalProperties"]);
    }
    if !schema["items"].is_null() {
        check_node(errors, &format!("{path}.items"), &schema["items"]);
    }
}

fn check_type(errors: &mut Vec<FieldError>, path: &str, schema: &Value) {
    let is_free =
        ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"].iter().any(|mark| schema[*mark] == true);
    match schema["type"].as_str().unwrap_or_default() {
        "" if is_free => {}
        "" => {
            errors.push(FieldError::required(format!("{path}.type"), "must not be empty for specified object fields"))
        }
        known if TYPES.contains(&known) => {}
        _ => errors.push(FieldError::unsupported(format!("{path}.type"), &schema["type"], &TYPES)),
    }
    if schema["type"] == "array" && schema["items"].is_null() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if schema["properties"].is_object() && schema["additionalProperties"].is_object() {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
    }
    if schema["uniqueItems"] == true {
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), "uniqueItems cannot be set to true"));
    }
}

fn check_list(errors: &mut Vec<FieldError>, path: &str, schema: &Value) {
    let keys = items(&schema["x-kubernetes-list-map-keys"]);
    if schema["x-kubernetes-list-type"] != "map" {
        return;
    }
    if keys.is_empty() {
        let path = format!("{path}.x-kubernetes-list-map-keys");
        errors.push(FieldError::required(path, "must not be empty if x-kubernetes-list-type is map"));
    }
    let item = &schema["items"];
    for key in keys.iter().filter_map(Value::as_str) {
        let is_required = items(&item["required"]).iter().any(|name| name == key);
        if !is_required && item["properties"][key].get("default").is_none() {
            let path = format!("{path}.items.properties[{key}].default");
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(path, why));
        }
    }
}
