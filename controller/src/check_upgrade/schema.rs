//! Schemas of custom resources: the difference of two, and the fields of an object that one does not have. Pure.

use serde_json::{Map, Value};

use crate::deployed::list;

/// Keys of a schema that tell nothing about which objects it takes.
const WORDS: [&str; 2] = ["description", "title"];

/// Keys that are compared one level deeper.
const NESTED: [&str; 4] = ["properties", "items", "additionalProperties", "enum"];

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The difference of two schemas of one kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SchemaDifference {
    /// Fields and values that only the expected schema has.
    pub(super) lacking: Vec<String>,
    /// Fields and values that only the deployed schema has.
    pub(super) unknown: Vec<String>,
    /// Fields with other rules.
    pub(super) differing: Vec<String>,
}

/// Compares the schema that is deployed with the expected one.
pub(super) fn difference(deployed: &Value, expected: &Value) -> SchemaDifference {
    let mut found = SchemaDifference::default();
    found.compare("", deployed, expected);
    found
}

impl SchemaDifference {
    fn compare(&mut self, path: &str, deployed: &Value, expected: &Value) {
        if rules(deployed) != rules(expected) {
            self.differing.push(if path.is_empty() { "the object".to_owned() } else { path.to_owned() });
        }
        for (name, schema) in fields(expected) {
            match deployed["properties"].get(name) {
                Some(there) => self.compare(&below(path, name), there, schema),
                None => self.lacking.push(below(path, name)),
            }
        }
        let is_unknown = |name: &String| expected["properties"].get(name).is_none();
        self.unknown.extend(fields(deployed).filter(|(name, _)| is_unknown(name)).map(|(name, _)| below(path, name)));
        for (key, step) in [("items", "[]"), ("additionalProperties", ".*")] {
            if expected[key].is_object() || deployed[key].is_object() {
                self.compare(&format!("{path}{step}"), &deployed[key], &expected[key]);
            }
        }
        let value = |value: &Value| format!("{path}: {}", value.as_str().unwrap_or_default());
        let only = |of: &Value, other: &Value| -> Vec<String> {
            list(of).filter(|one| !list(other).any(|it| it == *one)).map(value).collect()
        };
        self.lacking.extend(only(&expected["enum"], &deployed["enum"]));
        self.unknown.extend(only(&deployed["enum"], &expected["enum"]));
    }
}

/// Returns the fields and values of an object that a schema does not have: `spec.mode: SharedClaim`.
pub(super) fn unknown_parts(object: &Value, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect("", object, schema, &mut found);
    found
}

fn collect(path: &str, value: &Value, schema: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(parts) => {
            let other = Some(&schema["additionalProperties"]).filter(|it| it.is_object());
            for (name, part) in parts {
                match schema["properties"].get(name).or(other) {
                    Some(schema) => collect(&below(path, name), part, schema, found),
                    // Every object has them, whatever the schema of its kind says.
                    None if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&&**name) => {}
                    None if schema[PRESERVE] == true || is_open(schema) => {}
                    None => found.push(below(path, name)),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                collect(&format!("{path}[]"), item, &schema["items"], found);
            }
        }
        _ if list(&schema["enum"]).next().is_some() && !list(&schema["enum"]).any(|one| one == value) => {
            found.push(format!("{path}: {}", value.as_str().unwrap_or_default()));
        }
        _ => {}
    }
    found.dedup();
}

/// True for metadata: the API server has its own schema for it.
fn is_open(schema: &Value) -> bool {
    schema["type"] == "object" && schema.as_object().is_some_and(|keys| keys.keys().all(|key| key == "type"))
}

/// Returns what a schema says about one level, without its words. API servers leave empty lists out, and may write a
/// whole number as `0.0`.
fn rules(schema: &Value) -> Map<String, Value> {
    let all = schema.as_object().cloned().unwrap_or_default();
    let is_rule = |key: &str| !WORDS.contains(&key) && !NESTED.contains(&key);
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    let number = |value: Value| value.as_f64().map_or(value, Value::from);
    let said = all.into_iter().filter(|(key, value)| is_rule(key) && !is_empty(value));
    said.map(|(key, value)| (key, number(value))).collect()
}

fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(spec: &Value) -> Value {
        json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": spec } } })
    }

    #[test]
    fn fields_and_values_count_and_words_do_not() {
        let old = schema(&json!({
            "mode": { "type": "string", "enum": ["Fence", "Gone"], "description": "Then." },
            "list": { "type": "array", "items": { "type": "object", "properties": { "a": { "type": "string" } } } },
            "was": { "type": "string" },
        }));
        let new = schema(&json!({
            "mode": { "type": "string", "enum": ["Fence", "SharedClaim"], "description": "Now." },
            "list": { "type": "array", "maxItems": 4, "items": { "type": "object", "properties": { "b": { "type": "string" } } } },
        }));
        let expected = SchemaDifference {
            lacking: vec!["spec.list[].b".to_owned(), "spec.mode: SharedClaim".to_owned()],
            unknown: vec!["spec.list[].a".to_owned(), "spec.mode: Gone".to_owned(), "spec.was".to_owned()],
            differing: vec!["spec.list".to_owned()],
        };
        let mut found = difference(&old, &new);
        found.unknown.sort();
        assert_eq!(found, expected);
        assert_eq!(difference(&new, &new), SchemaDifference::default());
    }

    #[test]
    fn what_an_api_server_writes_otherwise_is_no_difference() {
        let ours = json!({ "type": "integer", "required": [], "minimum": 0 });
        let stored = json!({ "type": "integer", "minimum": 0.0 });
        assert_eq!(difference(&stored, &ours), SchemaDifference::default());
    }

    #[test]
    fn parts_of_an_object_are_known_where_the_schema_is_open() {
        let schema = json!({ "type": "object", "properties": {
            "metadata": { "type": "object" },
            "spec": { "type": "object", "properties": {
                "mode": { "type": "string", "enum": ["Fence"] },
                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "devices": { "type": "array", "items": { "type": "object", "properties": { "name": { "type": "string" } } } },
            } },
        } });
        let object = json!({
            "apiVersion": "x/v1", "kind": "X", "metadata": { "name": "a", "labels": { "b": "c" } },
            "spec": {
                "mode": "Later", "free": { "any": { "thing": 1 } }, "labels": { "d": "e" },
                "devices": [{ "name": "a", "new": 1 }, { "new": 2 }], "later": true,
            },
        });
        assert_eq!(unknown_parts(&object, &schema), ["spec.devices[].new", "spec.later", "spec.mode: Later"]);
    }
}
