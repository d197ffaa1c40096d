//! Watches kinds for as long as a term of leadership lasts, and passes on what the server says.

use std::time::Duration;

use hostler_api::Chain;
use hostler_cluster::{ApiClient, ApiFailure, Backoff, Collection, FollowEvent, Follower};
use hostler_process::Tasks;
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};
use tracing::{info, warn};

use crate::observe::PendingEvents;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Between two looks whether a kind was installed.
const NOT_SERVED_PAUSE: Duration = Duration::from_secs(10);

/// What is heard of a kind.
#[derive(Debug)]
pub(crate) enum KindNews {
    Followed(FollowEvent),
    /// The server has no such kind.
    NotServed,
}

/// Watches that end when this is dropped.
#[derive(Debug)]
pub(crate) struct Watchers(Vec<JoinHandle<()>>);

impl Drop for Watchers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Watches all kinds, for a purpose that the log names. `news_tx` has few places: who is slow slows down the server.
pub(crate) fn start<K: Copy + Send + Sync + 'static>(
    client: &ApiClient,
    kinds: impl Iterator<Item = (K, Collection)>,
    purpose: &'static str,
    news_tx: &mpsc::Sender<(K, KindNews)>,
    tasks: &Tasks,
) -> Watchers {
    let watching = kinds.map(|(kind, all)| {
        let watcher = KindWatcher {
            client: client.clone(),
            kind,
            all,
            purpose,
            news_tx: news_tx.clone(),
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            is_silent: false,
        };
        tasks.job(async move {
            // It ends when nobody listens any more.
            let _ = watcher.run().await;
        })
    });
    Watchers(watching.collect())
}

struct KindWatcher<K> {
    client: ApiClient,
    kind: K,
    all: Collection,
    purpose: &'static str,
    news_tx: mpsc::Sender<(K, KindNews)>,
    pauses: Backoff,
    /// Whether it was said that nothing is heard.
    is_silent: bool,
}

/// Nobody wants to know any more.
struct NobodyListens;

impl<K: Copy> KindWatcher<K> {
    async fn run(mut self) -> Result<(), NobodyListens> {
        loop {
            self.follow().await?;
            self.send(KindNews::NotServed).await?;
            sleep(NOT_SERVED_PAUSE).await;
        }
    }

    /// Until the server does not know the kind.
    async fn follow(&mut self) -> Result<(), NobodyListens> {
        let mut follower = Follower::new(self.client.clone(), self.all.clone());
        let mut waiting = PendingEvents::default();
        loop {
            let followed = tokio::select! {
                // What has come goes on first, as far as there is room for it.
                biased;
                // Cancel safe: a place that was not taken is free again.
                permit = self.news_tx.reserve(), if !waiting.is_empty() => {
                    let permit = permit.map_err(|_| NobodyListens)?;
                    if let Some(event) = waiting.pop() {
                        permit.send((self.kind, KindNews::Followed(event)));
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
                Err(failure) if failure.is_unknown_resource() => return Ok(()),
                Err(failure) => {
                    self.flush(&mut waiting).await?;
                    self.interrupted(&failure).await;
                }
            }
        }
    }

    async fn flush(&self, waiting: &mut PendingEvents) -> Result<(), NobodyListens> {
        while let Some(event) = waiting.pop() {
            self.send(KindNews::Followed(event)).await?;
        }
        Ok(())
    }

    fn heard(&mut self) {
        self.pauses.reset();
        if std::mem::take(&mut self.is_silent) {
            info!(kind = self.all.kind(), purpose = self.purpose, "watching again");
        }
    }

    async fn interrupted(&mut self, failure: &ApiFailure) {
        if !std::mem::replace(&mut self.is_silent, true) {
            let error = Chain(failure).to_string();
            warn!(kind = self.all.kind(), purpose = self.purpose, error, "watching is interrupted");
        }
        sleep(self.pauses.next_pause().max(failure.retry_after().unwrap_or_default())).await;
    }

    async fn send(&self, news: KindNews) -> Result<(), NobodyListens> {
        self.news_tx.send((self.kind, news)).await.map_err(|_| NobodyListens)
    }
}
