//! Reads ResourceClaims from the API server, for those that have no record yet.
//!
//! A pod start waits for this: all claims of a request are asked for at once. A kubelet that is told no comes back after
//! one to one and a half minutes by default, so a server that is away for a moment is waited for.

use std::time::Duration;

use hostler_api::{
    Allocation, Chain, ClaimRef, ClaimUid,
    classic::ClassicVersion,
    resource::{AllocationError, ApiVersion, ResourceClaim},
};
use hostler_cluster::{ApiFailure, Backoff};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use super::{ClusterNode, claims_of, classic_claim, classic_claims_of};
use crate::{
    claims::{ReadClaims, ReadContinuation, ReadResult},
    metrics::Metrics,
    tasks::Tasks,
};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a claim may take to read, with all repeats.
#[derive(Clone, Copy)]
struct ReadPatience {
    /// While the server does not answer, or says "not now".
    away: Duration,
    /// While the server says that claims may not be read, as one that has just started does until it has its roles.
    forbidden: Duration,
}

impl ReadPatience {
    /// For a prepare, to which the kubelet gives 45 s: more than half of that is left to the devices.
    const PREPARE: Self = Self { away: Duration::from_secs(20), forbidden: Duration::from_secs(5) };
    /// For a question whose answer may be that the server is away.
    const QUESTION: Self = Self { away: Duration::from_secs(4), forbidden: Duration::ZERO };

    /// Returns the time for repeats after `failure`.
    fn after(self, failure: &ApiFailure) -> Duration {
        match failure.code() {
            Some(403) => self.forbidden,
            _ if failure.is_transient() => self.away,
            _ => Duration::ZERO,
        }
    }
}

/// Reads claims for one driver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClaimReader {
    cluster: ClusterNode,
    metrics: Metrics,
    tasks: Tasks,
}

