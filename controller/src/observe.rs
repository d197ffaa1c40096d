//! The edge to the API server that reads: one task for each kind, from the server's texts to [`ClusterEvent`]s.

use std::time::Duration;

use hostler_allocator::plan::ObjectKey;
use hostler_api::{Chain, resource::ApiVersion};
use hostler_cluster::{ApiClient, Backoff, FollowEvent, Follower, ObjectVersion, RawObject};
use hostler_process::Tasks;
use tokio::{sync::mpsc, time::sleep};
use tracing::{info, warn};

use crate::model::{ClusterEvent, ObjectStamp, ObservedKind, ObservedObject, SeenObject};

/// A server that comes back is found within seconds, by all that wait for it.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Between two looks whether a server has got a kind that it did not have.
const NOT_SERVED_PAUSE: Duration = Duration::from_secs(60);

/// Watches a kind until the process stops. `events_tx` has few places: who is slow slows down the server.
pub(crate) fn start(
    client: ApiClient,
    kind: ObservedKind,
    version: ApiVersion,
    events_tx: mpsc::Sender<ClusterEvent>,
    tasks: &Tasks,
) {
    let stop = tasks.stop_token();
    tasks.service(kind.plural(), async move {
        tokio::select! {
            // Dropped at the end only.
            () = observe(client, kind, version, events_tx) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

/// Ends when nobody wants to know any more.
async fn observe(client: ApiClient, kind: ObservedKind, version: ApiVersion, events_tx: mpsc::Sender<ClusterEvent>) {
    let mut places = kind.collections(version).into_iter().cycle();
    let mut untried = kind.collections(version).len();
    let mut next_follower = || places.next().map(|place| Follower::new(client.clone(), place));
    let Some(mut follower) = next_follower() else { return };
    let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut is_interrupted = false;
    loop {
        let followed = follower.next().await;
        let (event, pause) = match followed {
            Ok(event) => {
                pauses.reset();
                if std::mem::take(&mut is_interrupted) {
                    info!(kind = kind.plural(), "watching again");
                }
                (translate(kind, event), Duration::ZERO)
            }
            Err(failure) if failure.is_unknown_resource() => {
                let Some(other) = next_follower() else { return };
                (follower, untried) = (other, untried.saturating_sub(1));
                if untried > 0 {
                    continue;
                }
                (ClusterEvent::NotServed(kind), NOT_SERVED_PAUSE)
            }
            Err(failure) => {
                if !std::mem::replace(&mut is_interrupted, true) {
                    warn!(kind = kind.plural(), error = %Chain(&failure), "watching is interrupted");
                }
                let pause = pauses.next_pause().max(failure.retry_after().unwrap_or_default());
                (ClusterEvent::Interrupted(kind, Chain(&failure).to_string()), pause)
            }
        };
        if events_tx.send(event).await.is_err() {
            return;
        }
        sleep(pause).await;
    }
}

fn translate(kind: ObservedKind, event: FollowEvent) -> ClusterEvent {
    match event {
        FollowEvent::ListStarted => ClusterEvent::ListStarted(kind),
        FollowEvent::Listed(object) | FollowEvent::Applied(object) => ClusterEvent::Seen(read(kind, &object)),
        FollowEvent::ListEnded => ClusterEvent::ListEnded(kind),
        FollowEvent::Deleted(object) => ClusterEvent::Gone(kind, key(&object), stamp(&object.version())),
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
    };
    let content = content.map_err(|error| Chain(&error).to_string());
    SeenObject { kind, key: key(object), stamp: stamp(&object.version()), content }
}

fn key(object: &RawObject) -> ObjectKey {
    ObjectKey { namespace: object.namespace().to_owned(), name: object.name().to_owned() }
}

fn stamp(version: &ObjectVersion) -> ObjectStamp {
    version.into()
}
