//! Reads TOML key by key, so that one wrong key hides no other.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue, Deserializer, Error},
};

use super::{ConfigMistake, fields::fields_of};

/// Lines of keys, by key path.
#[derive(Debug, Default)]
pub struct KeyLines(BTreeMap<String, usize>);

impl KeyLines {
    /// The line of a key, else of the nearest key around it. `None` where the file has neither.
    pub fn of(&self, key: &str) -> Option<usize> {
        let around = key.rmatch_indices('.').map(|(dot, _)| &key[..dot]);
        std::iter::once(key).chain(around).find_map(|key| self.0.get(key)).copied()
    }
}

/// Reads the text of a file.
#[derive(Debug)]
pub struct ConfigReader<'t> {
    text: &'t str,
    problems: Vec<ConfigMistake>,
    lines: KeyLines,
}

impl<'t> ConfigReader<'t> {
    /// A reader, and the keys of the whole text; text that is no TOML is a mistake already.
    pub fn new(text: &'t str) -> (Self, DeTable<'t>) {
        let (root, syntax_errors) = DeTable::parse_recoverable(text);
        let mut reader = Self { text, problems: Vec::new(), lines: KeyLines::default() };
        for error in syntax_errors {
            reader.report("", &error, None);
        }
        (reader, root.into_inner())
    }

    /// All mistakes, and the lines of the keys.
    pub fn end(self) -> (Vec<ConfigMistake>, KeyLines) {
        (self.problems, self.lines)
    }

    /// Notes a mistake at a key that was met.
    pub fn mistake(&mut self, problem: ConfigMistake) {
        let line = self.lines.of(&problem.key);
        self.problems.push(ConfigMistake { line, ..problem });
    }

    /// A section, without the keys that are wrong.
    pub fn section<T: DeserializeOwned + Default>(&mut self, path: &str, parent: &mut DeTable<'t>) -> T {
        let table = self.table(path, parent);
        self.keys(path, table, &[])
    }

    /// Takes the table at `path` out of its parent; an absent one is empty.
    pub fn table(&mut self, path: &str, parent: &mut DeTable<'t>) -> DeTable<'t> {
        let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
        let Some((key, value)) = parent.remove_entry(name) else { return DeTable::new() };
        let line = self.line(key.span().start);
        self.lines.0.insert(path.to_owned(), line);
        match value.into_inner() {
            DeValue::Table(table) => table,
            other => {
                let what = format!("is a section, not a {}", other.type_str());
                let problem = ConfigMistake::new(path, what, format!("write [{path}] on a line of its own"));
                self.problems.push(ConfigMistake { line: Some(line), ..problem });
                DeTable::new()
            }
        }
    }

    /// Takes the tables of a list (`[[path]]`) out of its parent, each with its path: `path[0]` and so on.
    pub fn tables(&mut self, path: &str, parent: &mut DeTable<'t>) -> Vec<(String, DeTable<'t>)> {
        let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
        let Some((key, value)) = parent.remove_entry(name) else { return Vec::new() };
        self.lines.0.insert(path.to_owned(), self.line(key.span().start));
        let items = match value.into_inner() {
            DeValue::Array(items) => items,
            other => return self.refuse_list(path, other.type_str()),
        };
        let mut tables = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            let place = format!("{path}[{at}]");
            self.lines.0.insert(place.clone(), self.line(item.span().start));
            match item.into_inner() {
                DeValue::Table(table) => tables.push((place, table)),
                other => tables.extend(self.refuse_list(&place, other.type_str())),
            }
        }
        tables
    }

    fn refuse_list(&mut self, place: &str, found: &str) -> Vec<(String, DeTable<'t>)> {
        let path = place.split('[').next().unwrap_or_default();
        let what = format!("is a list of sections, not a {found}");
        self.mistake(ConfigMistake::new(place, what, format!("write [[{path}]] before each of them")));
        Vec::new()
    }

