//! Answers in the shapes that programs ask for: alike for every command, and versioned.
//!
//! Every answer that has no document of its own is an object with `apiVersion` and `kind`; of several things, with `items`.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::{Serialize, de::DeserializeOwned};

use super::{CliFailure, plain::for_people, yaml::to_yaml};

/// Raised when a field changes its meaning or goes away; fields may be added.
const API_VERSION: &str = "output.hostler.dev/v1";

/// The shape of an answer about one thing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people
    #[default]
    Table,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
}

impl OutputFormat {
    /// An answer as its reader gets it: whole for programs, each text on one line for people.
    pub(super) fn for_reader<T: Serialize + DeserializeOwned>(self, answer: T) -> T {
        if self == Self::Table { for_people(answer) } else { answer }
    }
}

/// The shape of a list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(super) enum ListFormat {
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
}

impl ListFormat {
    /// An answer as its reader gets it: whole for programs, each text on one line for people.
    pub(super) fn for_reader<T: Serialize + DeserializeOwned>(self, answer: T) -> T {
        if matches!(self, Self::Json | Self::Yaml) { answer } else { for_people(answer) }
    }
}

/// How much a table shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TableWidth {
    /// What fits on most screens.
    Narrow,
    /// Everything.
    Wide,
}

/// Something that lists are made of.
pub(super) trait Listed: Serialize {
    /// What it is called in documents.
    const KIND: &'static str;

    /// The name by which other commands know it.
    fn listed_name(&self) -> String;
}

/// One thing with what it is.
#[derive(Serialize)]
struct OutputObject<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    object: &'a T,
}

/// Several things with what they are.
#[derive(Serialize)]
struct OutputList<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: String,
    items: &'a [T],
}

/// Writes `object`, of which `table` gives the words for people.
pub(super) fn write_object<T: Serialize>(
    kind: &'static str,
    object: &T,
    format: OutputFormat,
    out: &mut dyn Write,
    table: impl FnOnce() -> String,
) -> Result<(), CliFailure> {
    let document = OutputObject { api_version: API_VERSION, kind, object };
    match format {
        OutputFormat::Table => out.write_all(table().as_bytes())?,
        OutputFormat::Json => write_json(&document, out)?,
        OutputFormat::Yaml => write_yaml(&document, out)?,
    }
    Ok(())
}

/// Writes `items`, of which `table` makes lines for people.
pub(super) fn write_list<T: Listed>(
    items: &[T],
    format: ListFormat,
    out: &mut dyn Write,
    table: impl FnOnce(TableWidth) -> String,
) -> Result<(), CliFailure> {
    let document = || OutputList { api_version: API_VERSION, kind: format!("{}List", T::KIND), items };
    match format {
        ListFormat::Table => out.write_all(table(TableWidth::Narrow).as_bytes())?,
        ListFormat::Wide => out.write_all(table(TableWidth::Wide).as_bytes())?,
        ListFormat::Json => write_json(&document(), out)?,
        ListFormat::Yaml => write_yaml(&document(), out)?,
        ListFormat::Name => {
            for item in items {
                writeln!(out, "{}", item.listed_name())?;
            }
        }
    }
    Ok(())
}

/// Writes `value` as indented JSON with a line end.
pub(super) fn write_json(value: &impl Serialize, out: &mut dyn Write) -> Result<(), CliFailure> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Writes `value` as YAML.
pub(super) fn write_yaml(value: &impl Serialize, out: &mut dyn Write) -> Result<(), CliFailure> {
    let text = to_yaml(value).map_err(|source| CliFailure::step("write YAML", source))?;
    out.write_all(text.as_bytes())?;
    Ok(())
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
