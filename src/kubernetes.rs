//! The node's edge to the Kubernetes API server: reads claims, publishes ResourceSlices, writes back what became of claims.
//!
//! ```text
//!   inventory (watch) ──► slices (pure) ──► hostler_reconcile::slices::plan (pure) ──► publisher ──► ResourceSlices
//!   claims task ──ReadClaims──► claim_reader ──► ResourceClaims; those of 1.26 to 1.31 through classic_claim
//!   Pods of this node ──► pods ──┬► whoever joins claims with pods
//!                                └► read_ahead, between the claims task and claim_reader
//!   inventory, claims ──► hardware ──► NodeHardware; what its spec says is held ──► holds ──► publisher, hardware
//!   inventory, claims ──► topology ──► NodeResourceTopology
//!   FabricAttachments of this node, inventory, claims ──► fabric ──► their status; the node's own devices ──► publisher, hardware,
//!                                                             │         topology
//!                                                             └──► orders to the claims task
//!   every claim that is read ──► claim_access ──► readiness, hardware
//!   figures (admin) ──► readers ──► TokenReview, SubjectAccessReview
//! ```
//!
//! The connection itself is `hostler_cluster`'s. Nothing here waits for the API server where the daemon could go on without
//! it: a daemon without one starts, takes back, and prepares again what it has on record.

pub mod claim_access;
pub mod claim_reader;
pub mod claim_status;
mod classic_claim;
pub mod events;
pub mod fabric;
pub mod hardware;
pub mod holds;
pub mod observe;
pub mod pods;
pub mod publisher;
pub mod read_ahead;
pub mod readers;
pub mod slices;
pub mod topology;

use std::{future::pending, sync::Arc};

use hostler_api::{
    classic::ClassicVersion,
    resource::{ApiVersion, GROUP, ResourceSliceSpec},
};
use hostler_cluster::{ApiClient, ApiObject, Collection};
use tokio::time::{Instant, sleep_until};

use self::claim_access::ClaimAccess;

/// A ResourceSlice, as it is read.
pub type ResourceSlice = ApiObject<ResourceSliceSpec>;

/// This node in its cluster: whom to call, and as which driver of which node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClusterNode {
    client: ApiClient,
    driver: Arc<str>,
    node: Arc<str>,
    claim_access: ClaimAccess,
}

impl ClusterNode {
    /// Calls over `client`.
    pub fn new(client: ApiClient, driver: &str, node: &str) -> Self {
        Self { client, driver: driver.into(), node: node.into(), claim_access: ClaimAccess::default() }
    }

    /// For calls.
    pub fn client(&self) -> &ApiClient {
        &self.client
    }

    /// Name of the driver.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The last word on whether claims can be read.
    fn claim_access(&self) -> &ClaimAccess {
        &self.claim_access
    }
}

/// The claims of a namespace.
fn claims_of(version: ApiVersion, namespace: &str) -> Collection {
    Collection::resource(version, "ResourceClaim", "resourceclaims").of(namespace)
}

/// As [`claims_of`], in a version of 1.26 to 1.31.
fn classic_claims_of(version: ClassicVersion, namespace: &str) -> Collection {
    Collection::custom(GROUP, version.as_str(), "ResourceClaim", "resourceclaims").of(namespace)
}

/// All slices.
fn slices_of(version: ApiVersion) -> Collection {
    Collection::resource(version, "ResourceSlice", "resourceslices")
}

/// Comes back at `due`; never without one.
async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}
