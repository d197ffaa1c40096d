//! Entries with a `count`: one table of the script stands for several things, told apart by their numbers.

use std::{collections::BTreeSet, ops::Range};

use hostler_api::{ConfigProblem, DeviceName};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::problem::{read, within};

/// More devices than any test needs; bounds the cost of a typing error.
const MAX_COUNT: i64 = 100_000;

/// Expands the tables of the list `key`: counts them out, reads them, and has `make` turn them into things with
/// different names.
pub(super) fn expand<E: DeserializeOwned, T>(
    key: &str,
    tables: Vec<Table>,
    make: impl Fn(E) -> Result<T, ConfigProblem>,
    name: impl Fn(&T) -> &DeviceName,
) -> Result<Vec<T>, ConfigProblem> {
    let mut things = Vec::new();
    let mut names = BTreeSet::new();
    for (index, table) in tables.into_iter().enumerate() {
        let located = |problem| within(&format!("{key}[{index}]"), problem);
        for number in numbers(&table).map_err(located)? {
            let thing = numbered(&table, number).and_then(read).and_then(&make).map_err(located)?;
            if !names.insert(name(&thing).clone()) {
                let (name, what) = (name(&thing), key.replace('_', " "));
                let reason = format!("{name} is taken by an earlier {what}; choose another");
                return Err(located(ConfigProblem::new("name", reason)));
            }
            things.push(thing);
        }
    }
    Ok(things)
}

/// The numbers of the things that a table stands for. A count that is no number is refused when the table is read.
fn numbers(table: &Table) -> Result<Range<i64>, ConfigProblem> {
    match table.get("count").and_then(Value::as_integer).unwrap_or(1) {
        count @ 1..=MAX_COUNT => Ok(0..count),
        _ => Err(ConfigProblem::new("count", format!("write a number from 1 to {MAX_COUNT}"))),
    }
}

/// The table with `number` in every text; of several things with one name, each gets its number.
fn numbered(table: &Table, number: i64) -> Result<Table, ConfigProblem> {
    let mut table = table.clone();
    if table.contains_key("count")
        && let Some(Value::String(name)) = table.get_mut("name")
        && !name.contains("{n}")
        && !name.contains("{x}")
    {
        name.push_str("-{n}");
    }
    fill_table(&mut table, number).map(|()| table)
}

fn fill_table(table: &mut Table, number: i64) -> Result<(), ConfigProblem> {
    table.iter_mut().try_for_each(|(key, value)| fill(value, number).map_err(|problem| within(key, problem)))
}

/// Puts `number` in the place of `{n}` and `{x}`. A date is refused here, for a reader of texts would take it for one.
fn fill(value: &mut Value, number: i64) -> Result<(), ConfigProblem> {
    match value {
        Value::String(text) if text.contains('{') => {
            *text = text.replace("{n}", &number.to_string()).replace("{x}", &format!("{number:02x}"));
        }
        Value::Array(values) => {
            for (index, value) in values.iter_mut().enumerate() {
                fill(value, number).map_err(|problem| within(&format!("[{index}]"), problem))?;
            }
        }
        Value::Table(table) => fill_table(table, number)?,
        Value::Datetime(date) => {
            return Err(ConfigProblem::new("", format!("{date} is a date; put it in quotes to make it a text")));
        }
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => {}
    }
    Ok(())
}
