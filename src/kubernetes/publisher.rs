//! Keeps the slices on the API server as the inventory wants them. The one writer of this driver's slices on this node.
//!
//! ```text
//!   inventory, holds ───► desired ─┐                     ┌► probe, create, replace, delete ── answers ─┐
//!                                  ├► plan (pure) ───────┘                                              │
//!   API server ── watch ──► known ─┘◄─────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Nothing is written before the holds are known: an untainted device would be given away. Nothing is written that is
//! there already: not after a restart, not for an echo of an own write. Slices outlive the daemon; the kubelet deletes
//! them when it misses the driver for too long.

mod write;

use std::{
    collections::{BTreeMap, VecDeque},
    pin::pin,
    time::Duration,
};

use hostler_api::{Chain, resource::SliceContent};
use hostler_cluster::{ApiFailure, Collection, FollowScope, ListFreshness, WritePace};
use hostler_reconcile::{
    ObjectWatch,
    slices::{DesiredPool, Dropped, Feature, KnownSlices, SliceChange, SliceDeletion, SliceWrite, plan, probe},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

use self::write::{SliceAnswer, SliceWriter};
use super::{
    ClusterNode,
    holds::{HoldsReader, HoldsWord},
    slices::{SliceSettings, desired_slices},
    slices_of, wait_until,
};
use crate::{
    inventory::InventoryReader,
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// Changes of the inventory come in bursts: a card that is plugged in is many devices.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Time between two full comparisons, which find what the watch has missed; up to half as much again, so that the
/// daemons of a cluster do not all ask at once.
const RECHECK: Duration = Duration::from_secs(600);
/// Writes at once: a pool is incomplete for as long as its slices take, and a server has other clients.
const PARALLEL: usize = 8;

/// Sources of the publisher.
#[derive(Debug)]
pub struct PublisherParts {
    /// The API server.
    pub cluster: ClusterNode,
    /// How devices are published.
    pub settings: SliceSettings,
    /// The devices to publish.
    pub inventory: InventoryReader,
    /// The devices that are held.
    pub holds_rx: HoldsReader,
    /// Counts writes and retries.
    pub metrics: Metrics,
}

/// State of the slices.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Publication {
    /// State of the publication.
    pub state: PublicationState,
    /// Slices on the server.
    pub slices: usize,
    /// Features that the server does not have, by fields and feature gate.
    pub dropped: Vec<String>,
    /// Devices that cannot be published to this server, and why.
    pub left_out: Vec<String>,
    /// Generation of the spec whose holds the slices on the server say; absent where nothing was published yet.
    pub holds_generation: Option<i64>,
}

/// State of the publication.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum PublicationState {
    /// Not yet.
    #[default]
    Waiting,
    /// Yes.
    Synced,
    /// The API server is one of 1.26 to 1.31: hostler's controller allocates there, by what the NodeHardware of this
    /// node says.
    NotNeeded,
    /// No, and it is tried again.
    Failing {
        /// Why not, for people.
        error: String,
    },
}

impl Publication {
    /// Says for people what is missing; `None` when everything is published.
    pub fn missing(&self) -> Option<String> {
        match &self.state {
            PublicationState::Synced | PublicationState::NotNeeded => None,
            PublicationState::Waiting => Some("the devices are not published yet".to_owned()),
            PublicationState::Failing { error } => Some(format!("the devices are not published: {error}")),
        }
    }
}

/// Starts the publisher. It waits for the API server as long as it takes.
pub fn start(parts: PublisherParts, tasks: &Tasks) -> watch::Receiver<Publication> {
    let (publication_tx, publication_rx) = watch::channel(Publication::default());
    let publisher = Publisher {
        parts,
        publication_tx,
        slices: KnownSlices::default(),
        pace: WritePace::default(),
        known: BTreeMap::new(),
        reported: Dropped::new(),
        left_out: Vec::new(),
        holds_generation: HoldsGeneration::default(),
        running: JoinSet::new(),
        writes: VecDeque::new(),
        deletes: VecDeque::new(),
    };
    let stop = tasks.stop_token();
    tasks.service("publisher", async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            // Dropped in the middle of a write, it leaves a pool that the next start completes.
            outcome = publisher.run() => outcome,
        }
    });
    publication_rx
}

struct Publisher {
    parts: PublisherParts,
    publication_tx: watch::Sender<Publication>,
    slices: KnownSlices,
    pace: WritePace,
    /// Features of which it is known whether the server has them.
    known: BTreeMap<Feature, bool>,
    /// Features that were reported as missing.
    reported: Dropped,
    left_out: Vec<String>,
    holds_generation: HoldsGeneration,
    running: JoinSet<SliceAnswer>,
    writes: VecDeque<SliceWrite>,
    deletes: VecDeque<SliceDeletion>,
}

/// Of the specs whose holds are published.
#[derive(Debug, Default)]
struct HoldsGeneration {
    /// Generation that is being written.
    written: i64,
    /// Generation that the server has.
    published: Option<i64>,
}

