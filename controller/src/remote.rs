//! Questions to a running controller, instead of a cluster: `--controller URL`, and the token that says who asks.

use std::path::PathBuf;

use hostler_cluster::{ApiFailure, BearerToken, ConnectError, CredentialsError, HttpService};
use serde::{Serialize, de::DeserializeOwned};

use crate::cluster_args::ClusterArgs;

/// The controller to ask, instead of the API server.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct RemoteArgs {
    /// Ask the controller at this address instead of the API server: https://HOST:PORT, or http on this machine
    #[arg(long, value_name = "URL", conflicts_with_all = ["kubeconfig", "context", "server"], group = "input")]
    controller: Option<String>,
    /// File with the token that says to the controller who asks, as the API server knows it
    #[arg(long, value_name = "FILE", requires = "controller", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

/// The reason why a controller gives no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// The address or a file cannot be used.
    #[error("failed to prepare for asking the controller")]
    Credentials(#[source] CredentialsError),
    /// There is no connection to make.
    #[error("failed to prepare for asking the controller")]
    Connect(#[source] ConnectError),
    /// The controller does not know who asks.
    #[error(
        "the controller does not know who asks; name a token that the API server knows: --token-file FILE or --token TOKEN"
    )]
    NoToken(#[source] ApiFailure),
    /// No certificate authority vouches for the controller.
    #[error("nothing vouches for {0}; name the file with its certificate: --certificate-authority FILE")]
    NoAuthority(String),
    /// The controller does not answer, or refuses.
    #[error("the controller gave no answer")]
    Call(#[source] ApiFailure),
    /// The question cannot be put into JSON.
    #[error("failed to put the question")]
    Question(#[source] serde_json::Error),
    /// The controller is of another version.
    #[error("the controller's answer cannot be read; it may be of another version")]
    Answer(#[source] serde_json::Error),
}

impl RemoteError {
    fn call(failure: ApiFailure) -> Self {
        if failure.code() == Some(401) { Self::NoToken(failure) } else { Self::Call(failure) }
    }
}

impl RemoteArgs {
    /// True if a controller is named.
    pub(crate) fn is_named(&self) -> bool {
        self.controller.is_some()
    }

    /// Returns the controller that is named. Needs a runtime around it.
    pub(crate) fn service(&self, access: &ClusterArgs) -> Result<HttpService, RemoteError> {
        let address = self.controller.as_deref().unwrap_or_default();
        let token = self.token_file.clone().map(BearerToken::of_file).or_else(|| access.token());
        let authority = access.certificate_authority();
        if address.starts_with("https:") && authority.is_none() {
            return Err(RemoteError::NoAuthority(address.to_owned()));
        }
        HttpService::new(address, token, authority).map_err(|error| match error {
            ConnectError::Credentials(error) => RemoteError::Credentials(error),
            other => RemoteError::Connect(other),
        })
    }
}

/// Asks a question in JSON.
pub(crate) async fn ask<T: DeserializeOwned>(
    service: &HttpService,
    path: &str,
    question: &impl Serialize,
) -> Result<T, RemoteError> {
    let question = serde_json::to_vec(question).map_err(RemoteError::Question)?;
    let answer = service.ask(path, question).await.map_err(RemoteError::call)?;
    serde_json::from_slice(&answer).map_err(RemoteError::Answer)
}

/// Asks for the document at a path.
pub(crate) async fn get<T: DeserializeOwned>(service: &HttpService, path: &str) -> Result<T, RemoteError> {
    let answer = service.get(path).await.map_err(RemoteError::call)?;
    serde_json::from_slice(&answer).map_err(RemoteError::Answer)
}
