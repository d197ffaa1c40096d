//! Objects by their shape: the set of their fields, what differs between two, one merged into another, fields taken
//! out.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    fieldpath::{FieldPath, FieldSet, PathElement},
    shape::{ListKind, Shape},
};

/// The difference between two objects.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub removed: FieldSet,
    pub modified: FieldSet,
    pub added: FieldSet,
}

impl Comparison {
    pub(crate) fn retain(&mut self, keeps: impl Fn(&[PathElement]) -> bool) {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            set.retain(|path| keeps(path));
        }
    }

    pub(crate) fn written(&self) -> FieldSet {
        self.modified.union(&self.added).cloned().collect()
    }
}

/// Returns the fields of an applied configuration.
pub(crate) fn field_set(shape: &Shape, value: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    collect(&mut set, &mut Vec::new(), shape, value);
    set.remove(&Vec::new());
    set
}

fn collect(set: &mut FieldSet, path: &mut FieldPath, shape: &Shape, value: &Value) {
    match value {
        Value::Object(members) if !shape.is_atomic() => {
            for (name, value) in members {
                path.push(PathElement::Field(name.clone()));
                collect(set, path, &shape.field(name), value);
                if value.is_null() || value.as_object().is_some_and(Map::is_empty) || !shape.names(name) {
                    set.insert(path.clone());
                }
                path.pop();
            }
        }
        Value::Array(list) if shape.list() != ListKind::Atomic => {
            for item in list {
                path.extend(shape.step(item));
                collect(set, path, &shape.item(), item);
                set.insert(path.clone());
                path.pop();
            }
        }
        _ => {
            set.insert(path.clone());
        }
    }
}

/// Compares two versions of an object.
pub(crate) fn compare(shape: &Shape, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    compare_at(&mut comparison, &mut Vec::new(), shape, Some(old), Some(new));
    comparison
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(object)) => object.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

fn compare_at(found: &mut Comparison, path: &mut FieldPath, shape: &Shape, old: Option<&Value>, new: Option<&Value>) {
    let both = (old, new);
    let is_leaf = match both {
        (Some(Value::Object(_)) | None, Some(Value::Object(_)) | None) => shape.is_atomic(),
        (Some(Value::Array(_)) | None, Some(Value::Array(_)) | None) => shape.list() == ListKind::Atomic,
        _ => true,
    } || is_empty(old) && is_empty(new);
    if !is_leaf {
        compare_members(found, path, shape, both);
    }
    match both {
        (None, Some(_)) => found.added.insert(path.clone()),
        (Some(_), None) => found.removed.insert(path.clone()),
        _ if is_leaf && old != new => found.modified.insert(path.clone()),
        _ => false,
    };
}

fn compare_members(
    found: &mut Comparison,
    path: &mut FieldPath,
    shape: &Shape,
    both: (Option<&Value>, Option<&Value>),
) {
    let object = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (old, new) = (object(both.0), object(both.1));
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        path.push(PathElement::Field(name.clone()));
        compare_at(found, path, &shape.field(name), old.get(name), new.get(name));
        path.pop();
    }
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (old, new) = (list(both.0), list(both.1));
    let steps: BTreeSet<PathElement> = old.iter().chain(&new).filter_map(|item| shape.step(item)).collect();
    for step in steps {
        let is = |item: &&Value| shape.step(item).as_ref() == Some(&step);
        path.push(step.clone());
        compare_at(found, path, &shape.item(), old.iter().find(is), new.iter().find(is));
        path.pop();
    }
}