impl Publisher {
    async fn run(mut self) -> Outcome {
        loop {
            let followed = match self.connect().await {
                Ok(writer) => self.follow(&writer).await,
                Err(failure) => Err(failure),
            };
            self.forget_work();
            let Err(failure) = followed else { continue };
            // Whatever was wrong, another server may answer next, with other features.
            self.known.clear();
            if failure.is_unknown_resource() {
                self.parts.cluster.client().forget_version();
            }
            let is_classic = matches!(failure, ApiFailure::NoResourceApi) && self.is_classic().await;
            let pause = if is_classic { self.stand_aside() } else { self.fail(&failure) };
            sleep(pause).await;
        }
    }

    async fn is_classic(&self) -> bool {
        self.parts.cluster.client().classic_version().await.is_ok()
    }

    /// Until the server is upgraded.
    fn stand_aside(&self) -> Duration {
        if self.publication_tx.borrow().state != PublicationState::NotNeeded {
            info!(
                "the API server has no ResourceSlices of today: devices are offered in the NodeHardware of this node"
            );
        }
        self.say(PublicationState::NotNeeded);
        RECHECK
    }

    /// Finds out what every write needs: the version of the API and the UID of the Node.
    async fn connect(&self) -> Result<SliceWriter, ApiFailure> {
        let (cluster, nodes) = (&self.parts.cluster, Collection::core("Node", "nodes"));
        let client = cluster.client();
        let (version, owner) = tokio::try_join!(client.version(), client.uid(&nodes, cluster.node()))?;
        Ok(SliceWriter::new(cluster.clone(), version, &owner))
    }

