//! The edge to the Kubernetes API server: reads claims, publishes ResourceSlices, writes back what became of claims.
//!
//! ```text
//!   inventory (watch) ──► slices (pure) ──► plan (pure) ──► publisher ──► ResourceSlices
//!   claims task ──ReadClaims──► claim_reader ──► ResourceClaims
//! ```
//!
//! The only place that knows `kube`. Nothing here waits for the API server where the daemon could go on without it: a
//! daemon without one starts, takes back, and prepares again what it has on record.

pub mod claim_reader;
pub mod claim_status;
mod client;
mod credentials;
pub mod events;
mod failure;
pub mod features;
pub mod observe;
pub mod plan;
pub mod publisher;
pub mod slices;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use hostler_api::resource::{ApiVersion, GROUP, ResourceSliceSpec};
use kube::{
    Client,
    core::{ApiResource, NotUsed, Object},
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::timeout};

pub use client::ConnectError;
pub use credentials::CredentialsError;
pub use failure::{ApiFailure, CallError};

/// A call of which nobody knows better fails after this time. Far below the kubelet's 45 s for a prepare, which makes
/// several.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Where and as whom the daemon talks to the API server.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Kubeconfig file; `None`: the service account of the pod that the daemon runs in.
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Name of the driver.
    pub driver: String,
    /// Name of the node.
    pub node: String,
}

/// A ResourceSlice, as it is read.
pub type ResourceSlice = Object<ResourceSliceSpec, NotUsed>;

/// What `kube` must know of a kind of the group.
fn resource(version: ApiVersion, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: version.as_str().to_owned(),
        api_version: version.group_version(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Where the claims of a namespace are.
fn claims_path(version: ApiVersion, namespace: &str) -> String {
    format!("/apis/{}/namespaces/{namespace}/resourceclaims", version.group_version())
}

/// The API server, as this daemon sees it. Cheap to clone; all clones share one connection.
#[derive(Clone)]
pub struct Cluster(Arc<Parts>);

struct Parts {
    client: Client,
    settings: ClusterSettings,
    /// The version that the server was last found to have.
    version_tx: watch::Sender<Option<ApiVersion>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Reads credentials. Does not connect: the server may come later.
    ///
    /// # Errors
    /// When there are no credentials, or they cannot be used.
    pub fn new(settings: ClusterSettings) -> Result<Self, ConnectError> {
        let client = client::connect(settings.kubeconfig.as_deref())?;
        Ok(Self(Arc::new(Parts { client, settings, version_tx: watch::Sender::new(None) })))
    }

    /// For calls.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Name of the driver.
    pub fn driver(&self) -> &str {
        &self.0.settings.driver
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.0.settings.node
    }

    /// Runs a call and gives up after [`CALL_TIMEOUT`].
    ///
    /// # Errors
    /// When it fails or takes too long.
    pub async fn call<T>(
        &self,
        step: impl Into<String>,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiFailure> {
        match timeout(CALL_TIMEOUT, call).await {
            Ok(result) => result.map_err(|source| ApiFailure::Call { step: step.into(), source: source.into() }),
            Err(_) => Err(ApiFailure::TimedOut { step: step.into(), after: CALL_TIMEOUT }),
        }
    }

    /// As [`call`](Self::call), for a request whose answer is read as `T`. The client could do that, but logs whatever it
    /// cannot read, with parameters that are nobody's business.
    ///
    /// # Errors
    /// When the request cannot be made, fails, takes too long, or the answer has another shape.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        step: impl Into<String>,
        request: Result<hyper::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, ApiFailure> {
        let fetch = async {
            let text = self.0.client.request_text(request.map_err(kube::Error::BuildRequest)?).await?;
            serde_json::from_str(&text).map_err(kube::Error::SerdeError)
        };
        self.call(step, fetch).await
    }

    /// The best version of `resource.k8s.io` that both sides speak. Asks the server once.
    ///
    /// # Errors
    /// When the server does not answer, or has none.
    pub async fn version(&self) -> Result<ApiVersion, ApiFailure> {
        if let Some(version) = *self.0.version_tx.borrow() {
            return Ok(version);
        }
        let groups = self.call("list the API groups", self.0.client.list_api_groups()).await?;
        let offered = groups.groups.into_iter().find(|group| group.name == GROUP).ok_or(ApiFailure::NoResourceApi)?;
        let is_offered = |version: &ApiVersion| offered.versions.iter().any(|one| one.version == version.as_str());
        let version = ApiVersion::ALL.into_iter().find(is_offered).ok_or(ApiFailure::NoResourceApi)?;
        self.0.version_tx.send_replace(Some(version));
        Ok(version)
    }

    /// Has [`version`](Self::version) ask again: the server was upgraded, or downgraded, if it does not know ours.
    pub fn forget_version(&self) {
        self.0.version_tx.send_replace(None);
    }
}
