//! From types to a structural schema, as CRDs have it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    kinds::limits,
    source::{Field, RustType, Shape, Types},
};

/// Schemas of types, and which limits they had.
pub(crate) struct Schemas<'a> {
    types: &'a Types,
    used: BTreeSet<&'static str>,
}

impl<'a> Schemas<'a> {
    pub(crate) fn new(types: &'a Types) -> Self {
        Self { types, used: BTreeSet::new() }
    }

    /// Limits that no type had.
    pub(crate) fn unused(&self) -> Vec<String> {
        let unused = limits().into_iter().filter(|(name, _)| !self.used.contains(name));
        unused.map(|(name, _)| name.to_owned()).collect()
    }

    /// The schema of an object. What only the server says of it (`status`) is not there when it is made.
    pub(crate) fn of_kind(&mut self, kind: &str) -> Value {
        let mut schema = self.of_type(kind);
        schema["properties"]["metadata"] = json!({"type": "object"});
        let required = schema["required"].as_array().unwrap().iter().filter(|it| *it == "spec").cloned().collect();
        schema["required"] = Value::Array(required);
        schema
    }

    fn of_type(&mut self, name: &str) -> Value {
        let mut schema = match (name, self.types.get(name)) {
            ("String", _) => json!({"type": "string"}),
            ("u32", _) => json!({"type": "integer", "format": "int64", "minimum": 0}),
            ("Quantity", _) => json!({"type": "string", "maxLength": 32, "pattern": "^[0-9]+(m|[KMGTPE]i)?$"}),
            ("i64", _) => json!({"type": "integer", "format": "int64", "minimum": 0}),
            ("bool", _) => json!({"type": "boolean"}),
            ("ExactQuantity", _) => json!({"type": "string", "maxLength": 32, "minLength": 1}),
            ("SliceQuantity", _) => json!({"type": "string", "maxLength": 32, "minLength": 1}),
            ("DeviceIdentity", _) => {
                json!({"type": "string", "maxLength": 28, "pattern": "^[0-9A-F]{2}(-[0-9A-F]{2}){7}:[0-9A-F]{4}$"})
            }
            ("SystemUuid", _) => {
                json!({"type": "string", "maxLength": 36, "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"})
            }
            ("DeviceAllocationMode", _) => json!({"type": "string", "enum": ["ExactCount", "All"]}),
            ("ObjectMeta" | "ClassicMeta", _) => json!({"type": "object"}),
            // What it is, other types say, and more than this version knows.
            ("Value", _) => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            (_, Some(RustType::Enum(values))) => json!({"type": "string", "enum": values}),
            (_, Some(RustType::Alias(written))) => self.of_type(written),
            (_, Some(RustType::Struct(fields))) => self.of_fields(name, fields),
            (_, None) => panic!("{name} is not known"),
        };
        self.limit(name, &mut schema);
        schema
    }

    fn of_fields(&mut self, owner: &str, fields: &[Field]) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        let mut rules = Vec::new();
        for field in fields {
            let mut schema = self.of_shape(&field.shape);
            if field.is_flattened {
                properties.append(schema["properties"].as_object_mut().unwrap());
                required.append(schema["required"].as_array_mut().unwrap());
                rules.extend(schema["x-kubernetes-validations"].as_array().into_iter().flatten().cloned());
                continue;
            }
            schema["description"] = Value::String(plain(&field.docs));
            self.limit(&format!("{owner}.{}", field.name), &mut schema);
            required.extend(field.is_required.then(|| Value::String(field.name.clone())));
            properties.insert(field.name.clone(), schema);
        }
        let mut schema = json!({"type": "object", "properties": properties, "required": required});
        if !rules.is_empty() {
            schema["x-kubernetes-validations"] = Value::Array(rules);
        }
        schema
    }

    fn of_shape(&mut self, shape: &Shape) -> Value {
        match shape {
            Shape::Named(name) => self.of_type(name),
            // One writer, and thousands of objects: who owns which field of an item is not worth its bytes.
            Shape::List(item) => {
                json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": self.of_shape(item)})
            }
            Shape::Map(value) => json!({"type": "object", "additionalProperties": self.of_shape(value)}),
        }
    }

    fn limit(&mut self, name: &str, schema: &mut Value) {
        for (limited, limits) in limits().into_iter().filter(|(limited, _)| *limited == name) {
            self.used.insert(limited);
            let Value::Object(limits) = limits else { panic!("{limited} has limits that are no object") };
            schema.as_object_mut().unwrap().extend(limits);
        }
    }
}

/// Without the links that only Rust follows.
fn plain(docs: &str) -> String {
    let mut text = String::new();
    let mut rest = docs;
    while let Some((before, link)) = rest.split_once("[`") {
        let (name, after) = link.split_once("`]").unwrap();
        text.push_str(before);
        text.push_str(name);
        rest = after.strip_prefix('(').map_or(after, |target| target.split_once(')').unwrap().1);
    }
    text + rest
}

/// A value that has every field of a schema, and is nowhere what is left out when written.
pub(crate) fn example(name: &str, schema: &Value) -> Value {
    match schema["type"].as_str().unwrap() {
        "object" if schema["additionalProperties"].is_object() => {
            json!({"any": example("any", &schema["additionalProperties"])})
        }
        "object" => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            properties.map(|(name, property)| (name.clone(), example(name, property))).collect()
        }
        "array" => json!([example(name, &schema["items"])]),
        // Different ones, since some are left out where they are the same.
        "integer" => json!(name.len()),
        "boolean" => json!(true),
        _ if name == "device" && schema["pattern"].is_string() => json!("4C-1D-96-FF-FE-DD-D8-35:0001"),
        _ if name == "systemUUID" || (name == "host" && schema["pattern"].is_string()) => {
            json!("918eda4d-2b69-432f-b0d3-dc2a8d80a351")
        }
        _ => schema.get("enum").map_or_else(|| json!(name.len().to_string()), |values| values[0].clone()),
    }
}
