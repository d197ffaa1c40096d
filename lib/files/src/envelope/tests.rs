//! Envelopes: what went in comes out, or it is said what is wrong.

use std::error::Error;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const FORMAT: EnvelopeFormat = EnvelopeFormat { version: 2, field: "record", what: "a record", remedy: ": upgrade" };

fn bytes(content: &Value) -> Vec<u8> {
    FORMAT.encode(content).unwrap()
}

fn refusal(bytes: &[u8]) -> (String, Option<String>) {
    let error = FORMAT.decode::<Value>(bytes).unwrap_err();
    (error.to_string(), error.source().map(ToString::to_string))
}

#[test]
fn a_file_reads_as_it_always_did() {
    let expected = "{\n  \"version\": 2,\n  \"checksum\": \"crc32:2995aea8\",\n  \"record\": {\n    \"a\": [\n      1,\n      2.5\n    ]\n  }\n}\n";
    assert_eq!(String::from_utf8(bytes(&json!({"a": [1, 2.5]}))).unwrap(), expected);
}

#[test]
fn an_earlier_version_is_read_and_a_later_one_refused() {
    let content = json!({"a": 1});
    let text = String::from_utf8(bytes(&content)).unwrap();
    let with = |version: &str| text.replace("\"version\": 2", &format!("\"version\": {version}"));
    assert_eq!(FORMAT.decode::<Value>(with("1").as_bytes()).unwrap(), content);
    let (said, cause) = refusal(with("3").as_bytes());
    assert_eq!(said, "it has format version 3, this version of hostler reads up to 2: upgrade");
    assert_eq!(cause, None);
}

#[test]
fn fields_of_a_later_version_break_nothing() {
    let content = json!({"a": 1, "later": [null]});
    let text = String::from_utf8(bytes(&content)).unwrap().replacen('{', "{\"later\": {\"x\": []},", 1);
    assert_eq!(FORMAT.decode::<Value>(text.as_bytes()).unwrap(), content);
}

#[test]
fn what_is_wrong_is_said_as_a_derived_reader_would_say_it() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "it is about the errors")]
    struct Derived {
        version: u64,
        checksum: String,
        record: Value,
    }
    for text in [
        "",
        "{",
        "7",
        "null",
        "\"text\"",
        "{}",
        "{\"version\": 1}",
        "{\"version\": -1}",
        "{\"version\": \"1\"}",
        "{\"version\": 1, \"checksum\": 1}",
        "{\"version\": 1, \"checksum\": \"\"}",
        "{\"version\": 1, \"version\": 1}",
        "{\"record\": 1, \"record\": 1}",
        "{\"version\": 1, \"checksum\": \"\", \"record\": 1} more",
        "{\"version\": 1, \"checksum\": \"\", \"record\": 1",
    ] {
        let derived = serde_json::from_str::<Derived>(text).unwrap_err().to_string().replace("Derived", "Envelope");
        assert_eq!(refusal(text.as_bytes()), ("it is not the JSON of a record".to_owned(), Some(derived)), "{text}");
    }
}

#[test]
fn a_file_that_says_the_same_in_other_words_is_the_same() {
    let text = String::from_utf8(bytes(&json!({"a": "\u{e9} \" \\", "b": 1}))).unwrap();
    let content = FORMAT.decode::<Value>(text.as_bytes()).unwrap();
    for other in [
        text.replace("\u{e9}", "\\u00e9"),
        text.replace("\n", "\r\n\t"),
        text.replace("\"a\"", "\"\\u0061\""),
        text.replace("\"b\": 1", "\"b\": 2, \"b\": 1"),
    ] {
        assert_ne!(other, text);
        assert_eq!(FORMAT.decode::<Value>(other.as_bytes()).unwrap(), content, "{other}");
    }
}

#[test]
fn a_content_of_another_shape_is_refused_although_it_is_whole() {
    let bytes = bytes(&json!({"a": 1}));
    let error = FORMAT.decode::<Vec<u8>>(&bytes).unwrap_err();
    assert!(matches!(error, EnvelopeError::Json { .. }), "{error}");
    let other = EnvelopeFormat { field: "other", ..FORMAT };
    assert_eq!(
        other.decode::<Value>(&bytes).unwrap_err().source().unwrap().to_string(),
        "missing field `other` at line 7 column 1"
    );
}

#[test]
fn what_is_refused_can_be_salvaged_as_long_as_it_is_json() {
    let text = String::from_utf8(bytes(&json!({"a": 1}))).unwrap();
    let changed = text.replace("\"a\": 1", "\"a\": 2").replace("\"version\": 2", "\"version\": 9");
    assert!(FORMAT.decode::<Value>(changed.as_bytes()).is_err());
    assert_eq!(FORMAT.salvage::<Value>(changed.as_bytes()), Some(json!({"a": 2})));
    assert_eq!(FORMAT.salvage::<Value>(&changed.as_bytes()[..changed.len() / 2]), None);
}

/// Any JSON, deep enough to have everything in everything.
fn json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from)];
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number, "\\PC{0,8}".prop_map(Value::from)];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,4}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn every_content_survives_the_way_to_disk(content in json()) {
        prop_assert_eq!(FORMAT.decode::<Value>(&bytes(&content)).unwrap(), content);
    }

    #[test]
    fn damage_in_any_byte_never_gives_another_content(content in json(), flip in 1..=255_u8) {
        let whole = bytes(&content);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            // White space between tokens may change; what it says may not.
            if let Ok(read) = FORMAT.decode::<Value>(&damaged) {
                prop_assert_eq!(&read, &content);
            }
        }
    }

    #[test]
    fn a_file_that_was_cut_short_is_refused(content in json()) {
        let whole = bytes(&content);
        // The last two bytes are the brace that ends it and a line feed.
        for length in 0..whole.len() - 1 {
            prop_assert!(FORMAT.decode::<Value>(&whole[..length]).is_err());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = FORMAT.decode::<Value>(&bytes);
        let _ = FORMAT.salvage::<Value>(&bytes);
    }
}
