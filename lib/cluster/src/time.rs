//! Times as the API writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde_json::Value;

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

/// The same, since 1970.
pub fn since_1970(text: &str) -> Option<Duration> {
    from_rfc3339(text)?.duration_since(UNIX_EPOCH).ok()
}

/// When the server has written an object last, by its own clock and since 1970, from what it keeps of each writer in
/// `metadata.managedFields`. To the second, and never later than it was.
pub fn written_at(managed_fields: &Value) -> Option<Duration> {
    managed_fields.as_array()?.iter().filter_map(|fields| since_1970(fields["time"].as_str()?)).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_word_of_all_writers_tells_the_servers_time() {
        let managed = json!([{"time": "2026-01-01T00:00:05Z"}, {"time": "2026-01-01T00:00:09Z"}, {}]);
        assert_eq!(written_at(&managed), since_1970("2026-01-01T00:00:09Z"));
        assert_eq!(written_at(&Value::Null), None);
    }

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
