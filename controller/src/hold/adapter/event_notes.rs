//! Events about Reservations.

use hostler_api::{
    hardware::{GROUP, VERSION},
    reservation::RESERVATION_KIND,
};
use hostler_cluster::events::{EventNote, EventSubject};

use crate::hold::HoldEventNote;

/// Returns the Event of a notice, and its object.
pub(in crate::hold) fn event_of(notice: HoldEventNote) -> (EventSubject, EventNote) {
    let HoldEventNote { name, uid, is_warning, reason, message } = notice;
    let note = EventNote::new(reason, message);
    let subject = EventSubject {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: RESERVATION_KIND,
        namespace: String::new(),
        name,
        uid,
    };
    (subject, if is_warning { note } else { note.normal() })
}
