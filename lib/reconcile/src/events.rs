//! Writes Events behind the decisions. No decision waits for one, and an Event that cannot be written within half a minute is lost:
//! the object says the same.

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

/// Events that wait at most. More are lost.
const MOST_WAITING: usize = 256;
/// A server that starts anew is back by then, and has read its roles.
const KEEP_TRYING: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Takes Events. They are written until this is dropped.
#[derive(Debug)]
pub struct EventSink(mpsc::Sender<WaitingEvent>);

/// An Event that waits.
#[derive(Debug)]
struct WaitingEvent {
    subject: EventSubject,
    note: EventNote,
    /// The time that the Event names.
    at: SystemTime,
    /// The time at which the Event is lost, unless it has never been tried.
    end: Instant,
}

impl EventSink {
    /// Starts to write Events of a component, one after the other.
    pub fn start(component: &str, client: ApiClient, tasks: &Tasks) -> Self {
        let (events_tx, events_rx) = mpsc::channel(MOST_WAITING);
        let recorder = EventRecorder::new(client, component, &env::var("HOSTNAME").unwrap_or_default());
        let stop = tasks.stop_token();
        tasks.job(async move {
            tokio::select! {
                // Dropped in the middle of a call: the Event is written or lost, and both are fine.
                () = EventWriter::new(recorder).run(events_rx) => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => {}
            }
        });
        Self(events_tx)
    }

    /// Records an Event about an object.
    pub fn record(&self, subject: EventSubject, note: EventNote) {
        let event = WaitingEvent { subject, note, at: SystemTime::now(), end: Instant::now() + KEEP_TRYING };
        if self.0.try_send(event).is_err() {
            debug!("too many events wait, one is left out");
        }
    }
}

/// Writes Events, one after the other.
struct EventWriter {
    recorder: EventRecorder,
    pauses: RetryPauses,
    /// True if the log says that Events are lost.
    is_told: bool,
}

impl EventWriter {
    fn new(recorder: EventRecorder) -> Self {
        let pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE);
        Self { recorder, pauses, is_told: false }
    }

    async fn run(mut self, mut events_rx: mpsc::Receiver<WaitingEvent>) {
        while let Some(event) = events_rx.recv().await {
            match self.keep_trying(&event).await {
                Ok(()) => self.is_told = false,
                Err(failure) => self.lost(&failure),
            }
        }
    }

    /// Tries until the Event is written, its time is over, or trying again cannot help. Where the server refuses for long, each is
    /// tried once: the others would wait behind it.
    async fn keep_trying(&mut self, event: &WaitingEvent) -> Result<(), ApiFailure> {
        loop {
            let Err(failure) = self.recorder.tell(&event.subject, &event.note, event.at).await else {
                self.pauses.reset();
                return Ok(());
            };
            let pause = match failure.code() {
                Some(403) => self.pauses.after_refusal(&failure),
                _ if failure.is_transient() => self.pauses.after_outage(&failure),
                _ => return Err(failure),
            };
            if self.pauses.is_refused_for_long() || Instant::now() + pause >= event.end {
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
