//! Lists and watches one kind of objects, once per process, for all its subscribers.
//!
//! ```text
//!   API server ──► Follower ──┬──► CoalescedEvents, of each object the latest ──► channel of a subscriber
//!                             └──► CoalescedEvents …                          ──► channel of another one
//! ```
//!
//! Objects are not kept here: for a subscriber that joins, the kind is listed anew, and all subscribers get the list. The slowest
//! subscriber slows the watch, so that a storm of changes waits on the API server, where it costs nothing.

mod coalesced;

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hostler_api::{Chain, resource::ApiVersion};
use hostler_cluster::{ApiClient, ApiFailure, Collection, FollowEvent, Follower, RetryPauses};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::PollSender;
use tracing::{info, warn};

use self::coalesced::CoalescedEvents;

/// An API server that comes back is found within seconds, by every reflector.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Pause between two questions whether the API server serves a kind by now.
const NOT_SERVED_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between two tries to read a kind that may not be read: each is a refusal in the API server's audit log.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);
/// Subscribers that join at the same moment.
const MOST_JOINS: usize = 4;

/// News of a kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReflectorEvent {
    /// A list begins or ends, or an object is there, changed or gone.
    Followed(FollowEvent),
    /// The API server does not serve the kind, or may not tell of it.
    NotServed,
    /// Nothing is heard of the kind, for this reason. Told once for each reason.
    Interrupted(Arc<str>),
}

/// A kind: its collections, and the meaning of its absence.
pub struct ReflectorKind {
    /// Name of the kind in the log: `resourceslices`.
    pub plural: &'static str,
    /// Collections of the kind, the best one first, by the version of `resource.k8s.io`; none for releases with classic DRA only.
    pub collections: Box<dyn Fn(Option<ApiVersion>) -> Vec<Collection> + Send>,
    /// True if a kind that may not be read counts as one that is not served.
    pub is_optional: bool,
}

impl fmt::Debug for ReflectorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectorKind").field("plural", &self.plural).finish_non_exhaustive()
    }
}

/// Handle of a reflector. Its task ends when the handle is dropped.
#[derive(Debug)]
pub struct Reflector {
    joins_tx: mpsc::Sender<Subscriber>,
}

impl Reflector {
    /// Returns a reflector without subscribers, and the task that the caller has to run. A reflector without subscribers asks the API
    /// server for nothing.
    pub fn new(client: ApiClient, kind: ReflectorKind) -> (Self, impl Future<Output = ()> + Send) {
        let (joins_tx, joins_rx) = mpsc::channel(MOST_JOINS);
        let task = ReflectorTask {
            source: Source { client, kind, follower: None, place: 0 },
            joins_rx,
            subscribers: Vec::new(),
            pauses: RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, FORBIDDEN_PAUSE),
            was_heard: false,
            interruption: None,
            resume_at: None,
        };
        (Self { joins_tx }, task.run())
    }

    /// Sends all news of the kind to `events_tx` under this name, beginning with a list, until its receiver is dropped.
    pub async fn subscribe<K: Copy + Send + 'static>(&self, name: K, events_tx: &mpsc::Sender<(K, ReflectorEvent)>) {
        let channel = Box::new(NamedChannel { name, sender: PollSender::new(events_tx.clone()) });
        // Its task ends with the process only.
        let _ = self.joins_tx.send(Subscriber { channel, waiting: CoalescedEvents::default() }).await;
    }
}

/// A receiver of events, whatever it calls the kind.
trait Channel: Send {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>>;
    /// Sends into the place that was found.
    fn send(&mut self, event: ReflectorEvent);
    fn is_closed(&self) -> bool;
}

/// The receiver was dropped.
struct Closed;

struct NamedChannel<K> {
    name: K,
    sender: PollSender<(K, ReflectorEvent)>,
}

impl<K: Copy + Send + 'static> Channel for NamedChannel<K> {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        self.sender.poll_reserve(cx).map_err(|_| Closed)
    }

    fn send(&mut self, event: ReflectorEvent) {
        // A receiver that was dropped meanwhile is found in the next round.
        let _ = self.sender.send_item((self.name, event));
    }

    fn is_closed(&self) -> bool {
        self.sender.get_ref().is_none_or(mpsc::Sender::is_closed)
    }
}

/// A receiver, and the events that wait for it.
struct Subscriber {
    channel: Box<dyn Channel>,
    waiting: CoalescedEvents,
}

impl Subscriber {
    /// Hands over events as far as there is room; true if any was, or if none ever will be.
    fn poll_deliver(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_delivered = false;
        while !self.waiting.is_empty() {
            match self.channel.poll_room(cx) {
                Poll::Ready(Ok(())) => {
                    self.waiting.pop().into_iter().for_each(|event| self.channel.send(event));
                    has_delivered = true;
                }
                Poll::Ready(Err(Closed)) => return true,
                Poll::Pending => break,
            }
        }
        has_delivered
    }
}

