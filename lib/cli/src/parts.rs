//! Parts of a document, chosen with `-o jsonpath=EXPR` or `-o custom-columns=HEADING:PATH,…` as in kubectl.
//!
//! A command takes them beside its named shapes with `value_parser = shape::<ListFormat>()`.

mod columns;
mod path;
mod scanner;
mod template;

use std::{
    ffi::OsStr,
    io::{self, Write},
    marker::PhantomData,
};

use clap::{
    Arg, Command, Error, ValueEnum,
    builder::{EnumValueParser, PossibleValue, TypedValueParser},
    error::{ContextKind, ContextValue, ErrorKind},
};
use serde::Serialize;

use self::{columns::ChosenColumns, scanner::ExpressionError, template::PathTemplate};

const JSONPATH: &str = "jsonpath=";
const COLUMNS: &str = "custom-columns=";

/// The parts of a document that the user chose.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DocumentParts(ChosenParts);

#[derive(Clone, Debug, Eq, PartialEq)]
enum ChosenParts {
    Template(PathTemplate),
    Columns(ChosenColumns),
}

/// A shape of answers that may be parts of a document. Arguments live as long as the process, so that shapes can be copied.
pub trait PartsShape: ValueEnum + Clone + Send + Sync + 'static {
    /// Returns the shape of these parts.
    fn of_parts(parts: &'static DocumentParts) -> Self;
}

/// Returns the reader of `-o`: the names of `F`, and parts of documents.
pub fn shape<F: PartsShape>() -> impl TypedValueParser<Value = F> {
    ShapeParser(PhantomData)
}

impl DocumentParts {
    /// Reads `jsonpath=EXPR` and `custom-columns=HEADING:PATH,…`; other texts are none of these.
    fn parse(text: &str) -> Option<Result<Self, ExpressionError>> {
        let parts = match (text.strip_prefix(JSONPATH), text.strip_prefix(COLUMNS)) {
            (Some(expression), _) => PathTemplate::parse(expression).map(ChosenParts::Template),
            (None, Some(expression)) => ChosenColumns::parse(expression).map(ChosenParts::Columns),
            (None, None) => return None,
        };
        Some(parts.map(Self))
    }

    /// Writes the parts of a document.
    pub fn write(&self, document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
        let document = serde_json::to_value(document)?;
        match &self.0 {
            ChosenParts::Template(template) => template.write(&document, out),
            ChosenParts::Columns(columns) => out.write_all(columns.table(&document).as_bytes()),
        }
    }
}

#[derive(Clone, Debug)]
struct ShapeParser<F>(PhantomData<F>);

impl<F: PartsShape> TypedValueParser for ShapeParser<F> {
    type Value = F;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<F, Error> {
        let text = value.to_string_lossy();
        match DocumentParts::parse(&text) {
            Some(Ok(parts)) => Ok(F::of_parts(Box::leak(Box::new(parts)))),
            Some(Err(error)) => {
                let option = argument.map_or_else(|| "-o".to_owned(), ToString::to_string);
                let message = format!("invalid value '{text}' for '{option}': {error}");
                Err(Error::raw(ErrorKind::ValueValidation, message).with_cmd(command))
            }
            None => EnumValueParser::<F>::new().parse_ref(command, argument, value).map_err(with_parts),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let named = F::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Some(Box::new(named.chain([
            PossibleValue::new(JSONPATH).help("Parts of the JSON document, such as jsonpath='{.items[*].name}'"),
            PossibleValue::new(COLUMNS).help("A table of parts of it, such as custom-columns=NAME:.name,STATE:.state"),
        ])))
    }
}

/// The error about an unknown name, which lists parts of documents as well.
fn with_parts(mut error: Error) -> Error {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::ValidValue) {
        let names = names.iter().cloned().chain([JSONPATH, COLUMNS].map(|name| format!("{name}…")));
        let names = ContextValue::Strings(names.collect());
        error.insert(ContextKind::ValidValue, names);
    }
    error
}

#[cfg(test)]
mod tests;
