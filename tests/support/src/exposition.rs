//! The answer of a program to a scrape, and the table of `docs/metrics.md` that explains its figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    path::Path,
};

/// Labels of a sample.
pub type SampleLabels = BTreeMap<String, String>;

/// The answer to a scrape in the text format of Prometheus.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The answer.
    pub text: String,
    /// Name and labels of each sample.
    pub samples: Vec<(String, SampleLabels)>,
    kinds: BTreeMap<String, String>,
    helps: BTreeMap<String, String>,
}

/// A row of the table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MetricRow {
    /// `gauge`, `counter` or `histogram`.
    pub kind: String,
    /// `seconds`, `bytes` or nothing.
    pub unit: String,
    /// Names of the labels.
    pub labels: BTreeSet<String>,
    /// The description that the program gives, without its full stop.
    pub meaning: String,
    /// `hostler`, `hostler-controller` or `both`.
    pub program: String,
}

impl Exposition {
    /// Reads an answer.
    pub fn parse(text: String) -> Self {
        let mut found = Self { text, ..Self::default() };
        for line in found.text.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                found.kinds.insert(name.to_owned(), kind.to_owned());
            } else if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
                found.helps.insert(name.to_owned(), help.trim_end_matches('.').to_owned());
            } else if !line.starts_with('#') {
                let (series, _) = line.rsplit_once(' ').expect("a sample has a value");
                found.samples.push(series_of(series));
            }
        }
        found
    }

    /// Returns the metric that a sample belongs to.
    pub fn described(&self, sample: &str) -> Option<&str> {
        let known = |name: &str| self.kinds.get_key_value(name).map(|(name, _)| name.as_str());
        let parts = ["_bucket", "_sum", "_count"].into_iter().filter_map(|part| sample.strip_suffix(part));
        known(sample).or_else(|| parts.into_iter().find_map(known))
    }

    /// Returns the value of a series.
    pub fn value(&self, series: &str) -> Option<f64> {
        let line = self.text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
    }

    /// Returns the metrics of a program that the table has and that are not given: the library describes no metric
    /// without samples.
    pub fn missing(&self, program: &str) -> Vec<String> {
        let mut table = metric_table();
        table.retain(|name, row| row.is_of(program) && !self.kinds.contains_key(name));
        table.into_keys().collect()
    }

    /// Returns what the table says otherwise about the metrics that a program gives.
    pub fn differences(&self, program: &str) -> Vec<String> {
        let table = metric_table();
        let mut wrong = Vec::new();
        for name in self.kinds.keys() {
            let explained = table.get(name).filter(|row| row.is_of(program));
            let given =
                MetricRow { program: explained.map(|row| row.program.clone()).unwrap_or_default(), ..self.row(name) };
            if explained != Some(&given) {
                wrong.push(format!("{name}: the table has {explained:?}, {program} gives {given:?}"));
            }
        }
        wrong
    }

    fn row(&self, name: &str) -> MetricRow {
        let own = self.samples.iter().filter(|(sample, _)| self.described(sample) == Some(name));
        let labels = own.flat_map(|(_, labels)| labels.keys().filter(|label| *label != "le").cloned());
        let unit = ["seconds", "bytes"].into_iter().find(|unit| name.trim_end_matches("_total").ends_with(unit));
        MetricRow {
            kind: self.kinds[name].clone(),
            unit: unit.unwrap_or_default().to_owned(),
            labels: labels.collect(),
            meaning: self.helps.get(name).cloned().unwrap_or_default(),
            program: String::new(),
        }
    }
}

impl MetricRow {
    fn is_of(&self, program: &str) -> bool {
        self.program == program || self.program == "both"
    }
}

/// Parses `name{label="value",…}`.
pub fn series_of(series: &str) -> (String, SampleLabels) {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    // Other comparisons of a selector (`!=`, `=~`) select no label that has to be there.
    let pairs = labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\""));
    let pairs = pairs.filter(|(key, _)| !key.ends_with(['!', '~']));
    (name.to_owned(), pairs.map(|(key, value)| (key.to_owned(), value.trim_end_matches('"').to_owned())).collect())
}

/// Returns the table of `docs/metrics.md`, by name of the metric.
pub fn metric_table() -> BTreeMap<String, MetricRow> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = fs::read_to_string(page).expect("the page is there");
    let rows = text.lines().filter(|line| line.starts_with("| `hostler_") || line.starts_with("| `process_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, unit, labels, meaning, program, _] = cells[..] else { panic!("{row} has not six cells") };
        let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned);
        let row = MetricRow {
            kind: kind.to_owned(),
            unit: unit.to_owned(),
            labels: labels.collect(),
            meaning: meaning.to_owned(),
            program: program.to_owned(),
        };
        (name.trim_matches('`').to_owned(), row)
    })
    .collect()
}

/// Asks for the figures on a connection, with this header `Accept` if there is one; returns head and body of the answer.
pub fn asked_for_format(mut stream: impl Read + Write, accept: Option<&str>) -> (String, String) {
    let accept = accept.map(|accept| format!("accept: {accept}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{accept}\r\n");
    stream.write_all(request.as_bytes()).expect("the request is taken");
    let answer = std::io::read_to_string(stream).expect("the answer comes whole");
    let (head, body) = answer.split_once("\r\n\r\n").expect("the answer has a head");
    (head.to_lowercase(), body.to_owned())
}

/// Asserts that figures come in the format that the reader prefers, whatever serves them.
pub fn assert_formats(ask: impl Fn(Option<&str>) -> (String, String)) {
    // As Prometheus asks.
    let (head, body) =
        ask(Some("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"));
    let kind = "\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.contains(kind) && body.ends_with("# EOF\n"), "{head}\n{body}");
    for accept in [None, Some("text/plain;version=0.0.4"), Some("*/*")] {
        let (head, body) = ask(accept);
        let kind = "\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8";
        assert!(head.contains(kind), "{accept:?}: {head}");
        // Words of the other format.
        assert!(!body.contains("# EOF") && !body.contains("# UNIT"), "{accept:?}: {body}");
    }
}
