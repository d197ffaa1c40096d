//! Pruning and defaulting of an object before validation.

use serde_json::{Map, Value};

/// Fields that every object has, in any schema.
const ALWAYS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes fields that the schema does not know.
pub(super) fn prune_root(schema: &Value, object: &mut Value) {
    let mut unknown = Vec::new();
    visit_root(schema, object, &mut unknown);
}

/// The paths of what [`prune_root`] would take out.
pub(super) fn unknown_fields(schema: &Value, object: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    visit_root(schema, &mut object.clone(), &mut unknown);
    unknown
}

fn visit_root(schema: &Value, object: &mut Value, unknown: &mut Vec<String>) {
    let Some(members) = object.as_object_mut() else { return };
    let own: Map<String, Value> =
        ALWAYS.iter().filter_map(|name| Some(((*name).to_owned(), members.remove(*name)?))).collect();
    prune(schema, object, "", unknown);
    object.as_object_mut().expect("it was one").extend(own);
}

fn prune(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
            members.retain(|name, value| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let Some(schema) = member(schema, name) else {
                    if !keeps {
                        unknown.push(path);
                    }
                    return keeps;
                };
                prune(schema, value, &path, unknown);
                true
            });
        }
        Value::Array(list) => {
            for (at, item) in list.iter_mut().enumerate() {
                prune(&schema["items"], item, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

/// The schema of a member of an object; `None`: not known.
pub(super) fn member<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    static ANYTHING: Value = Value::Null;
    let embedded = schema["x-kubernetes-embedded-resource"] == true && ALWAYS.contains(&name);
    let additional = match &schema["additionalProperties"] {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(&ANYTHING),
        schema => Some(schema),
    };
    schema["properties"].get(name).or(additional).or_else(|| embedded.then_some(&ANYTHING))
}

/// Fills in the defaults. Null stands for nothing where it is not allowed.
pub(super) fn fill_in(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                let is_missing = match members.get(name) {
                    None => true,
                    Some(Value::Null) => schema["nullable"] != true,
                    Some(_) => false,
                };
                if let Some(default) = schema.get("default").filter(|_| is_missing) {
                    members.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in members.iter_mut() {
                if let Some(schema) = member(schema, name) {
                    fill_in(schema, value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|item| fill_in(&schema["items"], item)),
        _ => {}
    }
}
