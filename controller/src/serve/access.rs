//! Visitors and their rights: the API server reviews the token, and each right. No answer is kept for longer than
//! [`COUNTS_FOR`].

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use hostler_cluster::{ApiClient, ApiFailure, AskedDeed, TokenReviews, TokenVerdict, bearer_token};
use serde::Serialize;

use super::{problem::ApiProblem, read_right::ReadRight};

/// The time after which a visitor has surely lost a right, or a token, that was taken away. Clients ask every few
/// seconds at most, so a visitor costs the API server five questions in that time.
pub(crate) const COUNTS_FOR: Duration = Duration::from_secs(8);

/// A client that the API server knows, and its rights.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Visitor {
    /// The user's name, in the API server's words.
    pub(crate) user: String,
    /// True if the visitor may see nodes and sums.
    pub(crate) nodes: bool,
    /// True if the visitor may see who holds what.
    pub(crate) holders: bool,
    /// True if the visitor may ask what would fit.
    pub(crate) fits: bool,
    /// True if the visitor may see for whom devices are held.
    pub(crate) reservations: bool,
    /// True if the visitor may see devices behind switches.
    pub(crate) fabric: bool,
}

impl Visitor {
    /// Checks that the visitor has a right; if not, the error names the right.
    pub(crate) fn must(&self, right: ReadRight) -> Result<(), ApiProblem> {
        let has = match right {
            ReadRight::Nodes => self.nodes,
            ReadRight::Holders => self.holders,
            ReadRight::Fits => self.fits,
            ReadRight::Reservations => self.reservations,
            ReadRight::Fabric => self.fabric,
        };
        if has { Ok(()) } else { Err(ApiProblem::Forbidden { user: self.user.clone(), right }) }
    }
}

/// A visitor; `None` if the token is not valid.
type VisitorVerdict = Option<Arc<Visitor>>;

/// A verdict as it is remembered.
#[derive(Clone, Debug)]
struct KnownVisitor(VisitorVerdict);

impl TokenVerdict for KnownVisitor {
    fn is_yes(&self) -> bool {
        self.0.is_some()
    }

    fn counts_for(&self) -> Duration {
        COUNTS_FOR
    }
}

/// Looks up visitors by their tokens. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AccessGuard {
    client: ApiClient,
    reviews: Arc<TokenReviews<KnownVisitor>>,
}

impl AccessGuard {
    /// Makes the guard that asks the API server through `client`.
    pub(crate) fn new(client: ApiClient) -> Self {
        Self { client, reviews: Arc::default() }
    }

    /// Returns the visitor with this token, as of a few seconds ago at most.
    pub(crate) async fn owner(&self, token: &str) -> Result<Arc<Visitor>, ApiProblem> {
        let KnownVisitor(verdict) = self.reviews.judge(token, async || self.review(token).await).await?;
        verdict.ok_or(ApiProblem::UnknownToken)
    }

    async fn review(&self, token: &str) -> Result<KnownVisitor, ApiFailure> {
        let Some(who) = self.client.identify(token).await? else { return Ok(KnownVisitor(None)) };
        let may = |right: ReadRight| {
            let (group, resource) = right.collection();
            self.client.allows(&who, AskedDeed::Everywhere { verb: "list", group, resource })
        };
        let (nodes, holders, fits, reservations, fabric) = tokio::try_join!(
            may(ReadRight::Nodes),
            may(ReadRight::Holders),
            may(ReadRight::Fits),
            may(ReadRight::Reservations),
            may(ReadRight::Fabric)
        )?;
        let visitor = Visitor { user: who.username.clone(), nodes, holders, fits, reservations, fabric };
        Ok(KnownVisitor(Some(Arc::new(visitor))))
    }
}

/// Returns the token of a request, if there is one in a valid form.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    bearer_token(headers.get(AUTHORIZATION)?.to_str().ok()?)
}
