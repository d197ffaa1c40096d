//! Readers of the figures. The API server is asked about each token, and its answer is remembered for a little while.

use std::{sync::Arc, time::Duration};

use super::{AskedDeed, ReviewError, TokenReviews, TokenVerdict};
use crate::{ApiClient, ApiFailure};

/// Scrapes come every 15 to 60 s: two questions to the API server a minute, and a reader that was shut out is gone as
/// soon.
const REMEMBER_ALLOWED: Duration = Duration::from_secs(60);
/// Short, since a role may be bound at any moment; long enough that a client that keeps trying costs the API server
/// little.
const REMEMBER_REFUSED: Duration = Duration::from_secs(10);

/// Right of a token's bearer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ReaderVerdict {
    /// The bearer may read.
    Allowed,
    /// The bearer may not read.
    Forbidden,
    /// No identity has the token.
    Unknown,
}

impl TokenVerdict for ReaderVerdict {
    fn is_yes(&self) -> bool {
        *self == Self::Allowed
    }

    fn counts_for(&self) -> Duration {
        if self.is_yes() { REMEMBER_ALLOWED } else { REMEMBER_REFUSED }
    }
}

/// Judges readers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FigureReaders {
    client: ApiClient,
    reviews: Arc<TokenReviews<ReaderVerdict>>,
}

impl FigureReaders {
    /// Judged by the API server behind `client`.
    pub fn new(client: ApiClient) -> Self {
        Self { client, reviews: Arc::default() }
    }

    /// Returns the right of the bearer of this token.
    ///
    /// # Errors
    /// When the API server could not be asked: then the bearer may not read, for now.
    pub async fn judge(&self, token: &str) -> Result<ReaderVerdict, ReviewError> {
        self.reviews.judge(token, async || self.review(token).await).await
    }

    async fn review(&self, token: &str) -> Result<ReaderVerdict, ApiFailure> {
        let Some(who) = self.client.identify(token).await? else { return Ok(ReaderVerdict::Unknown) };
        let figures = AskedDeed::Path { verb: "get", path: "/metrics" };
        let allowed = self.client.allows(&who, figures).await?;
        Ok(if allowed { ReaderVerdict::Allowed } else { ReaderVerdict::Forbidden })
    }
}