/// Waits until a subscriber has taken an event that waits for it. Cancel safe: an event that was not taken still waits.
async fn deliver(subscribers: &mut [Subscriber]) {
    poll_fn(|cx| {
        // All of them are asked: each wakes this task when it has room.
        let has_delivered = subscribers.iter_mut().map(|it| it.poll_deliver(cx)).filter(|it| *it).count() > 0;
        if has_delivered { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The place that a kind is followed in.
struct Source {
    client: ApiClient,
    kind: ReflectorKind,
    follower: Option<Follower>,
    /// Index of the collection that is tried.
    place: usize,
}

/// Why there is no event of a kind.
enum SourceFailure {
    /// None of its collections is served.
    NotServed,
    Failed(ApiFailure),
}

impl Source {
    /// Waits for the next event. Cancel safe: see [`Follower::next`].
    async fn next(&mut self) -> Result<FollowEvent, SourceFailure> {
        loop {
            let follower = match &mut self.follower {
                Some(follower) => follower,
                None => {
                    let found = self.find().await?;
                    self.follower.insert(Follower::new(self.client.clone(), found))
                }
            };
            match follower.next().await {
                Err(failure) if failure.is_unknown_resource() => {
                    self.follower = None;
                    self.place += 1;
                }
                followed => return followed.map_err(SourceFailure::Failed),
            }
        }
    }

    async fn find(&mut self) -> Result<Collection, SourceFailure> {
        let version = match self.client.version().await {
            Ok(version) => Some(version),
            // A release of 1.26 to 1.31: classic DRA has kinds of its own.
            Err(ApiFailure::NoResourceApi) if self.client.classic_version().await.is_ok() => None,
            Err(failure) => return Err(SourceFailure::Failed(failure)),
        };
        let found = (self.kind.collections)(version).into_iter().nth(self.place);
        found.ok_or_else(|| {
            self.place = 0;
            SourceFailure::NotServed
        })
    }
}

struct ReflectorTask {
    source: Source,
    joins_rx: mpsc::Receiver<Subscriber>,
    subscribers: Vec<Subscriber>,
    pauses: RetryPauses,
    /// True once anything was heard of the kind.
    was_heard: bool,
    /// Why nothing is heard of the kind.
    interruption: Option<Arc<str>>,
    /// Moment of the next try, after one that failed.
    resume_at: Option<Instant>,
}

impl ReflectorTask {
    async fn run(mut self) {
        loop {
            self.subscribers.retain(|it| !it.channel.is_closed());
            if self.subscribers.is_empty() {
                self.source.follower = None;
            }
            let is_waiting = self.subscribers.iter().any(|it| !it.waiting.is_empty());
            let has_room = !self.subscribers.is_empty() && !self.subscribers.iter().any(|it| it.waiting.is_full());
            let resume_at = self.resume_at;
            tokio::select! {
                biased;
                // Cancel safe: a subscriber that was not taken stays in the channel.
                joined = self.joins_rx.recv() => match joined {
                    Some(subscriber) => self.join(subscriber),
                    None => return,
                },
                // Cancel safe: see there.
                () = deliver(&mut self.subscribers), if is_waiting => {}
                // Cancel safe: it only waits.
                () = sleep_until(resume_at.unwrap_or_else(Instant::now)), if resume_at.is_some() => self.resume_at = None,
                // Cancel safe: see there.
                followed = self.source.next(), if resume_at.is_none() && has_room => self.take(followed),
            }
        }
    }

    /// Another subscriber needs a list of its own, and an answer at once.
    fn join(&mut self, mut subscriber: Subscriber) {
        if let Some(why) = &self.interruption {
            subscriber.waiting.push(ReflectorEvent::Interrupted(why.clone()));
        }
        self.subscribers.push(subscriber);
        if let Some(follower) = &mut self.source.follower {
            follower.relist();
        }
        self.resume_at = None;
    }

    fn take(&mut self, followed: Result<FollowEvent, SourceFailure>) {
        match followed {
            Ok(event) => {
                self.heard();
                self.push(&ReflectorEvent::Followed(event));
            }
            Err(SourceFailure::NotServed) => self.not_served(NOT_SERVED_PAUSE),
            // Where it was allowed before, that can pass: what is known stays.
            Err(SourceFailure::Failed(failure))
                if self.source.kind.is_optional && !self.was_heard && failure.code() == Some(403) =>
            {
                let pause = self.pauses.after_refusal(&failure);
                self.not_served(pause);
            }
            Err(SourceFailure::Failed(failure)) => self.interrupted(&failure),
        }
    }

    fn push(&mut self, event: &ReflectorEvent) {
        self.subscribers.iter_mut().for_each(|it| it.waiting.push(event.clone()));
    }

    fn heard(&mut self) {
        self.pauses.reset();
        self.was_heard = true;
        if self.interruption.take().is_some() {
            info!(kind = self.source.kind.plural, "watching again");
        }
    }

    fn interrupted(&mut self, failure: &ApiFailure) {
        let why: Arc<str> = Chain(failure).to_string().into();
        if self.interruption.is_none() {
            warn!(kind = self.source.kind.plural, error = &*why, "watching is interrupted");
        }
        if self.interruption.as_ref() != Some(&why) {
            self.push(&ReflectorEvent::Interrupted(why.clone()));
            self.interruption = Some(why);
        }
        self.resume_at = Some(Instant::now() + self.pauses.after_outage(failure));
    }

    fn not_served(&mut self, pause: Duration) {
        // The API server may have been upgraded, or be another one.
        self.source.client.forget_version();
        self.source.follower = None;
        self.interruption = None;
        self.push(&ReflectorEvent::NotServed);
        self.resume_at = Some(Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests;
