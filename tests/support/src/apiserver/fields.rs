//! Who owns which field: `metadata.managedFields`.
//!
//! Lists are one field each, but for those whose members have keys: there, members are owned one by one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{schema::now, verbs::ApiRequest};

/// A step into an object.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum PathElement {
    Field(String),
    /// The member of a list with these keys, as JSON.
    Member(String),
}

/// Where a field is.
pub(crate) type FieldPath = Vec<PathElement>;
/// What somebody owns.
pub(crate) type FieldSet = BTreeSet<FieldPath>;

/// Of the metadata, what nobody owns.
const NOBODYS: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];
/// Structures that are one field.
const ATOMIC: [&str; 3] = ["data", "nodeSelector", "parameters"];

/// Whether a structure of this name is one field.
pub(crate) fn is_atomic(name: &str) -> bool {
    ATOMIC.contains(&name)
}

/// The keys of the members of a list, if they have any.
pub(crate) fn keys(path: &[PathElement]) -> Option<&'static [&'static str]> {
    let names: Vec<&str> = path
        .iter()
        .filter_map(|step| match step {
            PathElement::Field(name) => Some(name.as_str()),
            PathElement::Member(_) => None,
        })
        .collect();
    match names.as_slice() {
        ["status", "devices"] => Some(&["driver", "device", "pool", "shareID"]),
        [.., "conditions"] => Some(&["type"]),
        ["metadata", "ownerReferences"] | ["status", "reservedFor"] => Some(&["uid"]),
        _ => None,
    }
}

/// The keys of a member of a list of a defined kind, with the defaults of those that it lacks.
pub(crate) fn key_values(keys: &[&str], schema: &Value, item: &Value) -> Value {
    let value = |key: &str| item.get(key).or_else(|| schema["properties"][key].get("default")).cloned();
    keys.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect::<Map<_, _>>().into()
}

/// The step to a member with its keys.
pub(crate) fn member(keys: &[&str], item: &Value) -> PathElement {
    let named = keys.iter().filter(|key| !item[**key].is_null()).map(|key| ((*key).to_owned(), item[*key].clone()));
    PathElement::Member(Value::Object(named.collect::<Map<_, _>>()).to_string())
}

/// All fields of an object, with their values. A member of a list is a field besides those in it.
pub(crate) fn leaves(object: &Value) -> BTreeMap<FieldPath, Value> {
    let mut found = BTreeMap::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if name != "apiVersion" && name != "kind" {
            collect(&mut vec![PathElement::Field(name.clone())], value, &mut found);
        }
    }
    found.retain(|path, _| match path.as_slice() {
        [PathElement::Field(top), PathElement::Field(name)] if top == "metadata" => !NOBODYS.contains(&name.as_str()),
        [PathElement::Field(top), PathElement::Field(name), ..] if top == "metadata" => name != "managedFields",
        [PathElement::Field(top)] => top != "metadata" && top != "status",
        _ => true,
    });
    found
}

fn collect(path: &mut FieldPath, value: &Value, found: &mut BTreeMap<FieldPath, Value>) {
    let atomic = matches!(path.last(), Some(PathElement::Field(name)) if is_atomic(name));
    match (value, keys(path)) {
        (Value::Object(object), _) if !object.is_empty() && !atomic => {
            for (name, value) in object {
                path.push(PathElement::Field(name.clone()));
                collect(path, value, found);
                path.pop();
            }
        }
        (Value::Array(list), Some(keys)) => {
            for item in list {
                path.push(member(keys, item));
                found.insert(path.clone(), Value::Null);
                collect(path, item, found);
                path.pop();
            }
        }
        _ => {
            found.insert(path.clone(), value.clone());
        }
    }
}

/// One who owns fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FieldManager {
    pub name: String,
    /// `Apply` or `Update`.
    pub operation: String,
    pub subresource: String,
    pub version: String,
    pub time: String,
    pub fields: FieldSet,
}

impl FieldManager {
    pub(crate) fn of(call: &ApiRequest, operation: &str) -> Self {
        Self {
            name: call.manager(),
            operation: operation.to_owned(),
            subresource: call.target.subresource.clone().unwrap_or_default(),
            version: call.target.api.api_version(),
            time: now(),
            fields: FieldSet::new(),
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        (&self.name, &self.operation, &self.subresource) == (&other.name, &other.operation, &other.subresource)
    }

    fn parse(entry: &Value) -> Self {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let mut fields = FieldSet::new();
        parse_fields(&mut Vec::new(), &entry["fieldsV1"], &mut fields);
        Self {
            name: text("manager"),
            operation: text("operation"),
            subresource: text("subresource"),
            version: text("apiVersion"),
            time: text("time"),
            fields,
        }
    }

    fn entry(&self) -> Value {
        let mut tree = json!({});
        for path in &self.fields {
            let mut at = &mut tree;
            for step in path {
                at = match step {
                    PathElement::Field(name) => &mut at[format!("f:{name}")],
                    PathElement::Member(keys) => &mut at[format!("k:{keys}")],
                };
                if at.is_null() {
                    *at = json!({});
                }
            }
            if matches!(path.last(), Some(PathElement::Member(_))) {
                at["."] = json!({});
            }
        }
        let mut entry = json!({
            "manager": self.name, "operation": self.operation, "apiVersion": self.version, "time": self.time,
            "fieldsType": "FieldsV1", "fieldsV1": tree,
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }
}

fn parse_fields(path: &mut FieldPath, tree: &Value, fields: &mut FieldSet) {
    let inner = tree.as_object().into_iter().flatten();
    let mut inner = inner.peekable();
    if inner.peek().is_none() && !path.is_empty() {
        fields.insert(path.clone());
    }
    for (name, tree) in inner {
        let step = match name.split_once(':') {
            Some(("f", name)) => PathElement::Field(name.to_owned()),
            Some(("k", keys)) => PathElement::Member(keys.to_owned()),
            _ => {
                fields.insert(path.clone());
                continue;
            }
        };
        path.push(step);
        parse_fields(path, tree, fields);
        path.pop();
    }
}

pub(crate) fn managers(object: &Value) -> Vec<FieldManager> {
    object["metadata"]["managedFields"].as_array().into_iter().flatten().map(FieldManager::parse).collect()
}

pub(crate) fn set_managers(object: &mut Value, managers: &[FieldManager]) {
    let owning = managers.iter().filter(|manager| !manager.fields.is_empty());
    let entries: Vec<Value> = owning.map(FieldManager::entry).collect();
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

/// Notes that the writer owns what he changed, and nobody what is gone.
pub(crate) fn written(call: &ApiRequest, old: Option<&Value>, object: &mut Value) {
    let (before, after) = (old.map(leaves).unwrap_or_default(), leaves(object));
    let changed: FieldSet =
        after.iter().filter(|(path, value)| before.get(*path) != Some(value)).map(|(path, _)| path.clone()).collect();
    let gone = before.keys().any(|path| !after.contains_key(path));
    let mut managers = old.map(managers).unwrap_or_default();
    if !changed.is_empty() || gone {
        for manager in &mut managers {
            manager.fields.retain(|path| after.contains_key(path) && !changed.contains(path));
        }
    }
    if !changed.is_empty() {
        let operation = if call.content_type.starts_with("application/apply-patch") { "Apply" } else { "Update" };
        let new = FieldManager::of(call, operation);
        match managers.iter_mut().find(|manager| manager.is(&new)) {
            Some(manager) => {
                manager.time.clone_from(&new.time);
                manager.fields.extend(changed);
            }
            None => managers.push(FieldManager { fields: changed, ..new }),
        }
    }
    set_managers(object, &managers);
}
