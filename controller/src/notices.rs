//! Records Events. No decision waits for one, and an Event that cannot be written within half a minute is lost: people find the same
//! in the object.

use std::{
    env,
    time::{Duration, SystemTime},
};

use hostler_api::Chain;
use hostler_cluster::{
    ApiClient, ApiFailure, RetryPauses,
    events::{EventNote, EventRecorder, EventSubject},
};
use hostler_process::Tasks;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

/// Words that wait. What comes on top is lost.
const MOST_WAITING: usize = 256;
/// Who says it.
const COMPONENT: &str = "hostler-controller";
/// A server that starts anew is back by then, and has read its roles.
const KEEP_TRYING: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Where words are left. They are written until this is dropped.
#[derive(Debug)]
pub(crate) struct Notices(mpsc::Sender<Notice>);

/// A word that waits.
#[derive(Debug)]
struct Notice {
    subject: EventSubject,
    note: EventNote,
    /// The time that the Event names.
    at: SystemTime,
    /// The time at which the Event is lost, unless it has never been tried.
    end: Instant,
}

impl Notices {
    /// Writes what is told, one word after the other.
    pub(crate) fn start(client: ApiClient, tasks: &Tasks) -> Self {
        let (notices_tx, notices_rx) = mpsc::channel(MOST_WAITING);
        let recorder = EventRecorder::new(client, COMPONENT, &env::var("HOSTNAME").unwrap_or_default());
        let stop = tasks.stop_token();
        tasks.job(async move {
            tokio::select! {
                // Dropped in the middle of a call: the Event is written or lost, and both are fine.
                () = NoticeWriter::new(recorder).run(notices_rx) => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => {}
            }
        });
        Self(notices_tx)
    }

    /// Leaves a word about an object.
    pub(crate) fn tell(&self, subject: EventSubject, note: EventNote) {
        let notice = Notice { subject, note, at: SystemTime::now(), end: Instant::now() + KEEP_TRYING };
        if self.0.try_send(notice).is_err() {
            debug!("too many events wait, one is left out");
        }
    }
}

/// Writes Events, one after the other.
struct NoticeWriter {
    recorder: EventRecorder,
    pauses: RetryPauses,
    /// The log says that Events are lost.
    is_told: bool,
}

impl NoticeWriter {
    fn new(recorder: EventRecorder) -> Self {
        let pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE);
        Self { recorder, pauses, is_told: false }
    }

    async fn run(mut self, mut notices_rx: mpsc::Receiver<Notice>) {
        while let Some(notice) = notices_rx.recv().await {
            match self.keep_trying(&notice).await {
                Ok(()) => self.is_told = false,
                Err(failure) => self.lost(&failure),
            }
        }
    }

    /// Tries until the Event is written, its time is over, or trying again cannot help. Where the server refuses for long, each is
    /// tried once: the others would wait behind it.
    async fn keep_trying(&mut self, notice: &Notice) -> Result<(), ApiFailure> {
        loop {
            let Err(failure) = self.recorder.tell(&notice.subject, &notice.note, notice.at).await else {
                self.pauses.reset();
                return Ok(());
            };
            let pause = match failure.code() {
                Some(403) => self.pauses.after_refusal(&failure),
                _ if failure.is_transient() => self.pauses.after_outage(&failure),
                _ => return Err(failure),
            };
            if self.pauses.is_refused_for_long() || Instant::now() + pause >= notice.end {
                return Err(failure);
            }
            sleep(pause).await;
        }
    }

    /// People who find no Events look into the log: the first lost one stands there.
    fn lost(&mut self, failure: &ApiFailure) {
        let error = Chain(failure).to_string();
        if std::mem::replace(&mut self.is_told, true) {
            debug!(error, "an event is lost");
        } else {
            warn!(error, "events are lost");
        }
    }
}

#[cfg(test)]
mod tests;
