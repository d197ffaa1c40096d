//! Reads the claims of a pod that is bound to this node before the kubelet asks for them.
//!
//! ```text
//!   PodsOfNode ──► wanted (pure) ──► AheadClaims ◄── read, a few at a time ── ResourceClaims
//!                                        │ what is settled
//!   claims task ──ReadClaims──► ReadAhead ┴──► else ──► claim_reader, as if this were not here
//! ```
//!
//! Only a claim that was made for its pod is kept, and only when everything was seen that keeps it as it is for as long
//! as the pod lives ([`mod@settled`]). What was read serves one call. Nothing of it is on disk.

mod claims;
mod settled;

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hostler_api::{Allocation, Chain, ClaimRef};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tracing::debug;

use self::{
    claims::{AheadAnswer, AheadClaims, AheadRead, wanted},
    settled::settled,
};
use super::claim_reader::ClaimReader;
use crate::{
    claims::{ReadClaims, ReadContinuation, ReadResult},
    metrics::Metrics,
    pods::PodsReader,
    tasks::{Outcome, Tasks},
};

/// Pods come in bursts, and the API server has other clients. A call for a claim whose turn has not come does not wait
/// for it.
const READS_AT_ONCE: usize = 8;
/// A read takes milliseconds. One that takes longer than this is given up: the call that needs the claim reads it.
const READ_PATIENCE: Duration = Duration::from_secs(4);
/// How long a call waits for a read that is under way, before it reads as if there were none: the kubelet gives it 45
/// s.
const JOIN_PATIENCE: Duration = Duration::from_millis(500);

/// Reads claims ahead for one driver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    reader: ClaimReader,
    claims: Arc<Mutex<AheadClaims>>,
    metrics: Metrics,
    tasks: Tasks,
}

impl ReadAhead {
    /// Reads with `reader` whatever `pods_rx` tells of.
    pub fn start(reader: ClaimReader, pods_rx: PodsReader, metrics: Metrics, tasks: &Tasks) -> Self {
        let ahead = Self { reader, claims: Arc::default(), metrics, tasks: tasks.clone() };
        let (stop, following) = (tasks.stop_token(), ahead.clone());
        tasks.service("read-ahead", async move {
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                // Reads only: it can be dropped anywhere. Who has joined a read then reads for himself.
                outcome = following.follow(pods_rx) => outcome,
            }
        });
        ahead
    }

    fn lock(&self) -> MutexGuard<'_, AheadClaims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn follow(self, mut pods_rx: PodsReader) -> Outcome {
        let mut running = JoinSet::new();
        loop {
            let wanted = wanted(&pods_rx.borrow_and_update());
            self.lock().want(&wanted);
            loop {
                while running.len() < READS_AT_ONCE {
                    let Some(read) = self.lock().begin_next() else { break };
                    running.spawn(self.clone().read_one(read));
                }
                // Both arms are cancel safe: a change that was not taken is seen again, a JoinSet keeps what has
                // finished.
                tokio::select! {
                    changed = pods_rx.changed() => match changed {
                        Ok(()) => break,
                        // Pods are not watched, or the daemon ends: there will be nothing to read.
                        Err(_) => return pending().await,
                    },
                    Some(_) = running.join_next() => {}
                }
            }
        }
    }

    /// Makes one read. A failure is told to no caller: the call that would have used the read makes one itself.
    async fn read_one(self, read: AheadRead) {
        let found = timeout(READ_PATIENCE, self.reader.glance(&read.claim.namespace, &read.claim.name)).await;
        let kept = match found {
            Ok(Ok(found)) => settled(found, &read.pod, self.reader.driver()),
            Ok(Err(failure)) => {
                debug!(claim.name = %read.claim, error = %Chain(&failure), "a claim was not read ahead");
                None
            }
            Err(_) => None,
        };
        let is_kept = self.lock().finish(&read, kept);
        if is_kept {
            self.metrics.claim_read("kept");
        }
        // Dropped only now: calls that have joined look for what was found.
        drop(read);
    }

    fn take(&self, claim: &ClaimRef) -> AheadAnswer {
        self.lock().take(claim)
    }

    /// Waits for what is under way, and reads the rest.
    async fn read_joined(&self, claims: Vec<ClaimRef>, answers: Vec<AheadAnswer>) -> Vec<ReadResult> {
        let deadline = Instant::now() + JOIN_PATIENCE;
        let mut found: Vec<Option<Allocation>> = Vec::with_capacity(claims.len());
        for (claim, answer) in claims.iter().zip(answers) {
            found.push(match answer {
                AheadAnswer::Read(allocation) => Some(allocation),
                AheadAnswer::Nothing => None,
                AheadAnswer::UnderWay(done_rx) => self.join(claim, done_rx, deadline).await,
            });
        }
        let rest: Vec<ClaimRef> =
            claims.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(claim, _)| claim.clone()).collect();
        let mut read = self.read_rest(&rest).await.into_iter();
        let stopping = || Err("the daemon is stopping".into());
        found.into_iter().map(|found| found.map_or_else(|| read.next().unwrap_or_else(stopping), Ok)).collect()
    }

    async fn join(&self, claim: &ClaimRef, mut done_rx: watch::Receiver<()>, deadline: Instant) -> Option<Allocation> {
        // It ends when the other side is dropped.
        let _ = timeout_at(deadline, done_rx.changed()).await;
        match self.lock().give_up(claim) {
            AheadAnswer::Read(allocation) => {
                self.metrics.claim_read("joined");
                Some(allocation)
            }
            AheadAnswer::Nothing | AheadAnswer::UnderWay(_) => None,
        }
    }

    async fn read_rest(&self, claims: &[ClaimRef]) -> Vec<ReadResult> {
        claims.iter().for_each(|_| self.metrics.claim_read("asked"));
        if claims.is_empty() { Vec::new() } else { self.reader.read_all(claims).await }
    }
}

impl ReadClaims for ReadAhead {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let answers: Vec<AheadAnswer> = claims.iter().map(|claim| self.take(claim)).collect();
        let known = answers.iter().filter(|answer| matches!(answer, AheadAnswer::Read(_))).count();
        (0..known).for_each(|_| self.metrics.claim_read("ahead"));
        if known == claims.len() {
            let read = answers.into_iter().filter_map(AheadAnswer::into_allocation).map(Ok).collect();
            self.tasks.blocking(move || then(read));
            return;
        }
        let ahead = self.clone();
        self.tasks.job(async move {
            let read = ahead.read_joined(claims, answers).await;
            ahead.tasks.blocking(move || then(read));
        });
    }
}
