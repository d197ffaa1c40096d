//! Figures over HTTP, in the format that their reader asks for: the text format of Prometheus, version 0.0.4, which every
//! scraper and checker reads, or OpenMetrics.
//!
//! The library writes OpenMetrics, whose descriptions name a counter without the `_total` that its samples have. A reader of
//! the older format would take these for two figures, one without samples and one without a description.

mod process;

use axum::{
    http::{
        HeaderMap,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};

pub use process::ProcessFigures;

/// Returns the answer to a reader with these headers; the figures come as the library has written them.
pub fn figures_response(headers: &HeaderMap, openmetrics: String) -> Response {
    let format = FigureFormat::asked(headers);
    ([(CONTENT_TYPE, format.content_type())], format.written(openmetrics)).into_response()
}

/// A format of figures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FigureFormat {
    /// The text format of Prometheus.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl FigureFormat {
    /// Returns the format that the reader prefers; the older one for readers that do not name OpenMetrics, or that like
    /// both as much: every tool reads it.
    fn asked(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let (mut text, mut openmetrics) = (0, 0);
        for range in values.flat_map(|value| value.split(',')) {
            let (kind, weight) = weighed(range);
            match kind {
                "application/openmetrics-text" => openmetrics = openmetrics.max(weight),
                "text/plain" | "text/*" | "*/*" => text = text.max(weight),
                _ => {}
            }
        }
        if openmetrics > text { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the value of the header `Content-Type`.
    fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the library's figures in this format.
    fn written(self, openmetrics: String) -> String {
        match self {
            Self::Text => from_openmetrics(&openmetrics),
            Self::OpenMetrics => openmetrics,
        }
    }
}

/// Returns the media type of one range of an `Accept` header, and its weight in thousandths: 1000 where none is given,
/// or one that cannot be read.
fn weighed(range: &str) -> (&str, u32) {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=")).and_then(|weight| weight.parse::<f32>().ok());
    (kind, weight.map_or(1000, |weight| (weight.clamp(0.0, 1.0) * 1000.0) as u32))
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

    /// Asks as a reader with this header; gives type and text of the answer.
    fn asked(accept: Option<&str>) -> FigureFormat {
        let headers = accept.map(|accept| (ACCEPT, accept.parse().unwrap()));
        FigureFormat::asked(&headers.into_iter().collect())
    }

    #[test]
    fn a_reader_gets_the_format_that_it_prefers() {
        let second = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let third = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                     application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1";
        for accept in [second, third, "application/openmetrics-text"] {
            assert_eq!(asked(Some(accept)), FigureFormat::OpenMetrics, "{accept}");
        }
        let without = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1";
        for accept in ["*/*", "text/plain;version=0.0.4", "", "application/openmetrics-text;q=0", without] {
            assert_eq!(asked(Some(accept)), FigureFormat::Text, "{accept}");
        }
        assert_eq!(asked(None), FigureFormat::Text);
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