    /// Reads each key by itself, and then all that are right together. `also_known` are read elsewhere.
    pub fn keys<T: DeserializeOwned + Default>(
        &mut self,
        path: &str,
        mut table: DeTable<'t>,
        also_known: &[&str],
    ) -> T {
        let known: Vec<&str> = fields_of::<T>().iter().chain(also_known).copied().collect();
        self.refuse_unknown(path, &mut table, &known);
        let mut good = DeTable::new();
        for (key, value) in table {
            let place = self.place(path, &key);
            let alone = DeTable::from_iter([(key.clone(), value.clone())]);
            match deserialize::<T>(alone) {
                Ok(_) => {
                    good.insert(key, value);
                }
                Err(error) => self.report(&place, &error, Some(value.span().start)),
            }
        }
        // Keys that are right one by one can only fail together where a type ties its fields to each other.
        deserialize(good).unwrap_or_else(|error| {
            self.report(path, &error, None);
            T::default()
        })
    }

    /// Reports keys that are not known, and takes them out.
    pub fn refuse_unknown(&mut self, path: &str, table: &mut DeTable<'t>, known: &[&str]) {
        let unknown: Vec<Spanned<DeString<'t>>> =
            table.keys().filter(|key| !known.contains(&&**key.get_ref())).cloned().collect();
        for key in unknown {
            table.remove(&key);
            let place = self.place(path, &key);
            let problem = ConfigMistake::new(&*place, "is no key that hostler knows", suggestion(key.get_ref(), known));
            self.problems.push(ConfigMistake { line: self.lines.of(&place), ..problem });
        }
    }

    /// The path of a key, whose line is remembered.
    pub fn place(&mut self, path: &str, key: &Spanned<DeString<'t>>) -> String {
        let name = key.get_ref();
        let place = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        let line = self.line(key.span().start);
        self.lines.0.insert(place.clone(), line);
        place
    }

    fn report(&mut self, key: &str, error: &Error, value_start: Option<usize>) {
        let line = error.span().map(|span| span.start).or(value_start).map(|offset| self.line(offset));
        self.problems.push(ConfigMistake { line, ..ConfigMistake::new(key, error.message(), "") });
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }
}

fn deserialize<T: DeserializeOwned>(table: DeTable<'_>) -> Result<T, Error> {
    T::deserialize(Deserializer::from(Spanned::new(0..0, table)))
}

/// Guess at the key that was meant by `key`.
fn suggestion(key: &str, known: &[&str]) -> String {
    // Half of a key's letters may be wrong; below that the guess would mislead.
    let near = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(key, candidate), candidate))
        .filter(|(distance, candidate)| *distance * 2 <= candidate.len())
        .min();
    match near {
        Some((_, candidate)) => format!("did you mean {candidate:?}?"),
        None if known.is_empty() => "remove it".to_owned(),
        None => {
            // A name that several types know may be listed twice.
            let mut names = known.to_vec();
            let mut seen = std::collections::BTreeSet::new();
            names.retain(|name| seen.insert(*name));
            format!("remove it; known here: {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_section_of_a_list_has_its_place_and_its_line() {
        let (mut reader, mut root) = ConfigReader::new("[[list.of]]\na = 1\n\n[[list.of]]\na = 2\n");
        let mut list = reader.table("list", &mut root);
        let tables = reader.tables("list.of", &mut list);
        let places: Vec<&str> = tables.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["list.of[0]", "list.of[1]"]);
        reader.mistake(ConfigMistake::new("list.of[1].b", "is missing", ""));
        assert_eq!(reader.end().0[0].line, Some(4));
        for (text, expected) in [
            ("list = 1", "list: is a list of sections, not a integer; write [[list]] before each of them"),
            ("list = [1]", "list[0]: is a list of sections, not a integer; write [[list]] before each of them"),
        ] {
            let (mut reader, mut root) = ConfigReader::new(text);
            assert!(reader.tables("list", &mut root).is_empty());
            assert_eq!(reader.end().0[0].to_string(), expected);
        }
    }

    #[test]
    fn a_key_that_two_types_know_is_listed_once() {
        let (mut reader, mut table) = ConfigReader::new("zzz = 1\n");
        reader.refuse_unknown("", &mut table, &["kind", "interval", "kind"]);
        let (mistakes, _) = reader.end();
        assert_eq!(mistakes[0].fix, "remove it; known here: kind, interval");
    }
}
