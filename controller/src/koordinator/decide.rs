//! The next write for a Reservation of Koordinator. Pure: everything was read anew, and one write follows from it alone.

use hostler_api::{
    fingerprint,
    reservation::{KOORDINATOR_GROUP, KOORDINATOR_VERSION, RESERVATION_KIND},
};
use serde_json::{Value, json};

use super::{
    context::{CONVERTED, KOORDINATOR_UID, KoordinatorContext, KoordinatorObject, KoordinatorWrite, OwnReservation},
    status::{Served, status},
};
use crate::convert::{ConvertNote, ConvertProblem, of_koordinator};

/// Decides the next write; none if everything is as it should be.
pub(super) fn decide(cx: &KoordinatorContext) -> Option<KoordinatorWrite> {
    let made_for = cx.own.as_ref().and_then(|own| own.meta.labels.get(KOORDINATOR_UID));
    let theirs = cx.theirs.as_ref().filter(|theirs| theirs.meta.deletion_timestamp.is_none());
    match (theirs, &cx.own) {
        // Of an object that is gone, or was made anew under its name.
        (theirs, Some(own)) if made_for.is_some() && made_for != theirs.map(|it| &it.meta.uid) => delete(own),
        (None, _) => None,
        (Some(theirs), Some(_)) if made_for.is_none() => tell(cx, theirs, None, &name_taken()),
        (Some(theirs), None) if theirs.is_over() => {
            // Reservations that are over go after their time, and Koordinator's with them.
            Served::was(theirs).then(|| KoordinatorWrite::DeleteTheirs(theirs.meta.version()))
        }
        (Some(theirs), Some(own)) if own.status.phase.is_over() => tell(cx, theirs, Some(own), &Served::before(theirs)),
        (Some(theirs), own) => serve(cx, theirs, own.as_ref()),
    }
}

/// Returns the write that says that the server refused another one.
pub(super) fn refused(cx: &KoordinatorContext, message: &str) -> Option<KoordinatorWrite> {
    let theirs = cx.theirs.as_ref()?;
    let own = cx.own.as_ref().filter(|own| own.meta.labels.get(KOORDINATOR_UID) == Some(&theirs.meta.uid));
    tell(cx, theirs, own, &Served::No { reason: "Refused", message: message.to_owned() })
}

fn name_taken() -> Served {
    let message = "a Reservation of hostler.dev with this name is there, which was not made for this one; give one of \
                   both another name";
    Served::No { reason: "NameTaken", message: message.to_owned() }
}

fn delete(own: &OwnReservation) -> Option<KoordinatorWrite> {
    own.meta.deletion_timestamp.is_none().then(|| KoordinatorWrite::Delete(own.meta.version()))
}

fn tell(
    cx: &KoordinatorContext,
    theirs: &KoordinatorObject,
    own: Option<&OwnReservation>,
    served: &Served,
) -> Option<KoordinatorWrite> {
    let status = status(theirs, own.map(|own| &own.status), served, cx.now);
    let is_news = theirs.object.get("status") != Some(&status);
    is_news.then(|| KoordinatorWrite::Status(theirs.meta.resource_version.clone(), Box::new(status)))
}

/// Makes the Reservation, or gives it the spec that Koordinator's object has now, or shows its status.
fn serve(
    cx: &KoordinatorContext,
    theirs: &KoordinatorObject,
    own: Option<&OwnReservation>,
) -> Option<KoordinatorWrite> {
    let (wanted, notes) = match wanted(theirs) {
        Ok(wanted) => wanted,
        Err(problem) => {
            let served = Served::No { reason: "NotConverted", message: problem.to_string() };
            return tell(cx, theirs, own, &served);
        }
    };
    let Some(own) = own else { return Some(KoordinatorWrite::Create(Box::new(wanted))) };
    let converted = wanted["metadata"]["annotations"][CONVERTED].as_str();
    if own.meta.annotations.get(CONVERTED).map(String::as_str) != converted && own.meta.deletion_timestamp.is_none() {
        return Some(KoordinatorWrite::Replace(Box::new(changed(&own.object, &wanted))));
    }
    tell(cx, theirs, Some(own), &Served::Yes(notes))
}

/// Returns hostler's Reservation for an object of Koordinator, and what differs.
fn wanted(theirs: &KoordinatorObject) -> Result<(Value, Vec<ConvertNote>), ConvertProblem> {
    let (mut wanted, notes) = of_koordinator(&theirs.object)?;
    let converted = fingerprint(&json!([wanted["metadata"], wanted["spec"]]).to_string());
    let metadata = &mut wanted["metadata"];
    metadata["labels"][KOORDINATOR_UID] = json!(theirs.meta.uid);
    metadata["annotations"][CONVERTED] = json!(converted);
    metadata["ownerReferences"] = json!([{
        "apiVersion": format!("{KOORDINATOR_GROUP}/{KOORDINATOR_VERSION}"), "kind": RESERVATION_KIND,
        "name": theirs.meta.name, "uid": theirs.meta.uid,
    }]);
    Ok((wanted, notes))
}

/// Returns the Reservation with what is wanted: labels and annotations decide as the spec does.
fn changed(own: &Value, wanted: &Value) -> Value {
    let mut changed = own.clone();
    changed["spec"] = wanted["spec"].clone();
    for field in ["labels", "annotations"] {
        changed["metadata"][field] = wanted["metadata"][field].clone();
    }
    changed
}
