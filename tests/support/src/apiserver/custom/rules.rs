//! Rules in CEL (`x-kubernetes-validations`), evaluated with the expressions of device selectors: `self` and `oldSelf` are
//! bound to what is there, written as constants. A message is the constant one: `messageExpression` gives texts, and
//! selectors give truths.

use hostler_allocator::cel::{CelOptions, DeviceFacts, Selector};
use hostler_api::resource::SortedMap;
use serde_json::{Map, Value};

use super::{
    super::{fields, refusal::FieldError, slices::items},
    convey,
};

/// Words that an expression cannot use as the name of a field.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// A part of an object, and what it was.
#[derive(Clone, Copy)]
struct Part<'a> {
    schema: &'a Value,
    value: &'a Value,
    old: Option<&'a Value>,
}

/// Whether a schema has rules.
pub(super) fn has_any(schema: &Value) -> bool {
    let below = ["additionalProperties", "items"].map(|name| &schema[name]);
    let members = schema["properties"].as_object().into_iter().flatten().map(|(_, schema)| schema);
    let inside: Vec<&Value> = below.into_iter().chain(members).filter(|schema| schema.is_object()).collect();
    !items(&schema["x-kubernetes-validations"]).is_empty() || inside.into_iter().any(has_any)
}

/// Which rules an object breaks.
pub(super) fn check(schema: &Value, old: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_part(&mut errors, "", Part { schema, value: object, old });
    errors
}

/// Whether a rule can be evaluated at all.
pub(super) fn compile(rule: &Value) -> Result<(), String> {
    let text = rule["rule"].as_str().unwrap_or_default();
    let nothing = "dyn({})".to_owned();
    let bound = bind("self", &nothing, &bind("oldSelf", &nothing, text));
    Selector::compile(&bound, &options()).map(drop).map_err(|error| error.to_string())
}

fn check_part(errors: &mut Vec<FieldError>, path: &str, part: Part<'_>) {
    let Part { schema, value, old } = part;
    for rule in items(&schema["x-kubernetes-validations"]) {
        if let Some(why) = broken(rule, part) {
            let at = format!("{path}{}", rule["fieldPath"].as_str().unwrap_or_default());
            let at = at.trim_start_matches('.');
            errors.push(FieldError::broken_rule(at, rule["reason"].as_str(), value, &why));
        }
    }
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let Some(schema) = convey::member(schema, name) else { continue };
                let old = old.and_then(|old| old.get(name));
                check_part(errors, &format!("{path}.{name}"), Part { schema, value, old });
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                let old = old.and_then(|old| same_member(schema, old, value));
                check_part(errors, &format!("{path}[{at}]"), Part { schema: &schema["items"], value, old });
            }
        }
        _ => {}
    }
}

/// What a member of a list was. Only lists with keys say which one that is.
fn same_member<'a>(schema: &Value, old: &'a Value, item: &Value) -> Option<&'a Value> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys: Vec<&str> = items(&schema["x-kubernetes-list-map-keys"]).iter().filter_map(Value::as_str).collect();
    let identity = |item: &Value| fields::key_values(&keys, &schema["items"], item);
    items(old).iter().find(|old| identity(old) == identity(item))
}

/// Why a rule does not hold. One that looks back holds where there is nothing behind.
fn broken(rule: &Value, part: Part<'_>) -> Option<String> {
    let text = rule["rule"].as_str().unwrap_or_default();
    let looks_back = mentions(text, "oldSelf");
    if looks_back && part.old.is_none() {
        return None;
    }
    let own = bind("self", &constant(part.schema, part.value, Some(text)), text);
    let bound = match part.old.filter(|_| looks_back) {
        Some(old) => bind("oldSelf", &constant(part.schema, old, Some(text)), &own),
        None => own,
    };
    let (attributes, capacity) = (SortedMap::default(), SortedMap::default());
    let nothing =
        DeviceFacts { driver: "", attributes: &attributes, capacity: &capacity, allow_multiple_allocations: false };
    let selector = match Selector::compile(&bound, &options()) {
        Ok(selector) => selector,
        Err(error) => return Some(format!("rule compile error: {error}: {text}")),
    };
    match selector.matches(&nothing) {
        Ok(true) => None,
        Ok(false) => Some(rule["message"].as_str().map_or_else(|| format!("failed rule: {text}"), str::to_owned)),
        Err(error) => Some(format!("rule evaluation error: {error}: {text}")),
    }
}

fn options() -> CelOptions {
    CelOptions::default()
}

fn bind(name: &str, value: &str, body: &str) -> String {
    format!("cel.bind({name}, {value}, {body})")
}

/// Whether a text has a word. An expression can be no longer than 10 KiB, so what it does not name is left out.
fn mentions(text: &str, word: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(|letter| !is_word(letter)).any(|one| one == word)
}

/// A value as an expression; its type is known when it runs.
fn constant(schema: &Value, value: &Value, named_in: Option<&str>) -> String {
    match value {
        Value::Object(object) => format!("dyn({{{}}})", entries(schema, object, named_in).join(", ")),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(|item| constant(&schema["items"], item, None)).collect();
            format!("dyn([{}])", items.join(", "))
        }
        Value::Number(number) if schema["type"] == "number" => {
            format!("dyn({:?})", number.as_f64().unwrap_or_default())
        }
        Value::String(text) if schema["format"] == "date-time" => format!("dyn(timestamp({text:?}))"),
        other => format!("dyn({other})"),
    }
}

fn entries(schema: &Value, object: &Map<String, Value>, named_in: Option<&str>) -> Vec<String> {
    let is_map = !schema["additionalProperties"].is_null();
    let kept = object.iter().filter_map(|(name, value)| {
        let key = if is_map { name.clone() } else { escaped(name) };
        let is_named = is_map || named_in.is_none_or(|text| mentions(text, &key));
        let inside = convey::member(schema, name).unwrap_or(&Value::Null);
        is_named.then(|| format!("{}: {}", Value::from(key), constant(inside, value, None)))
    });
    kept.collect()
}

/// The name of a field as expressions write it.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