/// Merges an applied configuration into an object.
pub(crate) fn merge(shape: &Shape, live: Option<&Value>, config: Option<&Value>) -> Value {
    match (live, config) {
        (Some(Value::Object(live)), Some(Value::Object(config)))
            if !(shape.is_atomic() || live.is_empty() && config.is_empty()) =>
        {
            let names: BTreeSet<&String> = live.keys().chain(config.keys()).collect();
            let merged = names
                .into_iter()
                .map(|name| (name.clone(), merge(&shape.field(name), live.get(name), config.get(name))));
            Value::Object(merged.collect())
        }
        (Some(Value::Array(live)), Some(Value::Array(config))) if shape.list() != ListKind::Atomic => {
            Value::Array(merge_lists(shape, live, config))
        }
        (live, config) => config.or(live).cloned().unwrap_or_default(),
    }
}

/// Members keep their places, and those that are applied come in the order in which they are applied.
fn merge_lists(shape: &Shape, live: &[Value], config: &[Value]) -> Vec<Value> {
    let index = |list: &[Value]| list.iter().filter_map(|item| shape.step(item)).collect::<Vec<_>>();
    let (before, wanted) = (index(live), index(config));
    let item = |list: &'_ [Value], steps: &[PathElement], step: &PathElement| {
        steps.iter().position(|one| one == step).map(|at| list[at].clone())
    };
    let merged = |step: &PathElement| {
        let (old, new) = (item(live, &before, step), item(config, &wanted, step));
        merge(&shape.item(), old.as_ref(), new.as_ref())
    };
    let mut out = Vec::new();
    let mut taken: BTreeSet<&PathElement> = BTreeSet::new();
    let (mut left, mut right) = (0, 0);
    while left < before.len() || right < wanted.len() {
        let shared = wanted[right..].iter().find(|step| before.contains(step));
        if let (Some(old), Some(new)) = (before.get(left), wanted.get(right)) {
            if old == new {
                out.push(merged(old));
                taken.insert(new);
                (left, right) = (left + 1, right + 1);
                continue;
            }
            if wanted.contains(old) && shared.is_some_and(|shared| shared != old) {
                left += 1;
                continue;
            }
        }
        if let Some(old) = before.get(left) {
            if !wanted.contains(old) {
                out.push(merged(old));
                left += 1;
                continue;
            }
            if taken.contains(old) {
                left += 1;
            }
        }
        if let Some(new) = wanted.get(right) {
            out.push(merged(new));
            taken.insert(new);
            right += 1;
        }
    }
    out
}

/// Takes fields out. What they were in stays, if it was not named itself.
pub(crate) fn remove(shape: &Shape, value: &Value, gone: &FieldSet) -> Value {
    remove_at(&mut Vec::new(), shape, value, gone)
}

fn remove_at(path: &mut FieldPath, shape: &Shape, value: &Value, gone: &FieldSet) -> Value {
    let mut keep = |step: PathElement, shape: &Shape, value: &Value| {
        path.push(step);
        let kept = (!gone.contains(path)).then(|| remove_at(path, shape, value, gone));
        path.pop();
        kept
    };
    match value {
        Value::Object(members) if !shape.is_atomic() => {
            let kept = members.iter().filter_map(|(name, value)| {
                let kept = keep(PathElement::Field(name.clone()), &shape.field(name), value)?;
                Some((name.clone(), kept))
            });
            Value::Object(kept.collect())
        }
        Value::Array(list) if shape.list() != ListKind::Atomic => {
            let kept = list.iter().filter_map(|item| keep(shape.step(item)?, &shape.item(), item));
            Value::Array(kept.collect())
        }
        other => other.clone(),
    }
}

/// Returns the fields with all structures that they are in, but not the maps and lists.
pub(crate) fn with_structures(shape: &Shape, set: &FieldSet) -> FieldSet {
    let mut all = set.clone();
    for path in set {
        let mut shape = shape.clone();
        for (at, step) in path.iter().enumerate() {
            shape = match step {
                PathElement::Field(name) => {
                    if at + 1 < path.len() && shape.names(name) {
                        all.insert(path[..=at].to_vec());
                    }
                    shape.field(name)
                }
                PathElement::Member(_) | PathElement::Item(_) => shape.item(),
            };
        }
    }
    all
}
