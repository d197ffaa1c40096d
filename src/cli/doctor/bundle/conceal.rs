//! Takes serial numbers and the node's name out of texts that others wrote. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

/// The word that stands for the node's name.
const NODE: &str = "node";

/// Words, and what stands for them.
#[derive(Debug)]
pub(super) struct ConcealedWords(BTreeMap<String, String>);

impl ConcealedWords {
    /// Replaces the serial numbers `serials` by their pseudonyms, and the node's name.
    pub(super) fn new(serials: BTreeMap<String, String>, node: &str) -> Self {
        let mut words = serials;
        if !node.is_empty() {
            words.insert(node.to_owned(), NODE.to_owned());
        }
        Self(words)
    }

    /// The document with every text in it concealed. Numbers stay: a small serial number is any number.
    pub(super) fn json(&self, document: Value) -> Value {
        match document {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.json(value)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (self.text(&name), self.json(value))).collect()
            }
            other => other,
        }
    }

    /// The text without any of the words; a part of a longer word is none.
    pub(super) fn text(&self, text: &str) -> String {
        let mut concealed = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let starts = !concealed.ends_with(|last: char| last.is_alphanumeric());
            let found = self.0.iter().rev().find(|(word, _)| starts && begins_with(rest, word));
            match found {
                Some((word, instead)) => {
                    concealed.push_str(instead);
                    rest = &rest[word.len()..];
                }
                None => {
                    concealed.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        concealed
    }
}

fn begins_with(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conceal() -> ConcealedWords {
        let words = [("1001", "feed"), ("0x1001", "0xfeed"), ("00-10-01", "00-fe-ed")];
        ConcealedWords::new(words.map(|(old, new)| (old.to_owned(), new.to_owned())).into(), "worker-7")
    }

    #[test]
    fn whole_words_are_replaced_in_texts_names_and_lists() {
        let document =
            json!({"memory-1001": ["0x1001", "worker-7/cxl", "00-10-01"], "uptime": 1001, "other": "10012 a1001"});
        let expected =
            json!({"memory-feed": ["0xfeed", "node/cxl", "00-fe-ed"], "uptime": 1001, "other": "10012 a1001"});
        assert_eq!(conceal().json(document), expected);
    }

    #[test]
    fn the_longest_word_counts_and_nothing_is_replaced_twice() {
        let words = [("a", "a-b"), ("a-b", "x")].map(|(old, new)| (old.to_owned(), new.to_owned()));
        let conceal = ConcealedWords::new(words.into(), "");
        assert_eq!(conceal.text("a a-b ü-a"), "a-b x ü-a-b");
        assert_eq!(conceal.text(""), "");
    }
}
