//! Unallocated claims over the admin socket: what they would be given, and making them.

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
};
use hostler_api::resource::{AllocationResult, ResourceClaim};

use super::{
    AdminFailure, AdminService,
    claims::{CreateQuery, results, with_notes},
    types::{AdminClaim, ClaimFit, UnallocatedClaim},
};
use crate::{
    offer::{FitError, NodeOffer},
    standalone::rounded_requests,
};

/// Returns what would fit now. In a cluster too, where other claims may have been given devices here that no pod uses
/// yet.
pub(super) async fn fit(
    State(admin): State<AdminService>,
    Json(asked): Json<UnallocatedClaim>,
) -> Result<Json<ClaimFit>, AdminFailure> {
    admin.fits(asked).await.map(Json)
}

/// Allocates a claim, makes a manifest of it and prepares it. If that fails, the manifest goes again.
pub(super) async fn create(
    State(admin): State<AdminService>,
    Query(CreateQuery { dry_run }): Query<CreateQuery>,
    Json(mut asked): Json<UnallocatedClaim>,
) -> Result<(StatusCode, Json<AdminClaim>), AdminFailure> {
    admin.has_manifests("create it with kubectl; the scheduler allocates it and the kubelet asks for it")?;
    // A UID that stands in the file is that of the claim or template which it was made of, and may be in use.
    asked.claim.metadata.uid = Some(uuid::Uuid::new_v4().to_string());
    // The next caller that chooses has to see the choice made here.
    let turn = match &admin.0.manifests {
        Some(manifests) => manifests.turn_to_choose().await,
        None => None,
    };
    let promised = admin.promised().await?;
    let mut claim = asked.claim.clone();
    claim.status.allocation =
        Some(admin.offer(promised, move |offer| offer.allocate(&asked)).await?.map_err(|error| failure(&error))?);
    let notes = rounded_requests(&claim, results(&claim));
    if dry_run {
        return admin.rehearse(claim).await.map(|made| with_notes(made, notes));
    }
    let added = admin.add(claim).await?;
    drop(turn);
    admin.prepare_added(added).await.map(|made| with_notes(made, notes))
}

fn failure(error: &FitError) -> AdminFailure {
    let status = match error {
        FitError::Allocated | FitError::Empty => StatusCode::BAD_REQUEST,
        FitError::Refused(_) => StatusCode::CONFLICT,
        FitError::Classes(_) | FitError::Gather(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    AdminFailure::new(status, error)
}

impl AdminService {
    /// Asks the allocator how often the claim would fit now.
    pub(super) async fn fits(&self, asked: UnallocatedClaim) -> Result<ClaimFit, AdminFailure> {
        let promised = match self.0.manifests {
            Some(_) => self.promised().await?,
            None => Vec::new(),
        };
        let answer = self.offer(promised, move |offer| offer.fit(&asked)).await?;
        answer.map_err(|error| failure(&error))
    }

    /// Allocations of manifests that are not prepared yet: their operator means to have them.
    async fn promised(&self) -> Result<Vec<AllocationResult>, AdminFailure> {
        let table = self.0.claims.table().borrow().clone();
        let waiting = move |claim: &ResourceClaim| {
            !table.claims.keys().any(|uid| claim.metadata.uid.as_deref() == Some(uid.as_str()))
        };
        self.manifests(move |manifests| {
            // A manifest that cannot be read promises nothing.
            let claims = manifests.all()?.into_iter().flatten().map(|found| found.manifest);
            Ok(claims.filter(waiting).filter_map(|claim| claim.status.allocation).collect())
        })
        .await
    }

    /// Asks for the offer of this host. A search may take a second, and no other caller waits for it.
    async fn offer<T: Send + 'static>(
        &self,
        promised: Vec<AllocationResult>,
        ask: impl FnOnce(&NodeOffer) -> T + Send + 'static,
    ) -> Result<T, AdminFailure> {
        let (admin, table) = (self.0.clone(), self.0.claims.table().borrow().clone());
        let inventory = admin.own.latest();
        let look = move || {
            let offer = NodeOffer::new(&admin.node, &admin.slices, &inventory, &table);
            ask(&offer.and_promised(&promised))
        };
        let done = self.0.tasks.looking(look).await;
        done.map_err(|error| AdminFailure::new(StatusCode::INTERNAL_SERVER_ERROR, &error))
    }
}
