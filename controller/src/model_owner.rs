//! The task that owns the model: takes events one after the other, carries out the model's commands, and shows readers
//! a new view at most every 50 ms.

use std::{sync::Arc, time::Duration};

use hostler_allocator::plan::PlanOptions;
use hostler_api::{Chain, KubernetesVersion};
use hostler_cluster::{ApiClient, ApiFailure, Backoff, FollowEvent, RawObject};
use hostler_process::Tasks;
use hostler_reconcile::ReflectorEvent;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use crate::{
    config::CapabilitiesConfig,
    model::{ClusterModel, ModelCommand},
    observe::{self, Watches},
    observed::{ClusterEvent, ObservedKind, SeenObject},
    view::ClusterView,
};

/// Events that wait for the model: a storm of changes waits on the API server, where it costs nothing.
const EVENTS: usize = 64;
/// The pause between two views. Far below what a person notices, and a storm of changes makes twenty of them in a
/// second.
const BETWEEN_VIEWS: Duration = Duration::from_millis(50);
/// The same while first lists are read. A view that shares the model makes the next changes copy what they touch, and
/// lists touch everything.
const BETWEEN_FIRST_VIEWS: Duration = Duration::from_secs(1);
/// The first pause: a server that comes back is found within seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Asks the owner of the model if it still answers.
#[derive(Clone, Debug)]
pub(super) struct ModelPulse(mpsc::Sender<oneshot::Sender<()>>);

impl ModelPulse {
    /// Returns once the owner has answered.
    pub(super) async fn feel(&self) {
        let (answer_tx, answer_rx) = oneshot::channel();
        // Both fail only when the process stops.
        let _ = self.0.send(answer_tx).await;
        let _ = answer_rx.await;
    }
}

