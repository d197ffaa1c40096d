//! Hands claims of before an upgrade to 1.32 or later over to Kubernetes: watches claims and NodeHardware until nothing
//! is left that [`Migration`] would change. A cluster without such claims costs one list of each.

use std::time::Duration;

use hostler_api::{
    Chain, ObjectKey,
    classic::{ClassicVersion, deletion_protection},
    resource::ApiVersion,
    well_known::CONTROLLER_FIELD_MANAGER,
};
use hostler_cluster::{ApiFailure, Backoff, Collection, FollowEvent, RawObject};
use hostler_reconcile::{ReflectorEvent, leads_until, reach};
use serde_json::{Map, Value, json};
use tokio::{sync::mpsc, time::Instant};
use tracing::{info, warn};

use super::{ClassicParts, kind::ClassicKind, status::ClassicPhase};
use crate::{
    classic::migration::{MigratedKind, Migration, MigrationWrite},
    observed::ObservedKind,
};

/// Capacity of the channel of reflector events. Small: a storm of changes waits on the server.
const NEWS: usize = 64;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The reason why a migration ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MigrationEnd {
    /// No object is left to change.
    Done,
    /// This process is not the leader any more.
    Deposed,
    /// The server has another version of the API now.
    NotServed,
}

/// The migration of one leader term, from the first list to the moment at which no object is left to change.
pub(super) struct MigrationTerm<'a> {
    parts: &'a mut ClassicParts,
    version: ApiVersion,
    migration: Migration,
    /// Number of writes that were made.
    written: usize,
    pauses: Backoff,
    /// Number of writes that failed since all were tried: others come first.
    skipped: usize,
    /// The earliest time of the next write, after one that failed.
    not_before: Instant,
    /// The failure of the last write.
    trouble: Option<String>,
}

impl<'a> MigrationTerm<'a> {
    pub(super) fn new(parts: &'a mut ClassicParts, version: ApiVersion) -> Self {
        let migration = Migration::new(deletion_protection(&parts.driver));
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        Self { parts, version, migration, written: 0, skipped: 0, pauses, not_before: Instant::now(), trouble: None }
    }

    pub(super) async fn run(mut self) -> MigrationEnd {
        let (news_tx, mut news_rx) = mpsc::channel(NEWS);
        self.watch(&news_tx).await;
        // The reflectors hold the senders.
        drop(news_tx);
        loop {
            let Some(until) = leads_until(&mut self.parts.leadership_rx) else { return MigrationEnd::Deposed };
            self.tell();
            if self.migration.left() == Some((0, 0)) {
                if self.written > 0 {
                    info!(writes = self.written, "claims of before the upgrade to 1.32 are Kubernetes' own now");
                }
                return MigrationEnd::Done;
            }
            let write = self.next();
            tokio::select! {
                // Reflector events are handled before anything is written.
                biased;
                // Cancel safe: news that were not taken stay in the channel.
                Some((kind, news)) = news_rx.recv() => {
                    if matches!(news, ReflectorEvent::NotServed) && kind == MigratedKind::Claim {
                        self.parts.calling.forget_version();
                        return MigrationEnd::NotServed;
                    }
                    self.take(kind, &news);
                }
                // Cancel safe: only waits. A lease that was not renewed is noticed in the next turn of the loop.
                () = reach(Some(until)) => {}
                // Cancel safe: the change is read in the next turn of the loop.
                _ = self.parts.leadership_rx.changed() => {}
                // Cancel safe: only waits.
                () = reach(write.is_some().then_some(self.not_before)) => {
                    if let Some(write) = write {
                        self.send(&write).await;
                    }
                }
            }
        }
    }

    async fn watch(&self, news_tx: &mpsc::Sender<(MigratedKind, ReflectorEvent)>) {
        let watches = &self.parts.watches;
        watches.subscribe(ObservedKind::ResourceClaim, MigratedKind::Claim, news_tx).await;
        watches.subscribe(ObservedKind::NodeHardware, MigratedKind::Source, news_tx).await;
    }

