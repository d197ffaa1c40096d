//! Words about Reservations, as Events.

use hostler_api::{
    hardware::{GROUP, VERSION},
    reservation::RESERVATION_KIND,
};
use hostler_cluster::{
    ApiClient,
    events::{EventNote, EventSubject},
};
use hostler_process::Tasks;

use crate::{hold::HoldNotice, notices};

/// Where words are left. They are written until this is dropped.
#[derive(Debug)]
pub(in crate::hold) struct Notices(notices::Notices);

impl Notices {
    pub(in crate::hold) fn start(client: ApiClient, tasks: &Tasks) -> Self {
        Self(notices::Notices::start(client, tasks))
    }

    pub(in crate::hold) fn tell(&self, notice: HoldNotice) {
        let HoldNotice { name, uid, is_warning, reason, message } = notice;
        let note = EventNote::new(reason, message);
        let subject = EventSubject {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: RESERVATION_KIND,
            namespace: String::new(),
            name,
            uid,
        };
        self.0.tell(subject, if is_warning { note } else { note.normal() });
    }
}
