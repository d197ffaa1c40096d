//! Semantic versions as Kubernetes reads and orders them.

use std::cmp::Ordering;

/// A version; the part behind a plus sign is checked and forgotten.
#[derive(Clone, Debug)]
pub(super) struct Semver {
    /// Major, minor and patch.
    pub(super) numbers: [u64; 3],
    prerelease: Vec<Identifier>,
}

/// Numbers come before words.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Identifier {
    Number(u64),
    Word(Box<str>),
}

impl Semver {
    /// Reads `1.2.3-rc.1+build`, all three numbers written out.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let [major, minor, rest] = [parts.next()?, parts.next()?, parts.next()?];
        let (rest, build) = split_behind(rest, '+');
        let (patch, prerelease) = split_behind(rest, '-');
        let is_build = build.is_none_or(|build| build.split('.').all(is_word));
        let prerelease = prerelease.map_or(Some(Vec::new()), |text| text.split('.').map(identifier).collect())?;
        let numbers = [number(major)?, number(minor)?, number(patch)?];
        is_build.then_some(Self { numbers, prerelease })
    }

    /// Reads a version also with a `v` in front, with numbers left out, or with zeros in front of numbers.
    pub(super) fn parse_normalized(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return None;
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }

    /// The order that decides which version is newer.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let is_release = |version: &Self| version.prerelease.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then(is_release(self).cmp(&is_release(other)))
            .then_with(|| self.prerelease.cmp(&other.prerelease))
    }
}

fn split_behind(text: &str, sign: char) -> (&str, Option<&str>) {
    text.split_once(sign).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn number(text: &str) -> Option<u64> {
    let is_plain = is_digits(text) && (text.len() == 1 || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

fn identifier(text: &str) -> Option<Identifier> {
    if !is_word(text) {
        return None;
    }
    if is_digits(text) { number(text).map(Identifier::Number) } else { Some(Identifier::Word(text.into())) }
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}
