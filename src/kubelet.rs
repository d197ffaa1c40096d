//! The services that the kubelet calls: registration on one socket; DRA and health on another.
//!
//! ```text
//!   kubelet ──► plugins_registry/dra@<driver>-reg.sock ─► registration ─► "the service is at …" ─► watch<Registration>
//!      └──────► plugins/<driver>/dra@service.sock ───┬──► dra ──► claims task, once there is one
//!                                                    ├──► classic ──► dra: what kubelets of 1.26 to 1.31 call
//!                                                    └──► health ◄── inventory, claim table
//! ```
//!
//! The sockets may open before the claims are recovered, and before the lock is taken while one daemon hands over to
//! another: calls wait until they can be answered.
//!
//! Each start of a daemon has socket names of its own, in place of `dra`; both names have an `@`. The kubelet dials a
//! registration socket (and, before Kubernetes 1.34, the service socket) with the percent-encoded path as the HTTP/2
//! `:authority`. The HTTP stack refuses such a text as a host, before any of hostler's code sees the call; but
//! `%2F…%2Fdra@hostler.dev-reg.sock` is a valid authority: a user name, which is ignored, then a host. The text behind
//! the `@` must therefore look like a host name. Kubelets before 1.29 send the path as it is; [`mod@authority`]
//! replaces it.

mod authority;
mod classic;
mod connection;
mod dra;
mod handover;
mod health;
pub mod pod_resources;
mod registration;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hostler_proto::{
    dra_v1::dra_plugin_server::DraPluginServer as DraV1Server,
    dra_v1beta1::dra_plugin_server::DraPluginServer as DraV1Beta1Server,
    health_v1::dra_resource_health_server::DraResourceHealthServer as HealthV1Server,
    health_v1alpha1::dra_resource_health_server::DraResourceHealthServer as HealthV1Alpha1Server,
    registration::registration_server::RegistrationServer,
};
use tokio::{
    sync::{mpsc, watch},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{service::Routes, transport::Server};
use tracing::{info, warn};

pub use crate::config::{ClassicCalls, KubeletSocketPaths};
use crate::{
    claims::ClaimsHandle,
    config::sockets::{SERVICE_SUFFIX, SUCCESSOR_SUFFIX},
    descriptors::ServedSocket,
    inventory::InventoryReader,
    metrics::Metrics,
    socket::{self, ListeningSocket, SocketError},
    tasks::Tasks,
};
pub use connection::KubeletConnections;
pub use handover::{SuccessorSocket, hand_over};
pub use registration::{CLASSIC_VERSION, RegistrationState, SUPPORTED_VERSIONS};

/// Time that calls in flight may take after the stop. The kubelet waits no longer for any call.
const GRACE: Duration = Duration::from_secs(45);
/// Calls at once on one connection. A kubelet starts as many pods at once as a node has, 110 by default; further calls
/// wait in the kubelet, and cost nothing here.
const CALLS: u32 = 128;
/// Bytes of a call's request: thousands of claims, where a pod has a few.
const REQUEST_BYTES: usize = 1 << 20;
/// Bytes of a call that may be under way before they are read: a request of a pod fits in completely.
const STREAM_WINDOW: u32 = 16 << 10;
/// Bytes under way of all calls of a connection together.
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Bytes of a call's headers; a kubelet sends a few hundred.
const HEADER_BYTES: u32 = 8 << 10;
/// Time for the last answer to leave the process, and for callers to hang up.
const LINGER: Duration = Duration::from_millis(500);
/// Period of the search for sockets of killed daemons. The kubelet remembers and dials such a socket for ever.
const SWEEP: Duration = Duration::from_secs(30);

/// Both sockets, listening. Calls wait until [`serve`] runs.
#[derive(Debug)]
pub struct KubeletSockets {
    paths: KubeletSocketPaths,
    registration: ListeningSocket,
    service: ListeningSocket,
}

impl KubeletSockets {
    /// Removes what crashed daemons of this driver left, and listens: on the service first, since the kubelet comes as
    /// soon as it sees the registration socket.
    ///
    /// # Errors
    /// When a path is too long, another process listens on it, or the kernel refuses a step.
    pub async fn bind(config: &KubeletSocketPaths) -> Result<Self, SocketError> {
        remove_dead(config).await?;
        let service = ListeningSocket::bind(config.service_socket()).await?;
        let registration = ListeningSocket::bind(config.registration_socket()).await?;
        Ok(Self { paths: config.clone(), registration, service })
    }
}

/// Removes the sockets of daemons of this driver that were killed. This daemon's own sockets are not tried: a try is a
/// connection.
async fn remove_dead(config: &KubeletSocketPaths) -> Result<(), SocketError> {
    let of_others = |name: &str, suffix: &str| {
        KubeletSocketPaths::is_ours(name, suffix) && !name.starts_with(config.instance.as_str())
    };
    let registration = config.registration_suffix();
    socket::remove_dead(&config.registry_dir, |name| of_others(name, &registration)).await?;
    socket::remove_dead(&config.plugin_dir, |name| of_others(name, SERVICE_SUFFIX)).await?;
    socket::remove_dead(&config.plugin_dir, |name| of_others(name, SUCCESSOR_SUFFIX)).await
}

/// Removes dead sockets periodically: another daemon may be killed at any time, and none may be started for long.
async fn keep_tidy(config: KubeletSocketPaths, stop: CancellationToken) {
    let mut look = interval(SWEEP);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Cancel safe: a tick that was not taken is still due.
            _ = look.tick() => {
                // A socket that cannot be removed harms only the kubelet's list of plugins; the next start reports it.
                let _ = remove_dead(&config).await;
            }
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => return,
        }
    }
}

