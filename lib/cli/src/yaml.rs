//! YAML that says what the JSON says: keys are texts there, and stay texts here.
//!
//! A map with numbers for keys is written by JSON with quoted keys, by a YAML writer with numbers: two
//! different documents. So the writer writes the JSON, in the order of its fields.
//!
//! A character that a terminal would act upon leaves the program as `\u200e`, which is the same text in JSON and in
//! YAML between double quotes, and another one elsewhere.

use std::{borrow::Cow, fmt};

use hostler_api::plain;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Number;
use serde_saphyr::DoubleQuoted;

/// A JSON value whose fields keep their order.
#[derive(Debug)]
enum OrderedJson {
    Null,
    Truth(bool),
    Number(Number),
    Text(String),
    List(Vec<OrderedJson>),
    Object(Vec<(String, OrderedJson)>),
}

/// Returns the YAML of a value.
pub(crate) fn to_yaml(value: &impl Serialize) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let json: OrderedJson = serde_json::from_str(&serde_json::to_string(value)?)?;
    if json.has_name_to_quote() {
        // The writer cannot be made to quote a key. JSON is YAML, with quotes around everything.
        return Ok(serde_json::to_string_pretty(value)? + "\n");
    }
    Ok(serde_saphyr::to_string(&json)?)
}

/// True if readers get the same text only from double quotes.
fn needs_quotes(text: &str) -> bool {
    matches!(plain(text), Cow::Owned(_))
}

impl OrderedJson {
    fn has_name_to_quote(&self) -> bool {
        match self {
            Self::List(values) => values.iter().any(Self::has_name_to_quote),
            Self::Object(fields) => fields.iter().any(|(name, value)| needs_quotes(name) || value.has_name_to_quote()),
            Self::Null | Self::Truth(_) | Self::Number(_) | Self::Text(_) => false,
        }
    }
}

impl Serialize for OrderedJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Truth(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::Text(value) if needs_quotes(value) => DoubleQuoted(value).serialize(serializer),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(values) => serializer.collect_seq(values),
            Self::Object(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
        }
    }
}

impl<'de> Deserialize<'de> for OrderedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OrderedJsonVisitor)
    }
}

struct OrderedJsonVisitor;

impl<'de> Visitor<'de> for OrderedJsonVisitor {
    type Value = OrderedJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Truth(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<OrderedJson, E> {
        // JSON has no number that is none.
        Ok(Number::from_f64(value).map_or(OrderedJson::Null, OrderedJson::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<OrderedJson, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(OrderedJson::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<OrderedJson, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            fields.push(entry);
        }
        Ok(OrderedJson::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    /// Texts that a reader of YAML takes for something else, unless they are quoted.
    const ODD: [&str; 26] = [
        "on",
        "Off",
        "yes",
        "n",
        "true",
        "null",
        "~",
        "",
        "1.10",
        "0",
        "007",
        "0x1f",
        "0o17",
        "1e3",
        ".inf",
        "1_000",
        "12:30:45",
        "2026-11-22",
        "- a",
        "a: b",
        "#a",
        "*a",
        "&a",
        "{}",
        "<<",
        "=",
    ];

    #[test]
    fn numbers_that_are_keys_are_quoted_as_in_json() {
        let distances = BTreeMap::from([(0_u32, 10), (1, 21)]);
        assert_eq!(to_yaml(&json!({ "b": 1, "a": distances })).unwrap().matches(": 10\n").count(), 1);
        assert_eq!(to_yaml(&distances).unwrap(), "\"0\": 10\n\"1\": 21\n");
    }

    #[test]
    fn every_text_comes_back_as_the_text_that_it_was_as_key_and_as_value() {
        let values: Value =
            ODD.iter().map(|text| ((*text).to_owned(), json!(text))).collect::<serde_json::Map<_, _>>().into();
        let text = to_yaml(&json!({ "list": ODD, "map": values })).unwrap();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, json!({ "list": ODD, "map": values }), "{text}");
    }

    /// As they leave the program.
    #[test]
    fn texts_that_are_made_plain_for_terminals_stay_what_json_says() {
        for odd in
            ["a\u{200c}b", "\u{200b}", "two\nlines\u{202e}", "\u{feff}a: \"b\" \\", "\u{61c}", "\u{2028}", "\u{1b}[2J"]
        {
            for document in [json!({ "list": [odd, "on"] }), json!({ "map": { odd: odd } })] {
                let text = plain(&to_yaml(&document).unwrap()).into_owned();
                let read: Value = serde_saphyr::from_str(&text).unwrap();
                assert_eq!(read, document, "{text}");
            }
        }
        assert_eq!(to_yaml(&json!({ "name": "a\u{200c}b" })).unwrap(), "name: \"a\u{200c}b\"\n");
    }

    #[test]
    fn fields_keep_the_order_of_the_document() {
        #[derive(Serialize)]
        struct Document {
            version: u32,
            name: &'static str,
            items: [bool; 1],
        }
        assert_eq!(
            to_yaml(&Document { version: 1, name: "a", items: [true] }).unwrap(),
            "version: 1\nname: a\nitems:\n- true\n"
        );
    }
}
