//! The release of a server, in its own words. Pure.

/// The minor release, by what a server says of it and of its source: builds outside of the project leave the first
/// empty, and some providers append a plus.
pub(crate) fn minor_of(minor: &str, git_version: &str) -> Option<u32> {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    number(minor).or_else(|| number(git_version.strip_prefix("v")?.split('.').nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_known_of_servers_that_say_only_of_which_source_they_are() {
        for (minor, git_version, expected) in [
            ("36", "v1.36.2", Some(36)),
            ("31+", "v1.31.14-gke.1", Some(31)),
            ("", "v1.26.4-29+c0ffee", Some(26)),
            ("", "v0.0.0-master+$Format:%H$", Some(0)),
            ("", "", None),
            ("none", "latest", None),
        ] {
            assert_eq!(minor_of(minor, git_version), expected, "{minor} {git_version}");
        }
    }
}
