//! Text in columns.

use std::{borrow::Cow, fmt};

use hostler_api::plain_line;

use super::screen;

/// A last column with less room than this is left to the terminal: words broken one by one are harder to read.
const NARROWEST: usize = 16;

/// Rows under headings; each column as wide as its widest cell. On a terminal the last column is as wide as there is room.
#[derive(Debug)]
pub(super) struct TextTable {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// An empty table.
    pub(super) fn new<H: ToString>(headings: &[H]) -> Self {
        Self { headings: headings.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row. Cells without a heading are dropped, missing ones are empty.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().take(self.headings.len()).map(plain).collect();
        row.resize(self.headings.len(), String::new());
        self.rows.push(row);
    }

    /// Numbers stand under each other by their last digit; a hyphen stands for one that is not known.
    fn is_numeric(&self, column: usize) -> bool {
        let digits = |cell: &str| cell.bytes().all(|byte| byte.is_ascii_digit());
        let mut cells = self.rows.iter().map(|row| row[column].as_str()).filter(|cell| *cell != "-").peekable();
        cells.peek().is_some() && cells.all(digits)
    }

    /// The lines of the table; those of the last column are broken where a screen of `screen` columns ends.
    fn lines(&self, screen: Option<usize>) -> Vec<String> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.headings[column].chars().count()]).max().unwrap_or(0)
        };
        let columns: Vec<(usize, bool)> =
            (0..self.headings.len()).map(|column| (width(column), self.is_numeric(column))).collect();
        let before: usize = columns.iter().rev().skip(1).map(|(width, _)| width + 2).sum();
        let room = screen.map(|screen| screen.saturating_sub(before)).filter(|room| *room >= NARROWEST);
        let rows = std::iter::once(&self.headings).chain(&self.rows);
        rows.flat_map(|row| broken(line(row, &columns), before, room)).collect()
    }
}

/// A row in columns of these widths; numbers stand at the right.
fn line(cells: &[String], columns: &[(usize, bool)]) -> String {
    let mut line = String::new();
    for (cell, (width, numeric)) in cells.iter().zip(columns) {
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        let (left, right) = if *numeric { (&*padding, "") } else { ("", &*padding) };
        line.extend([left, cell, right, "  "]);
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
        table.row(["a".to_owned(), "8".to_owned(), "läuft".to_owned()]);
        table.row(["longer".to_owned(), "128".to_owned()]);
        assert_eq!(table.to_string(), "NAME      N  NOTE\na         8  läuft\nlonger  128\n");
    }

    #[test]
    fn the_last_column_goes_on_below_itself_where_the_screen_ends() {
        let mut table = TextTable::new(&["NAME", "PROBLEM"]);
        table.row(["a".to_owned(), "device card-0 is held by default/first".to_owned()]);
        table.row(["b".to_owned(), "short".to_owned()]);
        let expected = ["NAME  PROBLEM", "a     device card-0 is held", "      by default/first", "b     short"];
        assert_eq!(table.lines(Some(29)), expected);
        assert_eq!(table.lines(Some(10)).len(), 3, "too narrow to break");
        assert_eq!(table.lines(None).len(), 3, "nobody's screen");
    }

    #[test]
    fn an_empty_table_is_its_headings() {
        assert_eq!(TextTable::new(&["A", "B"]).to_string(), "A  B\n");
    }
}
