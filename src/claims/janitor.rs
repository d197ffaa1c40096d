//! Takes back claims that nobody will ever ask to be taken back: those whose objects are gone from where claims come
//! from, and that the kubelet no longer knows.
//!
//! ```text
//!               seen gone          seen gone again, long enough after the first time, and no container runs
//!   (trusted) ───────────► doubted ──────────────────────────────────────────────────────────────────► taken back
//!       ▲                     │ allocated after all, gone for another reason, or not to be seen
//!       └─────────────────────┘
//! ```
//!
//! Slow on purpose: a claim that is taken back too late blocks a device for minutes, one that is taken back too early
//! takes the device from under a container. Quarantined claims are an operator's.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hostler_api::{Chain, ClaimRef, ClaimUid};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::{ClaimView, ClaimsHandle, metadata};
use crate::{metrics::Metrics, tasks::Tasks};

/// Looks at the claims per [`JanitorParts::release_after`]: enough that a claim is not held much longer than that.
const LOOKS: u32 = 4;

/// The longest time between two looks: it is also how long the notes of ended containers lie around.
const LONGEST_PERIOD: Duration = Duration::from_secs(60);

/// A claim whose files are older than this has long been in the table.
const SETTLED: Duration = Duration::from_secs(60);

/// What was seen of a recorded claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClaimObservation {
    /// It is there and has something of this node.
    Allocated,
    /// It is not there.
    Gone,
    /// Another claim has its name.
    OtherUid,
    /// It is there, and nothing of this node is allocated to it.
    Deallocated,
}

/// Why a claim could not be looked at.
pub type ObserveError = Box<dyn std::error::Error + Send + Sync>;

/// Where recorded claims are looked at.
pub trait ObserveClaims: Send + Sync + 'static {
    /// Looks at these claims, one answer for each in their order. What is not known for sure is an error. Blocking; who
    /// asks over a network asks for all of them at once.
    fn observe(&self, claims: &[ClaimRef]) -> Vec<Result<ClaimObservation, ObserveError>>;
}

/// Why a claim is taken back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReleaseReason {
    /// Its object is gone.
    Gone,
    /// Another object has its name.
    OtherUid,
    /// Nothing of this node is allocated to it any more.
    Deallocated,
}

impl ReleaseReason {
    /// In one word, as in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::OtherUid => "other_uid",
            Self::Deallocated => "deallocated",
        }
    }
}

impl ClaimObservation {
    fn why(self) -> Option<ReleaseReason> {
        match self {
            Self::Allocated => None,
            Self::Gone => Some(ReleaseReason::Gone),
            Self::OtherUid => Some(ReleaseReason::OtherUid),
            Self::Deallocated => Some(ReleaseReason::Deallocated),
        }
    }
}

/// A claim that has been seen not to be needed, in every look since then.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReleaseDoubt {
    /// What was seen.
    pub why: ReleaseReason,
    /// When it was first seen.
    pub since: Instant,
}

/// What follows from a look at a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReleaseVerdict {
    /// Nothing is wrong with it, as far as can be known.
    Trust,
    /// It may not be needed any more.
    Doubt(ReleaseDoubt),
    /// It is not needed any more.
    Release(ReleaseReason),
}

/// Decides on a claim. Pure.
///
/// `seen` is `None` where nothing could be seen; `runs` says whether a container runs with the claim.
pub fn judge(
    doubt: Option<ReleaseDoubt>,
    seen: Option<ClaimObservation>,
    runs: bool,
    now: Instant,
    grace: Duration,
) -> ReleaseVerdict {
    let Some(why) = seen.and_then(ClaimObservation::why) else { return ReleaseVerdict::Trust };
    match doubt.filter(|doubt| doubt.why == why) {
        None => ReleaseVerdict::Doubt(ReleaseDoubt { why, since: now }),
        Some(doubt) if runs || now.duration_since(doubt.since) < grace => ReleaseVerdict::Doubt(doubt),
        Some(_) => ReleaseVerdict::Release(why),
    }
}

/// What the janitor works with.
pub struct JanitorParts {
    /// The claims.
    pub claims: ClaimsHandle,
    /// Where they are looked at; `None`: nowhere, only the notes of ended containers are removed.
    pub observer: Option<Arc<dyn ObserveClaims>>,
    /// How long a claim must have been seen not to be needed.
    pub release_after: Duration,
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
    let mut janitor = Janitor { parts: Arc::new(parts), known: BTreeMap::new(), tasks: tasks.clone() };
    let stop = tasks.stop_token();
    tasks.service("janitor", async move {
        loop {
            tokio::select! {
                // Cancel safe: it only waits.
                () = sleep(janitor.pause()) => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => return Ok(()),
            }
            tokio::select! {
                // Dropped at the end only: taking a claim back runs to its end in any case.
                () = janitor.round(Instant::now()) => {}
                // Cancel safe: as above.
                () = stop.cancelled() => return Ok(()),
            }
        }
    });
}

/// A recorded claim.
#[derive(Clone, Copy, Debug)]
struct WatchedClaim {
    /// When it was first seen on record. After a start this is later than the truth, which only makes us slower.
    since: Instant,
    doubt: Option<ReleaseDoubt>,
}

