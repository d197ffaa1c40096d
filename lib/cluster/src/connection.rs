//! The connection: one HTTP/2 connection for everything, without a client-side rate limit, and without retries that a
//! pod would have to wait for. When a file with credentials is replaced, a new connection is made with what is in it now.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hostler_api::Chain;
use hyper::{Request, Response, body::Incoming, header::AUTHORIZATION};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, Error as HttpError, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client,
    client::{
        Body,
        middleware::{BaseUri, BaseUriLayer},
    },
};
use tower::{BoxError, Layer, Service};
use tracing::{info, warn};

use crate::{
    ApiPatience,
    credentials::{BearerToken, Credentials, CredentialsError, CredentialsSource},
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

/// A client with the credentials of `kubeconfig`, or of the pod.
pub(crate) fn connect(source: CredentialsSource, patience: ApiPatience) -> Result<Client, ConnectError> {
    Ok(Client::new(ApiConnector::new(source, patience, LOOK_INTERVAL)?, "default"))
}

/// A client with credentials that never change.
pub(crate) fn connect_to(credentials: Credentials, patience: ApiPatience) -> Result<Client, ConnectError> {
    let latest = Arc::new(Mutex::new(ApiConnection::of(credentials, patience)?));
    Ok(Client::new(
        ApiConnector { source: CredentialsSource::default(), patience, look_interval: Duration::MAX, latest },
        "default",
    ))
}

/// Sends requests over the connection that the newest credentials give. Cheap to clone.
#[derive(Clone, Debug)]
struct ApiConnector {
    source: CredentialsSource,
    patience: ApiPatience,
    look_interval: Duration,
    latest: Arc<Mutex<ApiConnection>>,
}

/// A connection with the credentials that it was made with.
#[derive(Debug)]
struct ApiConnection {
    credentials: Credentials,
    http: BaseUri<HttpClient<HttpsConnector<HttpConnector>, Body>>,
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
        let http = HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(patience.keep_alive)
            .http2_keep_alive_timeout(patience.sign_of_life)
            .http2_keep_alive_while_idle(true)
            .build(https.enable_all_versions().wrap_connector(http));
        let http = BaseUriLayer::new(credentials.server.clone()).layer(http);
        Ok(Self { credentials, http, looked: Instant::now() })
    }
}

impl ApiConnector {
    fn new(source: CredentialsSource, patience: ApiPatience, look_interval: Duration) -> Result<Self, ConnectError> {
        let latest = Arc::new(Mutex::new(ApiConnection::new(&source, patience)?));
        Ok(Self { source, patience, look_interval, latest })
    }

    /// The connection for a request, and the token that goes with it. Requests that are under way stay on the old one.
    fn newest(&self) -> (BaseUri<HttpClient<HttpsConnector<HttpConnector>, Body>>, Option<BearerToken>) {
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
        (latest.http.clone(), latest.credentials.token.clone())
    }
}

impl Service<Request<Body>> for ApiConnector {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    /// The HTTP client queues by itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (mut http, token) = self.newest();
        if let Some(header) = token.and_then(|token| token.header()) {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let answer = http.call(request);
        Box::pin(async move { answer.await.map_err(|error: HttpError| BoxError::from(error)) })
    }
}

#[cfg(test)]
mod tests;
