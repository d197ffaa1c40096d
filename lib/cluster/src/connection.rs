//! The connection: one HTTP/2 connection for everything, without a client-side rate limit, and without retries that a
//! pod would have to wait for. When a file with credentials is replaced, a new connection is made with the new
//! credentials.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hostler_api::Chain;
use http_body_util::Full;
use hyper::{
    Request, Response, Uri,
    body::{Bytes, Incoming},
    header::{AUTHORIZATION, HeaderValue},
    http,
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tracing::{info, warn};

use crate::{
    ApiPatience, CallError,
    credentials::{ActedUser, BearerToken, Credentials, CredentialsError, CredentialsSource},
};

/// A server that is there accepts within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Between looks at the files with credentials. They are replaced hours before what is in them expires.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Why there is no connection to make.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There are no credentials, or they cannot be used.
    #[error("failed to find credentials for the API server")]
    Credentials(#[source] CredentialsError),
    /// The name to check the server's certificate against is none.
    #[error("tls-server-name {name:?} of the kubeconfig is no host name")]
    ServerName {
        /// The name.
        name: String,
    },
}

/// Sends requests over the connection that the newest credentials give. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ApiConnector {
    source: Arc<CredentialsSource>,
    patience: ApiPatience,
    look_interval: Duration,
    latest: Arc<Mutex<ApiConnection>>,
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A connection with the credentials that it was made with.
#[derive(Debug)]
struct ApiConnection {
    credentials: Credentials,
    http: HttpClient,
    looked: Instant,
}

impl ApiConnection {
    fn new(source: &CredentialsSource, patience: ApiPatience) -> Result<Self, ConnectError> {
        Self::of(Credentials::find(source).map_err(ConnectError::Credentials)?, patience)
    }

    fn of(credentials: Credentials, patience: ApiPatience) -> Result<Self, ConnectError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut https = HttpsConnectorBuilder::new().with_tls_config(credentials.tls.clone()).https_or_http();
        if let Some(name) = &credentials.server_name {
            let server_name = name.clone().try_into().map_err(|_| ConnectError::ServerName { name: name.clone() })?;
            https = https.with_server_name_resolver(FixedServerNameResolver::new(server_name));
        }
        let http = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(patience.keep_alive)
            .http2_keep_alive_timeout(patience.sign_of_life)
            .http2_keep_alive_while_idle(true)
            .build(https.enable_all_versions().wrap_connector(http));
        Ok(Self { credentials, http, looked: Instant::now() })
    }
}

impl ApiConnector {
    /// Connects with the credentials of a kubeconfig, or of the pod.
    pub(crate) fn of(source: CredentialsSource, patience: ApiPatience) -> Result<Self, ConnectError> {
        Self::new(source, patience, LOOK_INTERVAL)
    }

    /// Connects with credentials that never change.
    pub(crate) fn with(credentials: Credentials, patience: ApiPatience) -> Result<Self, ConnectError> {
        let latest = Arc::new(Mutex::new(ApiConnection::of(credentials, patience)?));
        Ok(Self { source: Arc::default(), patience, look_interval: Duration::MAX, latest })
    }

    fn new(source: CredentialsSource, patience: ApiPatience, look_interval: Duration) -> Result<Self, ConnectError> {
        let latest = Arc::new(Mutex::new(ApiConnection::new(&source, patience)?));
        Ok(Self { source: Arc::new(source), patience, look_interval, latest })
    }

    /// Sends a request to the path that it names.
    pub(crate) async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Incoming>, CallError> {
        let (mut parts, body) = request.into_parts();
        let (http, server, token, acts_as) = self.newest();
        parts.uri = address(&server, &parts.uri)?;
        if let Some(header) = token.and_then(|token| token.header()) {
            parts.headers.insert(AUTHORIZATION, header);
        }
        if let Some(ActedUser { name, groups }) = acts_as {
            parts.headers.insert("impersonate-user", HeaderValue::try_from(name).map_err(http::Error::from)?);
            for group in groups {
                parts.headers.append("impersonate-group", HeaderValue::try_from(group).map_err(http::Error::from)?);
            }
        }
        Ok(http.request(Request::from_parts(parts, Full::from(body))).await?)
    }

    /// Returns the connection for a request, the server, and the token and the user that go with it. Requests that are
    /// under way stay on the old connection.
    fn newest(&self) -> (HttpClient, Uri, Option<BearerToken>, Option<ActedUser>) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.looked.elapsed() >= self.look_interval {
            latest.looked = Instant::now();
            // A few local files of a kilobyte, now and then: not worth a thread.
            if latest.credentials.are_outdated() {
                match ApiConnection::new(&self.source, self.patience) {
                    Ok(renewed) => {
                        info!("the credentials for the API server were replaced; connecting anew");
                        *latest = renewed;
                    }
                    // Half of a pair may be there already; the next look finds the other half.
                    Err(error) => {
                        warn!(error = %Chain(&error), "failed to read the new credentials; the last ones serve")
                    }
                }
            }
        }
        let Credentials { server, token, acts_as, .. } = &latest.credentials;
        (latest.http.clone(), server.clone(), token.clone(), acts_as.clone())
    }
}

/// Address of a path on a server, which may lie under a path itself.
fn address(server: &Uri, path: &Uri) -> http::Result<Uri> {
    let below = server.path().trim_end_matches('/');
    let mut address = Uri::builder().path_and_query(format!("{below}{path}"));
    if let (Some(scheme), Some(authority)) = (server.scheme_str(), server.authority()) {
        address = address.scheme(scheme).authority(authority.as_str());
    }
    address.build()
}

#[cfg(test)]
mod tests;
