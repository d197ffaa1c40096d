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
    /// The time from which on it is tried.
    from: Instant,
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
        let event = WaitingEvent { subject, note, at: SystemTime::now(), from: Instant::now() };
        if self.0.try_send(event).is_err() {
            debug!("too many events wait, one is left out");
        }
    }
}

/// Pauses between tries to write Events, one after the other.
#[derive(Debug)]
pub struct EventTries(RetryPauses);

impl Default for EventTries {
    fn default() -> Self {
        Self(RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE))
    }
}

impl EventTries {
    /// Notes that an Event was written.
    pub fn succeeded(&mut self) {
        self.0.reset();
    }

    /// Returns the pause until the next try of an Event that is tried since `from`; the failure where half a minute is
    /// over, or trying again cannot help. Where the server refuses for long, each Event is tried once: the others would
    /// wait behind it.
    ///
    /// # Errors
    ///
    /// Returns the failure with which the Event is lost.
    pub fn pause_after(&mut self, failure: ApiFailure, from: Instant) -> Result<Duration, ApiFailure> {
        let pause = match failure.code() {
            Some(403) => self.0.after_refusal(&failure),
            _ if failure.is_transient() => self.0.after_outage(&failure),
            _ => return Err(failure),
        };
        let is_over = self.0.is_refused_for_long() || Instant::now() + pause >= from + KEEP_TRYING;
        if is_over { Err(failure) } else { Ok(pause) }
    }
}

/// Writes Events, one after the other.
struct EventWriter {
    recorder: EventRecorder,
    tries: EventTries,
    /// True if the log says that Events are lost.
    is_told: bool,
}

impl EventWriter {
    fn new(recorder: EventRecorder) -> Self {
        Self { recorder, tries: EventTries::default(), is_told: false }
    }

    async fn run(mut self, mut events_rx: mpsc::Receiver<WaitingEvent>) {
        while let Some(event) = events_rx.recv().await {
            match self.write(&event).await {
                Ok(()) => self.is_told = false,
                Err(failure) => self.lost(&failure),
            }
        }
    }

    async fn write(&mut self, event: &WaitingEvent) -> Result<(), ApiFailure> {
        while let Err(failure) = self.recorder.tell(&event.subject, &event.note, event.at).await {
            sleep(self.tries.pause_after(failure, event.from)?).await;
        }
        self.tries.succeeded();
        Ok(())
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
