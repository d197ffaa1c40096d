//! A start that says what is missing, in the cluster and in this program.

use std::io;

use hostler_cluster::{ApiClient, ApiFailure, ConnectError};
use tokio::runtime;

use crate::config::ControllerConfig;

/// What a controller is for. None of it is in this version; what is built goes from this list.
const LACKING: [&str; 5] =
    ["availability", "reservations", "provisioning requests", "classic DRA", "fabric attachment"];

/// Why the controller does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// No threads, no timers.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// There are no credentials.
    #[error("failed to prepare for talking to the API server")]
    Connect(#[source] ConnectError),
    /// The API server cannot be asked, or has nothing to work on.
    #[error("failed to find out what the cluster serves")]
    Cluster(#[source] ApiFailure),
    /// There is nothing to do.
    #[error(
        "the cluster serves {serves}, but this version of the controller has no {}: it reads its configuration, finds its API server, and ends here",
        LACKING.join(", no ")
    )]
    NothingToRun {
        /// The best version of the API that both sides speak.
        serves: String,
    },
}

/// Finds the API server, and ends with what is missing.
///
/// # Errors
/// Always, so far.
pub(crate) fn start(config: &ControllerConfig) -> Result<(), StartError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Runtime)?;
    let version = runtime.block_on(async {
        let client = ApiClient::new(config.kubeconfig.as_deref()).map_err(StartError::Connect)?;
        client.version().await.map_err(StartError::Cluster)
    })?;
    Err(StartError::NothingToRun { serves: version.group_version() })
}
