//! Refusals of one client, by what was asked: for callers that keep nothing between their calls. Those that do have
//! [`RetryPauses`](crate::RetryPauses).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::retry::{MAY_NOT_HAVE_READ_ROLES, ROLES_ARE_READ};

/// A refusal after such a silence is a first one again: the server may have started anew meanwhile. Far longer than any
/// caller waits before it asks again.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Remembers since when the server refuses what. All clones share what they remember.
#[derive(Clone, Debug, Default)]
pub struct LastingRefusals(Arc<Mutex<BTreeMap<String, RefusedTime>>>);

#[derive(Clone, Copy, Debug)]
struct RefusedTime {
    first: Instant,
    last: Instant,
}

impl LastingRefusals {
    /// Notes a refusal of `what`. True if the server refuses it for longer than one that has just started does.
    pub fn refused(&self, what: &str) -> bool {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, time| now.duration_since(time.last) < FORGOTTEN);
        let time = known.entry(what.to_owned()).or_insert(RefusedTime { first: now, last: now });
        time.last = now;
        now.duration_since(time.first) >= ROLES_ARE_READ
    }

    /// Notes that the server has allowed `what`: the next refusal is a first one.
    pub fn allowed(&self, what: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
    }

    /// Notes a refusal of `what`, and gives its explanation: `lasting` if it lasts.
    pub fn advice<'a>(&self, what: &str, lasting: &'a str) -> &'a str {
        if self.refused(what) { lasting } else { MAY_NOT_HAVE_READ_ROLES }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_when_it_lasts_and_each_has_its_own_time() {
        let refusals = LastingRefusals::default();
        assert!(!refusals.refused("a"));
        advance(9 * SECOND).await;
        assert!(!refusals.refused("a"));
        assert_ne!(refusals.advice("a", "give the role"), "give the role");
        advance(SECOND).await;
        assert!(refusals.clone().refused("a") && !refusals.refused("b"));
        assert_eq!(refusals.advice("a", "give the role"), "give the role");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_allowed_or_not_asked_for_long_is_refused_for_the_first_time_again() {
        let refusals = LastingRefusals::default();
        for forget in [true, false] {
            refusals.refused("a");
            advance(10 * SECOND).await;
            assert!(refusals.refused("a"));
            match forget {
                true => refusals.allowed("a"),
                false => advance(FORGOTTEN).await,
            }
            assert!(!refusals.refused("a"));
        }
    }
}
