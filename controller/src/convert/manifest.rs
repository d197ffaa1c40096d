//! The conversion that an object needs, by its kind.

use std::collections::BTreeMap;

use hostler_api::reservation::{KOORDINATOR_GROUP, KOORDINATOR_VERSION};
use serde_json::{Value, json};

use super::{
    ConvertNote, ConvertProblem, KOORDINATOR_SCHEDULER,
    pod::pod,
    reservation::{ConvertedReservation, reservation},
};

/// An object as hostler has it; none where hostler has no such object.
#[derive(Debug, Default)]
pub(super) struct ConvertedObject {
    pub(super) object: Option<Value>,
    pub(super) notes: Vec<ConvertNote>,
}

/// Paths of the pod templates of each kind; empty for a pod.
const PODS: [(&str, &str, &[&str]); 9] = [
    ("", "Pod", &[]),
    ("", "PodTemplate", &["template"]),
    ("", "ReplicationController", &["spec", "template"]),
    ("apps", "DaemonSet", &["spec", "template"]),
    ("apps", "Deployment", &["spec", "template"]),
    ("apps", "ReplicaSet", &["spec", "template"]),
    ("apps", "StatefulSet", &["spec", "template"]),
    ("batch", "Job", &["spec", "template"]),
    ("batch", "CronJob", &["spec", "jobTemplate", "spec", "template"]),
];

/// Converts an object of this group, version and kind.
///
/// # Errors
/// When a field of Koordinator's cannot be understood, or hostler cannot serve the object at all.
pub(super) fn convert(api_version: &str, kind: &str, object: Value) -> Result<ConvertedObject, ConvertProblem> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if group == KOORDINATOR_GROUP && kind == "Reservation" {
        if version != KOORDINATOR_VERSION {
            let reason = format!("{api_version:?} is not known; write {KOORDINATOR_GROUP}/{KOORDINATOR_VERSION}");
            return Err(ConvertProblem::new("apiVersion", reason));
        }
        return reservation(&object).map(|ConvertedReservation { object, notes }| ConvertedObject { object, notes });
    }
    if group == "koordinator.sh" || group.ends_with(".koordinator.sh") {
        let note = ConvertNote::missing("kind", format!("hostler has no {kind}; it is left out"));
        return Ok(ConvertedObject { object: None, notes: vec![note] });
    }
    match PODS.iter().find(|(of_group, of_kind, _)| *of_group == group && *of_kind == kind) {
        Some((.., path)) => pods(object, path),
        None => Ok(ConvertedObject::unchanged(object)),
    }
}

impl ConvertedObject {
    fn unchanged(object: Value) -> Self {
        Self { object: Some(object), notes: Vec::new() }
    }
}

/// Converts the pod at a path of an object.
fn pods(mut object: Value, path: &[&str]) -> Result<ConvertedObject, ConvertProblem> {
    let prefix: String = path.iter().map(|step| format!("{step}.")).collect();
    let mut place = &mut object;
    for step in path {
        if place[*step].is_null() {
            return Ok(ConvertedObject::unchanged(object));
        }
        place = &mut place[*step];
    }
    let below = |field: &str| format!("{prefix}{field}");
    let mut labels = values(place, "labels").map_err(|it| ConvertProblem::new(below(&it.field), it.reason))?;
    let mut annotations =
        values(place, "annotations").map_err(|it| ConvertProblem::new(below(&it.field), it.reason))?;
    let before = (labels.clone(), annotations.clone());
    let notes = pod(&mut labels, &mut annotations).map_err(|it| ConvertProblem::new(below(&it.field), it.reason))?;
    let mut notes: Vec<ConvertNote> =
        notes.into_iter().map(|note| ConvertNote { field: below(&note.field), ..note }).collect();
    if before != (labels.clone(), annotations.clone()) {
        keep(place, "labels", &labels);
        keep(place, "annotations", &annotations);
        if place["spec"]["schedulerName"] == KOORDINATOR_SCHEDULER {
            let reason = "the scheduler stays; leave it out where Koordinator's scheduler goes";
            notes.push(ConvertNote::differs(below("spec.schedulerName"), reason));
        }
    }
    Ok(ConvertedObject { object: Some(object), notes })
}

/// Reads labels or annotations.
fn values(of: &Value, field: &str) -> Result<BTreeMap<String, String>, ConvertProblem> {
    let mut values = BTreeMap::new();
    for (key, value) in of["metadata"][field].as_object().into_iter().flatten() {
        let Some(text) = value.as_str() else {
            let reason = format!("{value} is no text; write it in quotation marks");
            return Err(ConvertProblem::new(format!("metadata.{field}[{key}]"), reason));
        };
        values.insert(key.clone(), text.to_owned());
    }
    Ok(values)
}

fn keep(of: &mut Value, field: &str, values: &BTreeMap<String, String>) {
    if let Some(metadata) = of["metadata"].as_object_mut() {
        match values.is_empty() {
            true => drop(metadata.remove(field)),
            false => drop(metadata.insert(field.to_owned(), json!(values))),
        }
    }
}
