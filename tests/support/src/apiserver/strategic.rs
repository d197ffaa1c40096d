//! Strategic merge patches: lists with a key are merged member by member, and directives say what a merge cannot.

use serde_json::{Map, Value};

use super::{refusal::StatusError, shape::Shape, slices::items};

const DIRECTIVE: &str = "$patch";
const RETAINED: &str = "$retainKeys";
const DELETED: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Merges a patch into a value.
pub(crate) fn merge(shape: &Shape, target: &mut Value, patch: &Value) -> Result<(), StatusError> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(plain(patch));
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(unknown(other)),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let object = target.as_object_mut().expect("made above");
    let before = object.clone();
    if let Some(retained) = patch.get(RETAINED) {
        object.retain(|name, _| items(retained).iter().any(|one| one == name));
    }
    for (name, value) in patch {
        let shape = shape.field(name);
        if let Some(list) = name.strip_prefix(DELETED) {
            let of_list = object.get_mut(list).and_then(Value::as_array_mut);
            of_list.into_iter().for_each(|list| list.retain(|item| !items(value).contains(item)));
        } else if name.starts_with('$') {
            // Directives are no fields, and orders come when everything is there.
        } else if value.is_null() {
            object.remove(name);
        } else if let (Some(key), Value::Array(patch)) = (shape.patch_key(), value) {
            let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            merge_list(&shape, key, list, patch)?;
        } else {
            merge(&shape, object.entry(name).or_insert(Value::Null), value)?;
        }
    }
    // Whatever was merged is put in order: by the order that is given, or else that of the patch.
    for (name, value) in patch {
        let list = name.strip_prefix(ORDER).unwrap_or(name);
        let has_own_order = list == name && patch.contains_key(&format!("{ORDER}{name}"));
        if let (Some(key), Value::Array(order), false) = (shape.field(list).patch_key(), value, has_own_order) {
            let merged = object.get_mut(list).and_then(Value::as_array_mut);
            merged.into_iter().for_each(|merged| sort(key, merged, order, before.get(list).map_or(&[][..], items)));
        }
    }
    Ok(())
}

fn unknown(directive: &str) -> StatusError {
    StatusError::invalid_patch(&format!("unknown patch type: {directive}"))
}

/// A new part, without what is no part of it.
fn plain(patch: &Map<String, Value>) -> Map<String, Value> {
    patch
        .iter()
        .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns a map as upstream prints it.
fn shown(item: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let members = item.as_object().into_iter().flatten().map(|(name, value)| format!("{name}:{}", text(value)));
    format!("map[{}]", members.collect::<Vec<_>>().join(" "))
}

fn merge_list(shape: &Shape, key: &str, target: &mut Value, patch: &[Value]) -> Result<(), StatusError> {
    let list = match target {
        Value::Array(list) => list,
        other => {
            *other = Value::Array(Vec::new());
            other.as_array_mut().expect("made above")
        }
    };
    if key == "=" {
        let new: Vec<Value> = patch.iter().filter(|item| !list.contains(item)).cloned().collect();
        list.extend(new);
        return Ok(());
    }
    if patch.iter().any(|item| item[DIRECTIVE] == "replace") {
        list.clear();
    }
    for item in patch {
        let directive = item[DIRECTIVE].as_str().unwrap_or("merge");
        if directive == "replace" && item.as_object().is_some_and(|item| item.len() == 1) {
            continue;
        }
        if item.get(key).is_none() {
            let why = format!("map: {} does not contain declared merge key: {key}", shown(item));
            return Err(StatusError::missing_merge_key(&why));
        }
        let is = |one: &Value| one[key] == item[key];
        match directive {
            "delete" => list.retain(|one| !is(one)),
            "merge" | "replace" => match list.iter_mut().find(|one| is(one)) {
                Some(one) => merge(&shape.item(), one, item)?,
                None => {
                    let mut new = Value::Object(Map::new());
                    merge(&shape.item(), &mut new, item)?;
                    list.push(new);
                }
            },
            other => return Err(unknown(other)),
        }
    }
    Ok(())
}

/// Members that the patch names come in its order, others in the order that they had; a member that is not new comes
/// behind one that it followed.
fn sort(key: &str, merged: &mut Vec<Value>, order: &[Value], before: &[Value]) {
    let identity = |item: &Value| if key == "=" { item.clone() } else { item[key].clone() };
    let place = |list: &[Value], item: &Value| list.iter().position(|one| identity(one) == identity(item));
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        std::mem::take(merged).into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut named = named.into_iter().peekable();
    for other in others {
        let was = place(before, &other);
        while let Some(next) =
            named.next_if(|next| !matches!((was, place(before, next)), (Some(was), Some(next)) if was < next))
        {
            merged.push(next);
        }
        merged.push(other);
    }
    merged.extend(named);
}
