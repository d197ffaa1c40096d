//! An object of a document: its kind, its content as the type that it should be, and the places of its fields in the
//! text.

use hostler_api::ManifestFinding;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use serde_path_to_error::deserialize;

use super::{
    document::DocumentText,
    line::{PlacedValue, line_at, without_place},
};

/// An object that was not parsed yet.
#[derive(Debug)]
pub(crate) struct RawObject<'a> {
    pub(super) content: ObjectContent<'a>,
    pub(super) place: ObjectPlace<'a>,
    pub(super) inherited: Inherited,
}

/// `apiVersion` and `kind` of the items of a list that names both once.
pub(super) type Inherited = Option<(String, String)>;

/// The content of an object.
#[derive(Debug)]
pub(super) enum ObjectContent<'a> {
    /// Text of JSON.
    Json(&'a RawValue),
    /// A document of YAML, or a part of one.
    Yaml(Value),
}

/// The place of an object.
#[derive(Clone, Debug)]
pub(super) struct ObjectPlace<'a> {
    /// The whole text.
    pub(super) text: &'a str,
    /// The part of the text between two separators.
    pub(super) document: DocumentText<'a>,
    /// Number of the document.
    pub(super) number: usize,
    /// Path in the document of the reader; empty for the document itself.
    pub(super) path: String,
    /// Path in `document`, which is a single item where a list is read item by item.
    pub(super) inner: String,
}

/// The head of an object: kind, version and names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectHead {
    /// `resource.k8s.io/v1`, or `v1`.
    pub(crate) api_version: String,
    /// `ResourceClaim`.
    pub(crate) kind: String,
    metadata: HeadMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HeadMetadata {
    name: String,
    namespace: String,
    generate_name: String,
}

impl ObjectHead {
    /// `resource.k8s.io`; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// `v1`.
    pub(crate) fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// Returns the kind of a list's items, if the items do not name it themselves, as in the API's own lists. `None`
    /// for an object that is no list.
    pub(super) fn kind_of_items(&self) -> Option<Inherited> {
        let of = self.kind.strip_suffix("List")?;
        Some((!of.is_empty()).then(|| (self.api_version.clone(), of.to_owned())))
    }

    /// Namespace of the object; empty if it names none.
    pub(crate) fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// Name of the object; empty if it has none.
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Prefix of the name to be generated, if the object has no name.
    pub(crate) fn generate_name(&self) -> &str {
        &self.metadata.generate_name
    }

    /// `ResourceClaim ml/train`, as far as the head has these fields.
    pub(crate) fn title(&self) -> String {
        let HeadMetadata { name, namespace, generate_name } = &self.metadata;
        let name = if name.is_empty() { generate_name } else { name };
        let slash = if namespace.is_empty() { "" } else { "/" };
        format!("{} {namespace}{slash}{name}", self.kind).trim().to_owned()
    }
}

impl RawObject<'_> {
    /// Reads the head of the object.
    ///
    /// # Errors
    /// When it has none, or is no object.
    pub(super) fn head(&self) -> Result<ObjectHead, ManifestFinding> {
        let mut head: ObjectHead = self.parse(false)?;
        if let Some((api_version, kind)) = self.inherited.clone().filter(|_| head.kind.is_empty()) {
            (head.api_version, head.kind) = (api_version, kind);
        }
        for (field, text) in [("kind", &head.kind), ("apiVersion", &head.api_version)] {
            if text.is_empty() {
                return Err(ManifestFinding { object: head.title(), ..self.finding(field, "it is missing") });
            }
        }
        Ok(head)
    }

    /// Reads the object as a `T`.
    ///
    /// # Errors
    /// Names the first field that does not fit the type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ManifestFinding> {
        self.parse(true)
    }

    /// Reads the object of a kind with very many objects, as [`hostler_cluster::RawObject::read_one_of_many`] does. The kind
    /// of a list's items is not added: a `T` that needs it is read by [`read`](Self::read).
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub(crate) fn read_one_of_many<T: DeserializeOwned>(&self) -> Result<T, ManifestFinding> {
        let plain = match &self.content {
            ObjectContent::Json(raw) => serde_json::from_str(raw.get()).ok(),
            ObjectContent::Yaml(_) => None,
        };
        plain.map_or_else(|| self.read(), Ok)
    }

    /// Returns the number of the object's document.
    pub(crate) fn document(&self) -> usize {
        self.place.number
    }

    /// Makes a finding about a field of the object.
    pub(crate) fn finding(&self, field: &str, reason: impl Into<String>) -> ManifestFinding {
        match &self.content {
            ObjectContent::Json(raw) => {
                self.place.finding(field, Some(line_at(self.place.text, raw.get())), reason.into())
            }
            ObjectContent::Yaml(_) => self.place.yaml(field, reason.into()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self.content, ObjectContent::Yaml(Value::Null))
    }

    /// Parses the object. Items of the API's own lists have no kind; with `whole` the kind is added.
    fn parse<T: DeserializeOwned>(&self, whole: bool) -> Result<T, ManifestFinding> {
        match (&self.content, self.inherited.as_ref().filter(|_| whole)) {
            (ObjectContent::Json(raw), None) => {
                let mut parser = serde_json::Deserializer::from_str(raw.get());
                deserialize(&mut parser).map_err(|error| self.place.json(raw, &error.path().to_string(), error.inner()))
            }
            (ObjectContent::Yaml(value), None) => self.typed(value),
            (ObjectContent::Json(raw), Some(inherited)) => {
                let value = serde_json::from_str(raw.get()).map_err(|error| self.place.json(raw, ".", &error))?;
                self.typed(&with_kind(value, inherited))
            }
            (ObjectContent::Yaml(value), Some(inherited)) => self.typed(&with_kind(value.clone(), inherited)),
        }
    }

    /// Reads a value by way of its text: the reader of each type is in the program once, for text.
    fn typed<T: DeserializeOwned>(&self, value: &Value) -> Result<T, ManifestFinding> {
        let text = value.to_string();
        deserialize(&mut serde_json::Deserializer::from_str(&text))
            .map_err(|error| self.finding(&error.path().to_string(), in_words(&without_place(error.inner()))))
    }
}

