//! Names of devices: the kind `vendor/class`, the device name, and the qualified name `vendor/class=name` by which a
//! container requests a device.
//!
//! The rules are those that every runtime enforces. The CDI specification is narrower on kinds (DNS subdomain, 63
//! characters) and wider on their first character; what it asks for beyond this module is reported by `Spec::validate`.

use std::{fmt, str::FromStr};

/// Why a string is no name. Displays as what is wrong and what would be right, without the name itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// The kind has no `/` between vendor and class.
    #[error("has no '/' between vendor and class")]
    NoSlash,
    /// The qualified name has no `=` between kind and device.
    #[error("has no '=' between kind and device name")]
    NoEquals,
    /// A vendor or class begins with something else than a letter.
    #[error("must begin with a letter")]
    FirstNotLetter,
    /// A device name begins with something else than a letter or digit.
    #[error("must begin with a letter or digit")]
    FirstNotAlphanumeric,
    /// The last character is punctuation.
    #[error("must end with a letter or digit")]
    LastNotAlphanumeric,
    /// A character that is allowed nowhere in a vendor or class.
    #[error("has the character {0:?}, which is none of letters, digits, '_', '-' and '.'")]
    KindCharacter(char),
    /// A character that is allowed nowhere in a device name.
    #[error("has the character {0:?}, which is none of letters, digits, '_', '-', '.' and ':'")]
    DeviceCharacter(char),
}

/// A checked `vendor/class`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Kind {
    text: String,
    slash: usize,
}

impl Kind {
    /// The part before the slash, for example `hostler.dev`.
    pub fn vendor(&self) -> &str {
        &self.text[..self.slash]
    }

    /// The part behind the slash, for example `claim`.
    pub fn class(&self) -> &str {
        &self.text[self.slash + 1..]
    }

    /// The whole kind, `vendor/class`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Kind {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (vendor, class) = text.split_once('/').ok_or(NameError::NoSlash)?;
        check_vendor_or_class(vendor)?;
        check_vendor_or_class(class)?;
        Ok(Self { text: text.to_owned(), slash: vendor.len() })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Checks a vendor or a class: a letter, then letters, digits, `_`, `-` and `.`, with a letter or digit at the end.
///
/// # Errors
/// The first rule that the name breaks.
pub fn check_vendor_or_class(name: &str) -> Result<(), NameError> {
    let first = name.chars().next().ok_or(NameError::Empty)?;
    if !first.is_ascii_alphabetic() {
        return Err(NameError::FirstNotLetter);
    }
    check_rest(name, "_-.", NameError::KindCharacter)
}

/// Checks a device name: a letter or digit, then letters, digits, `_`, `-`, `.` and `:`, with a letter or digit at the
/// end. (The CDI specification does not list the colon; every runtime accepts it, and PCI addresses need it.)
///
/// # Errors
/// The first rule that the name breaks.
pub fn check_device_name(name: &str) -> Result<(), NameError> {
    let first = name.chars().next().ok_or(NameError::Empty)?;
    if !first.is_ascii_alphanumeric() {
        return Err(NameError::FirstNotAlphanumeric);
    }
    check_rest(name, "_-.:", NameError::DeviceCharacter)
}

fn check_rest(name: &str, punctuation: &str, bad: fn(char) -> NameError) -> Result<(), NameError> {
    if let Some(c) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !punctuation.contains(*c)) {
        return Err(bad(c));
    }
    if name.ends_with(|c: char| !c.is_ascii_alphanumeric()) {
        return Err(NameError::LastNotAlphanumeric);
    }
    Ok(())
}

/// The name by which a container requests a device: `vendor/class=name`. The device name is taken as it is.
pub fn qualified_name(kind: &Kind, device: &str) -> String {
    format!("{kind}={device}")
}

