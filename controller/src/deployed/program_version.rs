//! Versions of the programs, and how far apart two of them may be. Pure.

use std::fmt;

/// A version of both programs: `0.2.0`. What stands behind the three numbers is not compared.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct ProgramVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

/// The way from one version to another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum VersionStep {
    /// Both have the same formats and objects.
    Same,
    /// To the next minor version.
    Up,
    /// To the previous minor version.
    Down,
    /// Over minor versions in between, the first of which is given.
    TooFar(ProgramVersion),
}

impl ProgramVersion {
    /// The version of this program.
    pub(crate) fn own() -> Option<Self> {
        Self::parse(env!("CARGO_PKG_VERSION"))
    }

    /// Reads a version.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let end = numbers.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(numbers.len());
        let mut numbers = numbers[..end].split('.').map(|number| number.parse().ok());
        let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(Self { major, minor, patch })
    }

    /// Reads the tag of an image: `registry.example.org/hostler:0.2.0`.
    pub(crate) fn of_image(image: &str) -> Option<Self> {
        let named = image.split_once('@').map_or(image, |(named, _)| named);
        let last = named.rsplit_once('/').map_or(named, |(_, last)| last);
        Self::parse(last.split_once(':')?.1)
    }

    /// Returns the way from this version to another one. Each minor version reads and writes what its neighbours do.
    pub(crate) fn step_to(self, other: Self) -> VersionStep {
        let further = |minor| VersionStep::TooFar(Self { minor, patch: 0, ..self });
        match (self.minor, other.minor) {
            _ if self.major != other.major => further(self.minor + 1),
            (own, there) if own == there => VersionStep::Same,
            (own, there) if own + 1 == there => VersionStep::Up,
            (own, there) if own == there + 1 => VersionStep::Down,
            (own, there) if own < there => further(own + 1),
            (own, _) => further(own - 1),
        }
    }

    /// True if the version is older than a minor version.
    pub(crate) fn is_before(self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) < (major, minor)
    }
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> ProgramVersion {
        ProgramVersion::parse(text).unwrap()
    }

    #[test]
    fn versions_stand_in_tags_with_and_without_more() {
        for (image, expected) in [
            ("hostler:0.1.0", Some("0.1.0")),
            ("registry.example.org:5000/a/hostler:v0.2.1-rc.1@sha256:00", Some("0.2.1")),
            ("registry.example.org:5000/hostler", None),
            ("hostler:latest", None),
            ("hostler@sha256:00", None),
            ("hostler:1.2", None),
        ] {
            assert_eq!(ProgramVersion::of_image(image), expected.map(version), "{image}");
        }
    }

    #[test]
    fn one_minor_version_is_a_step_and_two_are_too_far() {
        let step = |from: &str, to: &str| version(from).step_to(version(to));
        assert_eq!(step("0.2.0", "0.2.7"), VersionStep::Same);
        assert_eq!(step("0.1.9", "0.2.0"), VersionStep::Up);
        assert_eq!(step("0.2.0", "0.1.0"), VersionStep::Down);
        assert_eq!(step("0.1.3", "0.3.0"), VersionStep::TooFar(version("0.2.0")));
        assert_eq!(step("0.4.0", "0.1.0"), VersionStep::TooFar(version("0.3.0")));
        assert_eq!(step("0.4.0", "1.0.0"), VersionStep::TooFar(version("0.5.0")));
        assert!(version("0.1.9").is_before(0, 2) && !version("0.2.0").is_before(0, 2));
    }
}