/// Translates a parser's message into the words of people who write manifests.
fn in_words(said: &str) -> String {
    let Some((found, expected)) = said.split_once(", expected ") else { return said.to_owned() };
    let wanted = match expected {
        "a string" | "a borrowed string" | "a formatted string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        map if map == "a map" || map.starts_with("a map") || map.starts_with("struct ") => "fields with values",
        other => other,
    };
    format!("{found}; write {wanted}")
}

fn with_kind(mut value: Value, (api_version, kind): &(String, String)) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.entry("apiVersion").or_insert_with(|| api_version.as_str().into());
        fields.entry("kind").or_insert_with(|| kind.as_str().into());
    }
    value
}

impl<'a> ObjectPlace<'a> {
    /// The place of a document as a whole.
    pub(super) fn of(text: &'a str, document: DocumentText<'a>, number: usize) -> Self {
        Self { text, document, number, path: String::new(), inner: String::new() }
    }

    pub(super) fn below(&self, step: &str) -> Self {
        Self { path: joined(&self.path, step), inner: joined(&self.inner, step), ..self.clone() }
    }

    fn finding(&self, field: &str, line: Option<usize>, reason: String) -> ManifestFinding {
        ManifestFinding { document: self.number, object: String::new(), line, field: joined(&self.path, field), reason }
    }

    /// Makes a finding about a JSON value; the parser knows the line.
    pub(super) fn json(&self, raw: &RawValue, field: &str, error: &serde_json::Error) -> ManifestFinding {
        let line = line_at(self.text, raw.get()) + error.line().saturating_sub(1);
        self.finding(field, Some(line), in_words(&without_place(error)))
    }

    fn yaml(&self, field: &str, reason: String) -> ManifestFinding {
        let places = self.document.yaml::<PlacedValue>().ok();
        let line =
            places.and_then(|places| places.line_of(&joined(&self.inner, field))).map(|own| self.document.line(own));
        self.finding(field, line, reason)
    }
}

/// Joins the path of an object with a path in it; `.` is the object itself.
fn joined(path: &str, field: &str) -> String {
    match (path, field) {
        (path, "." | "") => path.to_owned(),
        ("", field) => field.to_owned(),
        (path, field) if field.starts_with('[') => format!("{path}{field}"),
        (path, field) => format!("{path}.{field}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_parser_says_is_put_into_the_words_of_manifests() {
        for (said, expected) in [
            (
                "invalid type: string \"x\", expected u16",
                "invalid type: string \"x\"; write a whole number that is not negative",
            ),
            ("invalid type: string \"x\", expected a sequence", "invalid type: string \"x\"; write a list"),
            (
                "invalid type: integer `7`, expected struct PodSpec",
                "invalid type: integer `7`; write fields with values",
            ),
            ("missing field `template`", "missing field `template`"),
        ] {
            assert_eq!(in_words(said), expected);
        }
    }
}
