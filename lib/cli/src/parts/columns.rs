//! Columns that the user chooses, as `kubectl -o custom-columns` has them: `NAME:.name,STATE:.state`.

use std::slice;

use serde_json::Value;

use super::{
    path::DocumentPath,
    scanner::{ExpressionError, ExpressionScanner},
    template::text_of,
};
use crate::table::TextTable;

/// Text of a column where an item has nothing at its path.
const NONE: &str = "<none>";

/// Headings, each with the path of its cells.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ChosenColumns(Vec<(String, DocumentPath)>);

impl ChosenColumns {
    /// Reads `HEADING:PATH,…`; a path may stand in braces.
    pub(super) fn parse(expression: &str) -> Result<Self, ExpressionError> {
        let mut scanner = ExpressionScanner::new(expression);
        let mut columns = Vec::new();
        loop {
            scanner.skip_blanks();
            let at = scanner.place();
            let heading = scanner.until(|next| matches!(next, ':' | ',')).trim_end().to_owned();
            if heading.is_empty() {
                return Err(ExpressionScanner::mistake(at, "expected HEADING:PATH, such as NAME:.name"));
            }
            scanner.expect(":")?;
            scanner.skip_blanks();
            let is_in_braces = scanner.eats("{");
            columns.push((heading, DocumentPath::read(&mut scanner)?));
            if is_in_braces {
                scanner.expect("}")?;
            }
            scanner.skip_blanks();
            if scanner.peek().is_none() {
                return Ok(Self(columns));
            }
            scanner.expect(",")?;
        }
    }

    /// One row for each item of a list; of another document, one.
    pub(super) fn table(&self, document: &Value) -> String {
        let items = document.get("items").and_then(Value::as_array);
        let items = items.map_or(slice::from_ref(document), Vec::as_slice);
        let headings: Vec<&str> = self.0.iter().map(|(heading, _)| heading.as_str()).collect();
        let mut table = TextTable::new(&headings);
        items.iter().for_each(|item| table.row(self.0.iter().map(|(_, path)| cell(path, item))));
        table.to_string()
    }
}

fn cell(path: &DocumentPath, item: &Value) -> String {
    let values = path.select(item, item).into_iter().filter(|value| !value.is_null());
    let text = values.map(text_of).collect::<Vec<_>>().join(",");
    if text.is_empty() { NONE.to_owned() } else { text }
}
