//! Server-side apply: what somebody wants is merged into what is there, and he owns it; what he wants no longer goes.

use serde_json::Value;

use super::{
    fields::{self, FieldManager, FieldPath, FieldSet, PathElement, leaves, set_managers},
    refusal::StatusError,
    schema,
    verbs::ApiRequest,
};

pub(crate) fn check_parameters(call: &ApiRequest) -> Result<(), StatusError> {
    if call.parameter("fieldManager").is_empty() {
        let why = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
        return Err(StatusError::bad_options(why));
    }
    Ok(())
}

/// What the object becomes, with its owners.
pub(crate) fn apply(call: &ApiRequest, old: &Value, config: &Value) -> Result<Value, StatusError> {
    check_parameters(call)?;
    if config["metadata"]["managedFields"].is_array() {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    let config = concerned(call, config);
    let (live, wanted) = (leaves(old), leaves(&config));
    let mut managers = fields::managers(old);
    let me = FieldManager::of(call, "Apply");
    let differs = |path: &FieldPath| live.get(path).is_some_and(|value| Some(value) != wanted.get(path));
    let contested: Vec<(String, FieldPath)> = managers
        .iter()
        .filter(|manager| !manager.is(&me))
        .flat_map(|manager| manager.fields.iter().map(|path| (manager.name.clone(), path.clone())))
        .filter(|(_, path)| wanted.contains_key(path) && differs(path))
        .collect();
    let place = if call.target.is_status() { " with subresource \"status\"" } else { "" };
    if !contested.is_empty() && call.parameter("force") != "true" {
        let named: Vec<_> = contested.iter().map(|(owner, path)| (format!("{owner:?}{place}"), shown(path))).collect();
        return Err(StatusError::apply_conflict(&named));
    }
    let mut new = old.clone();
    merge(&mut Vec::new(), &mut new, &config);
    let mine = managers.iter().position(|manager| manager.is(&me));
    let before = mine.map(|at| managers[at].fields.clone()).unwrap_or_default();
    let others: FieldSet =
        managers.iter().filter(|manager| !manager.is(&me)).flat_map(|manager| manager.fields.clone()).collect();
    // A member goes with what is in it, or stays and keeps its keys.
    for path in before.iter().filter(|path| !wanted.contains_key(*path) && !is_key(path)) {
        if !others.iter().any(|other| other.starts_with(path)) {
            remove(&mut new, path);
        }
    }
    for manager in &mut managers {
        manager.fields.retain(|path| !contested.iter().any(|(owner, lost)| *owner == manager.name && lost == path));
    }
    let fields: FieldSet = wanted.into_keys().collect();
    match mine {
        Some(at) if managers[at].fields == fields => {}
        Some(at) => managers[at] = FieldManager { fields, ..me },
        None => managers.push(FieldManager { fields, ..me }),
    }
    set_managers(&mut new, &managers);
    schema::tidy(&mut new);
    Ok(new)
}

/// Whether a field is one of those that tell a member from the others.
fn is_key(path: &[PathElement]) -> bool {
    let [list @ .., PathElement::Member(_), PathElement::Field(name)] = path else { return false };
    fields::keys(list).is_some_and(|keys| keys.contains(&name.as_str()))
}

/// What of a configuration the path is about: the status, or everything else.
fn concerned(call: &ApiRequest, config: &Value) -> Value {
    let mut config = config.clone();
    let is_status = call.target.is_status();
    let has_status = call.target.resource.has_status;
    if let Some(object) = config.as_object_mut() {
        object.retain(|name, _| if is_status { name == "status" } else { !(has_status && name == "status") });
    }
    config
}

/// `.status.devices[driver="…",…].conditions`
fn shown(path: &[PathElement]) -> String {
    path.iter()
        .map(|step| match step {
            PathElement::Field(name) => format!(".{name}"),
            PathElement::Member(keys) => {
                let keys: serde_json::Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("[{}]", keys.join(","))
            }
        })
        .collect()
}

fn merge(path: &mut FieldPath, live: &mut Value, config: &Value) {
    match (&mut *live, config, fields::keys(path)) {
        (Value::Object(live), Value::Object(config), _) => {
            for (name, value) in config {
                path.push(PathElement::Field(name.clone()));
                if leaves_are_inside(path) {
                    merge(path, live.entry(name).or_insert(Value::Null), value);
                } else {
                    live.insert(name.clone(), value.clone());
                }
                path.pop();
            }
        }
        (Value::Array(live), Value::Array(config), Some(keys)) => {
            for item in config {
                let step = fields::member(keys, item);
                match live.iter_mut().find(|one| fields::member(keys, one) == step) {
                    Some(one) => {
                        path.push(step);
                        merge(path, one, item);
                        path.pop();
                    }
                    None => live.push(item.clone()),
                }
            }
        }
        _ => *live = config.clone(),
    }
}

fn leaves_are_inside(path: &[PathElement]) -> bool {
    !matches!(path.last(), Some(PathElement::Field(name)) if fields::is_atomic(name))
}

fn remove(value: &mut Value, path: &[PathElement]) {
    match path {
        [] => {}
        [PathElement::Field(name)] => {
            if let Some(object) = value.as_object_mut() {
                object.remove(name);
            }
        }
        [PathElement::Field(name), rest @ ..] => {
            let Some(inner) = value.get_mut(name) else { return };
            if let [PathElement::Member(keys), rest @ ..] = rest {
                remove_member(inner, keys, rest);
            } else {
                remove(inner, rest);
            }
        }
        [PathElement::Member(_), ..] => {}
    }
}

fn remove_member(list: &mut Value, keys: &str, rest: &[PathElement]) {
    let keys: serde_json::Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
    let is = |item: &Value| keys.iter().all(|(key, value)| item[key] == *value);
    let Some(list) = list.as_array_mut() else { return };
    if rest.is_empty() {
        list.retain(|item| !is(item));
    } else if let Some(item) = list.iter_mut().find(|item| is(item)) {
        remove(item, rest);
    }
}
