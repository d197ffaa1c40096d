//! The key of an attachment: the caller's name for it, and the Id of the connection and of the chunk that are made for it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Managers keep a connection under its Id, some as a folder on disk: a label's length fits everywhere.
const LONGEST: usize = 63;

/// The key of an attachment. A call that is repeated with the same key is the same call.
///
/// It has 1 to 63 characters of `A-Z a-z 0-9 . _ -`, and is neither `.` nor `..`: it becomes the last part of a path.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct AttachKey(String);

/// The reason why a text is no key.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// The text has no characters.
    #[error("the key of an attachment is empty; give 1 to 63 characters")]
    Empty,
    /// The text has too many characters.
    #[error("the key of an attachment has {length} bytes; 63 are the most")]
    Long {
        /// Length of the text in bytes.
        length: usize,
    },
    /// The text has a character that a path or a manager would misread.
    #[error("the key {key:?} of an attachment has {found:?}; A-Z, a-z, 0-9, '.', '_' and '-' are allowed")]
    Character {
        /// The text.
        key: String,
        /// The first such character.
        found: char,
    },
    /// The text would name a folder instead of an object.
    #[error("the key {key:?} of an attachment names a folder in a path; give another one")]
    Folder {
        /// The text.
        key: String,
    },
}

impl AttachKey {
    /// Checks a text and makes it a key.
    ///
    /// # Errors
    /// When the text is no key.
    pub fn new(key: impl Into<String>) -> Result<Self, KeyError> {
        let key = key.into();
        let is_allowed = |c: &char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(c);
        if key.is_empty() {
            Err(KeyError::Empty)
        } else if key.len() > LONGEST {
            Err(KeyError::Long { length: key.len() })
        } else if let Some(found) = key.chars().find(|c| !is_allowed(c)) {
            Err(KeyError::Character { key, found })
        } else if key == "." || key == ".." {
            Err(KeyError::Folder { key })
        } else {
            Ok(Self(key))
        }
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AttachKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AttachKey {
    type Err = KeyError;

    fn from_str(key: &str) -> Result<Self, KeyError> {
        Self::new(key)
    }
}

impl TryFrom<String> for AttachKey {
    type Error = KeyError;

    fn try_from(key: String) -> Result<Self, KeyError> {
        Self::new(key)
    }
}

impl From<AttachKey> for String {
    fn from(key: AttachKey) -> Self {
        key.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_short_and_safe_in_a_path() {
        for good in ["a", "claim-5f0c.1_A", "...", &"x".repeat(63)] {
            assert_eq!(AttachKey::new(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(64);
        for (bad, reason) in [
            ("", "is empty"),
            (".", "names a folder"),
            ("..", "names a folder"),
            (long.as_str(), "64 bytes"),
            ("a/b", "has '/'"),
            ("a b", "has ' '"),
            ("ä", "has 'ä'"),
            ("a\0", "has '\\0'"),
            ("a%2f", "has '%'"),
        ] {
            let error = AttachKey::new(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_key_of_a_file_is_checked_as_well() {
        assert!(serde_json::from_str::<AttachKey>("\"a.b\"").is_ok());
        assert!(serde_json::from_str::<AttachKey>("\"../b\"").is_err());
    }
}
