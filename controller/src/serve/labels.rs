//! Selection of nodes by their labels, as people write it: `zone=a,arch!=arm64,gpu,!old`.

use std::{collections::BTreeMap, str::FromStr};

/// The most terms: more than people write.
const MOST_TERMS: usize = 16;

/// Terms that must all be true.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct LabelTerms(Vec<LabelTerm>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum LabelTerm {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    HasNot(String),
}

impl LabelTerms {
    /// True if there are no terms.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if an object with these labels is selected.
    pub(crate) fn match_all(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|term| match term {
            LabelTerm::Is(key, value) => labels.get(key) == Some(value),
            LabelTerm::IsNot(key, value) => labels.get(key) != Some(value),
            LabelTerm::Has(key) => labels.contains_key(key),
            LabelTerm::HasNot(key) => !labels.contains_key(key),
        })
    }
}

impl FromStr for LabelTerms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        if parts.len() > MOST_TERMS {
            return Err(format!("label: {} terms are too many; write {MOST_TERMS} at most", parts.len()));
        }
        parts.into_iter().map(term).collect::<Result<_, _>>().map(Self)
    }
}

fn term(text: &str) -> Result<LabelTerm, String> {
    let pair = |key: &str, value: &str| (key.trim().to_owned(), value.trim_start_matches('=').trim().to_owned());
    let term = match (text.split_once("!="), text.split_once('='), text.strip_prefix('!')) {
        (Some((key, value)), _, _) => {
            let (key, value) = pair(key, value);
            LabelTerm::IsNot(key, value)
        }
        (None, Some((key, value)), _) => {
            let (key, value) = pair(key, value);
            LabelTerm::Is(key, value)
        }
        (None, None, Some(key)) => LabelTerm::HasNot(key.trim().to_owned()),
        (None, None, None) => LabelTerm::Has(text.to_owned()),
    };
    let (LabelTerm::Is(key, _) | LabelTerm::IsNot(key, _) | LabelTerm::Has(key) | LabelTerm::HasNot(key)) = &term;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
    if is_key { Ok(term) } else { Err(format!("label: {text:?} is none; write KEY=VALUE, KEY!=VALUE, KEY or !KEY")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_terms_must_be_so() {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("x.io/gpu".to_owned(), String::new())]);
        let is_meant = |text: &str| text.parse::<LabelTerms>().unwrap().match_all(&labels);
        for text in ["", "zone=a", "zone == a", "zone!=b", "x.io/gpu", "x.io/gpu=", "!old", " zone=a , !old ", "old!=b"]
        {
            assert!(is_meant(text), "{text}");
        }
        for text in ["zone=b", "zone!=a", "old", "!zone", "zone=a,old", "old="] {
            assert!(!is_meant(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_label_is_told() {
        for text in ["=a", "!", "a b", "zone=a,<x>", "zone in (a,b)"] {
            assert!(text.parse::<LabelTerms>().unwrap_err().starts_with("label: "), "{text}");
        }
        assert!("a,".repeat(17).parse::<LabelTerms>().is_err());
    }
}
