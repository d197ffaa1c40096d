//! Messages about claims, as Events. A lost Event is recorded anew the next time.

use hostler_api::classic::ClassicVersion;
use hostler_cluster::events::{EventNote, EventSubject};

use crate::classic::event::ClassicEventNote;

/// Returns the subject and the text of an Event.
pub(super) fn event_of(version: ClassicVersion, notice: ClassicEventNote) -> (EventSubject, EventNote) {
    let note = EventNote::new(notice.reason.as_str(), notice.message);
    let subject = EventSubject {
        api_version: version.group_version(),
        kind: "ResourceClaim",
        namespace: notice.claim.namespace,
        name: notice.claim.name,
        uid: notice.uid,
    };
    (subject, note)
}
