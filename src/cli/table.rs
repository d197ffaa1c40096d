//! Text in columns.

use std::{borrow::Cow, fmt};

use hostler_api::plain_line;

/// Rows under headings; each column as wide as its widest cell.
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

    fn line(f: &mut fmt::Formatter<'_>, cells: &[String], columns: &[(usize, bool)]) -> fmt::Result {
        let mut line = String::new();
        for (cell, (width, numeric)) in cells.iter().zip(columns) {
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (left, right) = if *numeric { (&*padding, "") } else { ("", &*padding) };
            line.extend([left, cell, right, "  "]);
        }
        writeln!(f, "{}", line.trim_end())
    }
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
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.headings[column].chars().count()]).max().unwrap_or(0)
        };
        let columns: Vec<(usize, bool)> =
            (0..self.headings.len()).map(|column| (width(column), self.is_numeric(column))).collect();
        Self::line(f, &self.headings, &columns)?;
        self.rows.iter().try_for_each(|row| Self::line(f, row, &columns))
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
    fn an_empty_table_is_its_headings() {
        assert_eq!(TextTable::new(&["A", "B"]).to_string(), "A  B\n");
    }
}