/// Why the API server gave no allocation of a claim.
#[derive(Debug, thiserror::Error)]
pub enum ClaimReadError {
    /// The claim was deleted.
    #[error("there is no claim {name} in the API server: it was deleted")]
    Missing {
        /// `namespace/name`.
        name: String,
    },
    /// A claim of the same name was made since.
    #[error(
        "claim {name} has uid {found} in the API server, asked for is {wanted}: it was deleted and made anew; a pod that used the old one cannot start any more"
    )]
    OtherUid {
        /// `namespace/name`.
        name: String,
        /// In the API server.
        found: String,
        /// Asked for.
        wanted: ClaimUid,
    },
    /// The claim gives nothing to this driver, or something that is not valid.
    #[error("claim {name} cannot be used")]
    Allocation {
        /// `namespace/name`.
        name: String,
        /// The field.
        #[source]
        source: AllocationError,
    },
    /// The API server does not let this daemon read claims.
    #[error(
        "the API server lets this daemon read no claims: grant its user the verb get on resourceclaims of group resource.k8s.io (the ClusterRole in deploy/ does); a server that has just started says so too until it has read its roles, and the kubelet tries again"
    )]
    Forbidden(#[source] ApiFailure),
    /// The API server does not know who this daemon is.
    #[error("the API server does not accept the credentials of this daemon")]
    Unauthorized(#[source] ApiFailure),
    /// The API server cannot be reached, or cannot answer now.
    #[error(
        "the API server cannot be asked now; the kubelet tries again by itself, and claims that were prepared before are not affected"
    )]
    Unavailable(#[source] ApiFailure),
    /// The API server answered something else.
    #[error("the API server gave no usable answer")]
    Api(#[source] ApiFailure),
    /// The claim's name cannot be asked for.
    #[error("{0:?} is no name of a claim: use a-z, 0-9, '-' and '.'")]
    Name(String),
    /// The daemon stops.
    #[error("the daemon is stopping")]
    Stopping,
}

impl ClaimReader {
    /// Reads over `cluster`.
    pub fn new(cluster: ClusterNode, metrics: Metrics, tasks: &Tasks) -> Self {
        Self { cluster, metrics, tasks: tasks.clone() }
    }

    /// The claim called `namespace/name`, as the API server has it now.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn find(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ClaimReadError> {
        self.find_within(ReadPatience::QUESTION, namespace, name).await
    }

    async fn find_within(
        &self,
        patience: ReadPatience,
        namespace: &str,
        name: &str,
    ) -> Result<ResourceClaim, ClaimReadError> {
        for part in [namespace, name] {
            if !is_name(part) {
                return Err(ClaimReadError::Name(part.to_owned()));
            }
        }
        let full_name = format!("{namespace}/{name}");
        let stop = self.tasks.stop_token();
        let read = tokio::select! {
            // Reads only: it can be dropped anywhere.
            read = self.patiently(patience, namespace, name, &full_name) => read,
            // A new daemon may wait for the end of this one, and the kubelet asks that one.
            () = async { stop.cancelled().await; sleep(ReadPatience::QUESTION.away).await } => {
                return Err(ClaimReadError::Stopping);
            }
        };
        let read = read.map_err(|failure| explained(failure, full_name));
        self.cluster.claim_access().heard(&read);
        read
    }

    /// Why it cannot be said that the next claim can be read; nothing if it can.
    pub fn fault(&self) -> Option<String> {
        self.cluster.claim_access().fault()
    }

    async fn allocation(&self, claim: &ClaimRef) -> Result<Allocation, ClaimReadError> {
        let found = self.find_within(ReadPatience::PREPARE, &claim.namespace, &claim.name).await?;
        let name = claim.full_name();
        let invalid = |source| ClaimReadError::Allocation { name: claim.full_name(), source };
        let uid = found.claim().map_err(invalid)?.uid;
        if uid != claim.uid {
            return Err(ClaimReadError::OtherUid { name, found: uid.to_string(), wanted: claim.uid.clone() });
        }
        found.allocation(self.cluster.driver()).map_err(invalid)
    }

    /// Asks again for as long as `patience` allows.
    async fn patiently(
        &self,
        patience: ReadPatience,
        namespace: &str,
        name: &str,
        full_name: &str,
    ) -> Result<ResourceClaim, ApiFailure> {
        let began = Instant::now();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let failure = match timeout_at(began + patience.away, self.claim(namespace, name)).await {
                Ok(Ok(claim)) => return Ok(claim),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    let step = format!("get ResourceClaim {full_name}");
                    return Err(ApiFailure::TimedOut { step, after: patience.away });
                }
            };
            let pause = backoff.next_pause().max(failure.retry_after().unwrap_or_default());
            if began.elapsed() + pause >= patience.after(&failure) {
                return Err(failure);
            }
            debug!(claim.name = full_name, error = %Chain(&failure), "asking for the claim again");
            self.metrics.api_retried("claim");
            sleep(pause).await;
        }
    }

    /// One look at a claim, in whatever version the server has it.
    async fn claim(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiFailure> {
        match self.once(namespace, name).await {
            Err(ApiFailure::NoResourceApi) => self.classic_claim(namespace, name).await,
            answer => answer,
        }
    }

    /// A claim that a controller of ours allocated, as if the scheduler had.
    async fn classic_claim(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiFailure> {
        let client = self.cluster.client();
        let version = client.classic_version().await?;
        self.cluster.claim_access().needed(version == ClassicVersion::V1Alpha3);
        let found: Value = client.get(&classic_claims_of(version, namespace), name).await?;
        classic_claim::modern(version, found, self.cluster.driver())
            .map_err(|error| ApiFailure::unusable(format!("read ResourceClaim {namespace}/{name}"), Chain(&error)))
    }

    /// One look; a second one where the server no longer has the version of the API that it had.
    async fn once<T: DeserializeOwned>(&self, namespace: &str, name: &str) -> Result<T, ApiFailure> {
        let client = self.cluster.client();
        let get = async |version: ApiVersion| {
            self.cluster.claim_access().needed(true);
            client.get(&claims_of(version, namespace), name).await
        };
        match get(client.version().await?).await {
            Err(failure) if failure.is_unknown_resource() => {
                client.forget_version();
                get(client.version().await?).await
            }
            answer => answer,
        }
    }

    /// Reads the whole object once, for callers that can do without.
    pub(super) async fn glance(&self, namespace: &str, name: &str) -> Result<Value, ApiFailure> {
        if is_name(namespace) && is_name(name) {
            return self.once(namespace, name).await;
        }
        Err(ApiFailure::unusable("read a claim of a pod", format!("{namespace:?}/{name:?} is no name of a claim")))
    }

    /// The driver whose devices are of interest.
    pub(super) fn driver(&self) -> &str {
        self.cluster.driver()
    }

    pub(super) async fn read_all(&self, claims: &[ClaimRef]) -> Vec<ReadResult> {
        if let [claim] = claims {
            return vec![self.allocation(claim).await.map_err(Into::into)];
        }
        let asked: Vec<_> = claims
            .iter()
            .map(|claim| {
                let (reader, claim) = (self.clone(), claim.clone());
                self.tasks.job(async move { reader.allocation(&claim).await })
            })
            .collect();
        let mut read = Vec::with_capacity(asked.len());
        for answer in asked {
            read.push(answer.await.unwrap_or(Err(ClaimReadError::Stopping)).map_err(Into::into));
        }
        read
    }
}

impl ReadClaims for ClaimReader {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let reader = self.clone();
        self.tasks.job(async move {
            let read = reader.read_all(&claims).await;
            reader.tasks.blocking(move || then(read));
        });
    }
}

/// True for text that can be a name or a namespace; nothing in it has a meaning in a path.
pub(super) fn is_name(text: &str) -> bool {
    let ok = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&text.len()) && text.bytes().all(ok) && !text.starts_with('.')
}

/// Explains a failure for the claim.
fn explained(failure: ApiFailure, name: String) -> ClaimReadError {
    match failure.code() {
        Some(401) => ClaimReadError::Unauthorized(failure),
        Some(403) => ClaimReadError::Forbidden(failure),
        Some(404) if !failure.is_unknown_resource() => ClaimReadError::Missing { name },
        _ if failure.is_transient() => ClaimReadError::Unavailable(failure),
        _ => ClaimReadError::Api(failure),
    }
}
