//! Takes back claims that no call will ever unprepare: those whose objects are gone from the source of claims, and
//! that the kubelet no longer knows.
//!
//! ```text
//!               seen gone          seen gone again and again, for long enough, and no container runs
//!   (trusted) ───────────► doubted ──────────────────────────────────────────────────────────────────► taken back
//!       ▲                     │ └── not to be seen, or a restart: as before, nothing counts
//!       └─────────────────────┘ allocated after all; gone for another reason begins anew
//! ```
//!
//! Slow on purpose: a claim that is taken back too late blocks a device for minutes, one that is taken back too early
//! takes the device from under a container. A claim that blocks another is looked at at once, and two looks some
//! seconds apart are enough: see [`verdict`]. Quarantined claims are an operator's.

mod doubts;
mod sweep;
pub mod verdict;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use hostler_api::{Chain, ClaimUid};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

use super::{ClaimError, ClaimOperation, ClaimView, ClaimsHandle, store::ClaimRecord};
use crate::{
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};
use doubts::{DoubtFile, Doubts};
pub use verdict::ClaimObservation;
use verdict::{ClaimLook, LOOK_AGAIN, ReleaseReason, ReleaseVerdict, judge};

/// Number of checks of claims per [`JanitorParts::release_after`]: enough that a claim is not held much longer than
/// that.
const LOOKS: u32 = 4;

/// The longest time between two looks: it is also how long the notes of ended containers lie around.
const LONGEST_PERIOD: Duration = Duration::from_secs(60);

/// Claims that are looked at once at most; each costs a call. The others come with the next refusal.
const MOST_CONTESTED: usize = 64;

/// Reason why a claim could not be observed.
pub type ObserveError = Box<dyn std::error::Error + Send + Sync>;

/// Observer of recorded claims at their source.
pub trait ObserveClaims: Send + Sync + 'static {
    /// Looks at these claims, one answer for each in their order, each of which was true when it was asked for: no
    /// answer of a cache. What is not known for sure is an error. Blocking; an observer over a network asks for all
    /// of them at once.
    fn observe(&self, claims: &[Arc<ClaimRecord>]) -> Vec<Result<ClaimObservation, ObserveError>>;
}

/// Parts that the janitor works with.
pub struct JanitorParts {
    /// The claims.
    pub claims: ClaimsHandle,
    /// Observer of the claims; `None`: only the notes of ended containers are removed.
    pub observer: Option<Arc<dyn ObserveClaims>>,
    /// Time for which a claim must have been seen not to be needed.
    pub release_after: Duration,
    /// The folder of the daemon's state; observations are kept there.
    pub state: PathBuf,
    /// Counts what is taken back.
    pub metrics: Metrics,
}

impl std::fmt::Debug for JanitorParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JanitorParts").finish_non_exhaustive()
    }
}

/// Starts the janitor; it works until the daemon stops.
pub fn start(parts: JanitorParts, tasks: &Tasks) {
    // Without an observer no refusal may say that holders are looked at.
    let contested_rx = parts.observer.is_some().then(|| parts.claims.contested());
    let janitor = Janitor::new(parts, tasks);
    let stop = tasks.stop_token();
    tasks.service("janitor", async move {
        tokio::select! {
            // Dropped at the end only: taking a claim back runs to its end in any case.
            outcome = janitor.run(contested_rx) => outcome,
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => Ok(()),
        }
    });
}

/// State that is kept of a recorded claim.
#[derive(Clone, Copy, Debug, Default)]
struct WatchedClaim {
    doubt: Option<verdict::ReleaseDoubt>,
    /// Time of the last look, if that look saw anything.
    last: Option<Instant>,
}

/// Scope of a look: the claims that are looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LookScope {
    All,
    /// Claims that block others, as soon as they are due.
    Contested,
}

struct Janitor {
    parts: Arc<JanitorParts>,
    file: DoubtFile,
    watched: BTreeMap<ClaimUid, WatchedClaim>,
    /// Claims that block others, with the time at which they are looked at.
    contested: BTreeMap<ClaimUid, Instant>,
    /// Content of the file; `None` if not known.
    kept: Option<Doubts>,
    tasks: Tasks,
}

/// A claim that was looked at.
struct ObservedClaim {
    record: Arc<ClaimRecord>,
    seen: Option<ClaimObservation>,
    runs: bool,
}

/// A claim that is not needed.
struct ReleasedClaim {
    record: Arc<ClaimRecord>,
    why: ReleaseReason,
}

