//! Server-side apply: an applied configuration is merged into the stored object, and its manager owns the fields; a
//! field that the manager applies no longer is removed.
//!
//! What is applied is held against what is stored as it is written: a quantity or a time that is spelled in another way
//! is a change, though what is stored then is the same.

use serde_json::Value;

use super::{
    fieldpath::{FieldPath, FieldSet, shown},
    fields::{self, FieldManager, set_managers, unowned},
    refusal::StatusError,
    shape::Shape,
    structured::{self, with_structures},
    verbs::ApiRequest,
};

pub(crate) fn check_parameters(call: &ApiRequest) -> Result<(), StatusError> {
    if call.parameter("fieldManager").is_empty() {
        let why = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
        return Err(StatusError::bad_options(why));
    }
    Ok(())
}

/// Returns the object after an apply, with its owners, before it is read as its kind. `old` is empty for a new object.
pub(crate) fn apply(call: &ApiRequest, old: &Value, config: &Value) -> Result<Value, StatusError> {
    check_parameters(call)?;
    if config["metadata"]["managedFields"].is_array() {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    let shape = Shape::of(call.target.resource);
    let live = unowned(old);
    let merged = structured::merge(&shape, Some(&live), Some(config));
    let mut fields = structured::field_set(&shape, config);
    fields.retain(|field| fields::can_own(&call.target, field));
    let me = FieldManager { fields, ..FieldManager::of(call, "Apply") };
    let (mine, others): (Vec<_>, Vec<_>) = fields::managers(old).into_iter().partition(|manager| manager.is(&me));
    let last = mine.into_iter().next();
    let mut new = match &last {
        Some(last) => pruned(&shape, &merged, last, &me, &others),
        None => merged,
    };
    let mut changes = structured::compare(&shape, &live, &new);
    changes.retain(|field| fields::can_own(&call.target, field));
    let written = changes.written();
    check_conflicts(call, &others, &written)?;
    let mut managers = others;
    for manager in &mut managers {
        manager.fields.retain(|field| !written.contains(field) && !changes.removed.contains(field));
    }
    let is_same = last.as_ref().is_some_and(|last| last.fields == me.fields && live == new);
    managers.push(if is_same { last.unwrap_or(me) } else { me });
    set_managers(&mut new, managers);
    Ok(new)
}

fn check_conflicts(call: &ApiRequest, others: &[FieldManager], written: &FieldSet) -> Result<(), StatusError> {
    let contested =
        |manager: &FieldManager| -> Vec<FieldPath> { manager.fields.intersection(written).cloned().collect() };
    let mut named = Vec::new();
    for manager in others {
        named.extend(contested(manager).iter().map(|field| (manager.shown(), shown(field))));
    }
    if named.is_empty() || call.parameter("force") == "true" {
        return Ok(());
    }
    named.sort();
    Err(StatusError::apply_conflict(&named))
}

/// Removes fields that the manager applied last, applies no longer, and that no other manager owns.
fn pruned(shape: &Shape, merged: &Value, last: &FieldManager, me: &FieldManager, others: &[FieldManager]) -> Value {
    let all = |value: &Value| with_structures(shape, &structured::field_set(shape, value));
    let mine = with_structures(shape, &last.fields);
    let without_mine = structured::remove(shape, merged, &mine);
    let mut owned = me.fields.clone();
    owned.extend(others.iter().flat_map(|manager| manager.fields.iter().cloned()));
    let merged_fields = all(merged);
    let keep: FieldSet = all(&without_mine).union(&with_structures(shape, &owned)).cloned().collect();
    let added_back = structured::remove(shape, merged, &(&merged_fields - &keep));
    // A dangling field also stays: it was inside a field of the manager, and never the manager's own.
    let gone = &merged_fields - &all(&added_back);
    structured::remove(shape, merged, &(&gone & &mine))
}
