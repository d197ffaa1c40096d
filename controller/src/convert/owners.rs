//! Owners of Koordinator's Reservations.

use hostler_api::reservation::{OwnerController, OwnerObject, ReservationOwner};

use super::{ConvertNote, ConvertProblem};

/// Checks that hostler serves the owners of a Reservation, whose pods are in the namespace `home`.
///
/// # Errors
/// When an owner says nothing: hostler keeps nothing for every pod there is.
pub(super) fn notes(owners: &[ReservationOwner], home: &str) -> Result<Vec<ConvertNote>, ConvertProblem> {
    if owners.is_empty() {
        let reason = "there are none; write object, controller or labelSelector of the pods that may have it";
        return Err(ConvertProblem::new("spec.owners", reason));
    }
    let mut notes = Vec::new();
    for (at, owner) in owners.iter().enumerate() {
        let field = format!("spec.owners[{at}]");
        if let Some(reason) = about_all(owner) {
            return Err(ConvertProblem::new(field, reason));
        }
        if !owner.is_somewhere() {
            let reason = format!(
                "it is about pods of namespace {home} alone, where Koordinator means every namespace; write another \
                 one into object.namespace"
            );
            notes.push(ConvertNote::differs(field, reason));
        }
    }
    Ok(notes)
}

/// Returns the reason why an owner is about every pod, if it is.
fn about_all(owner: &ReservationOwner) -> Option<&'static str> {
    let ReservationOwner { object, controller, label_selector, .. } = owner;
    let is_empty = |texts: &[&String]| texts.iter().all(|text| text.is_empty());
    let names_nothing = |it: &OwnerObject| is_empty(&[&it.namespace, &it.name, &it.uid]);
    let says_nothing = |it: &OwnerController| is_empty(&[&it.kind, &it.namespace, &it.name, &it.uid]);
    if object.as_ref().is_some_and(names_nothing) {
        Some("object is about every pod; write its namespace, name or uid")
    } else if controller.as_ref().is_some_and(says_nothing) {
        Some("controller is about every pod that anything made; write its kind, namespace, name or uid")
    } else {
        let is_nobody = object.is_none() && controller.is_none() && label_selector.is_none();
        is_nobody.then_some("it is about every pod; write object, controller or labelSelector")
    }
}
