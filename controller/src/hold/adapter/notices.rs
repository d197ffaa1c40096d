//! Words about Reservations, as Events. Nobody waits for one, and what cannot be written is lost.

use std::{env, time::SystemTime};

use hostler_api::{
    Chain,
    hardware::{GROUP, VERSION},
    reservation::RESERVATION_KIND,
};
use hostler_cluster::{
    ApiClient,
    events::{EventNote, EventRecorder, EventSubject},
};
use hostler_process::Tasks;
use tokio::sync::mpsc;
use tracing::debug;

use crate::hold::HoldNotice;

/// Words that wait. What comes on top is lost: it is for people, who find the same in the status.
const MOST_WAITING: usize = 256;
/// Who says it.
const COMPONENT: &str = "hostler-controller";

/// Where words are left. They are written until this is dropped.
#[derive(Debug)]
pub(in crate::hold) struct Notices(mpsc::Sender<HoldNotice>);

impl Notices {
    pub(in crate::hold) fn start(client: ApiClient, tasks: &Tasks) -> Self {
        let (notices_tx, mut notices_rx) = mpsc::channel::<HoldNotice>(MOST_WAITING);
        let mut recorder = EventRecorder::new(client, COMPONENT, &env::var("HOSTNAME").unwrap_or_default());
        let stop = tasks.stop_token();
        tasks.job(async move {
            loop {
                let notice = tokio::select! {
                    // Cancel safe: what was not received stays in the channel.
                    notice = notices_rx.recv() => notice,
                    // Cancel safe: the token stays cancelled.
                    () = stop.cancelled() => None,
                };
                let Some(HoldNotice { name, uid, is_warning, reason, message }) = notice else { return };
                let note = EventNote::new(reason, message);
                let note = if is_warning { note } else { note.normal() };
                let subject = EventSubject {
                    api_version: format!("{GROUP}/{VERSION}"),
                    kind: RESERVATION_KIND,
                    namespace: String::new(),
                    name,
                    uid,
                };
                if let Err(failure) = recorder.tell(&subject, &note, SystemTime::now()).await {
                    debug!(error = %Chain(&failure), "an event is lost");
                }
            }
        });
        Self(notices_tx)
    }

    pub(in crate::hold) fn tell(&self, notice: HoldNotice) {
        if self.0.try_send(notice).is_err() {
            debug!("too many events wait, one is left out");
        }
    }
}
