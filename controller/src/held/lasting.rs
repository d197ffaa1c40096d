//! The duration of a Reservation, in words.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::reservation::ReservationSpec;
use hostler_cluster::{from_rfc3339, rfc3339};

/// The duration of a Reservation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Lasting {
    ForEver,
    Until(SystemTime),
    /// The text of an end that cannot be read as a time.
    Unclear(String),
}

impl Lasting {
    /// Reads the duration of a Reservation that was made at this time since 1970.
    pub(crate) fn of(spec: &ReservationSpec, created: Duration) -> Self {
        if let Some(expires) = &spec.expires {
            return from_rfc3339(expires).map_or_else(|| Self::Unclear(expires.clone()), Self::Until);
        }
        match spec.lasts() {
            Ok(None) => Self::ForEver,
            Ok(Some(ttl)) => Self::Until(UNIX_EPOCH + created + ttl),
            Err(_) => Self::Unclear(spec.ttl.clone().unwrap_or_default()),
        }
    }

    /// Returns the end, if there is one.
    pub(crate) fn end(&self) -> Option<SystemTime> {
        match self {
            Self::Until(end) => Some(*end),
            Self::ForEver | Self::Unclear(_) => None,
        }
    }
}

impl fmt::Display for Lasting {
    /// Writes the duration, as a continuation of "it lasts".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForEver => f.write_str("for ever"),
            Self::Until(end) => write!(f, "until {}", rfc3339(*end)),
            Self::Unclear(text) => write!(f, "for {text:?}, which is no time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_it_says_or_so_long_after_it_was_made() {
        let lasting = |ttl: Option<&str>, expires: Option<&str>| {
            let spec = ReservationSpec {
                ttl: ttl.map(str::to_owned),
                expires: expires.map(str::to_owned),
                ..ReservationSpec::default()
            };
            Lasting::of(&spec, Duration::from_secs(60)).to_string()
        };
        assert_eq!(lasting(None, None), "until 1970-01-02T00:01:00Z");
        assert_eq!(lasting(Some("30m"), None), "until 1970-01-01T00:31:00Z");
        assert_eq!(lasting(Some("0"), None), "for ever");
        assert_eq!(lasting(Some("0"), Some("2027-01-01T00:00:00Z")), "until 2027-01-01T00:00:00Z");
        assert_eq!(lasting(Some("soon"), None), "for \"soon\", which is no time");
    }
}
