//! Answers for people: text in columns.

use hostler_api::plain_line;

/// Rows under headings; columns of numbers stand at the right.
pub(crate) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// One with no rows yet.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row<'c>(&mut self, cells: impl IntoIterator<Item = &'c String>) {
        self.rows.push(cells.into_iter().map(|cell| plain_line(cell).into_owned()).collect());
    }

    /// As it is shown.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let shapes: Vec<(usize, bool)> = (0..columns).map(|column| self.shape(column)).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&shapes).map(|(cell, (width, is_number))| {
                let gap = " ".repeat(width - cell.chars().count());
                if *is_number { format!("{gap}{cell}") } else { format!("{cell}{gap}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }

    fn shape(&self, column: usize) -> (usize, bool) {
        let width = self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        // A time, or how long something lasts, begins with a digit as well.
        let is_number =
            |cell: &str| cell.starts_with(|first: char| first.is_ascii_digit()) && !cell.contains([' ', '-']);
        let mut cells = self.rows[1..].iter().map(|row| &*row[column]).filter(|cell| *cell != "-").peekable();
        (width, cells.peek().is_some() && cells.all(is_number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_at_the_right_and_lines_have_no_tail() {
        let mut table = TextTable::new(&["NAME", "N", "NOTE"]);
        let cells = |cells: [&str; 3]| cells.map(str::to_owned);
        table.row(cells(["a", "8", "läuft"]).each_ref());
        table.row(cells(["longer", "128", ""]).each_ref());
        assert_eq!(table.text(), "NAME      N  NOTE\na         8  läuft\nlonger  128\n");
    }
}
