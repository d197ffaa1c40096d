//! Text in columns.

use std::{borrow::Cow, fmt};

use hostler_api::{cut_middle, plain_line};

use crate::screen;

/// A last column with less room than this is left to the terminal: words broken one by one are harder to read.
const NARROWEST: usize = 16;

/// Names are cut no shorter than this.
const SHORTEST: usize = 20;

/// Rows under headings; each column as wide as its widest cell. On a terminal the last column is as wide as there
/// is room, and where that is none, the longest names before it are cut in the middle. Pipes and files get every
/// name whole.
#[derive(Debug)]
pub struct TextTable {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// An empty table.
    pub fn new<H: ToString>(headings: &[H]) -> Self {
        Self { headings: headings.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row. Cells without a heading are dropped, missing ones are empty.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells = cells.into_iter().take(self.headings.len()).map(Into::into);
        let mut row: Vec<String> = cells.map(plain).collect();
        row.resize(self.headings.len(), String::new());
        self.rows.push(row);
    }

    /// Numbers stand under each other by their last digit; a hyphen stands for one that is not known.
    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| row[column].as_str()).filter(|cell| *cell != "-").peekable();
        cells.peek().is_some() && cells.all(is_number)
    }

    /// The lines of the table; those of the last column are broken where a screen of `screen` columns ends.
    fn lines(&self, screen: Option<usize>) -> Vec<String> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.headings[column].chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let numeric: Vec<bool> = (0..widths.len()).map(|column| self.is_numeric(column)).collect();
        if let Some(screen) = screen {
            make_room(&mut widths, &numeric, screen);
        }
        let columns: Vec<(usize, bool)> = widths.into_iter().zip(numeric).collect();
        let before: usize = columns.iter().rev().skip(1).map(|(width, _)| width + 2).sum();
        let room = screen.map(|screen| screen.saturating_sub(before)).filter(|room| *room >= NARROWEST);
        let rows = std::iter::once(&self.headings).chain(&self.rows);
        rows.flat_map(|row| broken(line(row, &columns), before, room)).collect()
    }
}

/// True if all parts are numbers with no more than a short unit behind them: `16`, `1.5Gi`, `3/4`, `24h`.
fn is_number(cell: &str) -> bool {
    let is_part = |part: &str| {
        let digits = part.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let begins = digits.starts_with(|c: char| c.is_ascii_digit());
        let is_plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.') && digits.matches('.').count() < 2;
        begins && is_plain && part.len() - digits.len() <= 2
    };
    cell.split('/').all(is_part)
}

/// Makes the widest columns of names narrower until the last column has room, or all are as short as they may be.
fn make_room(widths: &mut [usize], numeric: &[bool], screen: usize) {
    let Some((last, names)) = widths.split_last_mut() else { return };
    let wanted = (*last).min(NARROWEST);
    loop {
        let used: usize = names.iter().map(|width| width + 2).sum::<usize>() + wanted;
        let longest = names.iter().zip(numeric).enumerate().filter(|(_, (_, is_number))| !**is_number);
        let Some((at, width)) = longest.map(|(at, (width, _))| (at, *width)).max_by_key(|(_, width)| *width) else {
            return;
        };
        if used <= screen || width <= SHORTEST {
            return;
        }
        // The next longest is cut as well once this one is as short.
        let next = names.iter().filter(|other| **other < width).max().copied().unwrap_or_default().max(SHORTEST);
        names[at] = width - (used - screen).min(width - next).max(1);
    }
}

/// A row in columns of these widths; numbers stand at the right.
fn line(cells: &[String], columns: &[(usize, bool)]) -> String {
    let mut line = String::new();
    for (at, (cell, (width, numeric))) in cells.iter().zip(columns).enumerate() {
        let is_last = at + 1 == columns.len();
        let cell = if is_last { Cow::Borrowed(&**cell) } else { cut_middle(cell, *width) };
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        let (left, right) = if *numeric { (&*padding, "") } else { ("", &*padding) };
        line.extend([left, &*cell, right, "  "]);
    }
    line.trim_end().to_owned()
}

/// A line whose text after `before` columns goes on below itself where there is no room. Words stay whole.
fn broken(line: String, before: usize, room: Option<usize>) -> Vec<String> {
    let Some(room) = room.filter(|room| line.chars().count() > before + room) else { return vec![line] };
    let start = line.char_indices().nth(before).map_or(line.len(), |(at, _)| at);
    let (kept, last) = line.split_at(start);
    let mut lines = vec![String::new()];
    for word in last.split(' ') {
        let used = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(line) if used == 0 => line.push_str(word),
            Some(line) if used + 1 + word.chars().count() <= room => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    let indent = " ".repeat(before);
    let begun =
        |(index, text): (usize, String)| if index == 0 { format!("{kept}{text}") } else { format!("{indent}{text}") };
    lines.into_iter().enumerate().map(begun).collect()
}

/// Returns a text, or a hyphen where there is none.
pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// A cell is one line, whatever stands in it.
fn plain(cell: String) -> String {
    match plain_line(&cell) {
        Cow::Borrowed(_) => cell,
        Cow::Owned(plain) => plain,
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines(screen::width()).iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        let mut table = TextTable::new(&["NAME", "N", "NOTE"]);
        table.row(["a", "8", "läuft"]);
        table.row(["longer", "128"]);
        assert_eq!(table.to_string(), "NAME      N  NOTE\na         8  läuft\nlonger  128\n");
    }

    #[test]
    fn the_last_column_goes_on_below_itself_where_the_screen_ends() {
        let mut table = TextTable::new(&["NAME", "PROBLEM"]);
        table.row(["a", "device card-0 is held by default/first"]);
        table.row(["b", "short"]);
        let expected = ["NAME  PROBLEM", "a     device card-0 is held", "      by default/first", "b     short"];
        assert_eq!(table.lines(Some(29)), expected);
        assert_eq!(table.lines(Some(10)).len(), 3, "too narrow to break");
        assert_eq!(table.lines(None).len(), 3, "nobody's screen");
    }

    #[test]
    fn long_names_are_cut_in_the_middle_where_they_would_push_other_columns_off_the_screen() {
        let mut table = TextTable::new(&["CLAIM", "NODE", "HELD", "UNTIL"]);
        let long = format!("team/train-{}-0017", "x".repeat(150));
        table.row([&*long, "n1", "8", "for ever"]);
        table.row(["team/b", "n2", "12", "30m from creation"]);
        let lines = table.lines(Some(60));
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:#?}");
        assert!(lines[1].starts_with("team/train-") && lines[1].contains("-0017  n1       8  for ever"), "{lines:#?}");
        assert!(table.lines(None)[1].starts_with(&long), "programs get names whole");
        assert_eq!(table.lines(Some(10))[2], format!("team/b{}n2      12  30m from creation", " ".repeat(16)));
    }

    #[test]
    fn numbers_are_told_from_names_that_begin_with_a_digit() {
        assert!(["16", "1.5Gi", "3/4", "24h", "0/0", "250m"].into_iter().all(is_number));
        assert!(
            !["0000:01:00.0", "0-3", "46 GiB", "1.2.3", "4 cpus", "2027-01-01", "1stnode", ""]
                .into_iter()
                .any(is_number)
        );
    }

    #[test]
    fn an_empty_table_is_its_headings() {
        assert_eq!(TextTable::new(&["A", "B"]).to_string(), "A  B\n");
    }
}
