//! Rules in CEL (`x-kubernetes-validations`), evaluated with the expressions of device selectors: `self` and `oldSelf`
//! are bound to what is there, written as constants. A message is the constant one: `messageExpression` gives texts,
//! and selectors give truths.

use hostler_api::resource::SortedMap;
use hostler_cel::{CelOptions, DeviceFacts, Selector};
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

/// Returns true if a schema has rules.
pub(super) fn has_any(schema: &Value) -> bool {
    let below = ["additionalProperties", "items"].map(|name| &schema[name]);
    let members = schema["properties"].as_object().into_iter().flatten().map(|(_, schema)| schema);
    let inside: Vec<&Value> = below.into_iter().chain(members).filter(|schema| schema.is_object()).collect();
    !items(&schema["x-kubernetes-validations"]).is_empty() || inside.into_iter().any(has_any)
}

/// Returns the rules that an object breaks.
pub(super) fn check(schema: &Value, old: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_part(&mut errors, "", Part { schema, value: object, old });
    errors
}

/// Checks that a rule can be evaluated at all.
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

/// Returns the former value of a member of a list. Only lists with keys identify members.
fn same_member<'a>(schema: &Value, old: &'a Value, item: &Value) -> Option<&'a Value> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys: Vec<&str> = items(&schema["x-kubernetes-list-map-keys"]).iter().filter_map(Value::as_str).collect();
    let identity = |item: &Value| fields::key_values(&keys, &schema["items"], item);
    items(old).iter().find(|old| identity(old) == identity(item))
}

/// Returns the reason why a rule does not hold. A rule about the old value holds where there is none.
fn broken(rule: &Value, part: Part<'_>) -> Option<String> {
    let text = rule["rule"].as_str().unwrap_or_default();
    let looks_back = mentions(text, "oldSelf");
    if looks_back && part.old.is_none() {
        return None;
    }
    let bound_to = |name: &str, value: &Value| {
        let reads = reads(text, name);
        constant(part.schema, value, &reads.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    let own = bind("self", &bound_to("self", part.value), text);
    let bound = match part.old.filter(|_| looks_back) {
        Some(old) => bind("oldSelf", &bound_to("oldSelf", old), &own),
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

/// Returns true if a text has a word.
fn mentions(text: &str, word: &str) -> bool {
    text.split(|letter| !is_of_word(letter)).any(|one| one == word)
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns the fields that a text reads of a name, wherever it has the name. An empty list of fields stands for the
/// whole value.
fn reads<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let found = text.match_indices(name).filter(|(at, _)| {
        let is_inside = |letter: char| is_of_word(letter) || letter == '.';
        !text[..*at].ends_with(is_inside) && !text[at + name.len()..].starts_with(is_of_word)
    });
    found.map(|(at, _)| fields_of(&text[at + name.len()..])).collect()
}

/// Fields at the beginning of a text. What is called is none.
fn fields_of(mut text: &str) -> Vec<&str> {
    let mut fields = Vec::new();
    while let Some(rest) = text.strip_prefix('.') {
        let (field, after) = rest.split_at(rest.find(|letter| !is_of_word(letter)).unwrap_or(rest.len()));
        if field.is_empty() || after.starts_with('(') {
            break;
        }
        fields.push(field);
        text = after;
    }
    fields
}

/// Returns a value as an expression; its type is known when it runs. An expression can be no longer than 10 KiB, so
/// fields that no rule reads are left out.
fn constant(schema: &Value, value: &Value, reads: &[&[&str]]) -> String {
    match value {
        Value::Object(object) => format!("dyn({{{}}})", entries(schema, object, reads).join(", ")),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(|item| constant(&schema["items"], item, &[&[]])).collect();
            format!("dyn([{}])", items.join(", "))
        }
        Value::Number(number) if schema["type"] == "number" => {
            format!("dyn({:?})", number.as_f64().unwrap_or_default())
        }
        Value::String(text) if schema["format"] == "date-time" => format!("dyn(timestamp({text:?}))"),
        other => format!("dyn({other})"),
    }
}

fn entries(schema: &Value, object: &Map<String, Value>, reads: &[&[&str]]) -> Vec<String> {
    let is_map = !schema["additionalProperties"].is_null();
    let is_whole = is_map || reads.iter().any(|fields| fields.is_empty());
    let kept = object.iter().filter_map(|(name, value)| {
        let key = if is_map { name.clone() } else { escaped(name) };
        let below = reads.iter().filter_map(|fields| fields.split_first().filter(|(first, _)| **first == key));
        let below: Vec<&[&str]> = if is_whole { vec![&[]] } else { below.map(|(_, rest)| rest).collect() };
        let inside = convey::member(schema, name).unwrap_or(&Value::Null);
        (!below.is_empty()).then(|| format!("{}: {}", Value::from(key), constant(inside, value, &below)))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn broken_rules(rule: &str, old: &Value, object: &Value) -> usize {
        let schema = json!({
            "type": "object",
            "properties": { "spec": { "type": "object", "properties": {
                "name": { "type": "string" }, "list": { "type": "array", "items": { "type": "object" } },
            } } },
            "x-kubernetes-validations": [{ "rule": rule, "message": "no" }],
        });
        check(&schema, Some(old), object).len()
    }

    #[test]
    fn only_what_a_rule_reads_has_to_have_room_in_it() {
        let with = |name: &str, count: usize| json!({ "spec": { "name": name, "list": vec![json!({ "of": "a list" }); count] } });
        assert_eq!(broken_rules("!has(self.spec.name) || self.spec.name == 'a'", &json!({}), &with("a", 2000)), 0);
        assert_eq!(broken_rules("!has(self.spec.name) || self.spec.name == 'a'", &json!({}), &with("b", 2000)), 1);
        assert_eq!(broken_rules("self.spec.list.size() == 2000", &json!({}), &with("a", 2)), 1);
        assert_eq!(broken_rules("self.spec == oldSelf.spec", &with("a", 2), &with("a", 2)), 0);
        assert_eq!(broken_rules("self.spec == oldSelf.spec", &with("a", 2), &with("a", 3)), 1);
        assert_eq!(broken_rules("self == oldSelf", &with("a", 2), &with("b", 2)), 1);
    }

    #[test]
    fn what_is_read_is_told_by_the_fields_behind_a_name() {
        let text = "has(self.spec.name) && self.spec.list.all(it, it.of == oldSelf.self) && myself.x && self.?spec";
        assert_eq!(reads(text, "self"), [vec!["spec", "name"], vec!["spec", "list"], vec![]]);
        assert_eq!(reads(text, "oldSelf"), [vec!["self"]]);
    }
}
