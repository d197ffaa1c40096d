//! The table: one line per figure, judged where there is a target.

use std::{fmt, fs, path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use super::samples::{Millis, Samples};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/performance.md");
/// A figure is met at this much of its budget.
pub(crate) const ALLOWED_PERCENT: u32 = 150;
const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->\n";

/// Something measured, or the most that it should be.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd, Serialize)]
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

impl Amount {
    /// The same kind of amount in the middle of several, which are sorted for it.
    pub(crate) fn median(amounts: &mut [Self]) -> Self {
        amounts.sort_by(|one, other| one.as_number().total_cmp(&other.as_number()));
        amounts[amounts.len() / 2]
    }

    /// Seconds, bytes or pieces.
    pub(crate) fn as_number(self) -> f64 {
        match self {
            Self::Time(time) => time.as_secs_f64(),
            Self::Bytes(number) | Self::Count(number) => number as f64,
        }
    }
}

impl From<u64> for Amount {
    fn from(bytes: u64) -> Self {
        Self::Bytes(i64::try_from(bytes).unwrap())
    }
}

struct Line {
    section: &'static str,
    figure: String,
    /// The figure as a number, where it is one that two binaries can be compared by.
    amount: Option<Amount>,
    target: String,
    measured: String,
    verdict: &'static str,
    how: String,
}

/// The lines so far.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
    /// Section that is being measured.
    pub(crate) section: &'static str,
}

impl Report {
    /// A figure with a target; `detail` stands behind what was measured.
    pub(crate) fn at_most(&mut self, figure: &str, most: Amount, measured: Amount, detail: &str, how: &str) {
        let verdict = if measured <= most { "met" } else { "**MISSED**" };
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        self.push(figure, Some(measured), format!("≤ {most}"), format!("{measured}{detail}"), verdict, how);
    }

    /// The median of times that contain what the machine takes for `budget`: met at one and a half times of it.
    pub(crate) fn median_of_budget(&mut self, figure: &str, budget: Duration, samples: &Samples, how: &str) {
        let (most, measured) = (budget * ALLOWED_PERCENT / 100, samples.median());
        let ratio = measured.as_secs_f64() / budget.as_secs_f64();
        let detail = format!("{ratio:.1} × its budget of {}; {}", Millis(budget), samples.tail());
        self.at_most(figure, Amount::Time(most), Amount::Time(measured), &detail, how);
    }

    /// The median of times, with a target.
    pub(crate) fn median_at_most(&mut self, figure: &str, most: Duration, samples: &Samples, how: &str) {
        self.at_most(figure, Amount::Time(most), Amount::Time(samples.median()), &samples.tail(), how);
    }

    /// The median of times that explain another figure.
    pub(crate) fn median(&mut self, figure: &str, samples: &Samples, how: &str) {
        let median = samples.median();
        let measured = format!("{} ({})", Millis(median), samples.tail());
        self.push(figure, Some(Amount::Time(median)), "–".to_owned(), measured, "context", how);
    }

    /// Something without a target, which explains another figure.
    pub(crate) fn context(&mut self, figure: &str, measured: String, how: &str) {
        self.push(figure, None, "–".to_owned(), measured, "context", how);
    }

    /// A figure that cannot be taken here.
    pub(crate) fn skipped(&mut self, figure: &str, why: &str, how: &str) {
        self.push(figure, None, "–".to_owned(), why.to_owned(), "skipped", how);
    }

    fn push(
        &mut self,
        figure: &str,
        amount: Option<Amount>,
        target: String,
        measured: String,
        verdict: &'static str,
        how: &str,
    ) {
        eprintln!("figures:   {figure}: {measured} [{target}] {verdict}");
        let section = self.section;
        self.lines.push(Line {
            section,
            figure: figure.to_owned(),
            amount,
            target,
            measured,
            verdict,
            how: how.to_owned(),
        });
    }

    /// The figures that are numbers, with their sections, for a comparison.
    pub(crate) fn amounts(&self) -> Vec<(&'static str, String, Amount)> {
        self.lines.iter().filter_map(|line| Some((line.section, line.figure.clone(), line.amount?))).collect()
    }

    /// The table as Markdown.
    pub(crate) fn table(&self) -> String {
        let mut table = "| figure | target | measured | | how |\n|---|---|---|---|---|\n".to_owned();
        for Line { figure, target, measured, verdict, how, .. } in &self.lines {
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
