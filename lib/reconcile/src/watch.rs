//! Objects that one reader watches by itself: without a task, a channel or a store between the API server and the reader.
//!
//! ```text
//!   list ──► changes ──► failure ──► pause, ever longer ──► list …
//! ```
//!
//! A process with one reader for each kind, such as the daemon of a node, needs no [`Reflector`](crate::Reflector), which serves several.

use std::time::Duration;

use hostler_cluster::{ApiClient, ApiFailure, FollowEvent, FollowScope, Follower, RetryPauses};
use tokio::time::{Instant, sleep_until};

/// An API server that comes back is found within seconds, by every watch.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// People make roles and CRDs, and can wait; each try is a call from every node of the cluster.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Watches objects, for ever.
#[derive(Debug)]
pub struct ObjectWatch {
    follower: Follower,
    pauses: RetryPauses,
    /// Moment of the next try, after one that failed.
    resume_at: Option<Instant>,
}

impl ObjectWatch {
    /// Watches the objects of a scope.
    pub fn new(client: ApiClient, scope: FollowScope) -> Self {
        let pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE);
        Self { follower: Follower::new(client, scope), pauses, resume_at: None }
    }

    /// The same watch with other pauses after failures.
    #[must_use]
    pub fn with_pauses(self, pauses: RetryPauses) -> Self {
        Self { pauses, ..self }
    }

    /// Waits for the next event, for as long as a pause lasts too. Cancel safe.
    ///
    /// # Errors
    /// When the API server cannot be reached, or refuses. The next call comes after a pause, and begins with a new list: a server that
    /// was away may have been restored to an earlier state, of which no watch tells.
    pub async fn next(&mut self) -> Result<FollowEvent, ApiFailure> {
        if let Some(at) = self.resume_at {
            // Cancel safe: the moment stays.
            sleep_until(at).await;
            self.resume_at = None;
        }
        let event = self.follower.next().await.inspect_err(|failure| {
            let is_refused = failure.code() == Some(403) || failure.is_unknown_resource();
            let pauses = &mut self.pauses;
            let pause = if is_refused { pauses.after_refusal(failure) } else { pauses.after_outage(failure) };
            self.resume_at = Some(Instant::now() + pause);
        });
        match &event {
            Ok(FollowEvent::ListEnded) => self.pauses.reset(),
            Ok(_) => {}
            Err(_) => self.follower.relist(),
        }
        event
    }

    /// Pauses after failures: they explain a refusal.
    pub fn pauses(&self) -> &RetryPauses {
        &self.pauses
    }
}

#[cfg(test)]
mod tests;
