//! The edge to the API server that reads: one task for each kind, from the server's texts to [`ClusterEvent`]s.
//!
//! ```text
//!   Follower ──► PendingEvents, of each object the latest ──► read ──► events, few places ──► model
//!      └ fails: told, and tried again after a pause that grows
//! ```

mod pending;

use std::{future::pending, time::Duration};

use hostler_api::Chain;
use hostler_cluster::{ApiClient, ApiFailure, FollowEvent, Follower, RawObject, RetryPauses};
use hostler_process::Tasks;
use tokio::{sync::mpsc, time::sleep};
use tracing::{info, warn};

pub(crate) use self::pending::PendingEvents;
use self::pending::key;
use crate::{
    model::{ClusterEvent, ObservedKind, ObservedObject, SeenObject},
    provision::SeenRequest,
};

/// A server that comes back is found within seconds, by all that wait for it.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Between two looks whether a server has got a kind that it did not have.
const NOT_SERVED_PAUSE: Duration = Duration::from_secs(10);
/// The longest time between two looks whether a kind may be read by now: each is a refusal in the server's books.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

/// Watches a kind until the process stops; one that is not wanted is as one that is not there. `events_tx` has few places: who
/// is slow slows down the server.
pub(crate) fn start(
    client: ApiClient,
    kind: ObservedKind,
    is_wanted: bool,
    events_tx: mpsc::Sender<ClusterEvent>,
    tasks: &Tasks,
) {
    let stop = tasks.stop_token();
    let observer = KindObserver {
        client,
        kind,
        events_tx,
        pauses: RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, FORBIDDEN_PAUSE),
        was_heard: false,
        interruption: None,
        place: 0,
    };
    tasks.service(kind.plural(), async move {
        tokio::select! {
            // Dropped at the end only.
            () = observer.run(is_wanted) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

/// Watches a kind.
struct KindObserver {
    client: ApiClient,
    kind: ObservedKind,
    events_tx: mpsc::Sender<ClusterEvent>,
    pauses: RetryPauses,
    /// Whether anything was heard of it.
    was_heard: bool,
    /// Why nothing is heard, as it was last told.
    interruption: Option<String>,
    /// Which of the places where the kind may be is tried.
    place: usize,
}

/// Nobody wants to know any more.
struct NobodyListens;

impl KindObserver {
    async fn run(mut self, is_wanted: bool) {
        if !is_wanted {
            let told = self.send(ClusterEvent::NotServed(self.kind)).await;
            return if told.is_ok() {
                pending().await
            };
        }
        while self.follow().await.is_ok() {}
    }

    /// Follows the kind where it is, until the server does not know it there.
    async fn follow(&mut self) -> Result<(), NobodyListens> {
        let version = match self.client.version().await {
            Ok(version) => Some(version),
            // One of 1.26 to 1.31: what it has of claims, classic DRA watches.
            Err(ApiFailure::NoResourceApi) if self.client.classic_version().await.is_ok() => None,
            Err(failure) => return self.interrupted(&failure).await,
        };
        let places = self.kind.collections(version);
        let Some(place) = places.get(self.place) else {
            self.place = 0;
            return self.not_served(NOT_SERVED_PAUSE).await;
        };
        let mut follower = Follower::new(self.client.clone(), place.clone());
        let mut waiting = PendingEvents::default();
        loop {
            let followed = tokio::select! {
                // What has come goes on first, as far as there is room for it.
                biased;
                // Cancel safe: a place that was not taken is free again.
                permit = self.events_tx.reserve(), if !waiting.is_empty() => {
                    let permit = permit.map_err(|_| NobodyListens)?;
                    if let Some(event) = waiting.pop() {
                        permit.send(translate(self.kind, event));
                    }
                    continue;
                }
                // Cancel safe: see there.
                followed = follower.next(), if !waiting.is_full() => followed,
            };
            match followed {
                Ok(event) => {
                    self.heard();
                    waiting.push(event);
                }
                Err(failure) if failure.is_unknown_resource() => {
                    self.place += 1;
                    return Ok(());
                }
                // Where it was allowed before, that can pass: what is known stays, as with all other kinds.
                Err(failure) if self.kind.is_optional() && !self.was_heard && failure.code() == Some(403) => {
                    let pause = self.pauses.after_refusal(&failure);
                    return self.not_served(pause).await;
                }
                Err(failure) => {
                    self.flush(&mut waiting).await?;
                    self.interrupted(&failure).await?;
                }
            }
        }
    }

    /// What was heard before nothing was any more is known first.
    async fn flush(&self, waiting: &mut PendingEvents) -> Result<(), NobodyListens> {
        while let Some(event) = waiting.pop() {
            self.send(translate(self.kind, event)).await?;
        }
        Ok(())
    }

    fn heard(&mut self) {
        self.pauses.reset();
        self.was_heard = true;
        if self.interruption.take().is_some() {
            info!(kind = self.kind.plural(), "watching again");
        }
    }

    async fn interrupted(&mut self, failure: &ApiFailure) -> Result<(), NobodyListens> {
        let why = Chain(failure).to_string();
        if self.interruption.is_none() {
            warn!(kind = self.kind.plural(), error = why, "watching is interrupted");
        }
        if self.interruption.as_ref() != Some(&why) {
            self.send(ClusterEvent::Interrupted(self.kind, why.clone())).await?;
            self.interruption = Some(why);
        }
        sleep(self.pauses.after_outage(failure)).await;
        Ok(())
    }

    async fn not_served(&mut self, pause: Duration) -> Result<(), NobodyListens> {
        // It may have been upgraded, or be another server.
        self.client.forget_version();
        self.interruption = None;
        self.send(ClusterEvent::NotServed(self.kind)).await?;
        sleep(pause).await;
        Ok(())
    }

    async fn send(&self, event: ClusterEvent) -> Result<(), NobodyListens> {
        self.events_tx.send(event).await.map_err(|_| NobodyListens)
    }
}

fn translate(kind: ObservedKind, event: FollowEvent) -> ClusterEvent {
    match event {
        FollowEvent::ListStarted => ClusterEvent::ListStarted(kind),
        FollowEvent::Listed(object) | FollowEvent::Applied(object) => ClusterEvent::Seen(read(kind, &object)),
        FollowEvent::ListEnded => ClusterEvent::ListEnded(kind),
        FollowEvent::Deleted(object) => ClusterEvent::Gone(kind, key(&object), (&object.version()).into()),
        FollowEvent::UpToDate => ClusterEvent::UpToDate(kind),
    }
}

fn read(kind: ObservedKind, object: &RawObject) -> SeenObject {
    let content = match kind {
        ObservedKind::Node => object.read().map(ObservedObject::Node),
        ObservedKind::ResourceSlice => object.read().map(ObservedObject::ResourceSlice),
        ObservedKind::DeviceClass => object.read().map(ObservedObject::DeviceClass),
        ObservedKind::ResourceClaim => object.read().map(ObservedObject::ResourceClaim),
        ObservedKind::ResourceClaimTemplate => object.read().map(ObservedObject::ResourceClaimTemplate),
        ObservedKind::DeviceTaintRule => object.read().map(ObservedObject::DeviceTaintRule),
        ObservedKind::Pod => object.read().map(ObservedObject::Pod),
        ObservedKind::NodeHardware => object.read().map(ObservedObject::NodeHardware),
        ObservedKind::PodTemplate => object.read().map(ObservedObject::PodTemplate),
        ObservedKind::ResourceQuota => object.read().map(ObservedObject::ResourceQuota),
        ObservedKind::ProvisioningRequest => {
            let seen =
                |request| ObservedObject::ProvisioningRequest(Box::new(SeenRequest::new(object.version(), request)));
            object.read().map(seen)
        }
        ObservedKind::Reservation => object.read().map(ObservedObject::Reservation),
    };
    let content = content.map_err(|error| Chain(&error).to_string());
    SeenObject { kind, key: key(object), stamp: (&object.version()).into(), content }
}
