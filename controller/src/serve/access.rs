//! Who asks, and what he may see: his token is reviewed by the API server, and so is each right. Nothing of it is kept for
//! longer than [`COUNTS_FOR`].

use std::{fmt, sync::Arc, time::Duration};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use hostler_api::{hardware, reservation::RESERVATIONS};
use hostler_cluster::{ApiClient, ApiFailure, AskedDeed, TokenReviews, TokenVerdict, bearer_token};
use serde::Serialize;

use super::problem::ApiProblem;

/// Whoever loses a right, or his token, has lost it here after this time. Clients ask every few seconds at most, so that one
/// costs the API server five questions in that time.
pub(crate) const COUNTS_FOR: Duration = Duration::from_secs(8);

/// Something that one may read or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReadRight {
    /// Nodes and sums.
    Nodes,
    /// Who holds what: names of claims, pods and namespaces.
    Holders,
    /// What would fit.
    Fits,
    /// For whom devices are held.
    Reservations,
}

impl ReadRight {
    /// Whoever may list these in all namespaces, may.
    fn collection(self) -> (&'static str, &'static str) {
        match self {
            Self::Nodes => (hardware::GROUP, hardware::NODE_HARDWARE),
            Self::Holders => (hostler_api::resource::GROUP, "resourceclaims"),
            Self::Fits => (hostler_api::resource::GROUP, "resourceslices"),
            Self::Reservations => (hardware::GROUP, RESERVATIONS),
        }
    }
}

impl fmt::Display for ReadRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, resource) = self.collection();
        write!(f, "list {resource}.{group}")
    }
}

/// Somebody whom the API server knows, and what he may.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Visitor {
    /// Who it is, in the API server's words.
    pub(crate) user: String,
    /// Whether he may see nodes and sums.
    pub(crate) nodes: bool,
    /// Whether he may see who holds what.
    pub(crate) holders: bool,
    /// Whether he may ask what would fit.
    pub(crate) fits: bool,
    /// Whether he may see for whom devices are held.
    pub(crate) reservations: bool,
}

impl Visitor {
    /// Whether he has a right; if not, an answer that says which.
    pub(crate) fn must(&self, right: ReadRight) -> Result<(), ApiProblem> {
        let has = match right {
            ReadRight::Nodes => self.nodes,
            ReadRight::Holders => self.holders,
            ReadRight::Fits => self.fits,
            ReadRight::Reservations => self.reservations,
        };
        if has { Ok(()) } else { Err(ApiProblem::Forbidden { user: self.user.clone(), right }) }
    }
}

/// A visitor; nobody, if the token is nobody's.
type VisitorVerdict = Option<Arc<Visitor>>;

/// As it is remembered.
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

/// Knows visitors by their tokens. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AccessGuard {
    client: ApiClient,
    reviews: Arc<TokenReviews<KnownVisitor>>,
}

impl AccessGuard {
    /// Asks the API server behind `client`.
    pub(crate) fn new(client: ApiClient) -> Self {
        Self { client, reviews: Arc::default() }
    }

    /// Whose token this is, as of a few seconds ago at most.
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
        let (nodes, holders, fits, reservations) = tokio::try_join!(
            may(ReadRight::Nodes),
            may(ReadRight::Holders),
            may(ReadRight::Fits),
            may(ReadRight::Reservations)
        )?;
        Ok(KnownVisitor(Some(Arc::new(Visitor { user: who.username.clone(), nodes, holders, fits, reservations }))))
    }
}

/// The token, if there is one that could be one.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    bearer_token(headers.get(AUTHORIZATION)?.to_str().ok()?)
}
