//! Who may read the figures: asked of the API server for each token, and remembered for a little while.
//!
//! What cannot be asked is refused. Tokens are remembered by their digest, never as they are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hostler_api::Chain;
use hostler_cluster::{ApiClient, ApiFailure};
use ring::digest::{SHA256, digest};
use tokio::{sync::Semaphore, time::timeout};
use tracing::warn;

/// Scrapes come every 15 to 60 s: two questions to the API server a minute, and a reader that was shut out is gone as soon.
const REMEMBER_ALLOWED: Duration = Duration::from_secs(60);
/// Short, since a role may be bound at any moment; long enough that somebody who keeps trying costs the API server little.
const REMEMBER_REFUSED: Duration = Duration::from_secs(10);
/// Of either kind. A cluster has a handful of scrapers, and those who are refused never push out those who are not.
const MOST_REMEMBERED: usize = 64;
/// Tokens that are asked about at once; whoever makes up tokens shall not keep the API server busy.
const REVIEWS_AT_ONCE: usize = 4;
/// How long a reader waits for his turn. Prometheus gives up on a scrape after ten seconds.
const TURN: Duration = Duration::from_secs(5);

/// What a token is good for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ReaderVerdict {
    /// Its owner may read.
    Allowed,
    /// Its owner may not.
    Forbidden,
    /// It is nobody's.
    Unknown,
}

impl ReaderVerdict {
    fn remembered_for(self) -> Duration {
        if self == Self::Allowed { REMEMBER_ALLOWED } else { REMEMBER_REFUSED }
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    /// Too many others are asked about.
    #[error("too many tokens are being reviewed")]
    Busy,
    /// The API server did not say.
    #[error("failed to ask the API server who this is")]
    Review(#[source] ApiFailure),
}

/// Judges readers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FigureReaders(Arc<ReaderReviews>);

#[derive(Debug)]
struct ReaderReviews {
    client: ApiClient,
    known: Mutex<KnownTokens>,
    turns: Semaphore,
    /// The last failure, so that it is not told with every scrape.
    told: Mutex<Option<String>>,
}

impl FigureReaders {
    /// Judged by the API server behind `client`.
    pub fn new(client: ApiClient) -> Self {
        let (known, turns) = (Mutex::default(), Semaphore::new(REVIEWS_AT_ONCE));
        Self(Arc::new(ReaderReviews { client, known, turns, told: Mutex::default() }))
    }

    /// What somebody with this token may.
    ///
    /// # Errors
    /// When nobody could be asked: then he may not, for now.
    pub async fn judge(&self, token: &str) -> Result<ReaderVerdict, ReaderError> {
        let digest = TokenDigest::of(token);
        if let Some(verdict) = self.known(digest) {
            return Ok(verdict);
        }
        let turn = timeout(TURN, self.0.turns.acquire()).await;
        let _turn = turn.map_err(|_| ReaderError::Busy)?.map_err(|_| ReaderError::Busy)?;
        // Somebody with the same token may have been before us.
        if let Some(verdict) = self.known(digest) {
            return Ok(verdict);
        }
        let verdict = self.review(token).await;
        self.tell(verdict.as_ref().err());
        let verdict = verdict.map_err(ReaderError::Review)?;
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).remember(digest, verdict, Instant::now());
        Ok(verdict)
    }

    fn known(&self, digest: TokenDigest) -> Option<ReaderVerdict> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).verdict(digest, Instant::now())
    }

    async fn review(&self, token: &str) -> Result<ReaderVerdict, ApiFailure> {
        let Some(who) = self.0.client.identify(token).await? else { return Ok(ReaderVerdict::Unknown) };
        let allowed = self.0.client.allows(&who, "get", "/metrics").await?;
        Ok(if allowed { ReaderVerdict::Allowed } else { ReaderVerdict::Forbidden })
    }

    fn tell(&self, failure: Option<&ApiFailure>) {
        let failure = failure.map(|failure| Chain(failure).to_string());
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failure.as_ref().filter(|_| *told != failure) {
            warn!(error, "nobody gets figures over the network: readers cannot be reviewed");
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

/// The verdicts that still count.
#[derive(Debug, Default)]
struct KnownTokens(BTreeMap<TokenDigest, (ReaderVerdict, Instant)>);

impl KnownTokens {
    fn verdict(&self, digest: TokenDigest, now: Instant) -> Option<ReaderVerdict> {
        let (verdict, since) = *self.0.get(&digest)?;
        (now.duration_since(since) < verdict.remembered_for()).then_some(verdict)
    }

    fn remember(&mut self, digest: TokenDigest, verdict: ReaderVerdict, now: Instant) {
        self.0.retain(|_, (verdict, since)| now.duration_since(*since) < verdict.remembered_for());
        let is_allowed = |verdict: ReaderVerdict| verdict == ReaderVerdict::Allowed;
        let same = self.0.iter().filter(|(_, (known, _))| is_allowed(*known) == is_allowed(verdict));
        let same: Vec<(Instant, TokenDigest)> = same.map(|(digest, (_, since))| (*since, *digest)).collect();
        if let Some((_, oldest)) = same.iter().min().filter(|_| same.len() >= MOST_REMEMBERED) {
            self.0.remove(oldest);
        }
        self.0.insert(digest, (verdict, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_counts_for_a_minute_and_a_no_for_ten_seconds() {
        let (now, mut known) = (Instant::now(), KnownTokens::default());
        let (reader, stranger) = (TokenDigest::of("reader"), TokenDigest::of("stranger"));
        known.remember(reader, ReaderVerdict::Allowed, now);
        known.remember(stranger, ReaderVerdict::Unknown, now);
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(known.verdict(stranger, after(9)), Some(ReaderVerdict::Unknown));
        assert_eq!(known.verdict(stranger, after(10)), None);
        assert_eq!(known.verdict(reader, after(59)), Some(ReaderVerdict::Allowed));
        assert_eq!(known.verdict(reader, after(60)), None);
        assert_eq!(known.verdict(TokenDigest::of("else"), now), None);
    }

    #[test]
    fn made_up_tokens_push_out_each_other_and_nobody_who_may_read() {
        let (now, mut known) = (Instant::now(), KnownTokens::default());
        known.remember(TokenDigest::of("reader"), ReaderVerdict::Allowed, now);
        let made_up = |number: usize| TokenDigest::of(&number.to_string());
        for number in 0..1000 {
            let later = now + Duration::from_micros(number as u64);
            known.remember(made_up(number), ReaderVerdict::Unknown, later);
        }
        assert_eq!(known.0.len(), 1 + MOST_REMEMBERED);
        let later = now + Duration::from_millis(1);
        assert_eq!(known.verdict(TokenDigest::of("reader"), later), Some(ReaderVerdict::Allowed));
        assert_eq!(known.verdict(made_up(999), later), Some(ReaderVerdict::Unknown));
        assert_eq!(known.verdict(made_up(0), later), None);
    }
}
