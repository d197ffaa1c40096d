//! Limit for calls: a token bucket over all clients, as in the kubelet.

use std::time::{Duration, Instant};

/// Tokens, of which each call takes one.
#[derive(Debug)]
pub(super) struct TokenBucket {
    /// Number of tokens that come in a second.
    rate: f64,
    /// Largest number of tokens.
    burst: f64,
    tokens: f64,
    since: Instant,
}

impl TokenBucket {
    /// A full bucket, for `rate` calls a second in the long run and `burst` at once.
    pub(super) fn full(rate: u32, burst: u32, now: Instant) -> Self {
        Self { rate: rate.into(), burst: burst.into(), tokens: burst.into(), since: now }
    }

    /// Takes a token, or returns the time until there is one.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.since);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate).min(self.burst);
        self.since = self.since.max(now);
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / self.rate));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_calls_at_once_are_answered_and_then_one_every_ten_milliseconds() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(100, 10, start);
        let answered = |bucket: &mut TokenBucket, now| (0..100).filter(|_| bucket.take(now).is_ok()).count();
        assert_eq!(answered(&mut bucket, start), 10);
        let wait = bucket.take(start).unwrap_err();
        assert!((9..=10).contains(&wait.as_millis()), "{wait:?}");
        assert_eq!(answered(&mut bucket, start + Duration::from_millis(9)), 0);
        assert_eq!(answered(&mut bucket, start + Duration::from_millis(31)), 3);
        assert_eq!(answered(&mut bucket, start + Duration::from_secs(3600)), 10, "no more than ten are saved up");
        assert_eq!(answered(&mut bucket, start), 0, "a clock that goes back gives nothing");
    }
}
