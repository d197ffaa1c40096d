//! Messages about claims, as Events. A lost Event is recorded anew the next time.

use hostler_api::classic::ClassicVersion;
use hostler_cluster::events::{EventNote, EventSubject};

use crate::classic::event::ClassicEventNote;

/// Returns the subject and the text of an Event.
pub(super) fn event_of(version: ClassicVersion, told: ClassicEventNote) -> (EventSubject, EventNote) {
    let note = EventNote::new(told.reason.as_str(), told.message);
    let subject = EventSubject {
        api_version: version.group_version(),
        kind: "ResourceClaim",
        namespace: told.claim.namespace,
        name: told.claim.name,
        uid: told.uid,
    };
    (subject, note)
}
