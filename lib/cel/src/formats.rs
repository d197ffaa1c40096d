//! Formats that Kubernetes names: the rules for a text, and the messages about one that breaks them. Selectors can
//! see the words, so they are Kubernetes' own.

use super::{
    quoting::quoted,
    time::is_date,
    url::{Url, UrlError},
};

/// A named format.
#[derive(Debug)]
pub(super) struct NamedFormat {
    /// Name in expressions.
    pub(super) name: &'static str,
    /// Length of a regular expression for the format, by which costs are counted.
    pub(super) pattern_size: u64,
    faults: fn(&str) -> Faults,
}

/// Mistakes in a text; `None` where it is not known what Kubernetes would say.
type Faults = Option<Vec<String>>;

/// All formats.
pub(super) static FORMATS: [NamedFormat; 13] = [
    format("dns1123Label", 30, |text| Some(label(text))),
    format("dns1123Subdomain", 60, |text| Some(subdomain(text))),
    format("dns1035Label", 30, |text| Some(old_label(text))),
    format("qualifiedName", 60, |text| Some(qualified_name(text, "bytes", "a valid label key"))),
    format("dns1123LabelPrefix", 30, |text| Some(label(&masked(text)))),
    format("dns1123SubdomainPrefix", 60, |text| Some(subdomain(&masked(text)))),
    format("dns1035LabelPrefix", 30, |text| Some(old_label(&masked(text)))),
    format("labelValue", 40, |text| Some(label_value(text, "bytes"))),
    format("uri", 1103, uri),
    format("uuid", 70, |text| Some(unless(is_uuid(text), "does not match the UUID format"))),
    format("byte", 84, |text| Some(unless(is_base64(text), "invalid base64"))),
    format("date", 71, |text| Some(unless(is_date(text), "invalid date"))),
    format("datetime", 71, |text| Some(unless(is_date_and_time(text), "invalid datetime"))),
];

/// Formats with other messages until 1.34.
static FORMATS_OF_1_34: [NamedFormat; 2] = [
    format("qualifiedName", 60, |text| Some(qualified_name(text, "characters", "a qualified name"))),
    format("labelValue", 40, |text| Some(label_value(text, "characters"))),
];

const fn format(name: &'static str, pattern_size: u64, faults: fn(&str) -> Faults) -> NamedFormat {
    NamedFormat { name, pattern_size, faults }
}

impl NamedFormat {
    pub(super) fn named(name: &str, is_1_34: bool) -> Option<&'static Self> {
        let older: &[Self] = if is_1_34 { &FORMATS_OF_1_34 } else { &[] };
        older.iter().chain(&FORMATS).find(|format| format.name == name)
    }

    /// Mistakes in a text; `None` where it is not known what Kubernetes would say.
    pub(super) fn faults(&self, text: &str) -> Faults {
        (self.faults)(text)
    }
}

fn unless(is_valid: bool, fault: &str) -> Vec<String> {
    if is_valid { Vec::new() } else { vec![fault.to_owned()] }
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const OLD_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn mismatch(rule: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

/// True if the text consists of such characters, the first and the last being letters or digits.
fn is_framed(text: &str, is_inside: fn(u8) -> bool, is_end: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| is_end(*first) && is_end(*last)) && bytes.iter().all(|byte| is_inside(*byte))
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    is_framed(text, |byte| is_lower(byte) || byte == b'-', is_lower)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_name(text: &str) -> bool {
    is_framed(text, |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte), |byte| byte.is_ascii_alphanumeric())
}

fn too_long(text: &str, longest: usize, unit: &str) -> Vec<String> {
    unless(text.len() <= longest, &format!("must be no more than {longest} {unit}"))
}

fn label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, "characters");
    if is_subdomain(text) && !is_label(text) {
        faults.push("must not contain dots".to_owned());
    } else if !is_label(text) {
        let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
            start and end with an alphanumeric character";
        faults.push(mismatch(rule, LABEL, &["my-name", "123-abc"]));
    }
    faults
}