impl Janitor {
    fn new(parts: JanitorParts, tasks: &Tasks) -> Self {
        Self {
            file: DoubtFile::new(parts.state.clone()),
            parts: Arc::new(parts),
            watched: BTreeMap::new(),
            contested: BTreeMap::new(),
            kept: None,
            tasks: tasks.clone(),
        }
    }

    async fn run(mut self, mut contested_rx: Option<broadcast::Receiver<BTreeSet<ClaimUid>>>) -> Outcome {
        self.load().await;
        let mut next = Instant::now() + self.pause();
        loop {
            let due = self.contested.values().min().map_or(next, |first| next.min(*first));
            tokio::select! {
                // Cancel safe: it only waits.
                () = sleep_until(due) => {
                    let now = Instant::now();
                    let scope = if now >= next { LookScope::All } else { LookScope::Contested };
                    // Taking back runs to its end by itself.
                    drop(self.round(scope, now).await);
                    if scope == LookScope::All {
                        next = Instant::now() + self.pause();
                    }
                }
                // Cancel safe: what was not taken stays in the channel.
                Some(contested) = next_contested(&mut contested_rx) => self.contest(contested, Instant::now()),
            }
        }
    }

    /// Loads the observations of an earlier daemon.
    async fn load(&mut self) {
        let file = self.file.clone();
        // It fails only with the whole process: panics abort.
        let doubts = self.tasks.looking(move || file.load()).await.unwrap_or_default();
        let watched = |(uid, doubt)| (uid, WatchedClaim { doubt: Some(doubt), last: None });
        self.watched = doubts.into_iter().map(watched).collect();
    }

    /// Time until the next look. Daemons that were started together shall not ask together.
    fn pause(&self) -> Duration {
        let period = (self.parts.release_after / LOOKS).min(LONGEST_PERIOD);
        period.mul_f64(0.8 + 0.4 * fastrand::f64())
    }

    /// Notes that claims block others: they are looked at now, or some seconds after the last look.
    fn contest(&mut self, contested: BTreeSet<ClaimUid>, now: Instant) {
        for uid in contested {
            let last = self.watched.get(&uid).and_then(|watched| watched.last);
            let due = last.map_or(now, |last| now.max(last + LOOK_AGAIN));
            if self.contested.len() < MOST_CONTESTED {
                self.contested.entry(uid).or_insert(due);
            }
        }
    }

    /// Checks claims once, and has those taken back that are not needed.
    async fn round(&mut self, scope: LookScope, now: Instant) -> Option<JoinHandle<()>> {
        let candidates = self.candidates(scope, now);
        let looked = self.look(candidates, scope).await;
        let released: Vec<ReleasedClaim> =
            looked.into_iter().filter_map(|observed| self.decide(observed, now)).collect();
        self.keep().await;
        (!released.is_empty()).then(|| {
            let parts = self.parts.clone();
            // Hardware that hangs must not keep the janitor from looking at the other claims.
            self.tasks.job(async move { release(&parts, released, now).await })
        })
    }

    /// The claims on record; claims that are not on record any more are forgotten.
    fn candidates(&mut self, scope: LookScope, now: Instant) -> Vec<Arc<ClaimRecord>> {
        let table = self.parts.claims.table().borrow().clone();
        self.watched.retain(|uid, _| table.claims.contains_key(uid));
        // Claims that are being taken back need no look; if that fails, the next refusal tells of them again.
        self.contested.retain(|uid, _| table.claims.get(uid).is_some_and(|view| !is_taken_back(view)));
        let is_due = |uid: &ClaimUid| scope == LookScope::All || self.contested.get(uid).is_some_and(|due| *due <= now);
        let recorded = table.claims.iter().filter_map(|(uid, view)| match view {
            ClaimView::Recorded { record, .. } if is_due(uid) && !is_taken_back(view) => Some(record.clone()),
            _ => None,
        });
        recorded.collect()
    }