/// Splits and checks `vendor/class=name`.
///
/// # Errors
/// What is wrong with the kind or the device name.
pub fn parse_qualified_name(text: &str) -> Result<(Kind, &str), NameError> {
    let (kind, device) = text.split_once('=').ok_or(NameError::NoEquals)?;
    let kind = kind.parse()?;
    check_device_name(device)?;
    Ok((kind, device))
}

/// The file name (without extension) of a spec that lives as long as something outside of it, for example a claim:
/// `vendor-class_id`, as the reference library forms it. Slashes in the id become `_`.
pub fn transient_stem(kind: &Kind, id: &str) -> String {
    format!("{}{}", transient_prefix(kind), id.replace('/', "_"))
}

/// The id in a file name that [`transient_stem`] made for the kind; `None` for other names.
pub fn transient_id<'a>(kind: &Kind, stem: &'a str) -> Option<&'a str> {
    stem.strip_prefix(&transient_prefix(kind)).filter(|id| !id.is_empty())
}

fn transient_prefix(kind: &Kind) -> String {
    format!("{}-{}_", kind.vendor(), kind.class())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_splits_into_vendor_and_class() {
        let kind: Kind = "hostler.dev/claim".parse().unwrap();
        assert_eq!((kind.vendor(), kind.class(), kind.as_str()), ("hostler.dev", "claim", "hostler.dev/claim"));
        assert_eq!(kind.to_string(), "hostler.dev/claim");
    }

    #[test]
    fn kinds_that_runtimes_refuse_are_refused() {
        for (text, error) in [
            ("", NameError::NoSlash),
            ("vendor.com", NameError::NoSlash),
            ("/class", NameError::Empty),
            ("vendor.com/", NameError::Empty),
            ("4vendor/class", NameError::FirstNotLetter),
            ("vendor/4class", NameError::FirstNotLetter),
            ("vendor-/class", NameError::LastNotAlphanumeric),
            ("vendor/class.", NameError::LastNotAlphanumeric),
            ("vendor/a/b", NameError::KindCharacter('/')),
            ("vendor/cl ass", NameError::KindCharacter(' ')),
            ("vendor/clas\u{e9}", NameError::KindCharacter('\u{e9}')),
        ] {
            assert_eq!(text.parse::<Kind>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn device_names_allow_a_leading_digit_and_colons_inside() {
        for name in ["0", "gpu0", "0000:3b:00.0", "a_b-c.d:e", "5f0c7a1e-cpu-0"] {
            assert_eq!(check_device_name(name), Ok(()), "{name}");
        }
        for (name, error) in [
            ("", NameError::Empty),
            ("-a", NameError::FirstNotAlphanumeric),
            ("a:", NameError::LastNotAlphanumeric),
            ("a=b", NameError::DeviceCharacter('=')),
            ("a/b", NameError::DeviceCharacter('/')),
        ] {
            assert_eq!(check_device_name(name), Err(error), "{name:?}");
        }
    }

    #[test]
    fn qualified_names_are_parsed_back() {
        let kind: Kind = "hostler.dev/claim".parse().unwrap();
        let name = qualified_name(&kind, "5f0c-cpu-0");
        assert_eq!(name, "hostler.dev/claim=5f0c-cpu-0");
        assert_eq!(parse_qualified_name(&name), Ok((kind, "5f0c-cpu-0")));
        assert_eq!(parse_qualified_name("/dev/null"), Err(NameError::NoEquals));
        assert_eq!(parse_qualified_name("vendor/class="), Err(NameError::Empty));
    }

    #[test]
    fn transient_file_names_carry_the_id() {
        let kind: Kind = "hostler.dev/claim".parse().unwrap();
        assert_eq!(transient_stem(&kind, "5f0c/a"), "hostler.dev-claim_5f0c_a");
        assert_eq!(transient_id(&kind, "hostler.dev-claim_5f0c"), Some("5f0c"));
        assert_eq!(transient_id(&kind, "hostler.dev-claim_"), None);
        assert_eq!(transient_id(&kind, "hostler.dev-other_5f0c"), None);
    }
}
