//! The text format of Prometheus, version 0.0.4: what every scraper and checker reads.
//!
//! The library writes OpenMetrics, whose descriptions name a counter without the `_total` that its samples have. A reader of
//! the older format would take these for two figures, one without samples and one that nobody has described.

/// What stands in the header `Content-Type`.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The same figures in the older format.
pub(super) fn from_openmetrics(text: &str) -> String {
    let mut classic = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        // Words of the newer format alone.
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let kind = lines.peek().copied().unwrap_or_default();
        match line.strip_prefix("# HELP ").and_then(|description| description.split_once(' ')) {
            Some((name, help)) if kind == format!("# TYPE {name} counter") => {
                lines.next();
                classic.push_str(&format!("# HELP {name}_total {help}\n# TYPE {name}_total counter\n"));
            }
            _ => {
                classic.push_str(line);
                classic.push('\n');
            }
        }
    }
    classic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_described_by_the_name_that_its_samples_have() {
        let openmetrics = "# HELP a_claims Claims.\n# TYPE a_claims counter\na_claims_total{b=\"c\"} 1\n\
             # HELP a_time_seconds Time.\n# TYPE a_time_seconds histogram\n# UNIT a_time_seconds seconds\na_time_seconds_sum 0.5\n\
             # HELP a_ready Ready.\n# TYPE a_ready gauge\na_ready 1\n# EOF\n";
        let classic = "# HELP a_claims_total Claims.\n# TYPE a_claims_total counter\na_claims_total{b=\"c\"} 1\n\
             # HELP a_time_seconds Time.\n# TYPE a_time_seconds histogram\na_time_seconds_sum 0.5\n\
             # HELP a_ready Ready.\n# TYPE a_ready gauge\na_ready 1\n";
        assert_eq!(from_openmetrics(openmetrics), classic);
    }
}