    fn take(&mut self, kind: MigratedKind, news: &ReflectorEvent) {
        match news {
            // A cluster without the kind NodeHardware has no grants.
            ReflectorEvent::NotServed => {
                self.migration.list_started(kind);
                self.migration.list_ended(kind);
            }
            ReflectorEvent::Followed(FollowEvent::ListStarted) => self.migration.list_started(kind),
            ReflectorEvent::Followed(FollowEvent::ListEnded) => self.migration.list_ended(kind),
            ReflectorEvent::Followed(FollowEvent::Listed(object) | FollowEvent::Applied(object)) => {
                self.seen(kind, object)
            }
            ReflectorEvent::Followed(FollowEvent::Deleted(object)) => match kind {
                MigratedKind::Claim => self.migration.claim_gone(&ObjectKey::new(object.namespace(), object.name())),
                MigratedKind::Source => self.migration.source_gone(object.name()),
            },
            ReflectorEvent::Followed(FollowEvent::UpToDate) | ReflectorEvent::Interrupted(_) => {}
        }
    }

    fn seen(&mut self, kind: MigratedKind, object: &RawObject) {
        let read = match kind {
            MigratedKind::Claim => object.read().map(|claim| self.migration.claim_seen(claim)),
            MigratedKind::Source => object.read().map(|source| self.migration.source_seen(source)),
        };
        if let Err(error) = read {
            warn!(object = object.name(), error = %Chain(&error), "an object cannot be understood and is left as it is");
        }
    }

    fn next(&mut self) -> Option<MigrationWrite> {
        let write = self.migration.next(self.skipped);
        if write.is_some() || self.skipped == 0 {
            return write;
        }
        self.skipped = 0;
        self.migration.next(0)
    }

    /// Makes a write. The caller has just made sure that this process leads.
    async fn send(&mut self, write: &MigrationWrite) {
        let client = &self.parts.calling;
        let failure = match write {
            MigrationWrite::Claim(write) => match write.send(client, self.version).await {
                // The claim is gone with its last finalizer, or is as the server returned it.
                Ok(claim) => {
                    let claim = claim.and_then(|claim| serde_json::from_value(claim).ok());
                    claim.into_iter().for_each(|claim| self.migration.claim_seen(claim));
                    None
                }
                Err(failure) if failure.code() == Some(404) => {
                    self.migration.claim_gone(write.key());
                    None
                }
                Err(failure) => Some(failure),
            },
            MigrationWrite::Grants { source, version, claims } => {
                let gone: Map<String, Value> = claims.iter().map(|uid| (uid.clone(), Value::Null)).collect();
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"claims": gone}});
                match client.change(&sources(), source, CONTROLLER_FIELD_MANAGER, &patch).await {
                    Ok(source) => {
                        self.migration.source_seen(source);
                        None
                    }
                    Err(failure) => Some(failure),
                }
            }
        };
        self.wrote(failure);
    }

    /// Counts a write's outcome. A write that lost, or that is not allowed, is tried again later, when the object's new
    /// state is known.
    fn wrote(&mut self, failure: Option<ApiFailure>) {
        let Some(failure) = failure else {
            self.written += 1;
            self.pauses.reset();
            self.trouble = None;
            return;
        };
        self.skipped += 1;
        self.not_before = Instant::now() + self.pauses.next_pause();
        if failure.code() != Some(409) {
            self.trouble = Some(Chain(&failure).to_string());
        }
    }

    fn tell(&self) {
        self.parts.tell(match self.migration.left() {
            None => ClassicPhase::Listing(vec!["resourceclaims", "nodehardware"]),
            Some((claims, sources)) => ClassicPhase::Migrating { claims, sources, trouble: self.trouble.clone() },
        });
    }
}

fn sources() -> Collection {
    // NodeHardware is the same whatever version claims are in.
    ClassicKind::Source.collection(ClassicVersion::V1Alpha3)
}
