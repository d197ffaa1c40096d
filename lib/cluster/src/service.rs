//! Asking a server of hostler's own that knows its visitors by their tokens for the API server: a controller.

use std::{fmt, path::Path, time::Duration};

use http_body_util::BodyExt;
use hyper::{Request, header::CONTENT_TYPE, http};
use serde::Deserialize;

use crate::{
    ApiFailure, ApiPatience, CallError, ConnectError, StatusError,
    client::within,
    connection::ApiConnector,
    credentials::{BearerToken, Credentials},
};

/// A hard question takes its time, and that of the questions before it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that is asked by people with a token.
#[derive(Clone)]
pub struct HttpService {
    connector: ApiConnector,
    address: String,
}

/// Why a server says no: `{"error": {"code": "forbidden", "message": "…"}}`.
#[derive(Deserialize)]
struct ServiceProblem {
    error: ServiceWords,
}

#[derive(Deserialize)]
struct ServiceWords {
    message: String,
}

/// Reads a refusal. A proxy before the server has words of its own.
fn refusal(code: u16, body: &[u8]) -> StatusError {
    let said: Result<ServiceProblem, _> = serde_json::from_slice(body);
    let message = said.map_or_else(|_| String::from_utf8_lossy(body).trim().to_owned(), |said| said.error.message);
    StatusError { code, message, ..StatusError::default() }
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("address", &self.address).finish_non_exhaustive()
    }
}

impl HttpService {
    /// Makes the client of the server at an address, `https://HOST:PORT`; with the token of the caller, and a file that
    /// holds the certificates that vouch for the server. Does not connect.
    ///
    /// # Errors
    /// When the address is none, or a file cannot be used.
    pub fn new(address: &str, token: Option<BearerToken>, authority: Option<&Path>) -> Result<Self, ConnectError> {
        let credentials = Credentials::of_server(address, token, authority).map_err(ConnectError::Credentials)?;
        let connector = ApiConnector::with(credentials, ApiPatience::PROMPT)?;
        Ok(Self { connector, address: address.to_owned() })
    }

    /// Reads what is there under a path.
    ///
    /// # Errors
    /// When no answer comes in time, or the server says no.
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, ApiFailure> {
        self.send(Request::get(path).body(Vec::new())).await
    }

    /// Asks a question in JSON.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn ask(&self, path: &str, question: Vec<u8>) -> Result<Vec<u8>, ApiFailure> {
        self.send(Request::post(path).header(CONTENT_TYPE, "application/json").body(question)).await
    }

    async fn send(&self, request: http::Result<Request<Vec<u8>>>) -> Result<Vec<u8>, ApiFailure> {
        let exchange = async {
            let answer = self.connector.send(request?).await?;
            let code = answer.status();
            let body = answer.into_body().collect().await?.to_bytes();
            if code.is_success() { Ok(body.into()) } else { Err(CallError::Status(refusal(code.as_u16(), &body))) }
        };
        within(ANSWER_TIMEOUT, || format!("ask {}", self.address), exchange).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_whoever_refuses() {
        let said = refusal(403, br#"{"error": {"code": "forbidden", "message": "ann may not list nodes"}}"#);
        assert_eq!((said.code, &*said.message), (403, "ann may not list nodes"));
        assert_eq!(refusal(502, b"bad gateway\n").message, "bad gateway");
    }

    #[tokio::test]
    async fn a_token_is_not_sent_where_others_can_read_it() {
        let token = tempfile::NamedTempFile::new().unwrap();
        let token = BearerToken::of_file(token.path().to_owned());
        let service = |address: &str| HttpService::new(address, Some(token.clone()), None).map(drop);
        assert!(service("http://127.0.0.1:9440").is_ok() && service("http://[::1]:9440").is_ok());
        for address in ["http://192.0.2.1:9440", "https://controller", "controller:9440", "ftp://127.0.0.1"] {
            assert!(service(address).is_err(), "{address}");
        }
    }
}
