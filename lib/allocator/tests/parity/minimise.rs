//! Makes a case smaller for as long as it stays what it is wanted for.

use serde_json::Value;

use crate::case::Case;

/// Fields without which an object is still a valid one.
const OPTIONAL: &[&str] = &[
    "adminAccess",
    "allNodes",
    "allocated",
    "allowMultipleAllocations",
    "attributes",
    "bindingConditions",
    "bindingFailureConditions",
    "bindsToNode",
    "capacity",
    "config",
    "constraints",
    "consumesCounters",
    "labels",
    "requestPolicy",
    "selectors",
    "taints",
    "tolerations",
];
/// Maps any entry of which can go.
const MAPS: &[&str] = &["attributes", "capacity", "counters", "labels", "requests"];

/// The smallest case that one change at a time leads to.
pub(crate) fn minimised(case: &Case, mut wanted: impl FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    while let Some(smaller) = smaller(&best).find(|candidate| wanted(candidate)) {
        best = smaller;
    }
    best
}

/// All cases that are one change smaller, the large changes first.
fn smaller(case: &Case) -> impl Iterator<Item = Case> + use<> {
    let whole = serde_json::to_value(case).expect("a case is JSON");
    let mut edits = Vec::new();
    collect(&whole, "", "", &mut edits);
    // Paths that are short lead to what is large.
    edits.sort_by_key(|edit| edit.matches('/').count());
    edits.into_iter().filter_map(move |edit| serde_json::from_value(edited(&whole, &edit)?).ok())
}

/// Paths of all that can be removed or made one.
fn collect(value: &Value, path: &str, name: &str, edits: &mut Vec<String>) {
    match value {
        // A request without any alternative is none.
        Value::Array(items) if items.len() == 1 && name == "firstAvailable" => {
            collect(&items[0], &format!("{path}/0"), "", edits)
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}/{index}");
                edits.push(path.clone());
                collect(item, &path, "", edits);
            }
        }
        Value::Object(fields) => {
            for (field, item) in fields {
                let path = format!("{path}/{}", field.replace('~', "~0").replace('/', "~1"));
                if OPTIONAL.contains(&&**field) || MAPS.contains(&name) {
                    edits.push(path.clone());
                }
                collect(item, &path, field, edits);
            }
        }
        Value::Number(number) if name == "count" && number.as_i64() > Some(1) => edits.push(path.to_owned()),
        _ => {}
    }
}

fn edited(whole: &Value, path: &str) -> Option<Value> {
    let mut whole = whole.clone();
    let (parent, last) = path.rsplit_once('/')?;
    if let Some("slices") = parent.strip_prefix('/') {
        lower_counts(&mut whole, last);
    }
    let parent = whole.pointer_mut(parent)?;
    match parent {
        Value::Array(items) => drop(items.remove(last.parse().ok()?)),
        Value::Object(fields) if last == "count" => drop(fields.insert(last.to_owned(), 1.into())),
        Value::Object(fields) => drop(fields.remove(&*last.replace("~1", "/").replace("~0", "~"))?),
        _ => return None,
    }
    Some(whole)
}

/// A pool that loses a slice is complete without it.
fn lower_counts(whole: &mut Value, index: &str) {
    let Some(lost) = whole.pointer(&format!("/slices/{index}/spec")).cloned() else { return };
    for slice in whole["slices"].as_array_mut().into_iter().flatten() {
        let spec = &mut slice["spec"];
        let same = |name: &str| spec.pointer(name) == lost.pointer(name);
        if same("/driver") && same("/pool/name") && same("/pool/generation") {
            let count = spec["pool"]["resourceSliceCount"].as_i64().unwrap_or_default();
            spec["pool"]["resourceSliceCount"] = (count - 1).into();
        }
    }
}
