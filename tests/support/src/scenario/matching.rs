//! Comparison of an object with the expectation of a scenario.

use serde_json::Value;

/// Checks that an object has these fields and lacks those; fails with the difference.
pub(super) fn check(object: &Value, has: &Value, lacks: &[String]) -> Result<(), String> {
    compare("", object, has)?;
    match lacks.iter().find(|path| object.pointer(path).is_some_and(|value| !value.is_null())) {
        Some(path) => Err(format!("it has {path}")),
        None => Ok(()),
    }
}

fn compare(path: &str, is: &Value, wanted: &Value) -> Result<(), String> {
    match (is, wanted) {
        (_, Value::Null) => Ok(()),
        (Value::Null, _) => Err(format!("{path} is missing")),
        (_, Value::String(text)) if text == "?" => Ok(()),
        (Value::String(is), Value::String(text)) if text.strip_prefix('~').is_some_and(|part| is.contains(part)) => {
            Ok(())
        }
        (Value::Object(is), Value::Object(wanted)) => wanted.iter().try_for_each(|(name, wanted)| {
            compare(&format!("{path}/{name}"), is.get(name).unwrap_or(&Value::Null), wanted)
        }),
        (Value::Array(is), Value::Array(wanted)) if is.len() == wanted.len() => {
            let mut pairs = is.iter().zip(wanted).enumerate();
            pairs.try_for_each(|(at, (is, wanted))| compare(&format!("{path}/{at}"), is, wanted))
        }
        (is, wanted) if is == wanted => Ok(()),
        (is, wanted) => Err(format!("{path} is {is}, not {wanted}")),
    }
}

/// RFC 7386.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (name, value) in patch {
        let object = target.as_object_mut().expect("made above");
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name).or_insert(Value::Null), value);
        }
    }
}