struct Janitor {
    parts: Arc<JanitorParts>,
    known: BTreeMap<ClaimUid, WatchedClaim>,
    tasks: Tasks,
}

/// A claim that was looked at.
struct ObservedClaim {
    claim: ClaimRef,
    seen: Option<ClaimObservation>,
    runs: bool,
}

impl Janitor {
    /// Until the next look. Daemons that were started together shall not ask together.
    fn pause(&self) -> Duration {
        let period = (self.parts.release_after / LOOKS).min(LONGEST_PERIOD);
        period.mul_f64(0.8 + 0.4 * fastrand::f64())
    }

    /// Looks at everything once.
    async fn round(&mut self, now: Instant) {
        let candidates = self.candidates(now);
        let looked = self.look(candidates).await;
        let mut released = Vec::new();
        for ObservedClaim { claim, seen, runs } in looked {
            let Some(known) = self.known.get_mut(&claim.uid) else { continue };
            known.doubt = match judge(known.doubt, seen, runs, now, self.parts.release_after) {
                ReleaseVerdict::Trust => None,
                ReleaseVerdict::Doubt(doubt) => {
                    debug!(claim.uid = %claim.uid, why = doubt.why.name(), runs, "claim may not be needed any more");
                    Some(doubt)
                }
                ReleaseVerdict::Release(why) => {
                    released.push((claim, why));
                    known.doubt
                }
            };
        }
        if !released.is_empty() {
            self.release(released).await;
        }
    }

    /// The claims that have been on record for long enough.
    fn candidates(&mut self, now: Instant) -> Vec<ClaimRef> {
        let table = self.parts.claims.table().borrow().clone();
        let recorded = table.claims.values().filter_map(|view| match view {
            ClaimView::Recorded { record, .. } => Some(&record.claim),
            ClaimView::Quarantined(_) => None,
        });
        let mut known = BTreeMap::new();
        let mut candidates = Vec::new();
        for claim in recorded {
            let entry = self.known.remove(&claim.uid).unwrap_or(WatchedClaim { since: now, doubt: None });
            if now.duration_since(entry.since) >= self.parts.release_after {
                candidates.push(claim.clone());
            }
            known.insert(claim.uid.clone(), entry);
        }
        self.known = known;
        candidates
    }

    /// Everything that waits for others: the source of claims, processes, files.
    async fn look(&self, candidates: Vec<ClaimRef>) -> Vec<ObservedClaim> {
        let parts = self.parts.clone();
        let looking = self.tasks.looking(move || {
            sweep(&parts);
            let Some(observer) = parts.observer.as_ref().filter(|_| !candidates.is_empty()) else { return Vec::new() };
            let observations = observer.observe(&candidates);
            let look = |(claim, observation): (ClaimRef, Result<ClaimObservation, ObserveError>)| {
                let seen = observation
                    .inspect_err(|error| debug!(claim.uid = %claim.uid, error = %Chain(&**error), "claim not seen"))
                    .ok();
                let runs = parts.claims.containers().any_runs(&claim.uid);
                ObservedClaim { claim, seen, runs }
            };
            candidates.into_iter().zip(observations).map(look).collect()
        });
        // It fails only with the whole process: panics abort.
        looking.await.unwrap_or_default()
    }

    async fn release(&self, claims: Vec<(ClaimRef, ReleaseReason)>) {
        let mut answers = self.parts.claims.unprepare(claims.iter().map(|(claim, _)| claim.clone()).collect()).await;
        for (claim, why) in claims {
            // A failure is logged by whoever takes claims back; the next look tries again.
            if let Some(Ok(())) = answers.remove(&claim.uid) {
                self.parts.metrics.released(why.name());
                info!(claim.uid = %claim.uid, claim.name = claim.full_name(), why = why.name(), "claim taken back, nobody needs it any more");
            }
        }
    }
}

/// Removes what claims that are not on record any more have left.
fn sweep(parts: &JanitorParts) {
    sweep_containers(parts);
    // Files come first, and the table after them: what was written just now may be of a claim that is not in it yet.
    let table = || parts.claims.table().borrow().clone();
    metadata::sweep_and_tell(parts.claims.naming(), SETTLED, |uid| table().claims.contains_key(uid));
}

/// Removes the notes of containers that have ended, and all notes of claims that are not on record. Folders come first:
/// a claim whose folder is seen now was on record before.
fn sweep_containers(parts: &JanitorParts) {
    let claims = match parts.claims.containers().claims() {
        Ok(claims) => claims,
        Err(error) => {
            warn!(path = %parts.claims.containers().path().display(), error = %error, "notes of containers cannot be read");
            return;
        }
    };
    let table = parts.claims.table().borrow().clone();
    for uid in claims {
        let swept = match parts.claims.containers().sweep(&uid) {
            Ok(_) if !table.claims.contains_key(&uid) && !parts.claims.containers().any_runs(&uid) => {
                parts.claims.containers().forget(&uid)
            }
            swept => swept.map(drop),
        };
        if let Err(error) = swept {
            warn!(claim.uid = %uid, error = %error, "notes of ended containers cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests;
