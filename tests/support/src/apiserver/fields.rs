//! Ownership of fields: `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    fieldpath::{self, FieldSet, PathElement, is_below, path},
    resources::{ObjectKind, RequestTarget},
    schema::now,
    shape::Shape,
    strategy::keeps_metadata_from_status,
    structured,
    verbs::ApiRequest,
};

/// Fields without an owner: these fields themselves, not their content.
const NOBODYS: [&[&str]; 11] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "creationTimestamp"],
    &["metadata", "deletionGracePeriodSeconds"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "generation"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "uid"],
];

/// Returns true if a field can be owned by a writer of this place: other fields are set back.
pub(crate) fn can_own(target: &RequestTarget, field: &[PathElement]) -> bool {
    use ObjectKind::Pod;
    if NOBODYS.iter().any(|names| field == path(names)) {
        return false;
    }
    let kind = target.resource.kind;
    if !target.is_status() {
        return !(target.resource.has_status && is_below(field, &["status"]));
    }
    let has_own_metadata = keeps_metadata_from_status(kind) && is_below(field, &["metadata"]);
    let is_pods = kind == Pod && is_below(field, &["metadata", "ownerReferences"]);
    !(has_own_metadata || is_pods || is_below(field, &["spec"]))
}

/// The keys of a member of a list of a defined kind, with the defaults of those that it lacks.
pub(crate) fn key_values(keys: &[&str], schema: &Value, item: &Value) -> Value {
    let value = |key: &str| item.get(key).or_else(|| schema["properties"][key].get("default")).cloned();
    keys.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect::<Map<_, _>>().into()
}

/// A manager, which owns fields.
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

    /// Returns true if this is the same manager. For updates, each version has a manager of its own.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let identity = |one: &Self| {
            let version = if one.operation == "Apply" { String::new() } else { one.version.clone() };
            (one.name.clone(), one.operation.clone(), one.subresource.clone(), version)
        };
        identity(self) == identity(other)
    }

    /// Returns the manager as a conflict names it.
    pub(crate) fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == "Update" {
            shown.push_str(&format!(" using {}", self.version));
        }
        shown
    }

    fn parse(entry: &Value) -> Self {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        Self {
            name: text("manager"),
            operation: text("operation"),
            subresource: text("subresource"),
            version: text("apiVersion"),
            time: text("time"),
            fields: fieldpath::parse(&entry["fieldsV1"]),
        }
    }

    fn entry(&self) -> Value {
        let mut entry = json!({
            "manager": self.name, "operation": self.operation, "apiVersion": self.version, "time": self.time,
            "fieldsType": "FieldsV1", "fieldsV1": fieldpath::tree(&self.fields),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }
}

pub(crate) fn managers(object: &Value) -> Vec<FieldManager> {
    object["metadata"]["managedFields"].as_array().into_iter().flatten().map(FieldManager::parse).collect()
}

/// Sets the managers: those of applies come first, then earlier ones.
pub(crate) fn set_managers(object: &mut Value, mut managers: Vec<FieldManager>) {
    managers.retain(|manager| !manager.fields.is_empty());
    managers.sort_by(|one, two| {
        let order =
            |one: &FieldManager| (one.operation.clone(), one.time.clone(), one.name.clone(), one.version.clone());
        order(one).cmp(&order(two))
    });
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if managers.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), managers.iter().map(FieldManager::entry).collect());
    }
}

/// Returns the owned fields of an object: paths by manager, operation and subresource.
pub fn fields_of(object: &Value) -> BTreeMap<String, Vec<String>> {
    let owner = |manager: &FieldManager| {
        let sub = if manager.subresource.is_empty() { String::new() } else { format!(" {}", manager.subresource) };
        format!("{} {}{sub}", manager.name, manager.operation)
    };
    let fields = |manager: &FieldManager| manager.fields.iter().map(|field| fieldpath::shown(field)).collect();
    managers(object).iter().map(|manager| (owner(manager), fields(manager))).collect()
}

/// The object without what says who owns it.
pub(crate) fn unowned(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Returns the object that a new one is compared with: its types have structures that are always there.
fn nothing(target: &RequestTarget) -> Value {
    match target.resource.kind {
        ObjectKind::Custom(_) => json!({ "metadata": {} }),
        ObjectKind::ResourceClaim => json!({ "metadata": {}, "spec": { "devices": {} }, "status": {} }),
        ObjectKind::ResourceClaimTemplate => {
            json!({ "metadata": {}, "spec": { "metadata": {}, "spec": { "devices": {} } } })
        }
        ObjectKind::ResourceSlice => json!({ "metadata": {}, "spec": { "pool": {} } }),
        _ => json!({ "metadata": {}, "spec": {}, "status": {} }),
    }
}

/// True if an object has other times of its owners' writes, and nothing else: that is no change of it.
pub(crate) fn differ_in_times_only(old: &Value, new: &Value) -> bool {
    let without_times = |object: &Value| {
        let mut managers = object["metadata"]["managedFields"].clone();
        for manager in managers.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            manager.remove("time");
        }
        managers
    };
    unowned(old) == unowned(new) && without_times(old) == without_times(new)
}

/// Makes the writer the owner of changed fields; removed fields have no owner.
pub(crate) fn written(call: &ApiRequest, old: Option<&Value>, object: &mut Value) {
    let before = old.map_or_else(|| nothing(&call.target), unowned);
    let shape = Shape::of(call.target.resource);
    let mut comparison = structured::compare(&shape, &before, &unowned(object));
    comparison.retain(|field| can_own(&call.target, field));
    let mine = comparison.written();
    let mut managers = old.map(managers).unwrap_or_default();
    for manager in &mut managers {
        manager.fields.retain(|field| !mine.contains(field) && !comparison.removed.contains(field));
    }
    if !mine.is_empty() {
        let new = FieldManager::of(call, "Update");
        match managers.iter_mut().find(|manager| manager.is(&new)) {
            Some(manager) => {
                manager.time.clone_from(&new.time);
                manager.fields.extend(mine);
            }
            None => managers.push(FieldManager { fields: mine, ..new }),
        }
    }
    set_managers(object, managers);
}
