//! Times as the API writes them.

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;

/// `2026-11-22T18:40:00Z`: what Kubernetes calls a Time.
pub fn rfc3339(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or_else(|_| Timestamp::now());
    format!("{at:.0}")
}

/// `2026-11-22T18:40:00.000000Z`: what Kubernetes calls a MicroTime, and takes with six digits only.
pub fn rfc3339_micros(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or_else(|_| Timestamp::now());
    format!("{at:.6}")
}

/// The moment that a Time or a MicroTime of Kubernetes says; `None` where it is no such thing.
pub fn from_rfc3339(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_have_as_many_digits_as_the_server_takes() {
        let at = UNIX_EPOCH + Duration::from_millis(1_800_000_000_500);
        assert_eq!(rfc3339(at), "2027-01-15T08:00:00Z");
        assert_eq!(rfc3339_micros(at), "2027-01-15T08:00:00.500000Z");
        assert_eq!(rfc3339_micros(UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
        assert_eq!(from_rfc3339(&rfc3339_micros(at)), Some(at));
        assert_eq!(from_rfc3339("2027-01-15T09:00:00+01:00"), Some(UNIX_EPOCH + Duration::from_secs(1_800_000_000)));
        assert_eq!(from_rfc3339("yesterday"), None);
    }
}