    /// Keeps the slices right until it is time to look at everything anew, or something is wrong with the connection.
    async fn follow(&mut self, writer: &SliceWriter) -> Result<(), ApiFailure> {
        let cluster = &self.parts.cluster;
        let selector = format!("spec.driver={},spec.nodeName={}", cluster.driver(), cluster.node());
        let (slices, newest) = (slices_of(writer.version()), ListFreshness::Newest);
        let scope = FollowScope::selected(slices, &selector, newest, "the ResourceSlices of this node");
        let mut watch = ObjectWatch::new(cluster.client().clone(), scope);
        let mut inventory_rx = self.parts.inventory.subscribe();
        let mut holds_rx = self.parts.holds_rx.clone();
        let mut recheck = pin!(sleep(RECHECK.mul_f64(1.0 + fastrand::f64() / 2.0)));
        self.slices.relist();
        loop {
            let due = self.due();
            // All arms are cancel safe: watches, channels and timers lose nothing, and a JoinSet keeps what has
            // finished.
            tokio::select! {
                event = watch.next() => {
                    let change = self.slices.observe(&event?);
                    self.heed(change);
                }
                Ok(()) = inventory_rx.changed() => self.pace.want(Instant::now() + DEBOUNCE),
                Ok(()) = holds_rx.changed() => self.heed_holds(),
                Some(done) = self.running.join_next() => {
                    self.settle(done.unwrap_or_else(|error| SliceAnswer::Failed(ApiFailure::ended("write a ResourceSlice", error))))?;
                    self.go_on(writer);
                }
                () = wait_until(due) => {
                    // Slices vanish when the Node that owns them does: the Node may be another one now.
                    if self.pace.has_deletions() {
                        self.pace.begun(Instant::now());
                        return Ok(());
                    }
                    self.sync(writer);
                }
                () = &mut recheck, if self.is_idle() => return Ok(()),
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.writes.is_empty() && self.deletes.is_empty()
    }

    fn due(&self) -> Option<Instant> {
        let are_holds_known = self.parts.holds_rx.borrow().known().is_some();
        self.pace.due().filter(|_| self.slices.is_listed() && self.is_idle() && are_holds_known)
    }

    fn heed_holds(&mut self) {
        let word = self.parts.holds_rx.borrow().clone();
        match word {
            HoldsWord::Known(_) => self.pace.want(Instant::now() + DEBOUNCE),
            HoldsWord::Unread(error) => self.say(PublicationState::Failing { error }),
        }
    }

    fn heed(&mut self, change: SliceChange) {
        match change {
            SliceChange::None => {}
            SliceChange::Changed => self.pace.want(Instant::now()),
            SliceChange::Deleted => {
                info!("a slice was deleted by somebody else; it is published again");
                self.pace.deleted(Instant::now());
            }
        }
    }

    /// Compares what is with what should be, and begins to write the difference.
    fn sync(&mut self, writer: &SliceWriter) {
        let Some(held) = self.parts.holds_rx.borrow().known().cloned() else { return };
        self.pace.begun(Instant::now());
        self.holds_generation.written = held.generation();
        let missing = self.known.iter().filter(|(_, kept)| !**kept).map(|(feature, _)| *feature).collect();
        let inventory = self.parts.inventory.latest();
        let desired = desired_slices(&inventory, &held.in_force(&inventory), &self.parts.settings, &missing);
        let slices = self.slices.all();
        let plan = plan(slices.iter().map(|(name, slice)| (*name, slice)), &desired, Some(writer.owner()));
        self.note_left_out(&desired);
        if plan.is_empty() {
            return self.synced();
        }
        let contents: Vec<&SliceContent> =
            desired.iter().flat_map(|pool| &pool.slices).map(|slice| &*slice.content).collect();
        let found = probe(&contents, |feature| self.known.contains_key(&feature));
        if let Some(((content, shown), pool)) = found.zip(desired.first()) {
            self.running.spawn(writer.clone().probe(pool.name.clone(), content, shown));
            return;
        }
        debug!(writes = plan.writes.len(), deletes = plan.deletes.len(), "publishing");
        self.writes = plan.writes.into();
        self.deletes = plan.deletes.into();
        self.go_on(writer);
    }

    /// Starts what can be started. Deletions wait until every write has succeeded: until then the old slices serve.
    fn go_on(&mut self, writer: &SliceWriter) {
        while self.running.len() < PARALLEL {
            if let Some(write) = self.writes.pop_front() {
                self.running.spawn(writer.clone().write(write));
            } else if self.running.is_empty() || self.deletes.is_empty() {
                break;
            } else {
                return;
            }
        }
        if self.running.is_empty() {
            for delete in self.deletes.drain(..) {
                self.slices.deleting(&delete.version);
                self.running.spawn(writer.clone().delete(delete));
            }
        }
        if self.is_idle() && self.pace.due().is_none() {
            self.synced();
        }
    }

    fn settle(&mut self, done: SliceAnswer) -> Result<(), ApiFailure> {
        match done {
            SliceAnswer::Written { name, verb, slice, dropped } => {
                self.parts.metrics.slice_written(verb);
                let change = self.slices.put(&name, &slice);
                self.heed(change);
                self.learn(dropped.iter().map(|feature| (*feature, false)));
            }
            SliceAnswer::Deleted { name, last } => {
                self.parts.metrics.slice_written("delete");
                self.slices.remove(&name, &last);
            }
            SliceAnswer::Probed { shown, dropped } => {
                self.learn(shown.into_iter().map(|feature| (feature, !dropped.contains(&feature))));
                self.pace.want(Instant::now());
            }
            SliceAnswer::Found { name, slice } => {
                let change = self.slices.put(&name, &slice);
                self.heed(change);
                self.retry(None);
            }
            SliceAnswer::Missing { name, last } => {
                last.iter().for_each(|last| self.slices.remove(&name, last));
                self.retry(None);
            }
            SliceAnswer::Failed(failure) if failure.is_unknown_resource() => return Err(failure),
            SliceAnswer::Failed(failure) => {
                self.fail(&failure);
            }
        }
        Ok(())
    }

    /// Remembers what the server does with features, and says once what it drops.
    fn learn(&mut self, features: impl Iterator<Item = (Feature, bool)>) {
        for (feature, kept) in features {
            if self.known.insert(feature, kept) != Some(kept) && !kept {
                self.pace.want(Instant::now());
            }
            if kept {
                self.reported.remove(&feature);
            } else if self.reported.insert(feature) {
                let (fields, gate, consequence) = (feature.fields(), feature.gate(), feature.consequence());
                warn!(fields, gate, consequence, "the API server drops fields, since a feature gate is off");
            }
        }
    }

    fn note_left_out(&mut self, desired: &[DesiredPool]) {
        let left_out: Vec<String> = desired.iter().flat_map(|pool| pool.left_out.clone()).collect();
        for reason in left_out.iter().filter(|reason| !self.left_out.contains(reason)) {
            warn!(reason, "a device is not published");
        }
        self.left_out = left_out;
    }

    fn forget_work(&mut self) {
        // What is under way is dropped; a new list shows what came of it.
        self.running = JoinSet::new();
        self.writes.clear();
        self.deletes.clear();
    }

    /// Plans anew after a pause.
    fn retry(&mut self, retry_after: Option<Duration>) -> Duration {
        self.writes.clear();
        self.deletes.clear();
        self.parts.metrics.api_retried("slices");
        self.pace.failed(Instant::now(), retry_after)
    }

    fn fail(&mut self, failure: &ApiFailure) -> Duration {
        let pause = self.retry(failure.retry_after());
        let error = Chain(failure).to_string();
        let state = PublicationState::Failing { error };
        if self.publication_tx.borrow().state == state {
            debug!(error = %Chain(failure), pause_ms = pause.as_millis(), "still failed to publish devices");
        } else {
            warn!(error = %Chain(failure), pause_ms = pause.as_millis(), "failed to publish devices");
        }
        self.say(state);
        pause
    }

    fn synced(&mut self) {
        self.pace.succeeded();
        self.holds_generation.published = Some(self.holds_generation.written);
        if self.publication_tx.borrow().state != PublicationState::Synced {
            info!(slices = self.slices.count(), "devices are published");
        }
        self.say(PublicationState::Synced);
    }

    fn say(&self, state: PublicationState) {
        let dropped = self.reported.iter().map(|it| format!("{} (feature gate {})", it.fields(), it.gate())).collect();
        let slices = self.slices.count();
        let left_out = self.left_out.clone();
        let new = Publication { state, slices, dropped, left_out, holds_generation: self.holds_generation.published };
        self.publication_tx.send_if_modified(|latest| {
            let modified = *latest != new;
            *latest = new;
            modified
        });
    }
}
