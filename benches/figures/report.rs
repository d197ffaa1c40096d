//! The table: one line per figure, judged where there is a target.

use std::{fmt, fs, path::Path, time::Duration};

use super::samples::{Millis, Samples};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/performance.md");
const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->\n";

/// Something measured, or the most that it should be.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Amount {
    Time(Duration),
    /// Shown in units of 10⁶ bytes. Can be negative: what a process has grown by.
    Bytes(i64),
    Count(i64),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => Millis(*time).fmt(f),
            Self::Bytes(bytes) => write!(f, "{:.2} MB", *bytes as f64 / 1e6),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl From<u64> for Amount {
    fn from(bytes: u64) -> Self {
        Self::Bytes(i64::try_from(bytes).unwrap())
    }
}

struct Line {
    figure: String,
    target: String,
    measured: String,
    verdict: &'static str,
    how: String,
}

/// The lines so far.
#[derive(Default)]
pub(crate) struct Report(Vec<Line>);

impl Report {
    /// A figure with a target; `detail` stands behind what was measured.
    pub(crate) fn at_most(&mut self, figure: &str, most: Amount, measured: Amount, detail: &str, how: &str) {
        let verdict = if measured <= most { "met" } else { "**MISSED**" };
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        self.push(figure, format!("≤ {most}"), format!("{measured}{detail}"), verdict, how);
    }

    /// The median of times, with a target.
    pub(crate) fn median_at_most(&mut self, figure: &str, most: Duration, samples: &Samples, how: &str) {
        self.at_most(figure, Amount::Time(most), Amount::Time(samples.median()), &samples.tail(), how);
    }

    /// The median of times that explain another figure.
    pub(crate) fn median(&mut self, figure: &str, samples: &Samples, how: &str) {
        self.context(figure, format!("{} ({})", Millis(samples.median()), samples.tail()), how);
    }

    /// Something without a target, which explains another figure.
    pub(crate) fn context(&mut self, figure: &str, measured: String, how: &str) {
        self.push(figure, "–".to_owned(), measured, "context", how);
    }

    /// A figure that cannot be taken here.
    pub(crate) fn skipped(&mut self, figure: &str, why: &str, how: &str) {
        self.push(figure, "–".to_owned(), why.to_owned(), "skipped", how);
    }

    fn push(&mut self, figure: &str, target: String, measured: String, verdict: &'static str, how: &str) {
        eprintln!("figures:   {figure}: {measured} [{target}] {verdict}");
        self.0.push(Line { figure: figure.to_owned(), target, measured, verdict, how: how.to_owned() });
    }

    /// The table as Markdown.
    pub(crate) fn table(&self) -> String {
        let mut table = "| figure | target | measured | | how |\n|---|---|---|---|---|\n".to_owned();
        for Line { figure, target, measured, verdict, how } in &self.0 {
            table += &format!("| {figure} | {target} | {measured} | {verdict} | {how} |\n");
        }
        table
    }
}

/// Puts the table between the markers of the document.
pub(crate) fn update_document(table: &str) {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the document has a begin marker");
    let (_, after) = rest.split_once(END).expect("the document has an end marker");
    fs::write(DOCUMENT, format!("{before}{BEGIN}\n{table}\n{END}{after}")).unwrap();
    eprintln!("figures: updated {}", Path::new(DOCUMENT).display());
}
