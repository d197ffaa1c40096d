//! Patches without ownership: merge patches, and lists of operations.

use serde_json::{Map, Value};

use super::refusal::StatusError;

/// RFC 7386. Strategic merge patches of what has no lists to merge are the same.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else { return };
    for (field, value) in patch {
        if value.is_null() {
            object.remove(field);
        } else {
            merge(object.entry(field).or_insert(Value::Null), value);
        }
    }
}

/// RFC 6902.
pub(crate) fn operations(target: &mut Value, patch: &Value) -> Result<(), StatusError> {
    let operations =
        patch.as_array().ok_or_else(|| StatusError::bad_request("a JSON patch is a list of operations"))?;
    operations.iter().try_for_each(|operation| {
        apply(target, operation).map_err(|why| StatusError::invalid_patch(&format!("{why}: {operation}")))
    })
}

fn apply(target: &mut Value, operation: &Value) -> Result<(), &'static str> {
    let text = |field: &str| operation[field].as_str();
    let path = text("path").ok_or("an operation needs a path")?;
    let value = operation.get("value").cloned();
    match text("op") {
        Some("add") => add(target, path, value.ok_or("add needs a value")?),
        Some("remove") => remove(target, path).map(drop),
        Some("replace") => {
            *target.pointer_mut(path).ok_or("replace operation does not apply: the path is missing")? =
                value.ok_or("replace needs a value")?;
            Ok(())
        }
        Some("test") if target.pointer(path) == value.as_ref() => Ok(()),
        Some("test") => Err("testing value failed"),
        Some("copy") => {
            let from = text("from").and_then(|from| target.pointer(from)).cloned().ok_or("copy from nowhere")?;
            add(target, path, from)
        }
        Some("move") => {
            let from = remove(target, text("from").ok_or("move needs a from")?)?;
            add(target, path, from)
        }
        _ => Err("unknown operation"),
    }
}

/// The parent of a path, and the last part of it.
fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), &'static str> {
    let (parent, last) = path.rsplit_once('/').ok_or("a path begins with /")?;
    let parent = target.pointer_mut(parent).ok_or("the parent of the path is missing")?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), &'static str> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    match parent(target, path)? {
        (Value::Object(object), last) => {
            object.insert(last, value);
            Ok(())
        }
        (Value::Array(list), last) => {
            let at = if last == "-" { list.len() } else { last.parse().map_err(|_| "no index")? };
            if at > list.len() {
                return Err("the index is behind the end");
            }
            list.insert(at, value);
            Ok(())
        }
        _ => Err("the parent of the path has no members"),
    }
}

fn remove(target: &mut Value, path: &str) -> Result<Value, &'static str> {
    match parent(target, path)? {
        (Value::Object(object), last) => object.remove(&last).ok_or("remove operation does not apply: no such member"),
        (Value::Array(list), last) => {
            let at: usize = last.parse().map_err(|_| "no index")?;
            if at < list.len() { Ok(list.remove(at)) } else { Err("no such index") }
        }
        _ => Err("the parent of the path has no members"),
    }
}
