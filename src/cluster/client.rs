//! The connection: one HTTP/2 connection for everything, without a client-side rate limit, and without retries that a
//! pod would have to wait for.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{BoxError, ServiceBuilder};

/// A server that is there accepts within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection whose other end is gone without a word is noticed after the sum of these.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no connection to make.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("failed to read kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: KubeconfigError,
    },
    /// The daemon does not run in a pod.
    #[error("no kubeconfig is configured and this is no pod with a service account: set cluster.kubeconfig")]
    InCluster(#[source] InClusterError),
    /// The credentials cannot be used.
    #[error("failed to use the credentials for the API server")]
    Credentials(#[source] Box<kube::Error>),
    /// The name to check the server's certificate against is none.
    #[error("tls-server-name {name:?} of the kubeconfig is no host name")]
    ServerName {
        /// The name.
        name: String,
    },
}

/// A client with the credentials of `kubeconfig`, or of the pod.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    // Rustls guesses which cryptography to use, and panics when a build has several. An error: somebody chose before us.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = match kubeconfig {
        Some(path) => read(path).await?,
        None => Config::incluster().map_err(ConnectError::InCluster)?,
    };
    let credentials = |error| ConnectError::Credentials(Box::new(error));
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config().map_err(credentials)?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let server = name.clone().try_into().map_err(|_| ConnectError::ServerName { name: name.clone() })?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(server));
    }
    let client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .build(https.enable_all_versions().wrap_connector(http));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(credentials)?)
        .layer(config.extra_headers_layer().map_err(credentials)?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace))
}

async fn read(path: &Path) -> Result<Config, ConnectError> {
    let fail = |source| ConnectError::Kubeconfig { path: path.to_owned(), source };
    let kubeconfig = Kubeconfig::read_from(path).map_err(fail)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(fail)
}
