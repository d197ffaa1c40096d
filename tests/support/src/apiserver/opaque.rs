//! Fields of a claim that the server keeps as text, since only drivers read them: the parameters of drivers, and their
//! data in the status. The real server stores the bytes that it was sent, and compares later writes with them.
//!
//! | written by | the text becomes |
//! |---|---|
//! | create, update, in JSON | what was sent |
//! | the binary form | what was sent |
//! | a merge patch, a list of operations | without spaces, `<`, `>` and `&` escaped: what is stored goes through JSON |
//! | an apply, a strategic merge patch | that, with the members of objects in order of the alphabet |

use std::collections::BTreeMap;

use serde_json::{Map, Value, value::RawValue};

/// The one member of what stands for an opaque text.
const TEXT: &str = "\u{0}text";
/// The opaque fields of a claim.
const OPAQUE: [&str; 2] = ["parameters", "data"];

/// Reads a claim in JSON, and keeps what is opaque in it as it stands there.
pub(crate) fn parse(json: &str) -> serde_json::Result<Value> {
    let json = json.trim();
    if json.starts_with('[') {
        let items: Vec<Box<RawValue>> = serde_json::from_str(json)?;
        return items.iter().map(|item| parse(item.get())).collect::<serde_json::Result<Vec<_>>>().map(Value::Array);
    }
    if !json.starts_with('{') {
        return serde_json::from_str(json);
    }
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(json)?;
    let member = |(name, value): (String, Box<RawValue>)| {
        let is_opaque = OPAQUE.contains(&name.as_str()) && value.get().starts_with('{');
        let value = if is_opaque { opaque(value.get()) } else { parse(value.get())? };
        Ok((name, value))
    };
    members.into_iter().map(member).collect::<serde_json::Result<Map<_, _>>>().map(Value::Object)
}

/// Returns the value that stands for a text: the text itself, unless a later step would change it.
pub(crate) fn opaque(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if compact(&value.to_string()) == text => value,
        _ => Value::Object([(TEXT.to_owned(), Value::from(text))].into_iter().collect()),
    }
}

/// The text of something opaque.
pub(crate) fn text_of(value: &Value) -> String {
    text(value).map_or_else(|| compact(&value.to_string()), str::to_owned)
}

fn text(value: &Value) -> Option<&str> {
    value.as_object().filter(|object| object.len() == 1)?.get(TEXT)?.as_str()
}

/// The object with what clients see in place of the texts.
pub(crate) fn shown(value: &Value) -> Value {
    each(value, &|text| serde_json::from_str(text).unwrap_or_default())
}

/// The object as it is after it went through JSON.
pub(crate) fn compacted(value: &Value) -> Value {
    each(value, &|text| opaque(&compact(text)))
}

/// The object as it is after it went through a structure without an order.
pub(crate) fn sorted(value: &Value) -> Value {
    each(value, &|text| opaque(&compact(&serde_json::from_str::<Value>(text).unwrap_or_default().to_string())))
}

fn each(value: &Value, change: &dyn Fn(&str) -> Value) -> Value {
    if let Some(text) = text(value) {
        return change(text);
    }
    match value {
        Value::Object(object) => object.iter().map(|(name, value)| (name.clone(), each(value, change))).collect(),
        Value::Array(list) => list.iter().map(|value| each(value, change)).collect(),
        other => other.clone(),
    }
}

fn compact(text: &str) -> String {
    let (mut compact, mut in_text, mut escaped) = (String::new(), false, false);
    for letter in text.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => compact.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ if !in_text && letter.is_ascii_whitespace() => {}
            _ => compact.push(letter),
        }
        in_text ^= letter == '"' && !escaped;
        escaped = in_text && letter == '\\' && !escaped;
    }
    compact
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_compacted_and_sorted_as_the_real_server_does() {
        let claim = parse(r#"{"a": [{"parameters": {"kind": "<\" x", "a": 1}}], "n": null}"#).unwrap();
        let of = |claim: &Value| text_of(&claim["a"][0]["parameters"]);
        assert_eq!(of(&claim), r#"{"kind": "<\" x", "a": 1}"#);
        assert_eq!(of(&compacted(&claim)), r#"{"kind":"\u003c\" x","a":1}"#);
        assert_eq!(of(&sorted(&claim)), r#"{"a":1,"kind":"\u003c\" x"}"#);
        assert_eq!(shown(&claim)["a"][0]["parameters"]["kind"], "<\" x");
        let plain = parse(r#"{"parameters":{"a":1,"b":[{}]}}"#).unwrap();
        assert_eq!(plain["parameters"]["a"], 1);
    }
}
