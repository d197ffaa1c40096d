//! Verdicts on tokens. The API server is asked about each token, and its answer is remembered for a little while.
//!
//! ```text
//!   token ──► digest ──► remembered? ──► verdict
//!                            └► no: a turn ──► reviewed ──► remembered
//!                                   ├ those whose token was good within the last hour
//!                                   └ strangers: however many there are, they wait for each other alone
//! ```
//!
//! A token that cannot be asked about is refused. Tokens are remembered by their digest, never as they are.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hostler_api::Chain;
use ring::digest::{SHA256, digest};
use tokio::{sync::Semaphore, time::timeout};
use tracing::warn;

use crate::ApiFailure;

/// Of a yes and of a no. A cluster has a handful of those who read, and those who are refused never push out those who
/// are not.
const MOST_REMEMBERED: usize = 256;
/// Tokens that are asked about at once: a client that makes up tokens must not keep the API server busy.
const REVIEWS_AT_ONCE: usize = 4;
/// The longest wait for a turn. Clients give up after ten seconds.
const TURN: Duration = Duration::from_secs(5);
/// A token that was good so long ago does not wait behind those of strangers. A day's work has shorter pauses.
const FAMILIAR: Duration = Duration::from_secs(3600);

/// The API server's answer about a token.
pub trait TokenVerdict: Clone {
    /// True if the bearer may do anything.
    fn is_yes(&self) -> bool;

    /// How long it counts.
    fn counts_for(&self) -> Duration;
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Too many others are asked about.
    #[error("too many tokens are being reviewed")]
    Busy,
    /// The API server did not say.
    #[error("failed to ask the API server who this is")]
    Review(#[source] ApiFailure),
}

/// The verdicts on tokens.
pub struct TokenReviews<V> {
    known: Mutex<KnownTokens<V>>,
    familiar: Semaphore,
    strangers: Semaphore,
    /// The last failure, so that it is not told with every question.
    told: Mutex<Option<String>>,
}

impl<V> fmt::Debug for TokenReviews<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviews").finish_non_exhaustive()
    }
}

impl<V> Default for TokenReviews<V> {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            familiar: Semaphore::new(REVIEWS_AT_ONCE),
            strangers: Semaphore::new(REVIEWS_AT_ONCE),
            told: Mutex::default(),
        }
    }
}

impl<V: TokenVerdict> TokenReviews<V> {
    /// Returns the verdict on this token; `review` finds it out where it is not known.
    ///
    /// # Errors
    /// When the API server could not be asked: then the bearer may do nothing, for now.
    pub async fn judge(
        &self,
        token: &str,
        review: impl AsyncFnOnce() -> Result<V, ApiFailure>,
    ) -> Result<V, ReviewError> {
        let digest = TokenDigest::of(token);
        if let Some(verdict) = self.known().verdict(digest, Instant::now()) {
            return Ok(verdict);
        }
        let is_familiar = self.known().is_familiar(digest, Instant::now());
        let turns = if is_familiar { &self.familiar } else { &self.strangers };
        let turn = timeout(TURN, turns.acquire()).await;
        let _turn = turn.map_err(|_| ReviewError::Busy)?.map_err(|_| ReviewError::Busy)?;
        // Another request with the same token may have been first.
        if let Some(verdict) = self.known().verdict(digest, Instant::now()) {
            return Ok(verdict);
        }
        // What was so when the question was put counts from then on.
        let asked = Instant::now();
        let verdict = review().await;
        self.tell(verdict.as_ref().err());
        let verdict = verdict.map_err(ReviewError::Review)?;
        self.known().remember(digest, verdict.clone(), asked);
        Ok(verdict)
    }

    fn known(&self) -> MutexGuard<'_, KnownTokens<V>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, failure: Option<&ApiFailure>) {
        let failure = failure.map(|failure| Chain(failure).to_string());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failure.as_ref().filter(|_| *told != failure) {
            warn!(error, "nobody new is answered: tokens cannot be reviewed");
        }
        *told = failure;
    }
}

/// Stands for a token.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct TokenDigest([u8; 32]);

impl TokenDigest {
    fn of(token: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }
}

/// The verdicts that still count, and since when.
struct KnownTokens<V>(BTreeMap<TokenDigest, (V, Instant)>);

