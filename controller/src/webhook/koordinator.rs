//! Pods that say in Koordinator's keys which Reservation they want get hostler's beside them, where Koordinator's
//! Reservations are served. Pure.

use std::collections::BTreeMap;

use hostler_api::core::Pod;
use serde_json::{Value, json};

use super::review::WebhookAnswer;
use crate::{convert::own_keys, observed::ObservedKind, view::ClusterView};

/// Gives a pod hostler's labels and annotations for those of Koordinator; returns what is to be changed.
pub(super) fn translate(view: &ClusterView, pod: &mut Pod) -> WebhookAnswer {
    let kind = view.kinds.get(&ObservedKind::KoordinatorReservation);
    if !kind.is_some_and(|kind| kind.is_synced && !kind.is_absent) {
        return WebhookAnswer::default();
    }
    let metadata = &mut pod.metadata;
    let ([labels, annotations], problem) = own_keys(&metadata.labels, &metadata.annotations);
    let mut patch = added("/metadata/labels", &metadata.labels, &labels);
    patch.extend(added("/metadata/annotations", &metadata.annotations, &annotations));
    metadata.labels.extend(labels);
    metadata.annotations.extend(annotations);
    let warnings = problem.iter().map(|problem| format!("no Reservation takes the pod: {problem}")).collect();
    WebhookAnswer { patch, warnings }
}

fn added(path: &str, before: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<Value> {
    match (new.is_empty(), before.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => vec![json!({ "op": "add", "path": path, "value": new })],
        (false, false) => new.iter().map(|(key, value)| add(path, key, value)).collect(),
    }
}

fn add(path: &str, key: &str, value: &str) -> Value {
    let key = key.replace('~', "~0").replace('/', "~1");
    json!({ "op": "add", "path": format!("{path}/{key}"), "value": value })
}
