//! Names of devices: the vendor and the class of a kind `vendor/class`, and the device name.
//!
//! The rules are those that every runtime enforces. The CDI specification is narrower on kinds (DNS subdomain, 63
//! characters) and wider on their first character; what it asks for beyond this module is reported by
//! `CdiSpec::validate`.

/// Reason why a string is no name. Displays the mistake and the rule, without the name itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum NameError {
    /// An empty name.
    #[error("is empty")]
    Empty,
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

/// Checks a vendor or a class: a letter, then letters, digits, `_`, `-` and `.`, with a letter or digit at the end.
///
/// # Errors
/// The first rule that the name breaks.
pub(crate) fn check_vendor_or_class(name: &str) -> Result<(), NameError> {
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
pub(crate) fn check_device_name(name: &str) -> Result<(), NameError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_and_classes_that_runtimes_refuse_are_refused() {
        for name in ["hostler.dev", "claim", "a_b-c.d"] {
            assert_eq!(check_vendor_or_class(name), Ok(()), "{name}");
        }
        for (name, error) in [
            ("", NameError::Empty),
            ("4vendor", NameError::FirstNotLetter),
            ("vendor-", NameError::LastNotAlphanumeric),
            ("class.", NameError::LastNotAlphanumeric),
            ("a/b", NameError::KindCharacter('/')),
            ("cl ass", NameError::KindCharacter(' ')),
            ("clas\u{e9}", NameError::KindCharacter('\u{e9}')),
        ] {
            assert_eq!(check_vendor_or_class(name), Err(error), "{name:?}");
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
}
