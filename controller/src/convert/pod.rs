//! Labels and annotations of pods: Koordinator's keys become hostler's. All others stay: they can be selected by, and
//! other parts of Koordinator read their own.

use std::collections::BTreeMap;

use hostler_api::reservation::{
    EXACT_MATCH_RESERVATION, PRE_ALLOCATABLE, PRE_ALLOCATABLE_PRIORITY, RESERVATION_AFFINITY, RESERVATION_IGNORED,
};
use serde_json::{Map, Value};

use super::{ConvertNote, ConvertProblem, keys};
use crate::{owner_pod::OwnerPod, reservation_affinity::ReservationAffinity};

type KeyValues = BTreeMap<String, String>;

/// Example of an affinity, for those who wrote one that cannot be understood.
const AFFINITY_EXAMPLE: &str = "{\"name\": …} or {\"reservationSelector\": {label: value}}";

/// Converts labels and annotations of a pod.
///
/// # Errors
/// When an annotation of Koordinator cannot be understood.
pub(super) fn pod(labels: &mut KeyValues, annotations: &mut KeyValues) -> Result<Vec<ConvertNote>, ConvertProblem> {
    let mut notes = Vec::new();
    rename(labels, keys::IGNORED, RESERVATION_IGNORED);
    rename(labels, keys::PRE_ALLOCATABLE, PRE_ALLOCATABLE);
    if let Some(priority) = annotations.get(keys::PRE_ALLOCATABLE_PRIORITY)
        && priority.parse::<i64>().is_err()
    {
        let reason = format!("{priority:?} is no whole number; write one, the greatest is chosen first");
        return Err(ConvertProblem::new(annotation(keys::PRE_ALLOCATABLE_PRIORITY), reason));
    }
    rename(annotations, keys::PRE_ALLOCATABLE_PRIORITY, PRE_ALLOCATABLE_PRIORITY);
    // The scheduler writes it; hostler's controller writes its own.
    annotations.remove(keys::ALLOCATED);
    if labels.get(keys::OPERATING_MODE).is_some_and(|mode| mode == "Reservation") {
        let reason = "a pod keeps nothing for others; write a Reservation with the pod as its template";
        notes.push(ConvertNote::missing(label(keys::OPERATING_MODE), reason));
        labels.remove(keys::OPERATING_MODE);
    }
    for key in [keys::RESERVATION_OWNERS, keys::RESTRICTED_OPTIONS] {
        if annotations.remove(key).is_some() {
            let reason = "a pod keeps nothing for others; write it into the spec of a Reservation";
            notes.push(ConvertNote::missing(annotation(key), reason));
        }
    }
    notes.extend(affinity(annotations)?);
    exact_match(annotations)?;
    Ok(notes)
}

/// Returns hostler's labels and annotations for those of Koordinator that a pod has, beside which it has none yet. What
/// cannot be understood gets hostler's keys as it is, and the problem is returned: such a pod is given nothing.
pub(crate) fn own_keys(labels: &KeyValues, annotations: &KeyValues) -> ([KeyValues; 2], Option<ConvertProblem>) {
    let (mut own_labels, mut own_annotations) = (labels.clone(), annotations.clone());
    let problem = pod(&mut own_labels, &mut own_annotations).err();
    if problem.is_some() {
        own_annotations.clone_from(annotations);
        rename(&mut own_annotations, keys::AFFINITY, RESERVATION_AFFINITY);
        rename(&mut own_annotations, keys::EXACT_MATCH, EXACT_MATCH_RESERVATION);
    }
    own_labels.retain(|key, _| !labels.contains_key(key));
    own_annotations.retain(|key, _| !annotations.contains_key(key));
    ([own_labels, own_annotations], problem)
}

/// Path of a label in messages.
pub(super) fn label(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

/// Path of an annotation in messages.
pub(super) fn annotation(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// Gives a value another key. A value that stands under that key already was written for hostler, and stays.
pub(super) fn rename(values: &mut KeyValues, koordinators: &str, own: &str) {
    if let Some(value) = values.remove(koordinators) {
        values.entry(own.to_owned()).or_insert(value);
    }
}

fn affinity(annotations: &mut KeyValues) -> Result<Vec<ConvertNote>, ConvertProblem> {
    let Some(text) = annotations.remove(keys::AFFINITY) else { return Ok(Vec::new()) };
    let field = annotation(keys::AFFINITY);
    // Koordinator takes an empty text for no affinity.
    if text.is_empty() || annotations.contains_key(RESERVATION_AFFINITY) {
        return Ok(Vec::new());
    }
    let wrong = |error: &serde_json::Error| ConvertProblem::of_json(&field, error, AFFINITY_EXAMPLE);
    let mut fields: Map<String, Value> = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    let mut notes = Vec::new();
    // A name that is empty names none.
    fields.retain(|field, value| field != "name" || value != "");
    if fields.contains_key("name") {
        let others: Vec<&str> = fields.keys().map(String::as_str).filter(|field| *field != "name").collect();
        if !others.is_empty() {
            let reason = format!("beside name Koordinator ignores {}, which is left out", others.join(", "));
            notes.push(ConvertNote::differs(&field, reason));
        }
        fields.retain(|field, _| field == "name");
    }
    annotations.insert(RESERVATION_AFFINITY.to_owned(), Value::Object(fields).to_string());
    check(annotations).map_err(|reason| ConvertProblem::new(field, reason))?;
    Ok(notes)
}

fn exact_match(annotations: &mut KeyValues) -> Result<(), ConvertProblem> {
    let Some(text) = annotations.remove(keys::EXACT_MATCH).filter(|text| !text.is_empty()) else { return Ok(()) };
    annotations.entry(EXACT_MATCH_RESERVATION.to_owned()).or_insert(text);
    check(annotations).map_err(|reason| ConvertProblem::new(annotation(keys::EXACT_MATCH), reason))
}

/// Checks that hostler understands the annotations.
fn check(annotations: &KeyValues) -> Result<(), String> {
    let pod = OwnerPod { annotations: annotations.clone(), ..OwnerPod::default() };
    ReservationAffinity::of(&pod).map(drop).map_err(|error| error.mistake())
}
