//! Names that the Kubernetes API server will accept, checked where they are made.

use std::fmt;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

/// Error: a name breaks the rule of its kind.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{what} {value:?} is not valid: {rule}")]
pub struct NameError {
    what: &'static str,
    value: String,
    rule: &'static str,
}

// Hosts have thousands of names, and most are short: those need no memory of their own.
macro_rules! name_type {
    ($name:ident, $what:literal, $doc:literal, $rule:expr, $check:expr) => {
        #[doc = $doc]
        #[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(CompactString);

        impl $name {
            /// Checks `value` and wraps it.
            ///
            /// # Errors
            /// When `value` breaks the rule of this kind of name; the error states the rule.
            pub fn new(value: impl Into<CompactString>) -> Result<Self, NameError> {
                let value = value.into();
                let check: fn(&str) -> bool = $check;
                if check(&value) {
                    Ok(Self(value))
                } else {
                    Err(NameError { what: $what, value: value.into(), rule: $rule })
                }
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
                name.0.into()
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

const LABEL_RULE: &str =
    "1 to 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit (a DNS label)";

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

name_type!(
    QualifiedName,
    "attribute or capacity name",
    "Name of an attribute or capacity: a C identifier, with an optional DNS domain in front (`domain/name`). \
     Without a domain it belongs to the driver.",
    "a C identifier of at most 32 characters, optionally behind a DNS subdomain of at most 63 and '/'",
    |value| is_prefixed(value, 63, |id| {
        id.len() <= 32
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && id.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    })
);

name_type!(
    LabelKey,
    "label key",
    "The key of a label, which is also how the type of a condition is written: a name, with an optional DNS subdomain \
     in front.",
    "1 to 63 characters of a-z, A-Z, 0-9, '-', '_' and '.', beginning and ending with a letter or digit, optionally \
     behind a DNS subdomain and '/'",
    |value| is_prefixed(value, 253, |name| {
        is_text(name, 63, |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte), u8::is_ascii_alphanumeric)
    })
);

name_type!(
    DriverName,
    "driver name",
    "The name of a driver, which its sockets, CDI files and attributes carry.",
    "a DNS subdomain of at most 63 lower-case characters",
    |value| is_subdomain(value, 63)
);

name_type!(
    NodeName,
    "node name",
    "The name of a Node object.",
    "a DNS subdomain of at most 253 lower-case characters",
    |value| is_subdomain(value, 253)
);

name_type!(
    ObjectName,
    "object name",
    "What an object, a namespace or a request can be called, as far as it matters here: nothing in it has a meaning in a \
     path. The API server is stricter, and its word counts.",
    "1 to 253 characters of a-z, 0-9, '-' and '.', beginning with a letter or digit",
    |value| {
        let starts_well = value.bytes().next().is_some_and(|first| is_lower(&first));
        starts_well && value.len() <= 253 && value.bytes().all(|byte| is_lower(&byte) || b"-.".contains(&byte))
    }
);

name_type!(
    ClaimUid,
    "claim uid",
    "The UID of a claim. It becomes part of file and CDI names, so its characters are restricted.",
    "1 to 63 characters of a-z, A-Z, 0-9 and '-', beginning with a letter or digit",
    |value| is_text(value, 63, |byte| byte.is_ascii_alphanumeric() || byte == b'-', u8::is_ascii_alphanumeric)
);

fn is_lower(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// True for 1 to `longest` bytes, all of one set, those at both ends of a narrower one.
fn is_text(value: &str, longest: usize, inside: impl Fn(u8) -> bool, at_the_ends: impl Fn(&u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    (1..=longest).contains(&bytes.len())
        && bytes.iter().all(|byte| inside(*byte))
        && bytes.first().is_some_and(&at_the_ends)
        && bytes.last().is_some_and(&at_the_ends)
}

pub(crate) fn is_dns_label(value: &str) -> bool {
    is_text(value, 63, |byte| is_lower(&byte) || byte == b'-', is_lower)
}

/// RFC 1123: labels of lower-case letters, digits and inner hyphens, joined by dots.
pub(crate) fn is_subdomain(value: &str, longest: usize) -> bool {
    value.len() <= longest && value.split('.').all(is_dns_label)
}

/// `name`, or `subdomain/name`.
fn is_prefixed(value: &str, longest: usize, is_name: impl Fn(&str) -> bool) -> bool {
    let (prefix, name) = value.split_once('/').map_or((None, value), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(|prefix| is_subdomain(prefix, longest)) && is_name(name)
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
    fn label_keys_follow_the_api_server() {
        for good in ["a", "example.com/Attached", "A_b.c-d", &"x".repeat(63), &format!("{}/a", "x.".repeat(126) + "x")]
        {
            assert!(LabelKey::new(good).is_ok(), "{good}");
        }
        for bad in
            ["", "/a", "a/", "-a", "a.", "Upper.io/a", "a/b/c", &"x".repeat(64), &format!("{}/a", "x.".repeat(127))]
        {
            assert!(LabelKey::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nodes_and_drivers_are_subdomains_of_different_lengths() {
        let long = "x.".repeat(31) + "xx";
        assert!(NodeName::new(long.as_str()).is_ok() && DriverName::new(long).is_err());
        for good in ["a", "node-1.example.org", "1"] {
            assert!(NodeName::new(good).is_ok() && DriverName::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "a..b", "a.", "-a", "a.-b", "A", "a_b", "a/b", &"x".repeat(64)] {
            assert!(NodeName::new(bad).is_err() && DriverName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_objects_cannot_lead_elsewhere() {
        for good in ["a", "train-0.x", "0", &"x".repeat(253)] {
            assert!(ObjectName::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a\\b", "A", "a\0", "a b", "a_b", "\u{e9}", &"x".repeat(254)] {
            assert!(ObjectName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn uids_have_no_character_that_means_anything_in_a_file_name() {
        for good in ["a", "5f0c7a1e-A", &"x".repeat(63)] {
            assert!(ClaimUid::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "a.b", "a/b", "a_b", &"x".repeat(64)] {
            assert!(ClaimUid::new(bad).is_err(), "{bad}");
        }
        assert_eq!(
            ClaimUid::new("../a").unwrap_err().to_string(),
            "claim uid \"../a\" is not valid: 1 to 63 characters of a-z, A-Z, 0-9 and '-', beginning with a letter or digit"
        );
    }

    #[test]
    fn a_bad_name_is_refused_while_reading_json_with_the_rule_in_the_error() {
        let error = serde_json::from_str::<DeviceName>("\"Bad Name\"").unwrap_err().to_string();
        assert!(error.contains("device name \"Bad Name\" is not valid: 1 to 63 characters"), "{error}");
    }
}
