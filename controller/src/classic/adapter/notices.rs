//! Words about claims, as Events. Nobody waits for one, and what cannot be written is lost: the next time it is said anew.

use std::{env, time::SystemTime};

use hostler_api::{Chain, classic::ClassicVersion};
use hostler_cluster::{
    ApiClient,
    events::{EventNote, EventRecorder, EventSubject},
};
use hostler_process::Tasks;
use tokio::sync::mpsc;
use tracing::debug;

use crate::classic::event::ClassicNotice;

/// Words that wait. What comes on top is lost: it is for people, who read the first.
const MOST_WAITING: usize = 64;
/// Who says it.
const COMPONENT: &str = "hostler-controller";

/// Where words are left. They are written until this is dropped.
#[derive(Debug)]
pub(super) struct Notices(mpsc::Sender<ClassicNotice>);

impl Notices {
    pub(super) fn start(client: ApiClient, version: ClassicVersion, tasks: &Tasks) -> Self {
        let (notices_tx, mut notices_rx) = mpsc::channel::<ClassicNotice>(MOST_WAITING);
        let host = env::var("HOSTNAME").unwrap_or_default();
        let mut recorder = EventRecorder::new(client, COMPONENT, &host);
        let stop = tasks.stop_token();
        tasks.job(async move {
            loop {
                let notice = tokio::select! {
                    // Cancel safe: what was not received stays in the channel.
                    notice = notices_rx.recv() => notice,
                    // Cancel safe: the token stays cancelled.
                    () = stop.cancelled() => None,
                };
                let Some(notice) = notice else { return };
                let note = EventNote::new(notice.reason.as_str(), notice.message.clone());
                if let Err(failure) = recorder.tell(&subject(version, notice), &note, SystemTime::now()).await {
                    debug!(error = %Chain(&failure), "an event is lost");
                }
            }
        });
        Self(notices_tx)
    }

    pub(super) fn tell(&self, notice: ClassicNotice) {
        if self.0.try_send(notice).is_err() {
            debug!("too many events wait, one is left out");
        }
    }
}

fn subject(version: ClassicVersion, notice: ClassicNotice) -> EventSubject {
    EventSubject {
        api_version: version.group_version(),
        kind: "ResourceClaim",
        namespace: notice.claim.namespace,
        name: notice.claim.name,
        uid: notice.uid,
    }
}
