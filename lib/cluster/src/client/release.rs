//! The release of the server.

use serde::Deserialize;

use super::request;
use crate::{ApiClient, ApiFailure, release::minor_of};

/// The step that a failure names.
const ASK_VERSION: &str = "ask for the server's version";

/// Version info: the release of a server, as it says.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerRelease {
    minor: String,
    git_version: String,
}

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

    async fn server_version(&self) -> Result<ServerRelease, ApiFailure> {
        self.call(|| ASK_VERSION.to_owned(), request::get("/version")).await
    }
}
