//! Paths into objects, sets of them, and how `managedFields` writes such a set down.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// A step into an object.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum PathElement {
    Field(String),
    /// The member of a list with these keys, as JSON.
    Member(String),
    /// A member of a set, as JSON.
    Item(String),
}

/// The path of a field.
pub(crate) type FieldPath = Vec<PathElement>;
/// The fields of a manager.
pub(crate) type FieldSet = BTreeSet<FieldPath>;

/// The path to a field, step by step.
pub(crate) fn path(names: &[&str]) -> FieldPath {
    names.iter().map(|name| PathElement::Field((*name).to_owned())).collect()
}

/// Returns true if a path begins with these fields.
pub(crate) fn is_below(path: &[PathElement], names: &[&str]) -> bool {
    path.len() >= names.len()
        && path.iter().zip(names).all(|(step, name)| matches!(step, PathElement::Field(field) if field == name))
}

/// `.status.devices[driver="…",…].conditions`
pub(crate) fn shown(path: &[PathElement]) -> String {
    path.iter()
        .map(|step| match step {
            PathElement::Field(name) => format!(".{name}"),
            PathElement::Item(value) => format!("[={value}]"),
            PathElement::Member(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("[{}]", keys.join(","))
            }
        })
        .collect()
}

/// Returns the fields in the form of `fieldsV1`.
pub(crate) fn tree(set: &FieldSet) -> Value {
    let mut tree = json!({});
    for path in set {
        let mut at = &mut tree;
        for step in path {
            at = match step {
                PathElement::Field(name) => &mut at[format!("f:{name}")],
                PathElement::Member(keys) => &mut at[format!("k:{keys}")],
                PathElement::Item(value) => &mut at[format!("v:{value}")],
            };
            if at.is_null() {
                *at = json!({});
            }
        }
        // What is below comes later: a set is in order.
        let has_more = set.range(path.clone()..).nth(1).is_some_and(|next| next.starts_with(path));
        if has_more {
            at["."] = json!({});
        }
    }
    tree
}

/// Reads fields from `fieldsV1`.
pub(crate) fn parse(tree: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    parse_below(&mut Vec::new(), tree, &mut set);
    set
}

fn parse_below(path: &mut FieldPath, tree: &Value, set: &mut FieldSet) {
    let Some(inner) = tree.as_object().filter(|inner| !inner.is_empty()) else {
        if !path.is_empty() {
            set.insert(path.clone());
        }
        return;
    };
    for (name, tree) in inner {
        let step = match name.split_once(':') {
            Some(("f", name)) => PathElement::Field(name.to_owned()),
            Some(("k", keys)) => PathElement::Member(keys.to_owned()),
            Some(("v", value)) => PathElement::Item(value.to_owned()),
            _ => {
                set.insert(path.clone());
                continue;
            }
        };
        path.push(step);
        parse_below(path, tree, set);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_again() {
        let written = json!({ "f:spec": { ".": {}, "f:list": { ".": {}, "k:{\"name\":\"a\"}": { ".": {}, "f:x": {} } } },
            "f:metadata": { "f:finalizers": { "v:\"a\"": {} } } });
        let set = parse(&written);
        assert_eq!(set.len(), 5);
        assert_eq!(tree(&set), written);
        assert_eq!(shown(set.last().unwrap()), ".spec.list[name=\"a\"].x");
    }
}
