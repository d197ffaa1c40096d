//! The syntax of names and values.

/// A part of a host name, of at most 63 bytes.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

fn is_part(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let outside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !text.is_empty() && text.bytes().all(inside) && ends(text, outside)
}

/// Parts with dots between them, of at most 253 bytes. Unlike DNS, the real server lets a part be as long as the whole.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Like an identifier in C, of at most `most` bytes.
pub(crate) fn is_identifier(text: &str, most: usize) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.len() <= most && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Name of an attribute or a capacity: an identifier, perhaps with a domain.
pub(crate) fn is_qualified(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    domain.is_none_or(|domain| domain.len() <= 63 && is_subdomain(domain)) && is_identifier(name, 32)
}

/// Key of a label, a taint or a condition.
pub(crate) fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

pub(crate) fn is_label_value(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= 63 && text.bytes().all(inside) && (text.is_empty() || ends(text, |byte| byte.is_ascii_alphanumeric()))
}

/// Subdomains with slashes between them.
pub(crate) fn is_pool_name(text: &str) -> bool {
    text.len() <= 253 && text.split('/').all(is_subdomain)
}

/// A version as in Semantic Versioning 2.0.0.
pub(crate) fn is_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| word(part) && (!digits(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

fn ends(text: &str, fits: impl Fn(u8) -> bool) -> bool {
    text.bytes().next().is_some_and(&fits) && text.bytes().last().is_some_and(&fits)
}