fn subdomain(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253, "characters");
    if !is_subdomain(text) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
            must start and end with an alphanumeric character";
        faults.push(mismatch(rule, SUBDOMAIN, &["example.com"]));
    }
    faults
}

/// A label that begins with a letter.
fn old_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, "characters");
    if !(is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
            alphabetic character, and end with an alphanumeric character";
        faults.push(mismatch(rule, OLD_LABEL, &["my-name", "abc-123"]));
    }
    faults
}

/// A text that something will be put behind: a dash at its end is taken for a letter, and so is the character before
/// it.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        // Kubernetes cuts two bytes off. What remains of a longer character has no format.
        Some(before) if !before.is_empty() => match before.split_at_checked(before.len() - 1) {
            Some((head, _)) => format!("{head}a"),
            None => text.to_owned(),
        },
        _ => text.to_owned(),
    }
}

fn qualified_name(text: &str, unit: &str, whole: &str) -> Vec<String> {
    let rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
        character";
    let unfit = mismatch(rule, NAME, &["MyName", "my.name", "123-abc"]);
    let parts: Vec<&str> = text.split('/').collect();
    let (mut faults, name) = match parts[..] {
        [name] => (Vec::new(), name),
        ["", name] => (vec!["prefix part must be non-empty".to_owned()], name),
        [prefix, name] => (subdomain(prefix).iter().map(|fault| format!("prefix part {fault}")).collect(), name),
        _ => {
            let end = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("{whole} {unfit} {end}")];
        }
    };
    let length = if name.is_empty() { vec!["must be non-empty".to_owned()] } else { too_long(name, 63, unit) };
    faults.extend(length.iter().map(|fault| format!("name part {fault}")));
    if !is_name(name) {
        faults.push(format!("name part {unfit}"));
    }
    faults
}

fn label_value(text: &str, unit: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, unit);
    if !text.is_empty() && !is_name(text) {
        let rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
            must start and end with an alphanumeric character";
        faults.push(mismatch(rule, &format!("({NAME})?"), &["MyValue", "my_value", "12345"]));
    }
    faults
}

fn uri(text: &str) -> Faults {
    match Url::check(text) {
        Ok(()) => Some(Vec::new()),
        Err(UrlError::Address) => None,
        Err(error) => Some(vec![format!("parse {}: {error}", quoted(text))]),
    }
}

/// True for groups of 8, 4, 4, 4 and 12 digits; each dash between them can be missing.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        rest = if at == 0 { rest } else { rest.strip_prefix('-').unwrap_or(rest) };
        let Some((digits, behind)) = rest.split_at_checked(length) else { return false };
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

/// True for groups of four digits, of which the last is filled up.
fn is_base64(text: &str) -> bool {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    !text.is_empty() && text.len().is_multiple_of(4) && digits.bytes().all(is_digit)
}

/// True for a date, a T, a time and a zone; any text behind a second T does not matter.
fn is_date_and_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time_with_zone(time)
}

/// True for `12:30:59`, with a fraction behind any sign, and `z` or an offset of two pairs of digits.
fn is_time_with_zone(text: &str) -> bool {
    let pair = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let parts: Vec<&str> = clock.split(':').collect();
    let is_clock = matches!(parts[..], [hour, minute, second] if [hour, minute, second].into_iter().all(pair)
        && hour <= "23" && minute <= "59" && second <= "59");
    let is_offset = |text: &str| {
        let offset = text.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':'));
        text == "z" || offset.is_some_and(|(hours, minutes)| pair(hours) && pair(minutes))
    };
    let mut fraction = rest.chars();
    let has_fraction = fraction.next().is_some_and(|sign| sign != '\n');
    let digits = fraction.as_str().trim_start_matches(|c: char| c.is_ascii_digit());
    let is_fraction = has_fraction && digits.len() < fraction.as_str().len() && is_offset(digits);
    is_clock && (is_offset(rest) || is_fraction)
}
