//! From a text to objects: several documents of YAML or JSON, lists and what is in them.

use std::mem;

use hostler_api::ManifestFinding;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    InputProblem, InputText,
    document::{DocumentText, documents},
    object::{ObjectContent, ObjectPlace, RawObject},
};

/// Gives each object of a text to `each`. A document that is broken is told, and hides no other.
pub(crate) fn for_each_object(
    input: &InputText,
    problems: &mut Vec<InputProblem>,
    each: &mut dyn FnMut(RawObject<'_>) -> Result<(), ManifestFinding>,
) {
    let mut told = |finding| problems.push(InputProblem { source: input.name.clone(), finding });
    let mut number = 0;
    for text in documents(&input.text) {
        for document in split(&input.text, &text) {
            number += 1;
            let found = document.and_then(|content| {
                let place = ObjectPlace { text: &input.text, document: text, number, path: String::new() };
                objects(RawObject { content, place, inherited: None }, each)
            });
            let numbered = |finding: ManifestFinding| ManifestFinding { document: number, ..finding };
            found.unwrap_or_else(|findings| findings.into_iter().map(numbered).for_each(&mut told));
        }
    }
}

type Contents<'a> = Vec<Result<ObjectContent<'a>, Vec<ManifestFinding>>>;

/// The documents between two separators: one of YAML, or any number of JSON.
fn split<'a>(whole: &'a str, document: &DocumentText<'a>) -> Contents<'a> {
    if !document.body().starts_with('{') {
        return vec![yaml(document)];
    }
    let mut contents: Contents<'a> = Vec::new();
    let mut rest = document.body();
    while let Some((error, end)) = json(rest, &mut contents) {
        // What begins like JSON may be YAML, whose own short form has fewer quotes.
        if contents.is_empty()
            && let Ok(content) = yaml(document)
        {
            return vec![Ok(content)];
        }
        contents.push(Err(vec![ManifestFinding {
            line: Some(line_at(whole, rest) + error.line() - 1),
            reason: format!("it is not valid JSON: {}", without_place(&error)),
            ..ManifestFinding::default()
        }]));
        // An object that begins a line is the next one: nothing else tells where a broken one ends.
        let broken = rest[end..].trim_start();
        rest = broken.find("\n{").map_or("", |at| &broken[at + 1..]);
    }
    contents
}

/// Takes values of JSON from the beginning of a text; what is wrong with the one that is none, and where it begins.
fn json<'a>(text: &'a str, into: &mut Contents<'a>) -> Option<(serde_json::Error, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    loop {
        match values.next()? {
            Ok(value) => into.push(Ok(ObjectContent::Json(value))),
            Err(error) => return Some((error, values.byte_offset())),
        }
    }
}

/// Number of the line on which `part` of `whole` begins.
pub(super) fn line_at(whole: &str, part: &str) -> usize {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    1 + whole.as_bytes()[..start.min(whole.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// The parser's words; it appends a line that is one of the part that it was given.
pub(super) fn without_place(error: &serde_json::Error) -> String {
    let words = error.to_string();
    words.rsplit_once(" at line ").map_or(words.clone(), |(words, _)| words.to_owned())
}

fn yaml<'a>(document: &DocumentText<'a>) -> Result<ObjectContent<'a>, Vec<ManifestFinding>> {
    document.yaml::<Value>().map(ObjectContent::Yaml).map_err(|finding| vec![finding])
}

/// An object, or all of a list; what is wrong with one hides no other.
fn objects(
    mut object: RawObject<'_>,
    each: &mut dyn FnMut(RawObject<'_>) -> Result<(), ManifestFinding>,
) -> Result<(), Vec<ManifestFinding>> {
    if object.is_empty() {
        return Ok(());
    }
    let Some(items) = items(&mut object).map_err(|finding| vec![finding])? else {
        return each(object).map_err(|finding| vec![finding]);
    };
    let findings: Vec<ManifestFinding> =
        items.into_iter().filter_map(|item| objects(item, each).err()).flatten().collect();
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

#[derive(Deserialize)]
struct JsonList<'a> {
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// What is in a list; `None` for an object that is none.
fn items<'a>(object: &mut RawObject<'a>) -> Result<Option<Vec<RawObject<'a>>>, ManifestFinding> {
    let head = object.head()?;
    let Some(of) = head.kind.strip_suffix("List") else { return Ok(None) };
    // Items of a plain `List` say themselves what they are; those of the API's own lists do not.
    let inherited = (!of.is_empty()).then(|| (head.api_version.clone(), of.to_owned()));
    let contents: Vec<ObjectContent<'a>> = match &mut object.content {
        ObjectContent::Json(raw) => {
            let list: JsonList<'a> =
                serde_json::from_str(raw.get()).map_err(|error| object.place.json(raw, "items", &error))?;
            list.items.unwrap_or_default().into_iter().map(ObjectContent::Json).collect()
        }
        ObjectContent::Yaml(value) => match value.get_mut("items").map(mem::take) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items.into_iter().map(ObjectContent::Yaml).collect(),
            Some(_) => return Err(object.finding("items", "it is not a list")),
        },
    };
    let item = |(index, content)| RawObject {
        content,
        place: object.place.below(&format!("items[{index}]")),
        inherited: inherited.clone(),
    };
    Ok(Some(contents.into_iter().enumerate().map(item).collect()))
}
