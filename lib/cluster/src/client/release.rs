//! The release of the server.

use k8s_openapi::apimachinery::pkg::version::Info;

use super::within;
use crate::{ApiClient, ApiFailure, CallError, release::minor_of};

/// The step that a failure names.
const ASK_VERSION: &str = "ask for the server's version";

impl ApiClient {
    /// The minor release of the server: 36 for 1.36.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn minor_release(&self) -> Result<u32, ApiFailure> {
        let said = self.server_version().await?;
        let no_number = || format!("neither minor version {:?} nor {:?} has a number", said.minor, said.git_version);
        minor_of(&said.minor, &said.git_version)
            .ok_or_else(|| ApiFailure::unusable(ASK_VERSION.to_owned(), no_number()))
    }

    /// The release of the server with its patch, as it says it: `v1.36.2`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn full_release(&self) -> Result<String, ApiFailure> {
        self.server_version().await.map(|said| said.git_version)
    }

    async fn server_version(&self) -> Result<Info, ApiFailure> {
        let asking = async { self.client.apiserver_version().await.map_err(CallError::from) };
        within(self.patience.answer, || ASK_VERSION.to_owned(), asking).await
    }
}
