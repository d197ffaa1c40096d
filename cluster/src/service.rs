//! Asking a server of hostler's own that knows its visitors by their tokens for the API server: a controller.

use std::{fmt, path::Path, time::Duration};

use hyper::{Request, header::CONTENT_TYPE};
use kube::{Client, client::Body};

use crate::{
    ApiFailure, CallError, ConnectError,
    client::{succeeded, within},
    connection::connect_to,
    credentials::Credentials,
};

/// Whoever asks a hard question waits for its answer, and for those who asked before.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that is asked by people with a token.
#[derive(Clone)]
pub struct HttpService {
    client: Client,
    address: String,
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("address", &self.address).finish_non_exhaustive()
    }
}

impl HttpService {
    /// The server at an address, `https://HOST:PORT`; with a file that holds a token, and one that holds the certificates
    /// that vouch for the server. Does not connect.
    ///
    /// # Errors
    /// When the address is none, or a file cannot be used.
    pub fn new(address: &str, token: Option<&Path>, authority: Option<&Path>) -> Result<Self, ConnectError> {
        let credentials = Credentials::of_service(address, token, authority).map_err(ConnectError::Credentials)?;
        Ok(Self { client: connect_to(credentials)?, address: address.to_owned() })
    }

    /// What is there under a path.
    ///
    /// # Errors
    /// When no answer comes in time, or the server says no.
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, ApiFailure> {
        self.send(Request::get(path).body(Vec::new())).await
    }

    /// What the server says to a question in JSON.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn ask(&self, path: &str, question: Vec<u8>) -> Result<Vec<u8>, ApiFailure> {
        self.send(Request::post(path).header(CONTENT_TYPE, "application/json").body(question)).await
    }

    async fn send(&self, request: hyper::http::Result<Request<Vec<u8>>>) -> Result<Vec<u8>, ApiFailure> {
        let exchange = async {
            let request = request.map_err(|error| CallError::from(kube::Error::HttpError(error)))?;
            let body = succeeded(self.client.send(request.map(Body::from)).await?).await?;
            Ok(body.collect_bytes().await?.into())
        };
        within(ANSWER_TIMEOUT, || format!("ask {}", self.address), exchange).await
    }
}
