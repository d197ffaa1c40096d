//! The garbage collector: it deletes objects whose owners are gone, and ends the wait of owners for their dependents.

use serde_json::{Value, json};

use super::{ControllerCommand, ControllerWrite, list, text};
use crate::apiserver::ApiServerView;

const NAME: &str = "kube-controller-manager";
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The garbage collector, which keeps no state between its steps.
#[derive(Debug, Default)]
pub(crate) struct GarbageCollector;

/// The state of an owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Owner {
    /// The owner exists, and is not being deleted.
    Solid,
    /// The owner goes when this object is gone.
    Waiting,
    Gone,
    /// The owner is of a kind that the server does not know.
    Unknown,
}

impl GarbageCollector {
    pub(crate) fn next(&mut self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        let objects = view.all();
        let write = objects.iter().find_map(|object| dependent(view, object).or_else(|| owner(&objects, object)))?;
        Some(ControllerCommand { who: NAME, write })
    }
}

/// Returns the write for an object that has owners.
fn dependent(view: &ApiServerView<'_>, object: &Value) -> Option<ControllerWrite> {
    let references = list(&object["metadata"]["ownerReferences"]);
    if references.is_empty() || is_going(object) {
        return None;
    }
    let owners: Vec<Owner> = references.iter().map(|reference| look(view, object, reference)).collect();
    let is_held = owners.iter().any(|owner| matches!(owner, Owner::Solid | Owner::Unknown));
    if !is_held {
        let blocks = references
            .iter()
            .zip(&owners)
            .any(|(reference, owner)| *owner == Owner::Waiting && reference["blockOwnerDeletion"] == true);
        return Some(deletion(
            object,
            if blocks && has_dependents(view, object) { "Foreground" } else { "Background" },
        ));
    }
    if owners.iter().all(|owner| matches!(owner, Owner::Solid | Owner::Unknown)) {
        return None;
    }
    let kept = references.iter().zip(&owners).filter(|(_, owner)| matches!(owner, Owner::Solid | Owner::Unknown));
    let mut changed = object.clone();
    changed["metadata"]["ownerReferences"] = kept.map(|(reference, _)| reference.clone()).collect();
    Some(ControllerWrite::Update(changed))
}

/// Returns the write for an owner that waits.
fn owner(objects: &[Value], object: &Value) -> Option<ControllerWrite> {
    let finalizers = list(&object["metadata"]["finalizers"]);
    if !is_going(object) {
        return None;
    }
    let mut theirs = objects.iter().filter(|other| reference_to(other, object).is_some());
    if finalizers.iter().any(|one| one == ORPHAN) {
        return Some(match theirs.next() {
            Some(other) => ControllerWrite::Update(without_reference(other, object)),
            None => ControllerWrite::Update(without_finalizer(object, ORPHAN)),
        });
    }
    let blocks = |other: &Value| reference_to(other, object).is_some_and(|it| it["blockOwnerDeletion"] == true);
    let is_free = finalizers.iter().any(|one| one == FOREGROUND) && !theirs.any(blocks);
    is_free.then(|| ControllerWrite::Update(without_finalizer(object, FOREGROUND)))
}

fn look(view: &ApiServerView<'_>, object: &Value, reference: &Value) -> Owner {
    let namespace = text(&object["metadata"], "namespace");
    let found = view.find(text(reference, "apiVersion"), text(reference, "kind"), namespace, text(reference, "name"));
    match found {
        None => Owner::Unknown,
        Some(Some(owner)) if owner["metadata"]["uid"] == reference["uid"] => {
            let waits = is_going(&owner) && list(&owner["metadata"]["finalizers"]).iter().any(|one| one == FOREGROUND);
            if waits { Owner::Waiting } else { Owner::Solid }
        }
        Some(_) => Owner::Gone,
    }
}

fn has_dependents(view: &ApiServerView<'_>, object: &Value) -> bool {
    view.all().iter().any(|other| reference_to(other, object).is_some())
}

fn reference_to<'a>(object: &'a Value, owner: &Value) -> Option<&'a Value> {
    list(&object["metadata"]["ownerReferences"]).iter().find(|one| one["uid"] == owner["metadata"]["uid"])
}

fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn deletion(object: &Value, policy: &str) -> ControllerWrite {
    let preconditions =
        json!({ "uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"] });
    let options = json!({ "preconditions": preconditions, "propagationPolicy": policy });
    ControllerWrite::Delete { object: object.clone(), options }
}

fn without_reference(object: &Value, owner: &Value) -> Value {
    let mut changed = object.clone();
    let kept = list(&object["metadata"]["ownerReferences"]).iter().filter(|one| one["uid"] != owner["metadata"]["uid"]);
    changed["metadata"]["ownerReferences"] = kept.cloned().collect();
    changed
}

fn without_finalizer(object: &Value, finalizer: &str) -> Value {
    let mut changed = object.clone();
    let kept = list(&object["metadata"]["finalizers"]).iter().filter(|one| *one != finalizer);
    changed["metadata"]["finalizers"] = kept.cloned().collect();
    changed
}
