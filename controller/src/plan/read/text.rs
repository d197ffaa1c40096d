//! From a text to objects: several documents of YAML or JSON, with the items of lists.

use std::mem;

use hostler_api::ManifestFinding;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    InputProblem, InputText,
    document::{DocumentText, documents},
    line::{line_at, without_place},
    list::{ListText, list},
    object::{Inherited, ObjectContent, ObjectHead, ObjectPlace, RawObject},
};

/// The receiver of objects and their heads.
type EachObject<'e> = dyn FnMut(RawObject<'_>, ObjectHead) -> Result<(), ManifestFinding> + 'e;

/// Gives each object of a text to `each`. A broken document is reported, and hides no other.
pub(crate) fn for_each_object(input: &InputText, problems: &mut Vec<InputProblem>, each: &mut EachObject<'_>) {
    let mut told = |number: usize, found: Result<(), Vec<ManifestFinding>>| {
        let problem = |finding| InputProblem {
            source: input.name.clone(),
            finding: ManifestFinding { document: number, ..finding },
        };
        problems.extend(found.err().into_iter().flatten().map(problem));
    };
    let mut number = 0;
    for document in documents(&input.text) {
        let place = |number| ObjectPlace::of(&input.text, document, number);
        if let Some((list, inherited)) = long_list(place(number + 1)) {
            number += 1;
            for (index, item) in list.items.iter().enumerate() {
                let place = ObjectPlace {
                    document: *item,
                    inner: "[0]".to_owned(),
                    ..place(number).below(&format!("items[{index}]"))
                };
                told(number, item_of_list(place, inherited.clone(), each));
            }
            continue;
        }
        for content in split(&input.text, &document) {
            number += 1;
            let whole = |content| objects(RawObject { content, place: place(number), inherited: None }, each);
            told(number, content.and_then(whole));
        }
    }
}

/// A list that can be read item by item, with the head that all items share.
fn long_list<'a>(place: ObjectPlace<'a>) -> Option<(ListText<'a>, Inherited)> {
    let list = list(&place.document)?;
    let content = ObjectContent::Yaml(DocumentText { text: &list.head, ..place.document }.yaml().ok()?);
    let inherited = RawObject { content, place, inherited: None }.head().ok()?.kind_of_items()?;
    Some((list, inherited))
}

fn item_of_list(
    place: ObjectPlace<'_>,
    inherited: Inherited,
    each: &mut EachObject<'_>,
) -> Result<(), Vec<ManifestFinding>> {
    match place.document.yaml() {
        Ok((value,)) => objects(RawObject { content: ObjectContent::Yaml(value), place, inherited }, each),
        Err(finding) => Err(vec![ManifestFinding { field: place.path, ..finding }]),
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
        // A text that begins like JSON may be YAML, whose flow style needs fewer quotes.
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
        // An object that begins a line is the next one: nothing else marks the end of a broken one.
        let broken = rest[end..].trim_start();
        rest = broken.find("\n{").map_or("", |at| &broken[at + 1..]);
    }
    contents
}

/// Reads JSON values from the beginning of a text; returns the error of the first broken one, and its offset.
fn json<'a>(text: &'a str, into: &mut Contents<'a>) -> Option<(serde_json::Error, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    loop {
        match values.next()? {
            Ok(value) => into.push(Ok(ObjectContent::Json(value))),
            Err(error) => return Some((error, values.byte_offset())),
        }
    }
}

fn yaml<'a>(document: &DocumentText<'a>) -> Result<ObjectContent<'a>, Vec<ManifestFinding>> {
    document.yaml::<Value>().map(ObjectContent::Yaml).map_err(|finding| vec![finding])
}

/// Gives an object, or all items of a list, to `each`; a mistake in one hides no other.
fn objects(mut object: RawObject<'_>, each: &mut EachObject<'_>) -> Result<(), Vec<ManifestFinding>> {
    if object.is_empty() {
        return Ok(());
    }
    let head = object.head().map_err(|finding| vec![finding])?;
    let Some(inherited) = head.kind_of_items() else {
        return each(object, head).map_err(|finding| vec![finding]);
    };
    let items = items(&mut object, &inherited).map_err(|finding| vec![finding])?;
    let findings: Vec<ManifestFinding> =
        items.into_iter().filter_map(|item| objects(item, each).err()).flatten().collect();
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

#[derive(Deserialize)]
struct JsonList<'a> {
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// Returns the items of a list.
fn items<'a>(object: &mut RawObject<'a>, inherited: &Inherited) -> Result<Vec<RawObject<'a>>, ManifestFinding> {
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
    Ok(contents.into_iter().enumerate().map(item).collect())
}
