//! Names that the Kubernetes API server will accept, checked where they are made.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a name is not acceptable.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{what} {value:?} is not valid: {rule}")]
pub struct NameError {
    what: &'static str,
    value: String,
    rule: &'static str,
}

const LABEL_RULE: &str =
    "1 to 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit (a DNS label)";

fn is_dns_label(value: &str) -> bool {
    let bytes = value.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
}

macro_rules! name_type {
    ($name:ident, $what:literal, $doc:literal, $rule:expr, $check:expr) => {
        #[doc = $doc]
        #[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `value` and wraps it.
            ///
            /// # Errors
            /// When `value` breaks the rule of this kind of name; the error states the rule.
            pub fn new(value: impl Into<String>) -> Result<Self, NameError> {
                let value = value.into();
                let check: fn(&str) -> bool = $check;
                if check(&value) { Ok(Self(value)) } else { Err(NameError { what: $what, value, rule: $rule }) }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(value: String) -> Result<Self, NameError> {
                Self::new(value)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    DeviceName,
    "device name",
    "A device's name, unique in its pool: a DNS label made from hardware identity, never from an index that can shift.",
    LABEL_RULE,
    is_dns_label
);

name_type!(
    BackendName,
    "backend name",
    "A backend's name; it becomes the last part of the pool's name.",
    LABEL_RULE,
    is_dns_label
);

fn is_qualified(value: &str) -> bool {
    let (domain, id) = value.split_once('/').map_or((None, value), |(domain, id)| (Some(domain), id));
    let domain_ok = domain.is_none_or(|domain| domain.len() <= 63 && domain.split('.').all(is_dns_label));
    let mut bytes = id.bytes();
    domain_ok
        && id.len() <= 32
        && bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

name_type!(
    QualifiedName,
    "attribute or capacity name",
    "Name of an attribute or capacity: a C identifier, with an optional DNS domain in front (`domain/name`). \
     Without a domain it belongs to the driver.",
    "a C identifier of at most 32 characters, optionally behind a DNS subdomain of at most 63 and '/'",
    is_qualified
);

/// The key of a label, which is also how the type of a condition is written: a name, with an optional DNS subdomain in
/// front.
pub fn is_label_key(value: &str) -> bool {
    let (prefix, name) = value.split_once('/').map_or((None, value), |(prefix, name)| (Some(prefix), name));
    let prefix_ok = prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_dns_label));
    let bytes = name.as_bytes();
    prefix_ok
        && (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_dns_labels() {
        for good in ["a", "numa0", "0000-41-00-0", &"x".repeat(63)] {
            assert!(DeviceName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "0000:41:00.0", &"x".repeat(64)] {
            assert!(DeviceName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn qualified_names_follow_the_api_server() {
        for good in ["numaNode", "resource.kubernetes.io/pciBusID", "_x", &"a".repeat(32)] {
            assert!(QualifiedName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "9a", "a-b", "/a", "a/", "Upper.io/a", "a/b/c", &"a".repeat(33)] {
            assert!(QualifiedName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_name_is_refused_while_reading_json_with_the_rule_in_the_error() {
        let error = serde_json::from_str::<DeviceName>("\"Bad Name\"").unwrap_err().to_string();
        assert!(error.contains("device name \"Bad Name\" is not valid: 1 to 63 characters"), "{error}");
    }
}