    /// Does everything that waits for others: the source of claims, processes, files.
    async fn look(&self, candidates: Vec<Arc<ClaimRecord>>, scope: LookScope) -> Vec<ObservedClaim> {
        let parts = self.parts.clone();
        let looking = self.tasks.looking(move || {
            if scope == LookScope::All {
                sweep::sweep(&parts.claims);
            }
            let Some(observer) = parts.observer.as_ref().filter(|_| !candidates.is_empty()) else { return Vec::new() };
            let observations = observer.observe(&candidates);
            let look = |(record, observation): (Arc<ClaimRecord>, Result<ClaimObservation, ObserveError>)| {
                let uid = &record.claim.uid;
                let seen = observation
                    .inspect_err(|error| debug!(claim.uid = %uid, error = %Chain(&**error), "claim not seen"))
                    .ok();
                let runs = parts.claims.containers().any_runs(uid);
                ObservedClaim { record, seen, runs }
            };
            candidates.into_iter().zip(observations).map(look).collect()
        });
        // It fails only with the whole process: panics abort.
        looking.await.unwrap_or_default()
    }

    /// Notes what was seen of a claim, and decides if it is to be taken back.
    fn decide(&mut self, observed: ObservedClaim, now: Instant) -> Option<ReleasedClaim> {
        let ObservedClaim { record, seen, runs } = observed;
        let uid = &record.claim.uid;
        let watched = self.watched.entry(uid.clone()).or_default();
        // Two looks far apart, of a process that was held up, say little of what was in between.
        let longest = 2 * LONGEST_PERIOD;
        let since_last = watched.last.map(|last| now.duration_since(last).min(longest));
        let contested = self.contested.contains_key(uid);
        let verdict = judge(watched.doubt, &ClaimLook { seen, runs, contested, since_last }, self.parts.release_after);
        watched.last = seen.map(|_| now);
        watched.doubt = match verdict {
            ReleaseVerdict::Trust => None,
            ReleaseVerdict::Doubt(doubt) | ReleaseVerdict::Release(doubt) => Some(doubt),
        };
        if let ReleaseVerdict::Doubt(doubt) = verdict {
            debug!(claim.uid = %uid, why = doubt.why.name(), runs, contested, "claim may not be needed any more");
        }
        // A claim that still blocks another when nothing can be done is told of again by the next refusal.
        match verdict {
            ReleaseVerdict::Doubt(_) if seen.is_some() && !runs => {
                self.contested.entry(uid.clone()).and_modify(|due| *due = now + LOOK_AGAIN);
            }
            _ => _ = self.contested.remove(uid),
        }
        let ReleaseVerdict::Release(doubt) = verdict else { return None };
        Some(ReleasedClaim { why: doubt.why, record })
    }

    /// Keeps the observations for the next daemon. Where that fails, it begins anew.
    async fn keep(&mut self) {
        let doubts: Doubts =
            self.watched.iter().filter_map(|(uid, watched)| Some((uid.clone(), watched.doubt?))).collect();
        if self.kept.as_ref() == Some(&doubts) {
            return;
        }
        let (file, writing) = (self.file.clone(), doubts.clone());
        let written = self.tasks.blocking(move || file.write(&writing)).await;
        self.kept = match written {
            Ok(Ok(())) => Some(doubts),
            Ok(Err(error)) => {
                warn!(error = %Chain(&error), "what was seen of claims is not kept");
                None
            }
            // It fails only with the whole process: panics abort.
            Err(_) => None,
        };
    }
}

/// Next claims that block others; `None` without an observer.
async fn next_contested(
    contested_rx: &mut Option<broadcast::Receiver<BTreeSet<ClaimUid>>>,
) -> Option<BTreeSet<ClaimUid>> {
    let contested_rx = contested_rx.as_mut()?;
    loop {
        match contested_rx.recv().await {
            Ok(contested) => return Some(contested),
            // Claims that were missed are told of again.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

fn is_taken_back(view: &ClaimView) -> bool {
    view.busy().is_some_and(|busy| busy.operation == ClaimOperation::Unprepare)
}

async fn release(parts: &JanitorParts, released: Vec<ReleasedClaim>, seen: Instant) {
    let claims = released.iter().map(|released| released.record.claim.clone()).collect();
    let mut answers = parts.claims.release(claims, seen.into_std()).await;
    for ReleasedClaim { record, why } in released {
        let claim = &record.claim;
        // The task that takes claims back logs a failure; the next look tries again.
        match answers.remove(&claim.uid) {
            Some(Ok(())) => {
                parts.metrics.released(why.name());
                info!(claim.uid = %claim.uid, claim.name = claim.full_name(), why = why.name(), "claim taken back, nobody needs it any more");
            }
            Some(Err(error)) if matches!(*error, ClaimError::NeededAgain(_)) => {
                info!(claim.uid = %claim.uid, claim.name = claim.full_name(), "claim kept, it was asked for again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