/// Parts of the services.
#[derive(Debug)]
pub struct KubeletParts {
    /// Name of the driver.
    pub driver: String,
    /// Name of the node.
    pub node: String,
    /// Calls of old kubelets that are answered.
    pub classic: ClassicCalls,
    /// The sockets that the kubelet calls.
    pub sockets: KubeletSockets,
    /// The claims task, as soon as the claims are recovered.
    pub claims_rx: watch::Receiver<Option<ClaimsHandle>>,
    /// Hardware of the node.
    pub inventory: InventoryReader,
    /// Gets the kubelet's answer to the registration.
    pub registration_tx: watch::Sender<RegistrationState>,
    /// Gets the number of connections to the service socket.
    pub connections_tx: watch::Sender<KubeletConnections>,
    /// Counters of refusals.
    pub metrics: Metrics,
    /// Runs the health streams; its stop token ends the services.
    pub tasks: Tasks,
}

/// Reason why the services ended before they were told to.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The service socket's path cannot be told to the kubelet.
    #[error("service socket path {path} is not UTF-8")]
    Endpoint {
        /// The path.
        path: PathBuf,
    },
    /// A relative path could not be made absolute.
    #[error("failed to make the service socket path {path} absolute")]
    Absolute {
        /// The path.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: std::io::Error,
    },
    /// The server on a socket failed.
    #[error("failed to serve {path}")]
    Serve {
        /// The socket.
        path: PathBuf,
        /// Error of the transport.
        #[source]
        source: tonic::transport::Error,
    },
}

/// Serves until the stop token fires. Then the registration socket goes, so that the kubelet sends nothing new; calls
/// in flight finish; the service socket goes.
///
/// # Errors
/// When a server fails; both sockets are then gone.
pub async fn serve(parts: KubeletParts) -> Result<(), KubeletError> {
    let KubeletParts { driver, node, classic, sockets, claims_rx, inventory, tasks, .. } = parts;
    let KubeletParts { registration_tx, connections_tx, metrics, .. } = parts;
    let endpoint = endpoint(sockets.service.path())?;
    let registration =
        registration::RegistrationService::new(&driver, endpoint, classic, registration_tx, connections_tx.clone());
    let calls = TaskTracker::new();
    tasks.job(keep_tidy(sockets.paths, tasks.stop_token()));
    let dra = dra::DraService::new(claims_rx.clone(), calls.clone(), metrics, tasks.stop_token());
    let health = health::HealthService::new(inventory, claims_rx, tasks.clone());
    let service = Routes::new(DraV1Server::new(dra.clone()).max_decoding_message_size(REQUEST_BYTES))
        .add_service(DraV1Beta1Server::new(dra.clone()).max_decoding_message_size(REQUEST_BYTES))
        .add_service(HealthV1Server::new(health.clone()))
        .add_service(HealthV1Alpha1Server::new(health));
    let service = classic::with_classic(service, classic::ClassicService::new(dra, &driver, &node, classic));
    let service_stop = CancellationToken::new();
    let registration = async {
        let routes = Routes::new(RegistrationServer::new(registration));
        // Its calls are answered from memory.
        let unwatched = (TaskTracker::new(), watch::Sender::default());
        let socket = (sockets.registration, ServedSocket::KubeletRegistration);
        let served = serve_socket(socket, routes, unwatched, tasks.stop_token()).await;
        service_stop.cancel();
        served
    };
    let socket = (sockets.service, ServedSocket::KubeletService);
    let service = serve_socket(socket, service, (calls, connections_tx), service_stop.clone());
    tokio::try_join!(registration, service).map(|((), ())| ())
}

/// Returns the absolute path, which the kubelet dials from a working folder of its own.
fn endpoint(path: &Path) -> Result<String, KubeletError> {
    let absolute =
        std::path::absolute(path).map_err(|source| KubeletError::Absolute { path: path.to_owned(), source })?;
    absolute.into_os_string().into_string().map_err(|path| KubeletError::Endpoint { path: path.into() })
}

/// Serves one socket until `stop` fires and the calls in flight have finished, or their time is over. A connection
/// without a call is not waited for.
async fn serve_socket(
    (socket, served): (ListeningSocket, ServedSocket),
    routes: Routes,
    (calls, count): (TaskTracker, watch::Sender<KubeletConnections>),
    stop: CancellationToken,
) -> Result<(), KubeletError> {
    let path = socket.path().to_owned();
    info!(path = %path.display(), "listening");
    let (connections_tx, connections_rx) = mpsc::channel(1);
    let connections = ReceiverStream::new(connections_rx).map(move |accepted: std::io::Result<_>| {
        accepted.map(|accepted| connection::CountedConnection::new(accepted, count.clone()))
    });
    let server = Server::builder()
        .max_concurrent_streams(CALLS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(HEADER_BYTES)
        .add_routes(routes)
        .serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
    let overtime = async {
        stop.cancelled().await;
        calls.close();
        if timeout(GRACE, calls.wait()).await.is_err() {
            warn!("gave up waiting for calls in flight");
        }
        sleep(LINGER).await;
    };
    let serving = async { tokio::join!(socket.accept(connections_tx, served.connections(), stop.clone()), server).1 };
    tokio::select! {
        // Not cancel safe, and dropped only when the calls are given up.
        served = serving => served.map_err(|source| KubeletError::Serve { path, source }),
        // Cancel safe: it only waits.
        () = overtime => Ok(()),
    }
}

#[cfg(test)]
mod tests;
