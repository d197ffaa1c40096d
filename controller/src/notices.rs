//! Words about objects, as Events. Nobody waits for one, and what cannot be written is lost: it is for people, who find the same in
//! the object.

use std::{env, time::SystemTime};

use hostler_api::Chain;
use hostler_cluster::{
    ApiClient,
    events::{EventNote, EventRecorder, EventSubject},
};
use hostler_process::Tasks;
use tokio::sync::mpsc;
use tracing::debug;

/// Words that wait. What comes on top is lost.
const MOST_WAITING: usize = 256;
/// Who says it.
const COMPONENT: &str = "hostler-controller";

/// Where words are left. They are written until this is dropped.
#[derive(Debug)]
pub(crate) struct Notices(mpsc::Sender<(EventSubject, EventNote)>);

impl Notices {
    /// Writes what is told, one word after the other.
    pub(crate) fn start(client: ApiClient, tasks: &Tasks) -> Self {
        let (notices_tx, mut notices_rx) = mpsc::channel::<(EventSubject, EventNote)>(MOST_WAITING);
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
                let Some((subject, note)) = notice else { return };
                if let Err(failure) = recorder.tell(&subject, &note, SystemTime::now()).await {
                    debug!(error = %Chain(&failure), "an event is lost");
                }
            }
        });
        Self(notices_tx)
    }

    /// Leaves a word about an object.
    pub(crate) fn tell(&self, subject: EventSubject, note: EventNote) {
        if self.0.try_send((subject, note)).is_err() {
            debug!("too many events wait, one is left out");
        }
    }
}
