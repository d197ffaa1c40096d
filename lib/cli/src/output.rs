//! Answers in the shapes that `-o` names: alike for every command of both programs, and versioned.
//!
//! Every answer that has no document of its own is an object with `apiVersion` and `kind`; of several things, with
//! `items`.

use std::io::{self, BufWriter, Write};

use clap::ValueEnum;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    paint::PaintWriter,
    parts::{DocumentParts, PartsShape},
    plain::{PlainWriter, for_people},
    screen,
    yaml::to_yaml,
};

/// The version of every answer. It is raised when a field changes its meaning or goes away; fields may be added.
pub const API_VERSION: &str = "output.hostler.dev/v1";

/// The shape of an answer about one thing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    #[default]
    Table,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
    /// Chosen parts of it
    #[value(skip)]
    Parts(&'static DocumentParts),
}

/// The shape of an answer about many things that is one document.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum DocumentFormat {
    /// For people
    #[default]
    Table,
    /// For people, with more
    Wide,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
    /// Chosen parts of it
    #[value(skip)]
    Parts(&'static DocumentParts),
}

/// The shape of a list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum ListFormat {
    /// For people
    #[default]
    Table,
    /// For people, with more columns
    Wide,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
    /// Names alone, one per line, as other commands take them
    Name,
    /// Chosen parts of it
    #[value(skip)]
    Parts(&'static DocumentParts),
}

impl PartsShape for OutputFormat {
    fn of_parts(parts: &'static DocumentParts) -> Self {
        Self::Parts(parts)
    }
}

impl PartsShape for DocumentFormat {
    fn of_parts(parts: &'static DocumentParts) -> Self {
        Self::Parts(parts)
    }
}

impl PartsShape for ListFormat {
    fn of_parts(parts: &'static DocumentParts) -> Self {
        Self::Parts(parts)
    }
}

impl OutputFormat {
    /// Returns an answer as its reader gets it: whole for programs, each text on one line for people.
    pub fn for_reader<T: Serialize + DeserializeOwned>(self, answer: T) -> T {
        if self == Self::Table { for_people(answer) } else { answer }
    }
}

impl From<OutputFormat> for DocumentFormat {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Table => Self::Table,
            OutputFormat::Json => Self::Json,
            OutputFormat::Yaml => Self::Yaml,
            OutputFormat::Parts(parts) => Self::Parts(parts),
        }
    }
}

impl ListFormat {
    /// Returns an answer as its reader gets it: whole for programs, each text on one line for people.
    pub fn for_reader<T: Serialize + DeserializeOwned>(self, answer: T) -> T {
        if self.is_for_programs() { answer } else { for_people(answer) }
    }

    /// True if programs read the answer: each is whole then.
    pub(crate) fn is_for_programs(self) -> bool {
        matches!(self, Self::Json | Self::Yaml | Self::Parts(_))
    }

    /// Returns the shape of the whole list; `None` for names, which are no document.
    pub(crate) fn document(self) -> Option<DocumentFormat> {
        match self {
            Self::Table => Some(DocumentFormat::Table),
            Self::Wide => Some(DocumentFormat::Wide),
            Self::Json => Some(DocumentFormat::Json),
            Self::Yaml => Some(DocumentFormat::Yaml),
            Self::Parts(parts) => Some(DocumentFormat::Parts(parts)),
            Self::Name => None,
        }
    }
}

/// Columns of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TableWidth {
    /// The columns that fit on most screens.
    Narrow,
    /// All.
    Wide,
}

/// An item of lists.
pub trait Listed: Serialize {
    /// The kind of the item in documents.
    const KIND: &'static str;

    /// Returns the name by which other commands know the item.
    fn listed_name(&self) -> String;
}

/// One thing with its kind.
#[derive(Serialize)]
struct OutputObject<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    object: &'a T,
}

/// Several things with their kind.
#[derive(Serialize)]
struct OutputList<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: String,
    items: &'a [T],
}

/// Writes `object`, for people in the words of `table`.
pub fn write_object<T: Serialize>(
    kind: &'static str,
    object: &T,
    format: OutputFormat,
    out: &mut dyn Write,
    table: impl FnOnce() -> String,
) -> io::Result<()> {
    write_document(&OutputObject { api_version: API_VERSION, kind, object }, format.into(), out, |_| table())
}

/// Writes `items`, for people in the lines of `table`.
pub fn write_list<T: Listed>(
    items: &[T],
    format: ListFormat,
    out: &mut dyn Write,
    table: impl FnOnce(TableWidth) -> String,
) -> io::Result<()> {
    match format.document() {
        Some(format) => {
            let document = OutputList { api_version: API_VERSION, kind: format!("{}List", T::KIND), items };
            write_document(&document, format, out, table)
        }
        None => items.iter().try_for_each(|item| writeln!(out, "{}", item.listed_name())),
    }
}

/// Writes a document that says itself what it is, for people in the lines of `table`.
pub fn write_document<T: Serialize>(
    document: &T,
    format: DocumentFormat,
    out: &mut dyn Write,
    table: impl FnOnce(TableWidth) -> String,
) -> io::Result<()> {
    match format {
        DocumentFormat::Table => out.write_all(table(TableWidth::Narrow).as_bytes()),
        DocumentFormat::Wide => out.write_all(table(TableWidth::Wide).as_bytes()),
        DocumentFormat::Json => write_json(document, out),
        DocumentFormat::Yaml => write_yaml(document, out),
        DocumentFormat::Parts(parts) => parts.write(document, out),
    }
}

/// Writes `value` as indented JSON with a line end.
pub fn write_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Writes `value` as YAML.
pub fn write_yaml(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(to_yaml(value).map_err(io::Error::other)?.as_bytes())
}

/// Returns standard output as commands write to it: text alone, and in colours where the screen has them; with
/// `is_raw` byte for byte.
pub(crate) fn stdout(is_raw: bool) -> impl Write {
    // Colours come last: names that others gave are nothing but text by then.
    let painted = PaintWriter::new(BufWriter::new(io::stdout().lock()), screen::has_colours() && !is_raw);
    BufWriter::new(PlainWriter::new(painted, is_raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Horse {
        name: &'static str,
    }

    impl Listed for Horse {
        const KIND: &'static str = "Horse";

        fn listed_name(&self) -> String {
            self.name.to_owned()
        }
    }

    fn list(format: ListFormat) -> String {
        let mut out = Vec::new();
        write_list(&[Horse { name: "on" }], format, &mut out, |width| format!("{width:?}\n")).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_list_has_the_same_shapes() {
        let json: serde_json::Value = serde_json::from_str(&list(ListFormat::Json)).unwrap();
        let expected =
            serde_json::json!({"apiVersion": "output.hostler.dev/v1", "kind": "HorseList", "items": [{"name": "on"}]});
        assert_eq!(json, expected);
        let yaml: serde_json::Value = serde_saphyr::from_str(&list(ListFormat::Yaml)).unwrap();
        assert_eq!(yaml, expected);
        assert_eq!([ListFormat::Name, ListFormat::Table, ListFormat::Wide].map(list), ["on\n", "Narrow\n", "Wide\n"]);
    }

    #[test]
    fn one_thing_says_what_it_is_beside_its_own_fields() {
        let mut out = Vec::new();
        write_object("Horse", &Horse { name: "a" }, OutputFormat::Json, &mut out, String::new).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json, serde_json::json!({"apiVersion": "output.hostler.dev/v1", "kind": "Horse", "name": "a"}));
    }
}