impl<V> Default for KnownTokens<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V: TokenVerdict> KnownTokens<V> {
    fn verdict(&self, digest: TokenDigest, now: Instant) -> Option<V> {
        let (verdict, since) = self.0.get(&digest)?;
        (now.duration_since(*since) < verdict.counts_for()).then(|| verdict.clone())
    }

    fn is_familiar(&self, digest: TokenDigest, now: Instant) -> bool {
        let is_recent = |(verdict, since): &(V, Instant)| verdict.is_yes() && now.duration_since(*since) < FAMILIAR;
        self.0.get(&digest).is_some_and(is_recent)
    }

    fn remember(&mut self, digest: TokenDigest, verdict: V, now: Instant) {
        self.0.retain(|_, (verdict, since)| {
            let kept_for = if verdict.is_yes() { FAMILIAR } else { verdict.counts_for() };
            now.duration_since(*since) < kept_for
        });
        let same = self.0.iter().filter(|(_, (known, _))| known.is_yes() == verdict.is_yes());
        let same: Vec<(Instant, TokenDigest)> = same.map(|(digest, (_, since))| (*since, *digest)).collect();
        let is_new = !self.0.contains_key(&digest);
        if let Some((_, oldest)) = same.iter().min().filter(|_| is_new && same.len() >= MOST_REMEMBERED) {
            self.0.remove(oldest);
        }
        self.0.insert(digest, (verdict, now));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const YES: Duration = Duration::from_secs(60);
    const NO: Duration = Duration::from_secs(10);

    impl TokenVerdict for bool {
        fn is_yes(&self) -> bool {
            *self
        }

        fn counts_for(&self) -> Duration {
            if *self { YES } else { NO }
        }
    }

    #[test]
    fn each_verdict_counts_for_its_own_time() {
        let (now, mut known) = (Instant::now(), KnownTokens::default());
        let (reader, stranger) = (TokenDigest::of("reader"), TokenDigest::of("stranger"));
        known.remember(reader, true, now);
        known.remember(stranger, false, now);
        let before = |time: Duration| now + time - Duration::from_nanos(1);
        assert_eq!(known.verdict(stranger, before(NO)), Some(false));
        assert_eq!(known.verdict(stranger, now + NO), None);
        assert_eq!(known.verdict(reader, before(YES)), Some(true));
        assert_eq!(known.verdict(reader, now + YES), None);
        assert!(known.is_familiar(reader, now + YES) && !known.is_familiar(stranger, now));
        assert!(!known.is_familiar(reader, now + FAMILIAR));
        assert_eq!(known.verdict(TokenDigest::of("else"), now), None);
    }

    #[test]
    fn made_up_tokens_push_out_each_other_and_nobody_who_may_read() {
        let (now, mut known) = (Instant::now(), KnownTokens::default());
        known.remember(TokenDigest::of("reader"), true, now);
        let made_up = |number: usize| TokenDigest::of(&number.to_string());
        for number in 0..1000 {
            known.remember(made_up(number), false, now + Duration::from_micros(number as u64));
        }
        assert_eq!(known.0.len(), 1 + MOST_REMEMBERED);
        let later = now + Duration::from_millis(1);
        assert_eq!(known.verdict(TokenDigest::of("reader"), later), Some(true));
        assert_eq!(known.verdict(made_up(999), later), Some(false));
        assert_eq!(known.verdict(made_up(0), later), None);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_keep_out_nobody_who_is_familiar() {
        let reviews: TokenReviews<bool> = TokenReviews::default();
        // So long ago that it has to be asked again.
        let earlier = Instant::now().checked_sub(YES).unwrap();
        reviews.known().remember(TokenDigest::of("reader"), true, earlier);
        let _strangers = reviews.strangers.acquire_many(REVIEWS_AT_ONCE as u32).await.unwrap();
        assert!(matches!(reviews.judge("stranger", async || Ok(true)).await, Err(ReviewError::Busy)));
        assert!(reviews.judge("reader", async || Ok(true)).await.unwrap());
    }

    #[tokio::test]
    async fn a_token_is_asked_about_once() {
        let (reviews, asked): (TokenReviews<bool>, _) = (TokenReviews::default(), Cell::new(0));
        for _ in 0..3 {
            let verdict = reviews.judge("reader", async || {
                asked.set(asked.get() + 1);
                Ok(true)
            });
            assert!(verdict.await.unwrap());
        }
        assert_eq!(asked.get(), 1);
    }
}
