//! The connection: one HTTP/2 connection for everything, without a client-side rate limit, and without retries that a
//! pod would have to wait for.

use std::{path::Path, time::Duration};

use hyper::header::AUTHORIZATION;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client,
    client::{Body, middleware::BaseUriLayer},
};
use tower::{BoxError, ServiceBuilder};

use super::credentials::{Credentials, CredentialsError};

/// A server that is there accepts within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection whose other end is gone without a word is noticed after the sum of these, whether it is used or not.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

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
pub(super) fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let Credentials { server, tls, server_name, token } =
        Credentials::find(kubeconfig).map_err(ConnectError::Credentials)?;
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = server_name {
        let name = name.clone().try_into().map_err(|_| ConnectError::ServerName { name })?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .build(https.enable_all_versions().wrap_connector(http));
    let service = ServiceBuilder::new()
        .layer(BaseUriLayer::new(server))
        .map_request(move |mut request: hyper::Request<Body>| {
            if let Some(header) = token.as_ref().and_then(|token| token.header()) {
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            request
        })
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, "default"))
}
