//! How long an API server may take.

use std::time::Duration;

/// How long one waits for an API server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ApiPatience {
    /// For an answer, or for the first word of one that has no end.
    pub(crate) answer: Duration,
    /// Between two questions whether the other end of a connection is there, used or not.
    pub(crate) keep_alive: Duration,
    /// For the answer to that. A connection on which none comes is given up, with all that is under way on it.
    pub(crate) sign_of_life: Duration,
}

impl ApiPatience {
    /// Patience of a caller for whose answer others wait: far below the kubelet's 45 s for a prepare, which makes
    /// several calls.
    pub const PROMPT: Self = Self::new(10, 15, 5);
    /// Patience of a caller that reads everything: the lists of a large cluster take a busy server many seconds, in
    /// which it may say nothing at all. Less would give up what is nearly there and begin again, for ever. A server
    /// ends a list itself after a minute.
    pub const BULK: Self = Self::new(60, 30, 30);

    const fn new(answer: u64, keep_alive: u64, sign_of_life: u64) -> Self {
        Self {
            answer: Duration::from_secs(answer),
            keep_alive: Duration::from_secs(keep_alive),
            sign_of_life: Duration::from_secs(sign_of_life),
        }
    }
}