/// Owns the model until the process stops; returns the reader of views.
pub(super) fn start(
    client: ApiClient,
    watches: Watches,
    modes: CapabilitiesConfig,
    tasks: &Tasks,
) -> (watch::Receiver<Arc<ClusterView>>, ModelPulse) {
    let (view_tx, view_rx) = watch::channel(Arc::default());
    let (pulse_tx, pulse_rx) = mpsc::channel(1);
    let owner = ModelOwner { model: ClusterModel::default(), watches, modes, view_tx, pulse_rx, due: None, last: None };
    let stop = tasks.stop_token();
    tasks.service("model", async move {
        tokio::select! {
            // Dropped at the end only.
            () = owner.run(client) => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
    (view_rx, ModelPulse(pulse_tx))
}

struct ModelOwner {
    model: ClusterModel,
    watches: Watches,
    /// Modes of the kinds that are watched or not.
    modes: CapabilitiesConfig,
    view_tx: watch::Sender<Arc<ClusterView>>,
    pulse_rx: mpsc::Receiver<oneshot::Sender<()>>,
    /// The time of the next view, if there is anything new.
    due: Option<Instant>,
    last: Option<Instant>,
}

impl ModelOwner {
    async fn run(mut self, client: ApiClient) {
        self.begin(client).await;
        let mut events_rx = self.subscribe().await;
        loop {
            let due = self.due;
            let moment = self.model.next_moment().map(Instant::from_std);
            tokio::select! {
                // Ever more events do not delay a view that is due.
                biased;
                // Cancel safe: a question that was not taken stays in the channel.
                Some(answer_tx) = self.pulse_rx.recv() => drop(answer_tx.send(())),
                // Cancel safe: the timer only waits.
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.publish(),
                // Cancel safe: the timer only waits.
                () = sleep_until(moment.unwrap_or_else(Instant::now)), if moment.is_some() => {
                    self.take(ClusterEvent::TimePassed);
                }
                // Cancel safe: an event that was not taken stays in the channel.
                event = events_rx.recv() => match event {
                    Some((kind, event)) => self.hear(kind, event),
                    None => return,
                },
            }
        }
    }

    /// Reads the release of the cluster: the meaning of objects depends on it, so no object is taken before it is
    /// known.
    async fn begin(&mut self, client: ApiClient) {
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let failure = match plan_options(&client).await {
                Ok(options) => {
                    info!(release = options.version.as_str(), "the API server answers");
                    self.model = ClusterModel::new(options);
                    return;
                }
                Err(failure) => Chain(&failure).to_string(),
            };
            warn!(error = failure, "the API server does not answer yet");
            for kind in ObservedKind::ALL {
                self.take(ClusterEvent::Interrupted(kind, failure.clone()));
            }
            self.publish();
            tokio::select! {
                // Cancel safe: the timer only waits.
                () = sleep(pauses.next_pause()) => {}
                // Cancel safe: a question that was not taken stays in the channel.
                Some(answer_tx) = self.pulse_rx.recv() => drop(answer_tx.send(())),
            }
        }
    }

    /// Subscribes to kinds; a kind that is not wanted counts as one that is not served.
    async fn subscribe(&mut self) -> mpsc::Receiver<(ObservedKind, ReflectorEvent)> {
        let (events_tx, events_rx) = mpsc::channel(EVENTS);
        for kind in ObservedKind::ALL {
            if self.modes.watches(kind) {
                self.watches.subscribe(kind, kind, &events_tx).await;
            } else {
                self.take(ClusterEvent::NotServed(kind));
            }
        }
        events_rx
    }

    fn hear(&mut self, kind: ObservedKind, event: ReflectorEvent) {
        let event = match event {
            ReflectorEvent::NotServed => ClusterEvent::NotServed(kind),
            ReflectorEvent::Interrupted(why) => ClusterEvent::Interrupted(kind, why.to_string()),
            ReflectorEvent::Followed(FollowEvent::ListStarted) => ClusterEvent::ListStarted(kind),
            ReflectorEvent::Followed(FollowEvent::ListEnded) => ClusterEvent::ListEnded(kind),
            ReflectorEvent::Followed(FollowEvent::UpToDate) => ClusterEvent::UpToDate(kind),
            ReflectorEvent::Followed(FollowEvent::Deleted(object)) => {
                ClusterEvent::Gone(kind, object.key(), (&object.version()).into())
            }
            ReflectorEvent::Followed(FollowEvent::Listed(object) | FollowEvent::Applied(object)) => {
                return self.see(kind, &object);
            }
        };
        self.take(event);
    }

    fn see(&mut self, kind: ObservedKind, object: &RawObject) {
        let (key, stamp) = (object.key(), (&object.version()).into());
        if self.model.is_news(kind, &key, stamp) {
            let content = observe::read(kind, object);
            self.take(ClusterEvent::Seen(SeenObject { kind, key, stamp, content }));
        }
    }

    fn take(&mut self, event: ClusterEvent) {
        let now = Instant::now();
        for command in self.model.step(now.into_std(), event) {
            match command {
                ModelCommand::Publish => {
                    let pause = if self.model.is_loading() { BETWEEN_FIRST_VIEWS } else { BETWEEN_VIEWS };
                    let due = self.last.map_or(now, |last| now.max(last + pause));
                    // The end of a list is not kept waiting.
                    self.due = Some(self.due.map_or(due, |planned| planned.min(due)));
                }
                ModelCommand::TellPoisoned { object, reason } => {
                    warn!(object, reason, "an object cannot be understood and is left out");
                }
            }
        }
    }

    fn publish(&mut self) {
        (self.due, self.last) = (None, Some(Instant::now()));
        self.view_tx.send_replace(Arc::new(self.model.view()));
    }
}

/// Watches a cluster for a command that only looks; as long as the tasks are there.
pub(crate) async fn follow(client: ApiClient) -> Result<(Tasks, watch::Receiver<Arc<ClusterView>>), ApiFailure> {
    let (tasks, _) = Tasks::new();
    client.version().await?;
    let watches = Watches::start(&client, &tasks);
    let (view_rx, _) = start(client, watches, CapabilitiesConfig::default(), &tasks);
    Ok((tasks, view_rx))
}

/// Returns the planner's options for this cluster: its scheduler, or of those that are known the one most like it.
async fn plan_options(client: &ApiClient) -> Result<PlanOptions, ApiFailure> {
    let minor = client.minor_release().await?;
    let is_older = |version: &&KubernetesVersion| {
        let known = version.as_str().split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
        known.is_some_and(|known| known <= minor)
    };
    let [oldest, ..] = KubernetesVersion::ALL;
    let version = KubernetesVersion::ALL.iter().rfind(is_older).copied().unwrap_or(oldest);
    Ok(PlanOptions { version, ..PlanOptions::default() })
}
