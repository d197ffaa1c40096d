//! Figures, in the format that their reader asks for: the text format of Prometheus, version 0.0.4, which every scraper and checker
//! reads, or OpenMetrics.
//!
//! The library writes OpenMetrics, whose descriptions name a counter without the `_total` that its samples have. A reader of
//! the older format would take these for two figures, one without samples and one without a description.

/// A format of figures.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FigureFormat {
    /// The text format of Prometheus.
    #[default]
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl FigureFormat {
    /// Returns the format that the header `Accept` asks for; the older format where it says nothing of the newer one.
    pub fn asked(accept: Option<&str>) -> Self {
        let wants = |kind: &str| kind.trim_start().starts_with("application/openmetrics-text");
        let is_wanted =
            accept.is_some_and(|accept| accept.split(',').any(|kind| wants(kind) && !kind.contains("q=0.0")));
        if is_wanted { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Figures of the library, in this format.
    pub fn written(self, openmetrics: String) -> String {
        match self {
            Self::Text => from_openmetrics(&openmetrics),
            Self::OpenMetrics => openmetrics,
        }
    }
}

/// The same figures in the older format.
fn from_openmetrics(text: &str) -> String {
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
    fn a_reader_gets_the_format_that_it_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(FigureFormat::asked(Some(prometheus)), FigureFormat::OpenMetrics);
        for accept in [None, Some("*/*"), Some("text/plain;version=0.0.4"), Some("")] {
            assert_eq!(FigureFormat::asked(accept), FigureFormat::Text, "{accept:?}");
        }
    }

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
