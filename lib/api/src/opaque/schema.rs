//! Schema of each kind of configuration, read off its type, and validation that finds all mistakes of an object at
//! once.
//!
//! A type with a derived `Deserialize` asks its deserializer for its input: a struct for its fields by name, an enum
//! for one of its words. [`SchemaProbe`] answers every such question with an error that repeats it. So the types are
//! the only list of kinds, fields and words. Reading with `serde_path_to_error` would stop at the first mistake, and
//! could say nothing to the admission policy and the documentation, which are compared with [`schema`].

use serde::{
    Deserialize, Deserializer,
    de::{
        IntoDeserializer, Visitor,
        value::{MapAccessDeserializer, MapDeserializer},
    },
};
use serde_json::{Map, Value};

use super::OpaqueConfig;
use crate::ConfigProblem;

/// Fields that identify an object; read before its kind is known.
const HEADER: [&str; 2] = ["apiVersion", "kind"];

/// Schema of a kind, for code that states the same in another language.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KindSchema {
    /// Name of the kind.
    pub name: &'static str,
    /// Fields of the kind, without `apiVersion` and `kind`; `None` where any will do.
    pub fields: Option<Vec<FieldSchema>>,
}

/// A field of a kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldSchema {
    /// Name of the field.
    pub name: &'static str,
    /// Values that the field takes.
    pub values: FieldValues,
}

/// Values that a field takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FieldValues {
    /// True or false.
    Truth,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Any text but an empty one.
    Text,
}

/// Every kind with its fields and words.
pub fn schema() -> Vec<KindSchema> {
    let ProbedType::Field(FieldValues::Words(kinds)) = asked(SchemaProbe) else { return Vec::new() };
    kinds.iter().map(|name| KindSchema { name, fields: fields_of(name) }).collect()
}

fn fields_of(kind: &'static str) -> Option<Vec<FieldSchema>> {
    let ProbedType::Struct(names) = asked(only(kind, SchemaProbe)) else { return None };
    let values = |name| match asked(only(kind, MapDeserializer::new([(name, SchemaProbe)].into_iter()))) {
        ProbedType::Field(values) => Some(values),
        _ => None,
    };
    Some(names.iter().filter_map(|name| Some(FieldSchema { name, values: values(*name)? })).collect())
}

impl KindSchema {
    /// Lists every mistake in the fields of an object at `path`: wrong values, then unknown fields.
    pub(super) fn problems(&self, object: &Map<String, Value>, path: &str) -> Vec<ConfigProblem> {
        let Some(fields) = &self.fields else { return Vec::new() };
        let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
        let wrong =
            fields.iter().filter_map(|field| Some((field.name, field.values.refusal(object.get(field.name)?)?)));
        let unknown = object.keys().map(String::as_str).filter(|name| !HEADER.contains(name) && !known.contains(name));
        let unknown = unknown.map(|name| (name, unknown_field(name, &known)));
        wrong.chain(unknown).map(|(name, reason)| ConfigProblem::new(format!("{path}.{name}"), reason)).collect()
    }
}

impl FieldValues {
    /// Describes the mistake in a value, if there is one.
    fn refusal(self, value: &Value) -> Option<String> {
        let text = value.as_str().filter(|text| !text.is_empty());
        match self {
            Self::Truth if !value.is_boolean() => Some(format!("{value} is neither true nor false")),
            Self::Text if text.is_none() => {
                Some(format!("{value} is not a text; leave the field out or write one in quotes"))
            }
            Self::Words(words) if text.is_none_or(|text| !words.contains(&text)) => {
                Some(format!("{value} is not one of {}", words.join(", ")))
            }
            _ => None,
        }
    }
}

fn unknown_field(name: &str, known: &[&str]) -> String {
    let near = nearest(name, known).map(|near| format!("did you mean {near}?"));
    format!("there is no such field; {}", near.unwrap_or_else(|| format!("known are {}", known.join(", "))))
}

/// The candidate that `word` was most likely meant to be.
pub(super) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    // A third of the letters may be wrong: more, and the suggestion is a guess.
    let distance = |candidate: &str| strsim::damerau_levenshtein(&word.to_lowercase(), &candidate.to_lowercase());
    let best = candidates.iter().map(|candidate| (distance(candidate), *candidate)).min()?;
    (best.0 <= best.1.len().div_ceil(3)).then_some(best.1)
}

/// Input that a type asked its deserializer for. It travels as an error, the one way out of a deserialization.
#[derive(Debug, thiserror::Error)]
#[error("{self:?}")]
enum ProbedType {
    Field(FieldValues),
    Struct(&'static [&'static str]),
    Anything,
}

impl serde::de::Error for ProbedType {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self::Anything
    }
}

fn asked<'de>(deserializer: impl Deserializer<'de, Error = ProbedType>) -> ProbedType {
    OpaqueConfig::deserialize(deserializer).err().unwrap_or(ProbedType::Anything)
}

/// The configuration of this kind, with these fields.
fn only<'de>(
    kind: &'static str,
    fields: impl IntoDeserializer<'de, ProbedType>,
) -> impl Deserializer<'de, Error = ProbedType> {
    MapAccessDeserializer::new(MapDeserializer::new([(kind, fields)].into_iter()))
}

/// A deserializer without a value.
struct SchemaProbe;

impl IntoDeserializer<'_, ProbedType> for SchemaProbe {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for SchemaProbe {
    type Error = ProbedType;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ProbedType> {
        Err(ProbedType::Anything)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ProbedType> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ProbedType> {
        Err(ProbedType::Field(FieldValues::Truth))
    }

    fn deserialize_string<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ProbedType> {
        Err(ProbedType::Field(FieldValues::Text))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ProbedType> {
        Err(ProbedType::Field(FieldValues::Words(words)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ProbedType> {
        Err(ProbedType::Struct(fields))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}
